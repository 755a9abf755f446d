"""Tables of leases that the next keeper cannot take up. No holder goes on under a lease that no keeper renews."""
import os
import signal
import struct

import pytest
from harness import wait_until
from jobs import state
from keepers import opened

SHORT = "ttl_ms = 4000;"
VERSION, BOOT_END, SUM = 8, 72, 72 # of struct table_head
U64 = (1 << 64) - 1


def head_sum(head):
    """table_head_sum()"""
    value = 14695981039346656037
    for byte in head[:BOOT_END]:
        value = (value ^ byte) * 1099511628211 & U64
    return value


def change(host, how):
    """Writes to the table. No keeper of this host runs."""
    with open(os.path.join(host.runtime, "leases"), "r+b") as f:
        head = bytearray(f.read(4096))
        assert struct.unpack_from("=Q", head, SUM)[0] == head_sum(head)
        if how == "version":
            struct.pack_into("=I", head, VERSION, 2)
            struct.pack_into("=Q", head, SUM, head_sum(head))
        else:
            head = bytes(len(head))
        f.seek(0)
        f.write(head)


@pytest.fixture
def two(make_host):
    return make_host("b", lease=SHORT), make_host("a", lease=SHORT, foreground=False)


def test_of_another_version(two):
    """As after an upgrade in which the keeper was killed: what its callers were told stands until their pins end."""
    b, a = two
    holder, bystander, other = opened(a), opened(a), opened(b)
    assert holder.do("flock 0 ex") == "ok"
    wait_until(a.kill_keeper, "parent and keeper have ended")
    change(a, "version")
    assert opened(a, "h").do("flock 0 ex") == "ok" # the next keeper serves
    assert holder.process.wait(20) == -signal.SIGKILL
    assert bystander.process.poll() is None # it has the file open, and no lock
    assert os.path.exists(os.path.join(a.runtime, "leases.bad"))
    assert other.do("flock 0 ex", 30) == "ok"


def make_fence(host):
    """The host's table of leases as the file that a keeper of dflock 0.1 would have left. No keeper of it runs."""
    with open(os.path.join(host.runtime, "leases"), "rb") as f:
        table = f.read()
    head_bytes, slot_bytes = struct.unpack_from("=II", table, 12)
    fence = bytearray(98416)
    struct.pack_into("=8s40s", fence, 0, b"dlfence5", table[32:72])
    struct.pack_into("=qqI", fence, 64, *struct.unpack_from("=qq", table, 96), (len(table) - head_bytes) // slot_bytes)
    for at in range(head_bytes, len(table), slot_bytes):
        word, *file = struct.unpack_from("=QQQQQ", table, at)
        fence += struct.pack("=IIIIQQQQqqII", word & 0xff == 2, 0, 0, 0, *file, 0, 2**63 - 1, table[at + 40], 0)
    with open(os.path.join(host.runtime, "fence"), "wb", opener=lambda p, flags: os.open(p, flags, 0o600)) as f:
        f.write(fence)
    os.remove(os.path.join(host.runtime, "leases"))
    os.remove(os.path.join(host.runtime, "leases.text"))


def test_of_0_1(two):
    """A keeper of dflock 0.1 was killed. Before, the next keeper ignored what it had, and the holder went on beside another host's."""
    b, a = two
    holder, bystander, other = opened(a), opened(a), opened(b)
    assert holder.do("flock 0 ex") == "ok"
    wait_until(a.kill_keeper, "parent and keeper have ended")
    make_fence(a)
    assert opened(a, "h").do("flock 0 ex") == "ok" # the next keeper serves
    assert holder.process.wait(20) == -signal.SIGKILL
    assert bystander.process.poll() is None
    assert other.do("flock 0 ex", 30) == "ok"


def test_with_a_damaged_head(two):
    """Which pins there are is not known: the holders are stopped at once, and end much later. Another host gets the lock meanwhile."""
    b, a = two
    holder, other, third = opened(a), opened(b), opened(a, "g")
    assert holder.do("flock 0 ex") == "ok"
    wait_until(a.kill_keeper, "parent and keeper have ended")
    change(a, "head")
    third.say("flock 0 ex") # it starts the next keeper
    wait_until(lambda: state(holder.pid) in "tTZ", "the holder is stopped", 20)
    assert other.do("flock 0 ex", 30) == "ok"
    assert state(holder.pid) in "tTZ"
    assert third.silent(0)
