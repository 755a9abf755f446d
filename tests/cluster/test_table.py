"""Tables of leases that the next keeper cannot take up. No holder goes on under a lease that no keeper renews."""
import copy
import json
import os
import shutil
import signal
import struct
import subprocess

import pytest
from harness import wait_until
from harness.host import KEEPER
from harness.processes import children
from jobs import state
from keepers import identity, is_busy, opened

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


# --- copies ---

@pytest.fixture
def copied(two):
    """copied(of_machine): a copy of a's runtime directory, and so of a host, in a pid namespace of its own. of_machine: the
    table's file has the numbers that it says, as in the copy of a machine."""
    twin = copy.copy(two[1])
    twin.runtime, twin.log_path, twin.agents = two[1].runtime + "-copy", two[1].log_path + "-copy", []

    def make(of_machine):
        shutil.copytree(two[1].runtime, twin.runtime, ignore=shutil.ignore_patterns("keeper.sock"))
        if of_machine:
            with open(os.path.join(twin.runtime, "leases"), "r+b") as f:
                old, new = os.stat(os.path.join(two[1].runtime, "leases")), os.fstat(f.fileno())
                at = f.read(102400).index(struct.pack("=QQ", old.st_dev, old.st_ino))
                f.seek(at)
                f.write(struct.pack("=QQ", new.st_dev, new.st_ino))
        return twin

    yield make
    wait_until(twin.kill_all, "the copy's keeper has ended")
    if twin.keeper:
        twin.keeper.kill()
        twin.keeper.wait()
    shutil.rmtree(twin.runtime, ignore_errors=True)


def start_apart(twin):
    log = twin.open_log()
    twin.keeper = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", KEEPER, "--foreground"],
                                   env={**twin.env(), "LD_PRELOAD": ""}, stderr=log, start_new_session=True)
    os.close(log)
    wait_until(twin.serves, "the copy's keeper serves")
    twin.inside = ["nsenter", "--target", str(children(twin.keeper.pid)[0]), "--pid", "--mount"]
    wait_until(lambda: (said(twin, "store") or {}).get("up"), "the copy's store is up")
    return twin


def said(host, what):
    """None while the keeper is replaced by the next one."""
    done = host.cli("status", "--json", check=False)
    return json.loads(done.stdout)[what] if done.returncode == 0 else None


def both_say_so(a, twin):
    for host in (a, twin):
        wait_until(lambda host=host: said(host, "twin"), "it knows of the other")
        assert "TWICE" in host.cli("status").stdout
        assert "had the same id" in host.cli("status", "--check", check=False).stdout
        assert host is a or "was copied" in host.log() or "is a copy of that" in host.log()


def test_of_another_file(two, copied):
    """cp -a: the copy is another host from the beginning, and what the first host has stays."""
    b, a = two
    holder, other = a.opened("f", "flock 0 ex"), opened(b)
    before = identity(a)
    twin = start_apart(copied(of_machine=False))
    assert twin.status()["host"] != before[0] and twin.status()["twin"] == before[0]
    both_say_so(a, twin)
    assert identity(a) == before and is_busy(b) and holder.process.poll() is None


def seat(host):
    with open(os.path.join(host.runtime, "leases"), "rb") as f:
        st = os.fstat(f.fileno())
        table = f.read(102400)
    return struct.unpack_from("=QQ", table, table.index(struct.pack("=QQ", st.st_dev, st.st_ino)) + 16)


def test_of_a_copied_machine(two, copied):
    """The first host has been seen since: so the copy is refused before it gives anything back."""
    b, a = two
    holder, other = a.opened("f", "flock 0 ex"), opened(b)
    twin, before, sat = copied(of_machine=True), identity(a), seat(a)
    wait_until(lambda: seat(a)[0] not in sat, "the host moves on", 20)
    start_apart(twin)
    wait_until(lambda: said(twin, "host") not in (None, before[0]), "it is another host")
    both_say_so(a, twin)
    assert identity(a) == before and is_busy(b) and holder.process.poll() is None


def test_of_a_copied_machine_that_is_faster(two, copied):
    """The first host finds out at its next beat: its holder is ended, before the copy's host has missed a ttl."""
    b, a = two
    holder, other = a.opened("f", "flock 0 ex"), opened(b)
    before = a.status()["host"]
    os.kill(a.keeper_pids()[1], signal.SIGSTOP)
    twin = start_apart(copied(of_machine=True))
    assert twin.status()["host"] == before
    os.kill(a.keeper_pids()[1], signal.SIGCONT)
    assert holder.process.wait(20) == -signal.SIGKILL
    wait_until(lambda: said(a, "host") not in (None, before), "it is another host", 20)
    both_say_so(a, twin)
    assert other.do("flock 0 ex", 30) == "ok"


def test_a_beat_of_long_ago_after_the_host_has_left(redis, make_host):
    """The server hung, and executes the beat when the host has ended: that gives the host a seat which no keeper knows."""
    a = make_host("a", lease=SHORT)
    before = a.status()
    a.cli("stop")
    a.keeper.wait()
    assert not redis.command("HGET", "dflock:{0}:store", "seat:" + before["host"])
    redis.command("HSET", "dflock:{0}:store", "seat:" + before["host"], before["store"]["incarnation"] + " 0123456789abcdef")
    a.start()
    a.wait_up()
    assert "was copied" not in a.log()
    assert a.status()["host"] != before["host"]
