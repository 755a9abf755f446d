"""Thousands of leases: what must happen in time happens in time, whatever their number."""
import os
import resource
import signal
import struct

import pytest
from harness import Job, bytes_of, text_of, wait_until
from harness.host import BUILD

from keepers import opened

pytestmark = pytest.mark.alone

# As many as the keeper has room for (dflockd(8), LIMITS).
COUNT = min(19500, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 2048 - 128)
LEASE = "ttl_ms = 2000;"  # freeze_margin_ms is a sixth of it: 333


def stamps(path):
    data = bytes_of(path)
    return struct.unpack("%dq" % (len(data) // 8), data)


class Way:
    """Host a's way to the store. (A proxy would be too slow for so many leases, and a keeper that hangs is replaced in time.)"""

    def __init__(self, redis, folder):
        self.redis, self.path = redis, os.path.join(folder, "way.sock")
        self.open()
        self.address = "unix:" + self.path

    def open(self):
        os.symlink(self.redis.socket, self.path)

    def cut(self):
        """b's connections, too, are broken, but it finds its way again."""
        os.unlink(self.path)
        for kind in ("normal", "pubsub"):
            self.redis.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


@pytest.mark.of_redis("the way to the store is a socket of Redis")
def test_many_are_stopped_before_another_host_has_one(make_host, redis, folder):
    """Host a cannot renew anything for a while: all leases have to be confirmed before the processes go on, and the beats, without which the leases
    run out again, must not wait until the last of them is. Then it can no more: when b gets one of a's locks, none of the processes on a may run."""
    way = Way(redis, folder)
    b = make_host("b", lease=LEASE)
    a = make_host("a", lease=LEASE, server=way.address).wait_up()
    path = os.path.join(folder, "stamps")
    many = Job(a, os.path.join(BUILD, "tests/agents/many"), a.path("f"), str(COUNT), "4", path).held(120)
    wait_until(lambda: all(stamps(path)), "all run")
    a.cli("log-level", "debug")  # all lines
    deadline = a.log().count("no beat was answered")
    way.cut()
    wait_until(lambda: "are frozen" in a.log(), "they are frozen")
    wait_until(lambda: a.log().count("no beat was answered") > deadline, "the deadline has passed")
    way.open()
    wait_until(lambda: "go on" in a.log(), "they go on", 40)
    before = stamps(path)
    wait_until(lambda: all(now > then for now, then in zip(stamps(path), before)), "all run")
    assert "LOST" not in a.log()
    agent = opened(b, "f%d" % (COUNT - 1)).say("flock 0 ex")  # b knows a's beats from now on, and so when they end
    assert agent.silent(1)
    frozen = a.log().count("are frozen")
    way.cut()
    word, got = agent.heard(20)
    assert word == "ok"
    wait_until(lambda: a.log().count("are frozen") > frozen or "it is killed" in a.log(), "they are stopped")
    late = [(at - got) / 1e6 for at in stamps(path) if at > got]
    assert not late, f"ran for so many ms after another host had the lock: {late}"


def test_the_search_waits_for_no_process_and_no_mount(make_host, redis, folder):
    """What it asks of a holder that has a descriptor. A command line and maps are read under the lock of the process's memory; stat of
    /proc/PID/fd/N may ask a file server, whatever its flags say."""
    a = make_host("a", lease="ttl_ms = 12000; freeze_margin_ms = 5000;")
    agent = a.opened("f", "flock 0 ex")
    calls = os.path.join(folder, "calls")
    parent = a.keeper_pids()[0]
    trace = a.popen("strace", "-qq", "-f", "-o", calls, "-p", str(parent))
    wait_until(lambda: int(open(f"/proc/{parent}/status").read().split("TracerPid:")[1].split()[0]), "it is traced")
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "the holder is stopped", 30)
    trace.send_signal(signal.SIGINT)
    trace.communicate(timeout=20)
    redis.signal(signal.SIGCONT)
    lines = text_of(calls).splitlines()
    opened_files = [line for line in lines if " openat(" in line]
    assert any('"fdinfo"' in line for line in opened_files)
    # /proc/locks: each lease has its holder
    assert not [line for line in opened_files if '"cmdline"' in line or '/maps"' in line or '"/proc/locks"' in line]
    # its own user namespace is asked for where a user's locks took long to read: on a busy machine
    own = ('""', '"/proc/self/')
    assert not [line for line in lines if " statx(" in line or " newfstatat(" in line and not any(path in line for path in own)]
    assert agent.do("pid") == "ok"
