"""Cycles of programs under the net: over hosts, and with calls that wait in a kernel."""
import select

import pytest

from harness import wait_until
from harness.metrics import value
from harness.netted import opened
from harness.processes import waits_for_lock
from keepers import held


def waits_in_kernel(agent):
    wait_until(lambda: waits_for_lock(agent.pid), f"pid {agent.pid} waits in the kernel")


def queued(host):
    wait_until(lambda: held(host, state="asking"), f"host {host.name} is in the store's queue")


def test_one_of_the_cycle_waits_in_a_kernel(two):
    """p waits for q in the kernel of the first host, r waits for p, and q for r."""
    p, q, r = opened(two[0]), opened(two[0]), opened(two[1])
    for i, agent in enumerate((p, q, r)):
        assert agent.do(f"setlk 0 ex {i} 1") == "ok"
    p.say("setlk 0 ex 1 1 w")
    waits_in_kernel(p)
    r.say("setlk 0 ex 0 1 w")
    queued(two[1])
    assert q.do("setlk 0 ex 2 1 w", seconds=10) == "EDEADLK"
    assert p.silent(0.2) and r.silent(0.1)
    assert q.do("setlk 0 un 1 1") == "ok"
    assert p.heard()[0] == "ok"
    assert p.do("setlk 0 un 0 2") == "ok"
    assert r.heard()[0] == "ok"


def test_the_call_that_waits_in_a_kernel_closes_it(two):
    """Then another one of the cycle fails, as with the preload."""
    p, q, r = opened(two[0]), opened(two[0]), opened(two[1])
    for i, agent in enumerate((p, q, r)):
        assert agent.do(f"setlk 0 ex {i} 1") == "ok"
    r.say("setlk 0 ex 0 1 w")
    queued(two[1])
    q.say("setlk 0 ex 2 1 w")
    queued(two[0])
    p.say("setlk 0 ex 1 1 w")
    assert q.heard(seconds=20)[0] == "EDEADLK"
    assert p.silent(0.1) and r.silent(0.1)


@pytest.mark.parametrize("waits", ["nobody", "another host"])
def test_a_cycle_of_one_host(two, waits):
    """The kernel finds it: the last call gets EDEADLK. While another host waits for a lock of the cycle, it may be the other call, if that is
    called back just then."""
    p, q, r = opened(two[0]), opened(two[0]), opened(two[1])
    assert p.do("setlk 0 ex 0 1") == "ok"
    assert q.do("setlk 0 ex 1 1") == "ok"
    p.say("setlk 0 ex 1 1 w")
    waits_in_kernel(p)
    if waits == "another host":
        before = value(two[0], "calls_seen_out_total")
        r.say("setlk 0 ex 0 2 w")
        queued(two[1])
        assert p.silent(0.5)
        waits_in_kernel(p)
        assert value(two[0], "calls_seen_out_total") - before < 30  # it is called back at growing pauses, and not all the time
    q.say("setlk 0 ex 0 1 w")
    said = select.select([q.process.stdout, p.process.stdout][:1 if waits == "nobody" else 2], [], [], 20)[0]
    assert said, "no call of the cycle has ended"
    one, other, byte = (q, p, 1) if q.process.stdout in said else (p, q, 0)
    assert one.heard()[0] == "EDEADLK"
    assert one.do(f"setlk 0 un {byte} 1") == "ok"
    assert other.heard(seconds=20)[0] == "ok"
