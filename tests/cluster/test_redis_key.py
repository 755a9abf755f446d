"""
redis_key: the lease of a file is also the lock of a Redis key, so that old jobs and new programs exclude each other.

Where it could go wrong, and which test stands there. The lock without its key: at the grant, at a hand-over, while it is held for
longer than ttl_ms, under a lease of before the rule (test_redis_key_meanwhile.py). The key without a lock: after the end of the lock, of a
keeper, of a request that nobody knows any more. Callers that wait for ever, because no message says that a client is done.
Here: which locks there are; in test_redis_key_lost.py: keys that are taken, deleted, overwritten.
"""
import re

import pytest
from harness import wait_until
from harness.metrics import value as metric

from keepers import leases, opened
from redis_keys import KEY, QUICK, Client, client, key_is_free, make, pair, token, value, waits_for_client  # noqa: F401

pytestmark = pytest.mark.of_redis("is about redis_key")

LOCKS = [("flock 0 ex nb", "flock 0 un"), ("flock 0 sh nb", "flock 0 un"), ("setlk 0 ex 0 0", "setlk 0 un 0 0"),
         ("setlk 0 sh 5 1", "setlk 0 un 5 1"), ("setlk 0 ex 0 0 ofd", "setlk 0 un 0 0 ofd")]
NAMES = ["flock", "flock-shared", "posix", "posix-part-shared", "ofd"]
TAKEN = ("EAGAIN", "EACCES")


@pytest.mark.parametrize("lock,unlock", LOCKS, ids=NAMES)
def test_a_lock_takes_the_key(pair, redis, client, lock, unlock):
    a, b = opened(pair[0]), opened(pair[1])
    assert a.do(lock) == "ok"
    assert value(redis) == token(pair[0])
    assert not client.takes()
    assert b.do(lock) in TAKEN  # also a reader: a key has no shared locks
    assert a.do(unlock) == "ok"
    key_is_free(redis)  # at once: clients cannot recall it
    assert client.takes()
    assert a.do(lock) in TAKEN and b.do(lock) in TAKEN
    assert client.gives_back()
    assert b.do(lock) == "ok"
    assert value(redis) == token(pair[1])


@pytest.mark.parametrize("lock", ["flock 0 ex", "setlk 0 ex 0 0 w"], ids=["flock", "posix"])
def test_who_waits_for_a_client(make, redis, client, lock):
    a = make("a", lease=QUICK)
    waiter = opened(a)
    assert client.takes()
    waiter.say(lock)
    waits_for_client(a)
    assert waiter.silent(0.3)
    assert client.gives_back()
    assert waiter.heard()[0] == "ok"
    assert value(redis) == token(a)


def test_what_people_are_told(pair, client):
    a, b = pair
    assert client.takes()
    done = b.cli("who", "t/f", check=False)
    assert done.stdout.startswith("t/f: held\n")
    assert re.search(rf"held by a Redis client \({client.token[:8]}\.\.\.\), for another (1 min 0|59|58) s", done.stdout), done.stdout
    done = b.cli("who", b.path("f"), check=False)
    assert client.token[:8] in done.stdout and client.token not in done.stdout
    waiter = opened(a).say("flock 0 ex")
    waits_for_client(a)
    for host in pair:
        assert re.search(rf"held +a Redis client \({client.token[:8]}\.\.\.\) +key {KEY} +for another", host.cli("status").stdout)
    redis_client, = [lock["client"] for lock in a.status()["cluster"]["locks"]]
    assert redis_client["key"] == KEY and 0 < redis_client["left_ms"] <= 60000
    assert client.gives_back()
    assert waiter.heard()[0] == "ok"
    assert "Redis client" not in b.cli("who", "t/f").stdout + b.cli("status").stdout


@pytest.mark.parametrize("takes,gives_back", [
    (f"return redis.call('HSET', '{KEY}', 'uuid:1', 1) and redis.call('PEXPIRE', '{KEY}', 60000)",
     f"redis.call('DEL', '{KEY}') return redis.call('PUBLISH', 'redisson_lock__channel:{{{KEY}}}', 0)")])
