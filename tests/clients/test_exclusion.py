"""
A file whose rule has redis_key, and programs that lock this key with a library: never two of them at a time, whichever program ends, and
however. Each kind of client is the library itself, or sends what its sources send (commands.py).
"""
import os

import pytest
from client import REDISSON, STRING, Flocker
from harness import text_of, wait_until, write_text

from hosts import SHORT, free, holds, is_busy, owner, renewed, token, waits

ALL = STRING + REDISSON
ONE_OF_EACH = ("recipe", "redisson")


@pytest.mark.parametrize("kind", ALL)
def test_they_take_turns(make, make_client, redis, kind):
    """A killed program of a host, the client, and a program that waits."""
    a, b = make(kind, "ab")
    client = make_client(kind, ttl_ms=3000 if kind in STRING else 60000)
    job = holds(a)
    assert owner(redis, kind) == token(a)
    assert client.do("try") == "busy"
    client.say("lock")
    assert client.silent()
    job.kill()  # the kernel ends its lock, and the key goes with the lease
    assert client.heard() == "locked"
    mine = owner(redis, kind)
    assert is_busy(a) and is_busy(b)
    waiter = waits(a)
    assert waiter.silent()
    assert owner(redis, kind) == mine
    assert client.do("unlock") == "unlocked"
    assert waiter.line() == "held"  # woken by the channel, or when the key would have expired
    assert owner(redis, kind) == token(a)
    assert client.do("try") == "busy" and is_busy(b)
    assert waiter.end() == 0
    free(redis, kind)


@pytest.mark.parametrize("kind", ALL)
def test_nobody_loses_an_update(make, make_client, redis, folder, kind):
    """Programs of two hosts and two clients add one to a number, again and again."""
    path, times = os.path.join(folder, "number"), 25
    write_text(path, "0")
    all_ = [Flocker(host) for host in make(kind, "ab")] + [make_client(kind) for _ in range(2)]
    for program in all_:
        program.say("count", path, times, 1)
    assert [program.heard(120) for program in all_] == [f"counted {times}"] * 4
    assert int(text_of(path)) == 4 * times


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_the_client_is_killed(make, make_client, redis, kind):
    host, client = make(kind), make_client(kind, ttl_ms=1500)
    assert client.do("lock") == "locked"
    waiter = waits(host)
    client.kill()
    assert waiter.line() == "held"
    assert owner(redis, kind) == token(host)


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_another_host_takes_what_a_dead_one_had(make, make_client, redis, kind):
    a, b = make(kind, "ab", lease=SHORT)
    holds(a)
    had = token(a)
    waiter, client = waits(b), make_client(kind)
    wait_until(lambda: [l for l in b.status()["leases"] if l["note"] == "waits for another host"], "b waits")
    a.kill_all()
    assert waiter.line() == "held"
    assert owner(redis, kind) == token(b) != had and client.do("try") == "busy"
    client.say("lock")
    b.kill_all()  # nobody deletes the key, and it ends by the server's clock
    assert client.heard() == "locked"


@pytest.mark.parametrize("kind", ["recipe", "redis-py", "redlock"])
def test_the_clients_lock_expires(make, make_client, redis, kind):
    """A client that does not renew its key loses the lock when the key expires, and its unlock takes nothing from the next holder."""
    host, client = make(kind), make_client(kind, ttl_ms=700)
    assert client.do("lock") == "locked"
    waiter = waits(host).held()
    assert client.do("unlock") == "lost"
    assert owner(redis, kind) == token(host)
    assert waiter.end() == 0


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_the_key_is_renewed_with_the_beat(make, make_client, redis, kind):
    def is_bounded(left):
        assert 0 < left <= 1500

    host, client = make(kind, lease=SHORT), make_client(kind)
    job = holds(host)
    client.say("lock")
    renewed(redis, kind, 4, is_bounded)  # longer than a ttl
    assert client.silent(0.01) and owner(redis, kind) == token(host)
    assert job.end() == 0 and client.heard() == "locked"


@pytest.mark.parametrize("kind", ["redis-semaphore", "node-redisson", "redisson"])
def test_a_client_that_renews_keeps_it(make, make_client, redis, kind):
    """Longer than the time that its key had when the program on the host began to wait."""
    host, client = make(kind), make_client(kind, ttl_ms=900)
    assert client.do("lock") == "locked"
    waiter = waits(host)
    renewed(redis, kind, 3)
    assert waiter.silent(0.01)
    assert client.do("unlock") == "unlocked"
    assert waiter.line() == "held"
