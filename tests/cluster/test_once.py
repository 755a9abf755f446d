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
import random
import signal
import subprocess

import pytest
from harness import BUILD, Job, wait_until
from harness.host import SHIM

from editing import read, write
from jobs import state
from keepers import kill_keeper, leases, opened, parent_and_keeper

NEVER = 10 * 60 * 1000  # longer than any test
LEASE = "ttl_ms = 20000; probe_ms = 5000;"
TAKEN = ("EAGAIN", "EACCES")
LOCKS = [("flock 0 ex nb", "flock 0 un"), ("setlk 0 ex 0 0", "setlk 0 un 0 0"), ("setlk 0 ex 0 0 ofd", "setlk 0 un 0 0 ofd"),
         ("lockf 0 tlock 0", "lockf 0 ulock 0")]
NAMES = ["flock", "posix", "ofd", "lockf"]


def rule(ms, name="t"):
    return '{ tree = "%%s"; name = "%s"; at_least_ms = %d; }' % (name, ms)


@pytest.fixture
def make(make_host):
    def make(name, ms=NEVER, lease=LEASE, **options):
        return make_host(name, rules=rule(ms), lease=lease, **options)

    return make


@pytest.fixture
def pair(make):
    return make("a"), make("b")


def rests(redis, name="f", space="flock"):
    """How many ms it still rests; 0: it does not."""
    return max(0, redis.command("PTTL", f"dflock:{{0}}:rest:{space}:t/{name}"))


def over(redis, name="f", space="flock"):
    """The rest is over now."""
    assert redis.command("DEL", f"dflock:{{0}}:rest:{space}:t/{name}") == 1


def went_back(redis, name="f"):
    wait_until(lambda: not redis.command("EXISTS", f"dflock:{{0}}:lock:t/{name}"), "no host has a lease, or waits")


def queued(redis, host, name="f"):
    wait_until(lambda: leases(host, name, state="asking"), host.name + " waits")


# --- one lock ---

@pytest.mark.parametrize("lock,unlock", LOCKS, ids=NAMES)
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


@pytest.mark.parametrize("lock,unlock", LOCKS, ids=NAMES)
def test_a_short_rest_ends_before_a_long_lock(make, redis, lock, unlock):
    """Then the holder alone is in the way, on its own host too, and the next lock begins the next rest."""
    space = "flock" if lock.startswith("flock") else "record"
    a, b = make("a"), make("b")
    one, two, three = opened(a), opened(a), opened(b)
    assert one.do(lock) == "ok"
    over(redis, space=space)
    assert two.do(lock) in TAKEN and three.do(lock) in TAKEN
    assert not rests(redis, space=space)
    # Else the lock may be handed over to a question that was answered, and rests until that goes back.
    wait_until(lambda: not queue(redis), "the questions have left the queue")
    assert one.do(unlock) == "ok"
    assert two.do(lock) == "ok"
    assert rests(redis, space=space) and three.do(lock) in TAKEN


def test_the_rest_ends_by_itself(make, redis):
    a, b = make("a", ms=300), opened(make("b", ms=300))
    assert a.run("flock", "-n", a.path("f"), "true").returncode == 0
    wait_until(lambda: b.do("flock 0 ex nb") == "ok", "the rest is over")


def test_the_two_spaces_rest_apart(pair, redis):
    a, b = opened(pair[0]), opened(pair[1])
    assert a.do("flock 0 ex nb") == "ok"
    assert b.do("setlk 0 ex 0 0") == "ok"
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


# --- those who wait ---

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


def dump(redis):
    packed = "local v = redis.call('GET', 'dflock:{0}:lock:t/f') if not v then return {0, 0} end v = cmsgpack.unpack(v) " \
             "return {#v.l, #v.q}"
    return redis.command("EVAL", packed, 0)


def held(redis):
    return dump(redis)[0]


def queue(redis):
    return range(dump(redis)[1])