def test_who_waits_for_redisson(make, redis, takes, gives_back):
    a = make("a", more='redis_key_format = "redisson";')
    waiter = opened(a)
    assert redis.command("EVAL", takes, 0) == 1
    waiter.say("flock 0 ex")
    waits_for_client(a)
    wait_until(lambda: redis.command("PUBSUB", "NUMSUB", f"redisson_lock__channel:{{{KEY}}}")[1] == 1, "it listens")
    assert redis.command("EVAL", gives_back, 0) == 1
    assert waiter.heard()[0] == "ok"
    assert redis.command("HGETALL", KEY) == [token(a) + ":1", "1"]
    assert waiter.do("flock 0 un") == "ok"
    key_is_free(redis)


def test_who_waits_for_a_client_that_died(pair, redis, client):
    """Its key expires; ttl_ms is far longer."""
    waiter = opened(pair[0])
    assert client.takes(ms=1500)
    waiter.say("flock 0 ex")
    waits_for_client(pair[0])
    assert waiter.heard()[0] == "ok"
    assert value(redis) == token(pair[0])


def test_handed_over_to_the_other_host(pair, redis, client):
    a, b = pair[0].opened("f", "flock 0 ex"), opened(pair[1]).say("flock 0 ex")
    wait_until(lambda: leases(pair[1], state="asking"), "b is queued")
    assert a.do("flock 0 un") == "ok"
    assert b.heard()[0] == "ok"
    assert value(redis) == token(pair[1]) and not client.takes()


def test_renewed_while_it_is_held(make, redis, client):
    """For longer than ttl_ms."""
    a = make("a", lease=QUICK)
    holder = a.opened("f", "flock 0 ex")
    first = redis.command("PTTL", KEY)
    wait_until(lambda: redis.command("PTTL", KEY) < first - 500, "time goes by")
    for _ in range(5):
        left = redis.command("PTTL", KEY)
        wait_until(lambda: redis.command("PTTL", KEY) > left, "a beat renewed it")
        wait_until(lambda: redis.command("PTTL", KEY) < first - 500, "time goes by")
    assert value(redis) == token(a) and not client.takes()


def test_readers_of_one_host_share(pair, redis):
    a, more, b = opened(pair[0]), opened(pair[0]), opened(pair[1])
    assert a.do("flock 0 sh nb") == "ok"
    assert more.do("flock 0 sh nb") == "ok"
    assert b.do("flock 0 sh nb") == "EAGAIN"
    assert a.do("flock 0 un") == "ok"
    assert b.do("flock 0 sh nb") == "EAGAIN"
    assert more.do("flock 0 un") == "ok"
    assert b.do("flock 0 sh") == "ok"


def test_two_spaces_of_one_program(pair, redis):
    a, b = pair[0].opened("f", "flock 0 ex nb", "setlk 0 ex 0 0"), opened(pair[1])
    assert b.do("flock 0 ex nb") == "EAGAIN" and b.do("setlk 0 ex 0 0") in TAKEN
    assert a.do("flock 0 un") == "ok"
    wait_until(lambda: len(leases(pair[0])) == 1, "one lease went back")
    assert value(redis) == token(pair[0])
    assert a.do("setlk 0 un 0 0") == "ok"
    key_is_free(redis)


def test_processes_of_one_host_take_turns(make, redis, client):
    """One that comes late waits for the next lease."""
    a = make("a", lease=QUICK + " fair_ms = 0;")
    first, second = a.opened("f", "flock 0 ex"), opened(a)
    old = token(a)
    second.say("flock 0 ex")
    wait_until(lambda: leases(a, state="asking"), "it is queued behind its own host")
    assert first.do("flock 0 un") == "ok"
    assert second.heard()[0] == "ok"
    wait_until(lambda: len(leases(a)) == 1, "the old lease has gone")
    assert token(a) != old and value(redis) == token(a)


def test_never_in_the_page(make):
    a = make("a")
    agent = a.opened("f", "flock 0 ex nb")
    assert metric(a, "page_leases") == 0
