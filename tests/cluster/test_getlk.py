"""F_GETLK of a lock on another host names the lock itself: type, start and length, the same each time, on every file system."""
import os
import signal

import pytest
from harness import wait_until
from harness.grounds import GROUNDS, Grounds

TIMES = 50
LEASE = "ttl_ms = 20000; probe_ms = 9000;"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems, and so needs root")


@pytest.fixture
def grounds(folder):
    """Before make_host in a test's arguments: it must outlive the hosts."""
    grounds = Grounds(folder)
    yield grounds
    grounds.unmount()


@pytest.fixture
def make_on(grounds, make_host, folder):
    def make(name, kind):
        grounds.mount(kind, os.path.join(folder, "files-" + name))
        return make_host(name, lease=LEASE)

    return make


def opened(host):
    return host.opened()


def always(agent, question, answer):
    assert [agent.do("getlk 0 " + question) for _ in range(TIMES)] == [answer] * TIMES


@pytest.mark.parametrize("kind", GROUNDS)
def test_it_is_the_lock_itself(make_on, kind):
    a, b = opened(make_on("a", kind)), opened(make_on("b", "tmpfs"))
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
    assert a.do("setlk 0 un 10 10") == "ok"
    assert b.do("getlk 0 ex 0 50") == "un"


@pytest.mark.parametrize("kind", GROUNDS)
def test_the_kernels_first_of_several_owners(make_on, kind):
    """The kernel's list is in the order in which owners took their first lock; that order is what a local program sees."""
    host = make_on("a", kind)
    agents = [opened(host) for _ in range(3)]
    for agent, start in zip(agents, (200, 300, 100)):
        assert agent.do(f"setlk 0 ex {start} 10") == "ok"
    local = opened(host).do("getlk 0 ex 0 0")
    b = opened(make_on("b", "tmpfs"))
    always(b, "ex 0 0", local.rsplit(":", 1)[0] + ":-1")


def test_several_holders_always_give_the_same_answer(make_on):
    hosts = [make_on(name, kind) for name, kind in zip("abcd", ("bindfs", "tmpfs", "bindfs", "overlay-tmpfs"))]
    agents = [opened(h) for h in hosts]
    for agent, start in zip(agents, (300, 100, 200, 400)):
        assert agent.do(f"setlk 0 sh {start} 10 w") == "ok"
    asker = opened(make_on("e", "tmpfs"))
    always(asker, "ex 0 0", "sh:100:10:-1")
    always(asker, "ex 150 0", "sh:200:10:-1")
    assert agents[1].do("setlk 0 un 0 0") == "ok"  # that host gives back what it has instead of an answer
    always(asker, "ex 0 0", "sh:200:10:-1")
    assert asker.do("setlk 0 ex 0 0") == "EAGAIN"


def test_a_holder_that_says_nothing_does_not_hide_the_others(make_on):
    """Its keeper is stopped: after probe_ms the answer is the first lock that the others named."""
    hosts = [make_on(name, "tmpfs") for name in "abc"]
    agents = [opened(h) for h in hosts]
    assert agents[0].do("setlk 0 sh 100 10 w") == "ok"
    assert agents[1].do("setlk 0 sh 200 10 w") == "ok"
    pids = hosts[0].keeper_pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert agents[2].do("getlk 0 ex 0 0") == "sh:200:10:-1"
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_many_queries_at_once(make_on):
    a, b = make_on("a", "bindfs"), make_on("b", "tmpfs")
    holder = opened(a)
    assert holder.do("setlk 0 ex 10 10") == "ok"
    agents = [opened(b) for _ in range(12)]
    for _ in range(10):
        for agent in agents:
            agent.say("getlk 0 ex 0 0")
        assert [agent.heard()[0] for agent in agents] == ["ex:10:10:-1"] * len(agents)


def test_while_another_waits_for_it(make_on):
    """The lease is closed then, and its probe waits."""
    a, b = make_on("a", "bindfs"), make_on("b", "tmpfs")
    holder, waiter, asker = opened(a), opened(b), opened(b)
    assert holder.do("setlk 0 ex 10 10") == "ok"
    waiter.say("setlk 0 ex 0 0 w")
    wait_until(lambda: [l for l in b.status()["leases"] if l["note"] == "waits for another host"], "b is queued")
    always(asker, "ex 0 100", "ex:10:10:-1")
    assert holder.do("setlk 0 un 0 0") == "ok"
    assert waiter.heard()[0] == "ok"
