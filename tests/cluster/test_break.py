"""
dflock break: the holders end before the next host has the lock, and nothing but what was shown is hit.
What is refused, and why, is here too; what happens when keeper, parent or store stop in the middle: test_break_faults.py;
hosts that are given up: test_break_host.py.
"""
import os
import re
import signal

import pytest
from harness import wait_until

from breaking import LEASE, allow, broken, runs, taker, waits
from jobs import end, grows, job, pid_of, size
from keepers import LONG, held
from terminal import terminal


def test_the_holder_ends_before_the_next_one_starts(make_host):
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE)
    process, path = job(a)
    pid = pid_of(path)
    next_one = taker(b)
    waits(a)
    fence = held(a)[0]["fence"]
    done = broken(a, a.path("f"))
    assert f"fence {fence}" in done.stdout and f"pid {pid}" in done.stdout, done.stdout
    assert f"taken away: fence {fence} of host a-" in done.stdout
    assert next_one.stdout.readline() == "got\n"
    written = size(path)
    out, err = process.communicate(timeout=20)
    wait_until(lambda: not runs(pid), "it has ended")
    assert size(path) == written  # it did nothing any more, however long it took to end
    assert f"dflock: {a.path('f')}: the lock is gone: an operator took it away with `dflock break`" in err, err
    assert held(b)[0]["fence"] > fence
    assert a.run("flock", "-n", a.path("f"), "true").returncode == 1


def test_those_that_wait_get_it_in_order(make_host):
    a, b, c = (make_host(name, lease=LEASE) for name in "abc")
    process, _ = job(a)
    first = taker(b)
    waits(a)
    second = taker(c)
    waits(a, 2)
    broken(a, "t/f")
    assert first.stdout.readline() == "got\n"
    process.communicate(timeout=20)
    broken(b, "t/f")
    assert second.stdout.readline() == "got\n"


def test_all_that_a_holder_started_ends(make_host):
    """Whatever on_lost says, which is about outages."""
    a = make_host("a", lease=LEASE, rules='{ tree = "%s"; name = "t"; on_lost = "warn"; }')
    process = a.popen("flock", "-o", a.path("f"), "sh", "-c", "sleep 1000 & echo $!; wait")
    child = int(process.stdout.readline())
    broken(a, a.path("f"))
    wait_until(lambda: not runs(child), "it has ended")
    process.communicate(timeout=20)
    assert not held(a)


def test_nothing_is_changed(make_host, redis):
    """Without a yes, of a name that no host holds, by words that make no sense, and while the store is away."""
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    done = a.cli("break", a.path("f"), check=False)
    assert done.returncode == 1 and "nothing was changed" in done.stderr and "--yes" in done.stderr
    with terminal(a, "break", "t/f") as asked:
        asked.until("[y/N]")
        asked.say("n")
        text, status = asked.end()
    assert status == 1 and "nothing was changed" in text
    done = broken(a, a.path("g"), check=False)
    assert done.returncode == 3 and "t/g: no host holds a lock of this name" in done.stderr
    assert a.run("flock", "-n", a.path("g"), "true").returncode == 0
    for words in ([], ["f", "g"], ["--host", "h", "f"], ["--force", "f"], ["--host"]):
        assert a.cli("break", *words, check=False).returncode == 2, words
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: not a.status()["store"]["up"], "the keeper has noticed", 20)
    done = broken(a, a.path("f"), check=False)
    redis.signal(signal.SIGCONT)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "nothing was changed: the store" in done.stderr
    grows(path)
    end(process, path)


def test_ranges_and_shared_locks_of_several_hosts(make_host):
    """All of them: two ranges on one host, and a shared lock of each of two hosts."""
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE)
    allow(b)
    agents = [(h.agent(), at) for h, at in ((a, 0), (a, 20), (b, 40))]
    for (agent, at), h in zip(agents, (a, a, b)):
        assert agent.do(f"open 1 {h.path('r')} rwc") == "ok"
        assert agent.do(f"setlk 1 ex {at} 10") == "ok"
    assert len(held(a)) >= 1 and len(held(b)) == 1
    broken(a, "t/r")
    for agent, _ in agents:
        assert agent.process.wait(20) == -signal.SIGKILL
    jobs = [h.popen("flock", "-s", h.path("g"), "sh", "-c", "echo got; exec sleep 1000") for h in (a, b)]
    for process in jobs:
        assert process.stdout.readline() == "got\n"
    done = broken(a, "t/g")
    assert done.stdout.count("taken away") == 2, done.stdout
    for process in jobs:
        assert process.wait(20) != 0


