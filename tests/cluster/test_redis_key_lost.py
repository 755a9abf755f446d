"""redis_key: what becomes of a lock when its key is taken, deleted or overwritten, expires, or the store loses it."""
import signal

import pytest
from harness import Job, wait_until
from harness.processes import waits_for_lock

from keepers import HOLD, kill_keeper, leases, opened
from redis_keys import KEY, LEASE, QUICK, Client, client, key_is_free, make, token, value, waits_for_client  # noqa: F401

pytestmark = pytest.mark.of_redis("is about redis_key")


def holder(host):
    return Job(host, "flock", host.path("f"), "sh", "-c", HOLD).held()


def ended(host, job, why):
    """It was killed, and the log says why."""
    wait_until(lambda: job.process.poll() is not None, "the holder ends")
    assert job.process.returncode == -signal.SIGKILL
    wait_until(lambda: why in host.log(), "the log says why")


def test_a_beat_finds_another_token(make, redis, client):
    a = make("a", lease=QUICK)
    job = holder(a)
    redis.command("SET", KEY, client.token, "PX", 60000)
    ended(a, job, "a Redis client has its key")
    wait_until(lambda: not redis.command("EXISTS", "dflock:{0}:lock:t/f"), "the lease goes back")
    assert value(redis) == client.token
    assert opened(a).do("flock 0 ex nb") == "EAGAIN"
    assert client.gives_back()
    assert opened(a).do("flock 0 ex nb") == "ok"


def test_a_caller_that_was_granted_just_before(make, redis, client):
    """It waits in the kernel for a process of its host. When that is killed, it must not come to rely on the lock."""
    a = make("a", lease=QUICK + " pin_ms = 60000; fair_ms = 60000;")
    job, waiter = holder(a), opened(a).say("flock 0 ex")
    wait_until(lambda: waits_for_lock(waiter.pid), "it waits in the kernel")
    redis.command("SET", KEY, client.token, "PX", 60000)
    ended(a, job, "a Redis client has its key")
    assert waiter.silent(0.5)
    waits_for_client(a)
    assert client.gives_back()
    assert waiter.heard()[0] == "ok"
    assert value(redis) == token(a)


def test_on_lost_warn(make, redis, client):
    a = make("a", lease=QUICK, more='on_lost = "warn";')
    job = holder(a)
    redis.command("SET", KEY, client.token, "PX", 60000)
    wait_until(lambda: "a Redis client has its key" in a.log(), "the log says so")
    wait_until(lambda: not redis.command("EXISTS", "dflock:{0}:lock:t/f"), "the lease goes back")
    assert job.process.poll() is None


def test_something_else_is_written_there(make, redis):
    a = make("a", lease=QUICK)
    job = holder(a)
    redis.command("DEL", KEY)
    redis.command("RPUSH", KEY, "x")
    ended(a, job, "something else was written into its key")
    done = a.run("flock", "-n", a.path("f"), "true")
    assert done.returncode != 0 and KEY in done.stderr and "is a list" in done.stderr and "redis_key" in done.stderr
    assert redis.command("LLEN", KEY) == 1


def test_deleted_by_hand(make, redis, client):
    """It is put back, if no client was faster; the log says that one may have had it."""
    a = make("a", lease=QUICK)
    job = holder(a)
    redis.command("DEL", KEY)
    wait_until(lambda: value(redis), "it is put back")
    assert value(redis) == token(a) and job.process.poll() is None
    wait_until(lambda: KEY in a.log() and "was put back" in a.log(), "the log says so")


def test_the_store_is_flushed(make, redis):
    a = make("a", lease=QUICK)
    job = holder(a)
    redis.command("FLUSHALL")
    wait_until(lambda: value(redis), "the key is put back with the lease")
    assert value(redis) == token(a) and job.process.poll() is None


def test_a_client_is_faster_after_a_flush(make, redis, client):
    a = make("a", lease=QUICK)
    job = holder(a)
    redis.command("FLUSHALL")
    assert client.takes()
    ended(a, job, "LOST")
    assert client.gives_back()


@pytest.mark.parametrize("stays", [True, False], ids=["taken", "free-again"])
def test_the_host_was_cut_off(make, redis, client, proxy, stays):
    """Its holders are stopped; its key expires, and a client has the lock. Even if it is done when the host comes back, the holders end:
    what they know may be of before."""
    make("b", lease=QUICK)
    a = make("a", lease=QUICK, server=proxy.address).wait_up()
    job = holder(a)
    proxy.accepting = False
    proxy.cut()
    wait_until(lambda: client.takes(), "the key has expired")
    assert stays or client.gives_back()
    proxy.accepting = True
    ended(a, job, "LOST")
    wait_until(lambda: not redis.command("EXISTS", "dflock:{0}:lock:t/f"), "the lease goes back")
    assert value(redis) == (client.token if stays else None)


def test_keepers_are_killed(make, redis, client):
    """The next keeper renews the key; one that finds another token there ends the holders."""
    a = make("a", lease=QUICK)
    job = holder(a)
    first = token(a)
    kill_keeper(a)
    wait_until(lambda: leases(a, state="waiting"), "the next keeper has taken it up", 30)
    wait_until(lambda: redis.command("PTTL", KEY) < 1600, "time goes by")
    wait_until(lambda: redis.command("PTTL", KEY) > 1600, "a beat renewed it")
    assert token(a) == first == value(redis)
    redis.command("SET", KEY, client.token, "PX", 60000)
    ended(a, job, "a Redis client has its key")


def test_a_lease_that_nobody_knows(make, redis):
    """A request that the server executed late granted it: its key would be renewed for ever."""
    a = make("a", lease=QUICK)
    agent = a.opened("f", "flock 0 ex nb")
    stale = "0" * 32
    script = """local l = cmsgpack.unpack(redis.call('GET', KEYS[1])) l.l[1].token = ARGV[1] redis.call('SET', KEYS[1], cmsgpack.pack(l))
    local host = l.l[1].host redis.call('SET', ARGV[2], ARGV[1], 'PX', 60000)
    redis.call('HSET', 'dflock:{0}:keys:' .. host, 't/f', ARGV[1] .. ' string ' .. ARGV[2]) redis.call('HSET', 'dflock:{0}:keys:' .. host,
    't/g', string.rep('1', 32) .. ' string other')"""
    redis.command("EVAL", script, 1, "dflock:{0}:lock:t/f", stale, KEY)
    key_is_free(redis)