def test_many_wait_through_short_rests(make, redis):
    """The rests end by themselves: each host's own clock says when to ask again."""
    hosts = [make(name, ms=150) for name in "abc"]
    jobs = [Job(host, "flock", host.path("f"), "echo", "got") for host in hosts for _ in range(3)]
    assert [job.line(60) for job in jobs] == ["got"] * len(jobs)


def test_who_waits_on_the_same_host(make, redis):
    """It waits for a grant of its own, and not in the kernel for the end of the other's lock: then it would have the lock, and no
    rest would have begun."""
    a = make("a")
    holder, waiter = opened(a), opened(a)
    assert holder.do("flock 0 ex") == "ok"
    waiter.say("flock 0 ex")
    queued(redis, a)
    over(redis)
    assert holder.do("flock 0 un") == "ok"
    assert waiter.heard()[0] == "ok"
    assert rests(redis) and holder.do("flock 0 ex nb") == "EAGAIN"


def test_who_waits_is_gone(pair, redis):
    """Its request goes, too: nobody rests because of a lock that was never there."""
    a, b = pair
    holder, waiter = opened(a), opened(b)
    assert holder.do("flock 0 ex") == "ok"
    waiter.say("flock 0 ex")
    queued(redis, b)
    waiter.kill()
    wait_until(lambda: not leases(b), "it is forgotten")
    assert holder.do("flock 0 un") == "ok"
    over(redis)
    assert opened(b).do("flock 0 ex nb") == "ok"


def test_a_signal_ends_the_wait(pair, redis):
    a, b = opened(pair[0]), opened(pair[1])
    assert a.do("flock 0 ex") == "ok"
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


# --- what may happen meanwhile ---

def test_the_job_is_killed(pair, redis):
    a, b = pair
    job = Job(a, "flock", "-n", a.path("f"), "sh", "-c", "echo held; read line")
    assert job.line() == "held"
    job.kill()
    went_back(redis)
    assert opened(a).do("flock 0 ex nb") == "EAGAIN" and opened(b).do("flock 0 ex nb") == "EAGAIN"


def test_a_host_vanishes(make, redis):
    a, b = (make(name, lease="ttl_ms = 1000; probe_ms = 5000;") for name in "ab")
    holder, waiter = opened(a), opened(b)
    assert holder.do("flock 0 ex nb") == "ok"
    wait_until(a.kill_all, "nothing of it is left")
    assert waiter.do("flock 0 ex nb") == "EAGAIN"
    waiter.say("flock 0 ex")
    wait_until(lambda: not held(redis), "its lease is gone, and it rests", 30)
    assert waiter.silent() and opened(b).do("flock 0 ex nb") == "EAGAIN"
    over(redis)
    assert waiter.heard()[0] == "ok"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_keeper_ends(make, redis, end):
    """The next one knows nothing of the rest: the store does."""
    a = make("a", foreground=False)
    b = make("b")
    b.init()
    assert a.run("flock", "-n", a.path("f"), "true").returncode == 0
    if end == "stop":
        a.cli("stop")
    else:
        wait_until(a.kill_keeper, "it is gone")
    assert opened(a).do("flock 0 ex nb") == "EAGAIN" and opened(b).do("flock 0 ex nb") == "EAGAIN"


def test_the_next_keeper_gives_it_back_at_the_end_of_the_lock(make, redis):
    """It takes the lease up, which is for the lock that is held and for no other."""
    b, a = make("b"), make("a", foreground=False)
    holder, other = opened(a), opened(a)
    assert holder.do("flock 0 ex nb") == "ok"
    kill_keeper(a)
    wait_until(lambda: leases(a, state="waiting"), "it waits for the end of the lock, though nobody else does")
    over(redis)
    assert holder.do("flock 0 ex nb") == "ok"  # it has it
    assert not rests(redis)
    assert other.do("flock 0 ex nb") == "EAGAIN" and opened(b).do("flock 0 ex nb") == "EAGAIN"
    other.say("flock 0 ex")
    queued(redis, a)
    assert holder.do("flock 0 un") == "ok"
    assert other.heard()[0] == "ok"
    assert rests(redis) and holder.do("flock 0 ex nb") == "EAGAIN"
    kill_keeper(a)
    assert other.do("flock 0 un") == "ok"
    went_back(redis)


