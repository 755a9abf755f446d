"""
redis_key: the lease of a file is also the lock of a Redis key, so that old jobs and new programs exclude each other.

Where it could go wrong: the lock without its key, at the grant, at a hand-over, under a lease of before the rule; the key without a lock, after
the end of the lock, of a request that nobody knows any more. Here: which locks there are, and what depends on neither library nor format. Clients
of both formats, and a key that is taken, deleted, overwritten or forgotten: tests/clients. What the scripts do: tests/unit/test_store_keys.c.
"""
import re
import signal
import uuid

import pytest
from harness import wait_until
from harness.job import holder
from harness.metrics import value as metric
from harness.processes import waits_for_lock
from harness.redis import LEAST_RIGHTS

from editing import read, write
from keepers import LONG, leases, opened

pytestmark = pytest.mark.of_redis("is about redis_key")

KEY = "jobs:nightly"
QUICK = "ttl_ms = 2000; probe_ms = 500;"
FREE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
LOCKS = [("flock 0 ex nb", "flock 0 un"), ("flock 0 sh nb", "flock 0 un"), ("setlk 0 ex 0 0", "setlk 0 un 0 0"),
         ("setlk 0 sh 5 1", "setlk 0 un 5 1"), ("setlk 0 ex 0 0 ofd", "setlk 0 un 0 0 ofd")]
NAMES = ["flock", "flock-shared", "posix", "posix-part-shared", "ofd"]
TAKEN = ("EAGAIN", "EACCES")


class Client:
    """SET key token NX PX ms; compare and delete by a script (redis.io, "Distributed locks with Redis")."""

    def __init__(self, redis):
        self.redis, self.token = redis, uuid.uuid4().hex

    def takes(self):
        return self.redis.command("SET", KEY, self.token, "NX", "PX", 60000) == "OK"

    def gives_back(self):
        return self.redis.command("EVAL", FREE, 1, KEY, self.token) == 1


@pytest.fixture
def make(make_host):
    def make(name, lease=LONG + "linger_ms = 600000;", more="", **options):
        return make_host(name, rules='{ path = "%%s/f"; name = "t/f"; redis_key = "%s"; %s }' % (KEY, more), lease=lease, **options)

    return make


@pytest.fixture
def pair(make):
    return make("a"), make("b")


@pytest.fixture
def client(redis):
    return Client(redis)


def value(redis):
    return redis.command("GET", KEY)


def token(host):
    """Of its one lease."""
    lease, = leases(host)
    return lease["token"]


def key_is_free(redis):
    wait_until(lambda: not redis.command("EXISTS", KEY), "the key is free")


def goes_back(redis):
    wait_until(lambda: not redis.command("EXISTS", "dflock:{0}:lock:t/f"), "the lease goes back")


def waits_for_client(host):
    wait_until(lambda: [l for l in leases(host, state="asking") if "a Redis client" in l["note"]], host.name + " waits for the client")


def ended(host, job, why):
    """It was killed, and the log says why."""
    wait_until(lambda: job.process.poll() is not None, "the holder ends")
    assert job.process.returncode == -signal.SIGKILL
    wait_until(lambda: why in host.log(), "the log says why")


@pytest.mark.parametrize("lock,unlock", LOCKS, ids=NAMES)
def test_a_lock_takes_the_key(pair, redis, client, lock, unlock):
    a, b = opened(pair[0]), opened(pair[1])
    assert a.do(lock) == "ok"
    assert value(redis) == token(pair[0]) and metric(pair[0], "page_leases") == 0  # else programs would not ask for the key
    assert not client.takes()
    assert b.do(lock) in TAKEN  # also a reader: a key has no shared locks
    assert a.do(unlock) == "ok"
    key_is_free(redis)  # at once: clients cannot recall it
    assert client.takes()
    assert a.do(lock) in TAKEN and b.do(lock) in TAKEN
    assert client.gives_back()
    assert b.do(lock) == "ok"
    assert value(redis) == token(pair[1])


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


@pytest.mark.parametrize("ms,said", [(60000, r"for another \d+ s"), (10 ** 13, "without an expiry"), (0, "without an expiry")])
def test_for_how_long_a_client_has_it(make, redis, ms, said):
    a = make("a")
    redis.command("SET", KEY, "client", *["PX", ms] if ms else [])
    opened(a).say("flock 0 ex")
    waits_for_client(a)
    lease, = leases(a)
    assert re.search(said, lease["note"]), lease["note"]


