"""
at_least_ms: one lock in so much time, on all hosts together; the store remembers it.

Where it could go wrong, and which test stands there. Two locks in one rest: a process of the host that has, or had, the lock
is granted under the lease that is there already, and nobody asks the store. So each new lock must be a grant of the store. These
have something in their hands that looks like a right: a caller that waits beside the holder on its host
(test_who_waits_on_the_same_host), one that has the kernel lock without a word of the keeper (test_one_whose_grant_was_too_late), one
under a lease of before the rule (test_the_rule_comes_while), one under a lease that an earlier keeper had (test_keepers_are_killed).
No lock at all in one rest: the store has granted it, the rest has begun, and the caller has never heard of it
(test_the_keeper_dies_before_the_caller_is_told, test_who_waits_is_gone).
Here: which locks there are, and what operators see; in test_once_meanwhile.py: callers that wait, and what else may happen.
"""
import pytest
from harness import wait_until

from keepers import leases, opened
from once import LEASE, NEVER, TAKEN, make, over, pair, queue, rests, went_back  # noqa: F401

LOCKS = [("flock 0 ex nb", "flock 0 un"), ("setlk 0 ex 0 0", "setlk 0 un 0 0"), ("setlk 0 ex 0 0 ofd", "setlk 0 un 0 0 ofd")]


# --- one lock ---

@pytest.mark.parametrize("lock,unlock", LOCKS, ids=["flock", "posix", "ofd"])
def test_one_lock_on_all_hosts(pair, redis, lock, unlock):
    space = "flock" if lock.startswith("flock") else "record"
    a, b, c = opened(pair[0]), opened(pair[1]), opened(pair[0])
    assert a.do(lock) == "ok"
    assert NEVER - 60000 < rests(redis, space=space) <= NEVER
    assert b.do(lock) in TAKEN and c.do(lock) in TAKEN
    assert a.do(lock) == "ok"  # the same description, which has it
    assert a.do(unlock) == "ok"
    assert [agent.do(lock) in TAKEN for agent in (a, b, c)] == [True] * 3  # also the one that had it: it unlocked
    went_back(redis)
    assert [agent.do(lock) in TAKEN for agent in (a, b, c)] == [True] * 3
    over(redis, space=space)
    assert c.do(lock) == "ok"
    assert a.do(lock) in TAKEN and b.do(lock) in TAKEN
    # A rest that ends before the lock: the holder alone is in the way, on its own host too, and the next lock begins the next rest.
    over(redis, space=space)
    assert a.do(lock) in TAKEN and b.do(lock) in TAKEN
    assert not rests(redis, space=space)
    # Else the lock may be handed over to a question that was answered, and rests until that goes back.
    wait_until(lambda: not queue(redis), "the questions have left the queue")
    assert c.do(unlock) == "ok"
    assert a.do(lock) == "ok"
    assert rests(redis, space=space) and b.do(lock) in TAKEN


def test_the_rest_ends_by_itself(make, redis):
    a, b = make("a", ms=300), opened(make("b", ms=300))
    assert a.run("flock", "-n", a.path("f"), "true").returncode == 0
    wait_until(lambda: b.do("flock 0 ex nb") == "ok", "the rest is over")


def test_the_two_spaces_rest_apart(pair, redis):
    a, b = pair[0].opened("f", "flock 0 ex nb"), pair[1].opened("f", "setlk 0 ex 0 0")
    assert a.do("setlk 0 ex 0 0") in TAKEN and b.do("flock 0 ex nb") == "EAGAIN"


