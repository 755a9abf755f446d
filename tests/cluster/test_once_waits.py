"""at_least_ms: callers that wait for the end of a rest, and get one lock each, one after the other."""
import os

import pytest
from harness import BUILD, Job, wait_until
from harness.host import SHIM

from editing import read, write
from keepers import leases, opened
from once import LEASE, held, make, over, pair, queue, queued, rests, went_back  # noqa: F401


@pytest.mark.parametrize("lock", ["flock 0 ex", "setlk 0 ex 0 0 w", "setlk 0 ex 0 0 w ofd"], ids=["flock", "posix", "ofd"])
def test_who_waits_gets_it_after_the_rest_in_turn(pair, redis, lock):
    """One after the other, whichever host they are on, and never two in one rest."""
    space = "flock" if lock.startswith("flock") else "record"
    holder = opened(pair[0])
    assert holder.do(lock) == "ok"
    waiting = []
    for host in (pair[0], pair[1], pair[1], pair[0]):
        waiting.append(opened(host))
        waiting[-1].say(lock)
        wait_until(lambda: len(queue(redis)) == len(waiting), "it is queued")
    assert holder.do("close 0") == "ok"
    wait_until(lambda: not held(redis), "the lease went back")
    while waiting:
        assert all(agent.silent(0.05) for agent in waiting)
        over(redis, space=space)
        assert waiting[0].heard()[0] == "ok"
        assert rests(redis, space=space)
        if len(waiting) % 2:  # with and without a holder when the rest ends
            assert waiting[0].do("close 0") == "ok"
            wait_until(lambda: not held(redis), "the lease went back")
            waiting.pop(0)
            continue
        first = waiting.pop(0)
        over(redis, space=space)
        assert all(agent.silent(0.05) for agent in waiting)
        assert first.do("close 0") == "ok"
        if waiting:
            assert waiting[0].heard()[0] == "ok"
            assert rests(redis, space=space) and waiting.pop(0).do("close 0") == "ok"
            wait_until(lambda: not held(redis), "the lease went back")


def test_many_wait_through_short_rests(make, redis):
    """The rests end by themselves: each host's own clock says when to ask again."""
    hosts = [make(name, ms=150) for name in "abc"]
    jobs = [Job(host, "flock", host.path("f"), "echo", "got") for host in hosts for _ in range(3)]
    assert [job.line(60) for job in jobs] == ["got"] * len(jobs)


def test_who_waits_on_the_same_host(make, redis):
    """It waits for a grant of its own, and not in the kernel for the end of the other's lock: then it would have the lock, and no
    rest would have begun."""
    a = make("a")
    holder, waiter = a.opened("f", "flock 0 ex"), opened(a).say("flock 0 ex")
    queued(redis, a)
    over(redis)
    assert holder.do("flock 0 un") == "ok"
    assert waiter.heard()[0] == "ok"
    assert rests(redis) and holder.do("flock 0 ex nb") == "EAGAIN"


def test_who_waits_is_gone(pair, redis):
    """Its request goes, too: nobody rests because of a lock that was never there."""
    a, b = pair
    holder, waiter = a.opened("f", "flock 0 ex"), opened(b).say("flock 0 ex")
    queued(redis, b)
    waiter.kill()
    wait_until(lambda: not leases(b), "it is forgotten")
    assert holder.do("flock 0 un") == "ok"
    over(redis)
    assert opened(b).do("flock 0 ex nb") == "ok"


def test_a_signal_ends_the_wait(pair, redis):
    a, b = pair[0].opened("f", "flock 0 ex"), opened(pair[1])
    a.do("flock 0 un")
    assert b.do("alarm 100") == "ok"
    assert b.do("flock 0 ex") == "EINTR"
    went_back(redis)
    over(redis)
    assert a.do("flock 0 ex nb") == "ok"


def test_a_cycle_on_one_host(make, redis):
    """No kernel sees it: neither waits there."""
    a = make("a")
    one, two = opened(a), opened(a)
    assert [agent.do(f"open 1 {a.path('g')} rwc") for agent in (one, two)] == ["ok"] * 2
    assert one.do("setlk 0 ex 0 0") == "ok" and two.do("setlk 1 ex 0 0") == "ok"
    one.say("setlk 1 ex 0 0 w")
    wait_until(lambda: leases(a, "g", state="asking"), "it waits")
    assert two.do("setlk 0 ex 0 0 w") == "EDEADLK"
    over(redis, "g", "record")
    assert two.do("setlk 1 un 0 0") == "ok"
    assert one.heard()[0] == "ok"


def stopped_before_its_lock(host, folder, name):
    """An agent that stops just before it takes a kernel lock, as long as this file is there; and the file."""
    path = os.path.join(folder, "held-" + name)
    host.inside = ["env", f"LD_PRELOAD={SHIM}:{os.path.join(BUILD, 'tests/preload/held.so')}", f"DFLOCK_TEST_HELD={path}"]
    agent = opened(host)
    host.inside = []
    open(path, "w").close()
    return agent, path


def reached(path):
    wait_until(lambda: os.path.exists(path + ".reached"), "the program is about to take the kernel lock")


@pytest.mark.parametrize("how", ["nb", ""], ids=["asks", "waits"])
def test_one_whose_grant_was_too_late(make, redis, folder, how):
    """
    A program is stopped between its grant and its kernel lock, until its lease went back, the rest is over, and another program of its
    host has the next grant. Then it takes the kernel lock, before the other one does, and has it in its hand when it asks again. It
    was not told that it has the lock, and the lease is the other one's: it rests as everybody, and lets the other one have the lock.
    """
    a = make("a", lease=LEASE + "pin_ms = 100;")
    late, late_path = stopped_before_its_lock(a, folder, "late")
    late.say("flock 0 ex " + how)
    reached(late_path)
    went_back(redis)
    assert opened(a).do("flock 0 ex nb") == "EAGAIN"
    over(redis)
    write(a, read(a).replace("pin_ms = 100;", "pin_ms = 60000;"))
    a.cli("reload")
    other, other_path = stopped_before_its_lock(a, folder, "other")
    other.say("flock 0 ex")
    reached(other_path)
    os.unlink(late_path)
    if how:
        assert late.heard()[0] == "EAGAIN"
    else:
        wait_until(lambda: len(queue(redis)) == 1, "it waits for a grant of its own")
        assert late.silent()
    os.unlink(other_path)
    assert other.heard()[0] == "ok"
    assert other.do("flock 0 un") == "ok"
    if how:
        assert late.do("flock 0 ex nb") == "EAGAIN"
    else:
        assert late.silent()
    over(redis)
    assert late.do("flock 0 ex nb") == "ok" if how else late.heard()[0] == "ok"
    assert rests(redis) and other.do("flock 0 ex nb") == "EAGAIN"
