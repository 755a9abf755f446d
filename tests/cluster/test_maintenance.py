"""The figures of docs/maintenance.md: Redis is away for a part of ttl_ms, and comes back without its memory."""
import signal
import time

import pytest
from harness import wait_until

from keepers import held
from jobs import end, grows, job, size

pytestmark = pytest.mark.punctual

TTL = 18.0      # freeze_margin_ms is the default: a sixth of it
RECONNECT = 2.0  # a keeper tries again every two seconds at the latest


def make(make_host):
    a = make_host("a", lease=f"ttl_ms = {int(TTL * 1000)};")
    process, path = job(a)
    return a, process, path, held(a)[0]


def put_back(a, before):
    wait_until(lambda: "lost its memory" in a.log(), "the loss is noticed", 20)
    wait_until(lambda: held(a, token=before["token"], fence=before["fence"], state="held"), "the lease is put back", 20)
    assert not a.status()["lost"]


def test_a_short_restart_is_not_noticed(make_host, redis):
    a, process, path, before = make(make_host)
    redis.stop()
    time.sleep(0.4 * TTL - RECONNECT - 0.05 * TTL)  # how long the store is away is what is tested; the machine may be slow
    redis.start()
    put_back(a, before)
    assert "frozen" not in a.log()
    grows(path)
    assert "dflock" not in end(process, path)


def test_a_longer_restart_freezes_and_kills_no_process(make_host, redis):
    a, process, path, before = make(make_host)
    stopped = time.monotonic()
    redis.stop()
    wait_until(lambda: "are frozen" in a.log(), "the job is frozen", TTL)
    frozen = time.monotonic() - stopped
    assert 0.4 * TTL - 0.5 <= frozen <= (0.9 - 1 / 6) * TTL + 1.5  # the last beat was at most a third of ttl_ms ago
    redis.start()
    put_back(a, before)
    wait_until(lambda: "go on" in a.log(), "the job is let go", 10)
    grows(path)
    assert "dflock" not in end(process, path)


def test_a_restart_that_outlasts_the_leases_kills(make_host, redis):
    a, process, path, before = make(make_host)
    redis.stop()
    time.sleep(0.92 * TTL)  # how long the store is away is what is tested
    redis.start()
    last = size(path)
    words = process.communicate(timeout=20)[1]
    assert size(path) == last  # it was frozen, and has not run since
    assert f"dflock: {a.path('f')}: the lock was lost: the store lost its memory" in words
    wait_until(lambda: a.status()["lost"], "status says so")


def test_a_hang_that_outlasts_the_leases_kills_no_process(make_host, redis):
    """The store still has its memory, and no other host has had the lock."""
    a, process, path, before = make(make_host)
    redis.signal(signal.SIGSTOP)
    time.sleep(0.92 * TTL)  # how long the store is away is what is tested
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in a.log(), "the job is let go", 20)
    grows(path)
    assert held(a)[0]["token"] == before["token"]
    assert "dflock" not in end(process, path)
