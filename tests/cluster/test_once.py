"""
at_least_ms: one lock in so much time, on all hosts together; the store remembers it.

Where it could go wrong, and which test stands there. Two locks in one rest: a process of the host that has, or had, the lock
is granted under the lease that is there already, and nobody asks the store. So each new lock must be a grant of the store. These
have something in their hands that looks like a right: a caller that waits beside the holder on its host
(test_who_waits_on_the_same_host), one that has the kernel lock without a word of the keeper (test_one_whose_grant_was_too_late), one
under a lease of before the rule (test_the_rule_comes_while), one under a lease that an earlier keeper had (test_keepers_are_killed).
No lock at all in one rest: the store has granted it, the rest has begun, and the caller has never heard of it
(test_the_keeper_dies_before_the_caller_is_told, test_who_waits_is_gone).
"""
import os

import pytest
from harness import wait_until

from keepers import opened

NEVER = 10 * 60 * 1000  # longer than any test
LEASE = "ttl_ms = 20000; probe_ms = 5000;"


def rule(ms):
    return '{ tree = "%%s"; name = "t"; at_least_ms = %d; }' % ms


@pytest.fixture
def pair(make_host):
    return [make_host(name, rules=rule(NEVER), lease=LEASE) for name in "ab"]


def rests(redis, name="f", space="flock"):
    """How many ms it still rests; 0: it does not."""
    return max(0, redis.command("PTTL", f"dflock:{{0}}:rest:{space}:t/{name}"))


def over(redis, name="f", space="flock"):
    """The rest is over now."""
    assert redis.command("DEL", f"dflock:{{0}}:rest:{space}:t/{name}") == 1


LOCKS = [("flock 0 ex nb", "flock 0 un"), ("setlk 0 ex 0 0", "setlk 0 un 0 0"), ("setlk 0 ex 0 0 ofd", "setlk 0 un 0 0 ofd"),
         ("lockf 0 tlock 0", "lockf 0 ulock 0")]


@pytest.mark.parametrize("lock,unlock", LOCKS, ids=["flock", "posix", "ofd", "lockf"])
def test_one_lock_on_all_hosts(pair, redis, lock, unlock):
    space = "flock" if lock.startswith("flock") else "record"
    a, b, c = opened(pair[0]), opened(pair[1]), opened(pair[0])
    assert a.do(lock) == "ok"
    assert rests(redis, space=space) > NEVER - 60000
    taken = ("EAGAIN", "EACCES")
    assert b.do(lock) in taken and c.do(lock) in taken
    assert a.do(lock) == "ok"  # the same description, which has it
    assert a.do(unlock) == "ok"
    assert b.do(lock) in taken and c.do(lock) in taken
    assert a.do(lock) in taken  # it unlocked: as everybody
    wait_until(lambda: not redis.command("EXISTS", "dflock:{0}:lock:t/f"), "the lease went back")
    assert b.do(lock) in taken and c.do(lock) in taken and a.do(lock) in taken
    over(redis, space=space)
    assert c.do(lock) == "ok"
    assert a.do(lock) in taken and b.do(lock) in taken