def test_each_host_goes_by_its_own_number(make, make_host, redis):
    """And a host without the rule waits for the rest as all do, for any lock."""
    a, b = opened(make("a", ms=NEVER)), opened(make("b", ms=NEVER // 2))
    plain = opened(make_host("c", lease=LEASE))
    assert a.do("flock 0 ex nb") == "ok"
    assert rests(redis) > NEVER // 2
    a.do("flock 0 un")
    assert b.do("flock 0 ex nb") == "EAGAIN"
    assert plain.do("flock 0 ex nb") == "EAGAIN" and plain.do("flock 0 sh nb") == "EAGAIN"
    over(redis)
    assert b.do("flock 0 ex nb") == "ok"
    assert 0 < rests(redis) <= NEVER // 2
    b.do("flock 0 un")
    over(redis)
    assert plain.do("flock 0 ex nb") == "ok" and not rests(redis)


# --- which locks there are ---

def test_what_is_refused(pair):
    a = opened(pair[0])
    assert a.do("flock 0 sh nb") == a.do("flock 0 sh") == "ENOLCK"
    for what in ("sh 0 0", "ex 0 1", "ex 1 0", "sh 0 1", "ex 0 1 w", "ex 0 1 ofd", "sh 0 0 ofd"):
        assert a.do("setlk 0 " + what) == "ENOLCK", what
    assert a.do("flock 0 ex nb") == "ok" and a.do("setlk 0 ex 0 0") == "ok"
    done = pair[0].run("flock", "-ns", pair[0].path("f"), "true")
    assert done.returncode == 71
    line, = [line for line in done.stderr.splitlines() if line.startswith("dflock:")]
    assert pair[0].path("f") in line and "at_least_ms" in line and "exclusive" in line


def test_conversions_are_no_new_locks(pair, redis):
    a, b = opened(pair[0]), opened(pair[1])
    for lock, to, back in (("flock 0 ex nb", "flock 0 sh nb", "flock 0 ex nb"), ("setlk 0 ex 0 0", "setlk 0 sh 0 0", "setlk 0 ex 0 0")):
        assert [a.do(lock), a.do(to), a.do(to), a.do(back), a.do(to)] == ["ok"] * 5
        assert b.do(lock) in TAKEN
    assert a.do("setlk 0 un 0 100") == "ok"
    assert a.do("setlk 0 ex 0 0") == "ok"  # the rest of it kept all others out
    assert a.do("setlk 0 ex 0 1") == "ENOLCK" and b.do("setlk 0 ex 0 0") in TAKEN


def test_getlk_shows_the_rest(pair, redis):
    a, b, c = opened(pair[0]), opened(pair[1]), opened(pair[0])
    for tester in (a, b, c):  # nothing is locked, and a question is no lock
        assert tester.do("getlk 0 ex 0 0") == "un" and tester.do("lockf 0 test 0") == "ok"
    assert not rests(redis, space="record")
    assert a.do("setlk 0 ex 0 0") == "ok"
    assert a.do("getlk 0 ex 0 0") == "un"  # its own
    assert b.do("getlk 0 ex 0 0") == b.do("getlk 0 sh 7 1") == "ex:0:0:-1"
    assert c.do("getlk 0 ex 0 0") == f"ex:0:0:{a.pid}"
    assert a.do("setlk 0 un 0 0") == "ok"
    for tester in (a, b, c):
        assert tester.do("getlk 0 sh 7 1") == "ex:0:0:-1" and tester.do("lockf 0 test 0") in TAKEN
    over(redis, space="record")
    for tester in (a, b, c):
        assert tester.do("getlk 0 ex 0 0") == "un"
    assert not rests(redis, space="record")
    assert b.do("setlk 0 ex 0 0") == "ok"


def test_the_page_never_shows_it(pair):
    """Each lock of the same description is a question, and no slot is open."""
    a = opened(pair[0])
    for _ in range(3):
        assert a.do("flock 0 ex nb") == "ok"
    lease, = leases(pair[0])
    assert lease["state"] in ("draining", "probing", "waiting") and "at_least_ms" in lease["note"]


# --- what operators see ---

def test_status_says_so(pair, redis):
    a, b = pair
    holder, waiter = a.opened("f", "flock 0 ex nb"), opened(b).say("flock 0 ex")
    wait_until(lambda: leases(b, note="waits until its rest is over (at_least_ms)"), "b says what it waits for")
    lock, = a.status()["cluster"]["locks"]
    assert 0 < lock["resting"]["flock"] <= NEVER and "record" not in lock["resting"]
    waiter.kill()
    holder.do("close 0")
    went_back(redis)
    lock, = b.status()["cluster"]["locks"]
    assert lock["name"] == "t/f" and lock["leases"] == lock["waiters"] == [] and lock["resting"]["flock"] > 0
    assert "resting" in b.cli("status").stdout and "until " in b.cli("status").stdout
    over(redis)
    assert b.status()["cluster"]["locks"] == [] and "resting" not in b.cli("status").stdout
