"""at_least_ms: callers that wait for the end of a rest; keepers, hosts and the store end, the rule comes and goes; and many rounds."""
import os
import random
import signal
import subprocess

import pytest
from harness import BUILD, Job, wait_until
from harness.host import SHIM

from editing import read, write
from keepers import kill_keeper, leases, opened, parent_and_keeper
from once import LEASE, NEVER, TAKEN, field, held, make, over, pair, queue, queued, rests, went_back  # noqa: F401

# --- callers that wait ---


@pytest.mark.parametrize("lock", ["flock 0 ex", "setlk 0 ex 0 0 w"], ids=["flock", "posix"])
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


# --- what else may happen ---


def test_a_host_vanishes(make, redis):
    a, b = (make(name, lease="ttl_ms = 1000;") for name in "ab")
    holder, waiter = a.opened("f", "flock 0 ex nb"), opened(b)
    wait_until(a.kill_all, "nothing of it is left")
    assert waiter.do("flock 0 ex nb") == "EAGAIN"
    waiter.say("flock 0 ex")
    wait_until(lambda: not held(redis), "its lease is gone, and it rests", 30)
    assert waiter.silent() and opened(b).do("flock 0 ex nb") == "EAGAIN"
    over(redis)
    assert waiter.heard()[0] == "ok"


def test_the_store_is_short_of_memory(pair, redis):
    """The policy drops keys that expire, and no lock may be among them."""
    a, b = pair
    assert a.run("flock", "-n", a.path("f"), "true").returncode == 0
    went_back(redis)
    redis.command("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
    for n in range(100):
        redis.command("SET", f"cache{n}", "x" * 1000, "PX", NEVER * 2)
    redis.command("CONFIG", "SET", "maxmemory", "1")  # less than it needs: all that may be dropped is
    wait_until(lambda: not redis.command("KEYS", "cache*"), "all that expires has gone")
    redis.command("CONFIG", "SET", "maxmemory", "0")
    assert opened(a).do("flock 0 ex nb") in TAKEN and opened(b).do("flock 0 ex nb") in TAKEN
    assert rests(redis)


def test_the_next_keeper_gives_it_back_at_the_end_of_the_lock(make, redis):
    """It takes the lease up, which is for the lock that is held and for no other."""
    b, a = make("b"), make("a", foreground=False)
    holder, other = a.opened("f", "flock 0 ex nb"), opened(a)
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


def test_the_loss_of_the_stores_memory_ends_it(make, redis):
    """While the lock is held it is put back, as all are; the rest is forgotten."""
    lease = "ttl_ms = 2000;"
    a, b = make("a", lease=lease), make("b", lease=lease)
    holder, other = a.opened("f", "flock 0 ex nb"), opened(b)
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
    holder, waiter = a.opened("f", "flock 0 ex nb"), opened(a).say("flock 0 ex")
    queued(redis, a)
    for host in pair:
        write(host, read(host).replace(f"at_least_ms = {NEVER};", ""))
        host.cli("reload")
    assert holder.do("flock 0 un") == "ok"
    assert waiter.silent() and rests(redis)  # what rests, rests
    over(redis)
    assert waiter.heard()[0] == "ok"
    assert waiter.do("flock 0 un") == "ok"
    redis.command("HDEL", *field("f", "flock"))  # it had asked under the old rule
    for agent in (opened(b), holder, holder):
        assert agent.do("flock 0 ex nb") == "ok" and agent.do("flock 0 un") == "ok"
    assert not rests(redis)


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
        redis.command("HDEL", *field("f", "flock"))
    assert ran > ROUNDS // 2
