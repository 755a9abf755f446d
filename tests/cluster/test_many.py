"""Thousands of leases: what is due in time does not depend on their number."""
import os
import resource
import signal
import struct

from harness import Job, wait_until
from harness.host import BUILD

from test_flock import opened

# The keeper has one descriptor for each, and needs some for itself.
COUNT = min(19500, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 500)
LEASE = "ttl_ms = 2000;"  # freeze_margin_ms is a sixth of it: 333


def stamps(path):
    with open(path, "rb") as f:
        data = f.read()
    return struct.unpack("%dq" % (len(data) // 8), data)


def test_many_are_stopped_before_another_host_has_one(make_host, folder):
    """The keeper of host a renews nothing any more. When b gets one of a's locks, none of the processes on a may run."""
    b = make_host("b", lease=LEASE)
    a = make_host("a", lease=LEASE).wait_up()
    path = os.path.join(folder, "stamps")
    many = Job(a, os.path.join(BUILD, "tests/agents/many"), a.path("f"), str(COUNT), "4", path)
    assert many.line(60) == "held"
    wait_until(lambda: all(stamps(path)), "all run")
    agent = opened(b, "f%d" % (COUNT - 1)).say("flock 0 ex")  # b knows a's beats from now on, and so when they end
    assert agent.silent(1)
    os.kill(a.keeper_pids()[1], signal.SIGSTOP)
    word, got = agent.heard(20)
    assert word == "ok"
    wait_until(lambda: "are frozen" in a.log() or "it is killed" in a.log(), "they are stopped")
    late = [(at - got) / 1e6 for at in stamps(path) if at > got]
    assert not late, f"ran for so many ms after another host had the lock: {late}"
