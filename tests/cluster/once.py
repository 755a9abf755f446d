"""Hosts with at_least_ms, and what the store has of a rest."""
import pytest
from harness import wait_until

from keepers import leases

NEVER = 10 * 60 * 1000  # longer than any test
LEASE = "ttl_ms = 20000;"
TAKEN = ("EAGAIN", "EACCES")


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


def field(name, space):
    return "dflock:{0}:rests", f"dflock:{{0}}:rest:{space}:t/{name}"


def rests(redis, name="f", space="flock"):
    """How many ms it still rests; 0: it does not."""
    rest = redis.command("HGET", *field(name, space))
    sec, usec = map(int, redis.command("TIME"))
    return max(0, int(rest.split()[0]) - sec * 1000 - usec // 1000) if rest else 0


def over(redis, name="f", space="flock"):
    """The rest is over now."""
    assert redis.command("HDEL", *field(name, space)) == 1


def went_back(redis, name="f"):
    wait_until(lambda: not redis.command("EXISTS", f"dflock:{{0}}:lock:t/{name}"), "no host has a lease, or waits")


def queued(redis, host, name="f"):
    wait_until(lambda: leases(host, name, state="asking"), host.name + " waits")


def dump(redis):
    packed = "local v = redis.call('GET', 'dflock:{0}:lock:t/f') if not v then return {0, 0} end v = cmsgpack.unpack(v) " \
             "return {#v.l, #v.q}"
    return redis.command("EVAL", packed, 0)


def held(redis):
    return dump(redis)[0]


def queue(redis):
    return range(dump(redis)[1])
