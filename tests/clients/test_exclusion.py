"""
A file whose rule has redis_key, and programs that lock this key with a library: never two of them at a time, whichever program ends, and
however. Each kind of client is the library itself, or sends what its sources send (commands.py).
"""
import os

import pytest
from client import REDISSON, STRING, Flocker, key_of
from harness import Job, text_of, wait_until, write_text

from hosts import LEASE, SHORT, free, holds, is_busy, owner, token, waits

ALL = STRING + REDISSON
ONE_OF_EACH = ("recipe", "redisson")


# --- who has it ---

@pytest.mark.parametrize("kind", ALL)
def test_a_lock_of_the_file_keeps_the_client_out(make, make_client, redis, kind):
    host, client = make(kind), make_client(kind)
    job = holds(host)
    assert owner(redis, kind) == token(host)
    assert client.do("try") == "busy"
    client.say("lock")
    assert client.silent()
    assert job.end() == 0
    assert client.heard() == "locked" and client.do("unlock") == "unlocked"


@pytest.mark.parametrize("kind", ALL)
def test_the_client_keeps_the_file_locked(make, make_client, redis, kind):
    a, b = make(kind, "ab")
    client = make_client(kind, ttl_ms=3000 if kind in STRING else 60000)
    assert client.do("lock") == "locked"
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


# --- who ends ---

@pytest.mark.parametrize("kind", ALL)
def test_the_client_is_killed(make, make_client, redis, kind):
    host, client = make(kind), make_client(kind, ttl_ms=1500)
    assert client.do("lock") == "locked"
    waiter = waits(host)
    client.kill()
    assert waiter.line() == "held"
    assert owner(redis, kind) == token(host)


@pytest.mark.parametrize("kind", ALL)
def test_the_holder_is_killed(make, make_client, kind):
    """The kernel ends its lock, and the key goes with the lease."""
    host, client = make(kind), make_client(kind)
    job = holds(host)
    client.say("lock")
    assert client.silent()
    job.kill()
    assert client.heard() == "locked"


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_the_host_is_killed(make, make_client, redis, kind):
    """With its keeper: nobody deletes the key, and it ends by the server's clock."""
    host, client = make(kind, lease=SHORT), make_client(kind)
    holds(host)
    client.say("lock")
    host.kill_all()
    assert redis.command("EXISTS", key_of(kind))
    assert client.heard() == "locked"


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
    assert waiter.end() == 0
    assert client.do("lock") == "locked"


@pytest.mark.parametrize("kind", ALL)
def test_the_clients_lock_expires(make, make_client, redis, kind):
    """Then it has lost it, and its unlock takes nothing from the one that has it now."""
    if kind in REDISSON or kind == "redis-semaphore":
        pytest.skip("renewed by the library")
    host, client = make(kind), make_client(kind, ttl_ms=700)
    assert client.do("lock") == "locked"
    waiter = waits(host).held()
    assert client.do("unlock") == "lost"
    assert owner(redis, kind) == token(host)


# --- renewed, and handed over ---

@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_the_key_is_renewed_with_the_beat(make, make_client, redis, kind):
    host, client = make(kind, lease=SHORT), make_client(kind)
    job = holds(host)
    client.say("lock")
    turns = 0
    last = redis.command("PTTL", key_of(kind))
    while turns < 4:  # longer than a ttl
        def renewed():
            nonlocal last
            before, last = last, redis.command("PTTL", key_of(kind))
            assert 0 < last <= 1500
            return last > before
        wait_until(renewed, "a beat renews the key")
        turns += 1
    assert client.silent(0.01) and owner(redis, kind) == token(host)
    assert job.end() == 0 and client.heard() == "locked"


@pytest.mark.parametrize("kind", ["redis-semaphore", "node-redisson", "redisson"])
def test_a_client_that_renews_keeps_it(make, make_client, redis, kind):
    """Longer than the time that its key had when the program on the host began to wait."""
    host, client = make(kind), make_client(kind, ttl_ms=900)
    assert client.do("lock") == "locked"
    waiter = waits(host)
    last, turns = redis.command("PTTL", key_of(kind)), 0
    while turns < 3:
        def renewed():
            nonlocal last
            before, last = last, redis.command("PTTL", key_of(kind))
            return last > before
        wait_until(renewed, "the library renews its key")
        turns += 1
    assert waiter.silent(0.01)
    assert client.do("unlock") == "unlocked"
    assert waiter.line() == "held"


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_hosts_hand_it_over(make, make_client, redis, kind):
    a, b = make(kind, "ab")
    client = make_client(kind)
    job = holds(a)
    for one, other in ((a, b), (b, a), (a, b)):
        was, waiter = token(one), waits(other)
        wait_until(lambda: [l for l in other.status()["leases"] if l["note"] == "waits for another host"], other.name + " waits")
        assert owner(redis, kind) == was and client.do("try") == "busy"
        assert job.end() == 0
        assert waiter.line() == "held"
        assert owner(redis, kind) == token(other) != was and client.do("try") == "busy"
        job = waiter
    assert job.end() == 0
    assert client.do("lock") == "locked"


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_it_goes_back_at_the_unlock(make, redis, kind):
    """linger_ms does not count: the client could not recall it."""
    host = make(kind, lease=LEASE + " linger_ms = 600000;")
    assert host.run("flock", host.path("f"), "true").returncode == 0
    free(redis, kind)


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_readers_of_two_hosts_exclude_each_other(make, make_client, redis, kind):
    a, b = make(kind, "ab")
    job = Job(a, "flock", "-s", a.path("f"), "sh", "-c", "echo held; read line").held()
    assert owner(redis, kind) == token(a)
    assert make_client(kind).do("try") == "busy"
    assert b.run("flock", "-sn", "-E", "99", b.path("f"), "true").returncode == 99
    assert a.run("flock", "-sn", "-E", "99", a.path("f"), "true").returncode == 0  # its own host's