def test_the_keeper_dies_before_the_caller_is_told(make, redis, proxy):
    """The store has granted the lock and begun the rest, and nobody was told: the next keeper gives both back, and the caller has
    its lock."""
    b = make("b")
    a = make("a", server=proxy.address, foreground=False)
    agent = opened(a)
    assert agent.do(f"open 1 {a.path('g')} rwc") == "ok" and agent.do("flock 1 ex nb") == "ok"  # a keeper runs
    answer = proxy.fault("acquire", "late")
    agent.say("flock 0 ex nb")
    assert answer.happened.wait(20)
    wait_until(lambda: rests(redis), "it was granted")
    keeper = a.keeper_pids()[1]
    os.kill(keeper, signal.SIGKILL)
    proxy.release()
    assert agent.heard()[0] == "ok"
    assert rests(redis) and opened(b).do("flock 0 ex nb") == "EAGAIN"


def test_frozen_and_going_on(make, redis):
    """An outage of the store that forgets nothing: the holder goes on, the rest with it."""
    lease = "ttl_ms = 3000; freeze_margin_ms = 1300;"
    a, b = make("a", lease=lease), make("b", lease=lease)
    holder = opened(a)
    assert holder.do("flock 0 ex nb") == "ok"
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: state(holder.pid) in "tT", "it is frozen", 20)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: state(holder.pid) not in "tT", "it goes on", 20)
    assert holder.do("flock 0 ex nb") == "ok"
    wait_until(lambda: b.status()["store"]["up"], "the store is back for b")
    assert holder.do("flock 0 un") == "ok"
    went_back(redis)
    wait_until(lambda: opened(b).do("flock 0 ex nb") == "EAGAIN" and opened(a).do("flock 0 ex nb") == "EAGAIN", "it rests")
    over(redis)
    assert opened(b).do("flock 0 ex nb") == "ok"


def test_the_loss_of_the_stores_memory_ends_it(make, redis):
    """While the lock is held it is put back, as all are; the rest is forgotten."""
    lease = "ttl_ms = 2000; probe_ms = 5000;"
    a, b = make("a", lease=lease), make("b", lease=lease)
    holder, other = opened(a), opened(b)
    assert holder.do("flock 0 ex nb") == "ok"
    redis.command("FLUSHALL")
    other.say("flock 0 ex")
    wait_until(lambda: leases(b, note="waits for another host"), "grace is over, and the lock is held", 30)
    assert not rests(redis)
    assert holder.do("flock 0 un") == "ok"
    assert other.heard()[0] == "ok"
    assert rests(redis)


def test_the_rule_comes_while(make_host, redis):
    """While a lock is held, and while others wait for it, in the kernel and elsewhere: the next lock is the first in a rest."""
    a, b = (make_host(name, lease=LEASE + "pin_ms = 100;") for name in "ab")
    holder, local, remote, reader = opened(a), opened(a), opened(b), opened(b)
    assert holder.do("flock 0 ex nb") == "ok"
    local.say("flock 0 ex")
    assert local.silent(0.2)  # in the kernel, and its pin is over
    remote.say("flock 0 ex")
    reader.say("flock 0 sh")
    wait_until(lambda: len(queue(redis)) >= 2, "they are queued")
    for host in (a, b):
        write(host, read(host).replace('name = "t";', f'name = "t"; at_least_ms = {NEVER};'))
        host.cli("reload")
    assert not rests(redis)
    assert holder.do("flock 0 ex nb") == "ok"
    assert holder.do("flock 0 un") == "ok"
    got = wait_until(lambda: [agent for agent in (local, remote) if not agent.silent(0.05)], "one of them gets it")
    assert len(got) == 1 and got[0].heard()[0] == "ok"
    left = remote if got[0] is local else local
    assert rests(redis) and left.silent() and holder.do("flock 0 ex nb") == "EAGAIN"
    assert got[0].do("flock 0 un") == "ok"
    assert left.silent()
    over(redis)
    assert left.heard()[0] == "ok" and rests(redis)
    assert left.do("flock 0 un") == "ok"
    over(redis)
    assert reader.heard()[0] == "ENOLCK"


