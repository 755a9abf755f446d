"""Hosts whose rules name two stores: what is true of a host is true of it in one store, and an outage is of that store alone. A loss of
memory and a cycle: test_shards.py, whose shards are stores, too."""
import os
import re
import signal

import pytest
from harness import wait_until
from harness.metrics import value

from jobs import LEASE, Job, grows, is_busy, is_frozen
from keepers import kill_keeper

RULES = '{ tree = "%s/other"; name = "o"; store = "other"; }, { tree = "%s"; name = "t"; }'


@pytest.fixture
def other(make_server):
    return make_server()


@pytest.fixture
def make_both(make_host, other):
    def make(name, lease=LEASE, **options):
        host = make_host(name, lease=lease, rules=RULES, top='stores = { other = { server = "unix:%s"; }; };' % other.socket,
                         **options)
        os.makedirs(host.path("other"), exist_ok=True)
        return host
    return make


@pytest.fixture
def a(make_both):
    return make_both("a")


def test_a_lock_is_in_the_store_of_its_rule(a, make_both, redis, other):
    """Also for the next keeper."""
    b = make_both("b")
    jobs = Job(a, "f"), Job(a, "other/f")
    assert is_busy(b, "f") and is_busy(b, "other/f")
    assert [k for k in redis.command("KEYS", "*lock*") if k.endswith(":t/f")]
    assert [k for k in other.command("KEYS", "*lock*") if k.endswith(":o/f")]
    kill_keeper(a)
    assert is_busy(b, "f") and is_busy(b, "other/f")
    for job in jobs:
        grows(job.path)
        job.end()
    wait_until(lambda: not is_busy(b, "f") and not is_busy(b, "other/f"), "both are free")


def test_only_holders_of_the_store_that_is_away_are_frozen(a, make_both, other):
    b = make_both("b")
    mine, theirs, both = Job(a, "f"), Job(a, "other/f"), Job(a, "g", "other/g")
    other.signal(signal.SIGSTOP)
    theirs.waits_frozen()
    both.waits_frozen()
    grows(mine.path)
    wait_until(lambda: not value(a, "stores_up", store="other"), "the keeper says so", 20)
    assert value(a, "stores_up", store="default")
    said = a.cli("status", "--check", check=False)
    assert said.returncode == 2 and " processes are frozen until the store of their locks answers" in said.stdout, said
    said = a.cli("status").stdout
    assert "not all can be shown: other: " in said and "FROZEN until the store of their locks answers" in said, said
    assert "no other host can have the locks" not in said and "they are killed" not in said, said
    assert is_busy(b, "f") and not is_busy(b, "new") and not is_busy(a, "new")  # the other store takes and gives
    assert b.run("flock", "-n", b.path("other/x"), "true").returncode not in (0, 99)  # refused
    other.signal(signal.SIGCONT)
    for job in (mine, theirs, both):
        grows(job.path)
        job.end()
    assert not a.status()["lost"]


def test_the_worst_comes_first(host_of, other):
    """A line of a monitoring system may be cut."""
    a = host_of("unix:/none", lease="ttl_ms = 60000;", rules=RULES, top='stores = { other = { server = "unix:%s"; }; };' % other.socket)
    wait_until(lambda: re.match(r"DFLOCK CRITICAL: the store unix:/none is not reachable: .*; the store other is in grace",
                                a.cli("status", "--check", check=False).stdout), "both are said, in this order")


def test_outages_end_each_for_itself(a, redis, other):
    """One store is away for long; the other one comes and goes meanwhile."""
    mine, theirs, both = Job(a, "f"), Job(a, "other/f"), Job(a, "g", "other/g")
    other.signal(signal.SIGSTOP)
    theirs.waits_frozen()
    redis.signal(signal.SIGSTOP)
    mine.waits_frozen()
    wait_until(lambda: a.status()["metrics"]["freezes_total"] == 2, "each outage counts")
    redis.signal(signal.SIGCONT)
    grows(mine.path)
    assert is_frozen(theirs.path) and is_frozen(both.path)
    redis.signal(signal.SIGSTOP)
    mine.waits_frozen()
    other.signal(signal.SIGCONT)
    grows(theirs.path)
    assert is_frozen(mine.path) and is_frozen(both.path)
    redis.signal(signal.SIGCONT)
    for job in (mine, theirs, both):
        grows(job.path)
        job.end()
    assert not a.status()["lost"]