def test_another_host_must_allow_it(make_host):
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE)
    process, path = job(b)
    a.wait_up()
    done = broken(a, "t/f", check=False)
    assert done.returncode == 1 and "does not allow other hosts to do that" in done.stderr
    assert re.search(rf"host b-.*flock exclusive.*\n(?:        pid .*\n)?        pid {process.pid}, since .*: flock\n", done.stdout), done.stdout
    grows(path)
    assert "wants to take t/f away, which allow_break does not allow" in b.log()
    allow(b)
    done = broken(a, "t/f")
    assert process.wait(20) != 0
    assert "on request of host a-" in b.log()


@pytest.mark.long
def test_one_that_does_not_answer(make_host, redis):
    """As a keeper of an earlier version does not: the lock stays."""
    a, b = make_host("a", lease=LONG), make_host("b", lease=LONG)
    process, path = job(b)
    a.wait_up()
    pids = b.keeper_pids()
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        done = broken(a, "t/f", check=False)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert done.returncode == 1 and "has not answered for 20 s" in done.stderr and "of a version" in done.stderr, done.stderr
    assert "is not known: the host has not answered" in done.stdout
    grows(path)
    end(process, path)


def test_a_younger_holder_is_not_hit(make_host, redis):
    """What was shown has ended, and another host has the lock, when the operator says yes."""
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE)
    process, path = job(a)
    with terminal(a, "break", a.path("f")) as asked:
        asked.until("[y/N]")
        end(process, path)
        other, other_path = job(b)
        asked.say("y")
        text, status = asked.end()
    assert status == 1 and "was not there any more" in text and "meanwhile host b-" in text, text
    grows(other_path)
    end(other, other_path)


def test_a_younger_lease_of_the_same_host_is_not_hit(make_host):
    """
    Another lock of bytes has come since the operator looked, and both ranges have bytes in common: to end the processes with kernel
    locks in the older lease's range would end the younger one's holder. (b's lock is there so that a's leases are not for the whole file.)
    """
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE)
    other, older, younger = b.agent(), a.agent(), a.agent()
    for agent, host in (other, b), (older, a), (younger, a):
        assert agent.do(f"open 1 {host.path('r')} rwc") == "ok"
    assert other.do("setlk 1 sh 100 10") == "ok"
    assert older.do("setlk 1 sh 0 10") == "ok"
    with terminal(a, "break", "t/r") as asked:
        asked.until("[y/N]")
        assert younger.do("setlk 1 sh 5 10") == "ok"
        asked.say("y")
        text, status = asked.end()
    assert status == 1 and "has got a younger lease of the lock meanwhile" in text, text
    for agent in other, older, younger:
        assert agent.do("setlk 1 un 0 200") == "ok"


def test_a_rest_ends(make_host):
    rules = '{ tree = "%s"; name = "t"; at_least_ms = 600000; }'
    a, b = make_host("a", lease=LEASE, rules=rules), make_host("b", lease=LEASE, rules=rules)
    assert a.run("flock", "-n", a.path("f"), "true").returncode == 0
    assert b.run("flock", "-n", b.path("f"), "true").returncode == 1
    next_one = taker(b)
    waits(a)
    done = broken(a, "t/f")
    assert "the rest (flock) is over" in done.stdout
    assert next_one.stdout.readline() == "got\n"  # and a rest of its own has begun
    assert a.run("flock", "-n", a.path("f"), "true").returncode == 1
    broken(b, "t/f")  # the holder ends, and its rest with it
    assert a.run("flock", "-n", a.path("f"), "true").returncode == 0
    next_one.communicate(timeout=20)
