"""A store that is new or lost its memory grants nothing new for a ttl, and says what can be done. What is held: cluster/test_store_loss.py."""
import time

from common import Waiting, agent_with, attempt, leases, refused, works
from harness import wait_until

GRACE = "the store is in grace.*`dflock status`"


def test_new_store(host_of, redis):
    """It is over after a ttl; or `dflock init` ends it."""
    host = host_of(redis, lease="ttl_ms = 1500;").wait_up()
    begun = time.monotonic()
    waiting = Waiting(host)
    refused(attempt(host), GRACE)
    assert host.status()["store"]["grace"]
    assert waiting.outcome().word == "ok"
    assert time.monotonic() - begun > 1  # part of it had passed before
    assert "grace is over" in host.log()
    a, b = (host_of(redis, n, lease="ttl_ms = 60000;", store="database = 1;").wait_up() for n in "bc")
    waiting = Waiting(b)
    refused(attempt(a), GRACE)
    done = a.run("flock", "-E", "99", "-w", "3", a.path("f"), "true")
    assert done.returncode == 99 and ": waiting: the store is in grace" in done.stderr and done.stderr.count("\n") == 1, done
    a.init()
    assert attempt(a).word == "ok"
    assert waiting.process.wait(20) == 0


def refused_init(host, seconds=30):
    done = host.cli("init", check=False)
    assert done.returncode == 1 and done.stdout == "", done
    return done.stderr


def test_init_of_a_new_store_waits_for_a_beat(host_of, redis):
    """Two hosts that hold nothing: it is opened long before the ttl, and not before hosts with leases had sent a beat."""
    before = time.monotonic()
    a, b = (host_of(redis, n, lease="ttl_ms = 12000;").wait_up() for n in "ab")
    begun = time.monotonic()
    a.cli("init")
    assert time.monotonic() - begun < 9
    assert time.monotonic() - before > 6
    assert attempt(a).word == attempt(b).word == "ok"
    b.cli("init")  # it is open


def test_init_while_a_host_puts_its_lease_back(make_host, redis):
    """The keeper that is asked knows nothing: it began after the store had lost its memory. The holder's host, which lives,
    comes back at its next beat: init is refused, and lists what was put back."""
    a = make_host("a", lease="ttl_ms = 9000;")
    agent = agent_with(a)
    redis.command("FLUSHALL")
    b = make_host("b", lease="ttl_ms = 9000;").wait_up()
    said = refused_init(b)
    assert "there was an earlier memory of it" in said and "dflock init --force" in said and "at the same time" in said
    wait_until(lambda: leases(a, state="held"), "a puts it back")
    said = refused_init(b)
    assert "leases of 1 lock (t/f of a-" in said, said
    assert attempt(b).word != "ok"
    waiting = Waiting(b)
    wait_until(lambda: not b.status()["store"]["grace"], "grace is over")
    assert attempt(b).word == "busy" and waiting.waits()
    assert agent.do("flock 0 un") == "ok" and waiting.outcome().word == "ok"


def test_init_by_a_keeper_that_knows_an_earlier_memory(make_host, redis):
    """At once, also where no other host is left."""
    a = make_host("a", lease="ttl_ms = 20000;")
    works(a)
    redis.command("FLUSHALL")
    wait_until(lambda: attempt(a).word == "ENOLCK" and a.status()["store"]["grace"], "the keeper notices")
    begun = time.monotonic()
    assert "there was an earlier memory of it (" in refused_init(a)
    assert time.monotonic() - begun < 6  # a beat is more
    a.init()  # with --force
    works(a)