def test_the_log_says_of_each_store_that_it_is_away(a, redis, other):
    """At once: when one of them is back, nothing else would say that the other one is not."""
    jobs = Job(a, "f"), Job(a, "other/f")
    for server in redis, other:
        server.signal(signal.SIGSTOP)
    for server in redis, other:
        wait_until(lambda: f"event=store-away: store unix:{server.socket}" in a.log(), "it is said")
    for server in redis, other:
        server.signal(signal.SIGCONT)
    for server in redis, other:
        wait_until(lambda: f"event=store-back: store unix:{server.socket}" in a.log(), "that, too")
    for job in jobs:
        grows(job.path)
        job.end()


def test_jobs_start_while_one_store_does_not_answer(make_both, redis):
    """The other one takes locks: that is enough for each job, and not only for the first one that asks."""
    a = make_both("a", store="connect_ms = 60000;")
    redis.signal(signal.SIGSTOP)
    for _ in range(3):
        assert a.cli("run", "--require", "echo", "ran", check=False).stdout == "ran\n"
    redis.signal(signal.SIGCONT)


@pytest.mark.parametrize("away", ["default", "other"])
def test_a_host_is_given_up_where_the_store_is_there(make_both, redis, other, away):
    """And where it is not, that is said."""
    a, b = (make_both(name, lease="ttl_ms = 30000; probe_ms = 300;") for name in "ab")
    job, name = Job(a, "f", "other/f"), a.status()["host"]
    wait_until(a.kill_all, "a is off")
    a.keeper.wait()
    job.process.communicate(timeout=20)
    assert is_busy(b, "f") and is_busy(b, "other/f")
    server, there = (redis, "other/f") if away == "default" else (other, "f")
    server.signal(signal.SIGSTOP)
    wait_until(lambda: not value(b, "stores_up", store=away), "one is away", 40)
    done = b.cli("break", "--yes", "--force", "--host", name, check=False)
    assert done.returncode == 1 and server.socket in done.stderr, done
    assert not is_busy(b, there)
    server.signal(signal.SIGCONT)


def test_a_name_that_is_in_both_stores(a, make_host, make_both, other):
    """Other hosts' rules give it the other one. What is broken is what this host's rule means, and else it is said."""
    b = make_host("b", lease=LEASE, rules=RULES.replace(' store = "other";', ""), top='stores = { other = { server = "unix:%s"; }; };' % other.socket)
    os.makedirs(b.path("other"))
    theirs, mine = Job(b, "other/f"), Job(a, "other/f")
    a.cli("break", "--yes", "o/f")
    mine.process.wait(30)
    grows(theirs.path)
    done = a.cli("break", "--yes", "o/f", check=False)
    assert done.returncode == 1 and "o/f is in the store default, and not in the one" in done.stderr, done
    grows(theirs.path)
    theirs.end()


def test_a_rule_that_would_move_a_lock_to_another_store(a, make_both):
    """Where it is held, other hosts could get it in the other store meanwhile: reload refuses that as it refuses another name."""
    b, job = make_both("b"), Job(a, "other/f")
    for host in a, b:
        with open(host.config) as f:
            text = f.read()
        with open(host.config, "w") as f:
            f.write(text.replace(' store = "other"; }', " }"))
    assert is_busy(b, "other/f")
    b.cli("reload")
    done = a.cli("reload", check=False)
    assert done.returncode == 1 and "is locked, was just now, or is waited for, and would be in another store" in done.stderr, done
    grows(job.path)
    job.end()
    wait_until(lambda: a.cli("reload", check=False).returncode == 0, "it is given back, and may move")