def test_who_waits_for_redisson(make, redis):
    a = make("a", more='redis_key_format = "redisson";')
    waiter, channel = opened(a), f"redisson_lock__channel:{{{KEY}}}"
    redis.command("HSET", KEY, "uuid:1", 1)
    waiter.say("flock 0 ex")
    waits_for_client(a)
    wait_until(lambda: redis.command("PUBSUB", "NUMSUB", channel)[1] == 1, "it listens")
    assert redis.command("EVAL", f"redis.call('DEL', '{KEY}') return redis.call('PUBLISH', '{channel}', 0)", 0) == 1
    assert waiter.heard()[0] == "ok"
    assert redis.command("HGETALL", KEY) == [token(a) + ":1", "1"]
    assert waiter.do("flock 0 un") == "ok"
    key_is_free(redis)


def test_handed_over_to_the_other_host(pair, redis, client):
    a, b = pair[0].opened("f", "flock 0 ex"), opened(pair[1]).say("flock 0 ex")
    wait_until(lambda: leases(pair[1], state="asking"), "b is queued")
    assert a.do("flock 0 un") == "ok"
    assert b.heard()[0] == "ok"
    assert value(redis) == token(pair[1]) and not client.takes()


def test_readers_of_one_host_share(pair):
    a, more, b = opened(pair[0]), opened(pair[0]), opened(pair[1])
    assert a.do("flock 0 sh nb") == "ok"
    assert more.do("flock 0 sh nb") == "ok"
    assert b.do("flock 0 sh nb") == "EAGAIN"
    assert a.do("flock 0 un") == "ok"
    assert b.do("flock 0 sh nb") == "EAGAIN"
    assert more.do("flock 0 un") == "ok"
    assert b.do("flock 0 sh") == "ok"


def test_processes_of_one_host_take_turns(make, redis):
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


def test_a_caller_that_was_granted_just_before(make, redis, client):
    """It waits in the kernel for a process of its host. When that is killed, it must not come to rely on the lock."""
    # Its grant ends with the lease: long after the next beat, which finds the other token.
    a = make("a", lease="ttl_ms = 6000; probe_ms = 500; pin_ms = 60000; fair_ms = 60000;")
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
    goes_back(redis)
    assert job.process.poll() is None


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
    goes_back(redis)
    assert value(redis) == (client.token if stays else None)


@pytest.mark.skipif(LEAST_RIGHTS, reason="has a key for which no rule gives a right")
def test_a_lease_that_nobody_knows(make, redis):
    """A request that the server executed late granted it: its key would be renewed for ever."""
    a = make("a", lease=QUICK)
    a.opened("f", "flock 0 ex nb")
    stale = "0" * 32
    script = """local l = cmsgpack.unpack(redis.call('GET', KEYS[1])) l.l[1].token = ARGV[1] redis.call('SET', KEYS[1], cmsgpack.pack(l))
    local host = l.l[1].host redis.call('SET', ARGV[2], ARGV[1], 'PX', 60000)
    redis.call('HSET', 'dflock:{0}:keys:' .. host, 't/f', ARGV[1] .. ' string ' .. ARGV[2]) redis.call('HSET', 'dflock:{0}:keys:' .. host,
    't/g', string.rep('1', 32) .. ' string other')"""
    redis.command("EVAL", script, 1, "dflock:{0}:lock:t/f", stale, KEY)
    key_is_free(redis)


def test_the_rule_comes_while(make_host, redis, client):
    """The lock of before has no key. Who comes later waits for its end, and takes the key."""
    a = make_host("a", rules='{ path = "%s/f"; name = "t/f"; }', lease=LONG)
    old, new = a.opened("f", "flock 0 sh"), opened(a)
    write(a, read(a).replace('name = "t/f";', f'name = "t/f"; redis_key = "{KEY}";'))
    assert a.cli("reload").returncode == 0
    assert client.takes()  # nobody has said before that the key belongs to it
    assert client.gives_back()
    assert old.do("flock 0 sh") == "ok"  # the same description, which has it
    new.say("flock 0 sh")
    wait_until(lambda: leases(a, state="asking"), "it waits for the store")
    assert new.silent(0.2)
    assert old.do("flock 0 un") == "ok"
    assert new.heard()[0] == "ok"
    wait_until(lambda: len(leases(a)) == 1, "the old lease has gone")
    assert value(redis) == token(a) and not client.takes()
