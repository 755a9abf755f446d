"""F_GETLK of a lock on another host names the lock itself: type, start and length, the same each time, on every file system."""
import os
import signal

import pytest
from harness.filesystems import MOUNTED

from keepers import on, opened, queued  # noqa: F401 (fixture)

TIMES = 20
LEASE = "ttl_ms = 20000; probe_ms = 9000;"

pytestmark = pytest.mark.root("mounts file systems, and so needs root")


def always(agent, question, answer):
    assert [agent.do("getlk 0 " + question) for _ in range(TIMES)] == [answer] * TIMES


@pytest.mark.parametrize("kind", MOUNTED)
def test_it_is_the_lock_itself(on, make_host, kind):  # noqa: F811
    """Also if twelve programs ask at once, and while another one waits for it: the lease is closed then, and its probe waits."""
    _, here = on(kind, lease=LEASE)
    there = make_host("b", lease=LEASE)
    a, b, waiter = opened(here), opened(there), opened(there)
    # Nobody else asks for it: the lease is the whole file, and three locks of it are taken.
    assert a.do("setlk 0 ex 10 10") == "ok"
    assert a.do("setlk 0 sh 100 5") == "ok"
    assert a.do("setlk 0 ex 1000 0") == "ok"
    always(b, "ex 0 0", "ex:10:10:-1")
    always(b, "ex 15 1", "ex:10:10:-1")
    always(b, "ex 20 100", "sh:100:5:-1")
    always(b, "sh 20 0", "ex:1000:0:-1")
    always(b, "sh 20 900", "un")
    always(b, "ex 20 80", "un")
    agents = [opened(there) for _ in range(12)]
    for _ in range(5):
        for agent in agents:
            agent.say("getlk 0 ex 0 0")
        assert [agent.heard()[0] for agent in agents] == ["ex:10:10:-1"] * len(agents)
    waiter.say("setlk 0 ex 0 0 w")
    queued(there)
    always(b, "ex 0 90", "ex:10:10:-1")
    assert a.do("setlk 0 un 10 10") == "ok"
    assert b.do("getlk 0 ex 0 50") == "un"
    assert a.do("setlk 0 un 0 0") == "ok"
    assert waiter.heard()[0] == "ok"


@pytest.mark.parametrize("kind", MOUNTED)
def test_the_kernels_first_of_several_owners(on, make_host, kind):  # noqa: F811
    """The kernel's list is in the order in which owners took their first lock; that order is what a local program sees."""
    _, host = on(kind, lease=LEASE)
    agents = [opened(host) for _ in range(3)]
    for agent, start in zip(agents, (200, 300, 100)):
        assert agent.do(f"setlk 0 ex {start} 10") == "ok"
    local = opened(host).do("getlk 0 ex 0 0")
    always(opened(make_host("b", lease=LEASE)), "ex 0 0", local.rsplit(":", 1)[0] + ":-1")


def test_several_holders_always_give_the_same_answer(on, make_host):  # noqa: F811
    """One that says nothing, since its keeper is stopped, does not hide the others: after probe_ms the answer is the first lock that they named."""
    lease = "ttl_ms = 20000; probe_ms = 4000;"
    hosts = [on(kind, name, lease=lease)[1] for name, kind in zip("abcd", ("fuse", "tmpfs", "fuse", "overlay"))]
    agents = [opened(h) for h in hosts]
    for agent, start in zip(agents, (300, 100, 200, 400)):
        assert agent.do(f"setlk 0 sh {start} 10 w") == "ok"
    asker = opened(make_host("e", lease=lease))
    always(asker, "ex 0 0", "sh:100:10:-1")
    always(asker, "ex 150 0", "sh:200:10:-1")
    assert agents[1].do("setlk 0 un 0 0") == "ok"  # that host gives back what it has instead of an answer
    always(asker, "ex 0 0", "sh:200:10:-1")
    assert asker.do("setlk 0 ex 0 0") == "EAGAIN"
    pids = hosts[2].keeper_pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert asker.do("getlk 0 ex 0 0") == "sh:300:10:-1"
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_more_holders_than_the_store_names(make_host):
    """It names 16 at a time, and any 16 may answer first. No question waits here for the end of probe_ms."""
    *hosts, last = [make_host("h%d" % i, lease="ttl_ms = 120000; probe_ms = 60000;") for i in range(24)]
    for host in hosts:
        host.opened("f", "setlk 0 sh 0 0")
    always(opened(last), "ex 0 0", "sh:0:0:-1")
