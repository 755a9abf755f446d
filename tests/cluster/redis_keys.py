"""Hosts whose file f is also the lock of a Redis key, and a Redis client that takes the key as libraries do."""
import uuid

import pytest
from harness import wait_until

from keepers import leases

KEY = "jobs:nightly"
LEASE = "ttl_ms = 20000; probe_ms = 5000;"  # nothing runs out while a test looks
QUICK = "ttl_ms = 2000; probe_ms = 500;"
FREE, DELETE = "return redis.call('GET', KEYS[1]) == ARGV[1]", \
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


def rule(key=KEY, more=""):
    return '{ path = "%%s/f"; name = "t/f"; redis_key = "%s"; %s }' % (key, more)


class Client:
    """SET key token NX PX ms; compare and delete by a script (redis.io, "Distributed locks with Redis")."""

    def __init__(self, redis, key=KEY):
        self.redis, self.key, self.token = redis, key, uuid.uuid4().hex

    def takes(self, ms=60000):
        return self.redis.command("SET", self.key, self.token, "NX", "PX", ms) == "OK"

    def gives_back(self):
        return self.redis.command("EVAL", DELETE, 1, self.key, self.token) == 1


@pytest.fixture
def make(make_host):
    def make(name, lease=LEASE, more="", **options):
        return make_host(name, rules=rule(more=more), lease=lease, **options)

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


def waits_for_client(host):
    wait_until(lambda: [l for l in leases(host, state="asking") if "a Redis client" in l["note"]],
               host.name + " waits for the client")
