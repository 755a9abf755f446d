"""A store that is new or lost its memory grants nothing new for a ttl, and says what can be done."""
import time

from common import Alive, Waiting, agent_with, attempt, leases, refused, works
from harness import wait_until

GRACE = "the store is in grace.*`dflock init`"


def test_new_store(host_of, redis):
    host = host_of(redis, lease="ttl_ms = 1500;").wait_up()
    begun = time.monotonic()
    waiting = Waiting(host)
    refused(attempt(host), GRACE)
    assert host.status()["store"]["grace"]
    assert waiting.outcome().word == "ok"
    assert time.monotonic() - begun > 1  # part of it had passed before
    assert "grace is over" in host.log()


def test_init_ends_grace(host_of, redis):
    a, b = (host_of(redis, n, lease="ttl_ms = 60000;").wait_up() for n in "ab")
    waiting = Waiting(b)
    refused(attempt(a), GRACE)
    a.cli("init")
    assert attempt(a).word == "ok"
    assert waiting.outcome().word == "ok"


def test_flushed_while_held(make_host, redis):
    """For a ttl nothing new is granted, then the old holder still has it, and others wait for it."""
    a, b = (make_host(n, lease="ttl_ms = 2000;").wait_up() for n in "ab")
    held = agent_with(a)
    flushed = time.monotonic()
    redis.command("FLUSHALL")
    with Alive(a, b):
        refused(attempt(b, "g"), GRACE + "|lost its memory")
        refused(attempt(a, "g"), GRACE + "|lost its memory")
        for host in (a, b):
            wait_until(lambda: "the store lost its memory" in host.log(), host.name + " has it in its log")
            assert host.status()["store"]["grace"]
        wait_until(lambda: leases(a, state="held"), "a puts it back")
        waiting = Waiting(b, "g")
        assert waiting.outcome().word == "ok"
        assert time.monotonic() - flushed >= 2
        assert attempt(b).word == "busy"
        assert held.do("flock 0 un") == "ok"
        works(b)
