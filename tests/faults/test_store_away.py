"""A call that waits for a store that is away says so after a second; one that waits for another host says nothing."""
import signal
import time

import pytest
from common import opened
from harness import wait_until

LINE = ": waiting: store "


@pytest.fixture(params=["killed", "stopped"])
def away(request, redis):
    """Takes the store away: no connection, or one without answers."""
    return redis.stop if request.param == "killed" else lambda: redis.signal(signal.SIGSTOP)


def flock_for_3_s(host, name="f"):
    began = time.monotonic()
    done = host.run("flock", "-E", "99", "-w", "3", host.path(name), "true")
    return done, time.monotonic() - began


def test_flock_w_says_why(make_host, away):
    host = make_host("a", lease="ttl_ms = 20000; linger_ms = 0;")
    away()
    done, seconds = flock_for_3_s(host)
    assert done.returncode == 99 and 2.9 < seconds < 6, (done, seconds)
    line, = done.stderr.splitlines()
    assert line.startswith("dflock: " + host.path("f") + LINE) and "is not reachable" in line and "dflock doctor" in line, line


def test_the_line_comes_after_a_second_and_once(make_host, away):
    host = make_host("a", lease="ttl_ms = 20000; linger_ms = 0; store_wait_ms = 4000;")
    away()
    began = time.monotonic()
    waiting = host.popen("flock", "-E", "99", host.path("f"), "true")
    first = waiting.stderr.readline()
    assert LINE in first and 0.9 < time.monotonic() - began < 3
    assert waiting.wait(30) != 0
    rest = waiting.stderr.read()
    assert LINE not in rest and "(waited 4000 ms)" in rest, rest


def test_a_call_that_waits_for_another_host_is_silent(make_host):
    a, b = (make_host(n, lease="ttl_ms = 20000;") for n in "ab")
    assert opened(a).do("flock 0 ex nb") == "ok"
    done, _ = flock_for_3_s(b)
    assert (done.returncode, done.stderr) == (99, "")


def test_a_call_that_waits_for_a_program_of_this_host_is_silent(make_host, away):
    """The host has the lease, and it is sure: the kernel alone decides, whatever the store does."""
    host = make_host("a", lease="ttl_ms = 20000;")
    assert opened(host).do("flock 0 ex nb") == "ok"
    away()
    done, _ = flock_for_3_s(host)
    assert (done.returncode, done.stderr) == (99, "")


def test_the_store_goes_while_a_call_waits_for_another_host(make_host, away):
    a, b = (make_host(n, lease="ttl_ms = 20000;") for n in "ab")
    assert opened(a).do("flock 0 ex nb") == "ok"
    waiting = b.popen("flock", b.path("f"), "true")
    wait_until(lambda: [l for l in b.status()["leases"] if l["note"] == "waits for another host"], "b is queued")
    away()
    assert LINE in waiting.stderr.readline()
    waiting.kill()
    waiting.communicate()


def test_a_store_in_grace_is_named(make_host, redis):
    host = make_host("a", lease="ttl_ms = 20000; linger_ms = 0;")
    redis.command("FLUSHALL")
    done, _ = flock_for_3_s(host)
    assert done.returncode == 99
    line, = done.stderr.splitlines()
    assert ": waiting: the store is in grace" in line, line