def test_the_rule_goes_while(pair, redis):
    a, b = pair
    holder, waiter = opened(a), opened(a)
    assert holder.do("flock 0 ex nb") == "ok"
    waiter.say("flock 0 ex")
    queued(redis, a)
    for host in pair:
        write(host, read(host).replace(f"at_least_ms = {NEVER};", ""))
        host.cli("reload")
    assert holder.do("flock 0 un") == "ok"
    assert waiter.silent() and rests(redis)  # what rests, rests
    over(redis)
    assert waiter.heard()[0] == "ok"
    assert waiter.do("flock 0 un") == "ok"
    redis.command("DEL", "dflock:{0}:rest:flock:t/f")  # it had asked under the old rule
    for agent in (opened(b), holder, holder):
        assert agent.do("flock 0 ex nb") == "ok" and agent.do("flock 0 un") == "ok"
    assert not rests(redis)


def test_a_rule_is_not_dropped_by_a_mere_edit(make):
    a = make("a")
    write(a, read(a).replace(f"at_least_ms = {NEVER};", ""))
    wait_until(lambda: a.status()["rules"]["file"] == "waits", "an operator has to say so")
    assert "at_least_ms" in a.status()["rules"]["why"]


def test_status_says_so(pair, redis):
    a, b = pair
    holder, waiter = opened(a), opened(b)
    assert holder.do("flock 0 ex nb") == "ok"
    waiter.say("flock 0 ex")
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


def test_check_says_so(pair):
    done = pair[0].cli("check", "-c", pair[0].config, pair[0].path("f"))
    assert "protected as t/f, one lock in 10 min 0 s (at_least_ms)" in done.stdout


# --- many rounds ---

ROUNDS = int(os.environ.get("DFLOCK_ONCE_ROUNDS", "12"))


def play(hosts, rnd, spread):
    """The same line of cron on all hosts, started within so many seconds: how many ran the job, and how many said "taken"."""
    jobs = []
    for host in rnd.sample(hosts, len(hosts)):
        line = f"sleep {rnd.random() * spread:.3f}; exec flock -n -E 99 {host.path('f')} sleep 0.01"
        jobs.append(host.popen("sh", "-c", line, stdout=subprocess.DEVNULL))
    done = [(job.communicate(timeout=60)[1], job.returncode) for job in jobs]
    assert all(code in (0, 99) and not said for said, code in done), done
    codes = [code for _, code in done]
    return codes.count(0), codes.count(99)


def test_five_hosts_and_the_same_line_of_cron(make, redis):
    """A job that is much shorter than the hosts' clocks are apart."""
    hosts, rnd = [make(name) for name in "abcde"], random.Random(1)
    for _ in range(ROUNDS):
        assert play(hosts, rnd, 0.2) == (1, 4)
        over(redis)


def test_keepers_are_killed(make, redis):
    """At any moment, and started anew: never do two run. None may run if a keeper died between its grant and the word to its caller:
    it cannot be known whether the caller had the word."""
    hosts, rnd = [make(name, foreground=False) for name in "abc"], random.Random(2)
    make("d").init()
    assert all(host.run("flock", "-n", host.path(host.name), "true").returncode == 0 for host in hosts)  # keepers run
    killed, ran = set(), 0
    for _ in range(ROUNDS):
        victim = rnd.choice(hosts)
        parent, keeper = wait_until(lambda: parent_and_keeper(victim, killed), "it was restarted")
        killer = subprocess.Popen(["sh", "-c", f"sleep {rnd.random() * 0.2:.3f}; kill -9 {keeper}"])
        runs, taken = play(hosts, rnd, 0.1)
        assert killer.wait() == 0
        killed.add(keeper)
        assert runs <= 1 and runs + taken == len(hosts)
        ran += runs
        redis.command("DEL", "dflock:{0}:rest:flock:t/f")
    assert ran > ROUNDS // 2
