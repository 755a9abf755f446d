"""The store loses its memory while locks are held: what still had time is put back, nothing is granted twice."""
import os
import signal

import pytest
from harness import wait_until

from test_flock import held, opened


def lose(redis, how):
    if how == "flushall":
        redis.command("FLUSHALL")
    else:
        redis.restart()


@pytest.mark.parametrize("how", ["flushall", "restart"])
@pytest.mark.parametrize("take", ["flock 0 {}", "setlk 0 {} 10 20"])
@pytest.mark.parametrize("mode", ["sh", "ex"])
def test_a_held_lease_is_put_back(make_host, redis, how, take, mode):
    a, b = (make_host(n, lease="ttl_ms = 2000;") for n in "ab")
    one, other = opened(a), opened(b)
    assert one.do(take.format(mode)) == "ok"
    before = a.status()["leases"][0]
    lose(redis, how)
    wait_until(lambda: "lost its memory" in a.log(), "the loss is noticed", 10)
    wait_until(lambda: held(a, token=before["token"], state="held"), "the lease is put back")
    assert held(a)[0]["fence"] == before["fence"]
    # b waits for grace to end, and then for a.
    other.say(take.format("ex") + (" w" if "setlk" in take else ""))
    wait_until(lambda: not b.status()["store"]["grace"], "grace is over", 20)
    assert other.silent(0.3)
    assert one.do(take.replace("{}", "un").format()) == "ok"
    assert other.heard()[0] == "ok"
    assert not a.status()["lost"]
    assert held(b)[0]["fence"] > before["fence"]


def test_nothing_new_in_grace(make_host, redis):
    a, b = (make_host(n, lease="ttl_ms = 2000;") for n in "ab")
    one, other = opened(a), opened(b)
    assert one.do("flock 0 ex") == "ok"
    redis.command("FLUSHALL")
    wait_until(lambda: "lost its memory" in b.log() or other.do("flock 0 ex nb") == "ENOLCK", "b notices", 10)
    assert other.do("flock 0 ex nb") == "ENOLCK"


def test_grace_ends_each_time(make_host, redis):
    """Also when nobody connects anew: FLUSHALL breaks no connection. The second time, since the keeper's start counts as one, too."""
    a = make_host("a", lease="ttl_ms = 500;")
    one = opened(a)
    for _ in range(2):
        assert one.do("flock 0 ex") == "ok"
        before = a.status()["store"]["incarnation"]
        redis.command("FLUSHALL")
        wait_until(lambda: a.status()["store"]["incarnation"] != before, "the loss is noticed", 10)
        wait_until(lambda: not a.status()["store"]["grace"], "grace is over", 20)
        assert one.do("flock 0 un") == "ok"


def test_keeper_and_store_restart_together(make_host, redis):
    """The journal remembers of which incarnation the leases were."""
    a, b = (make_host(n, lease="ttl_ms = 4000;") for n in "ab")
    one, other = opened(a), opened(b)
    assert one.do("flock 0 ex") == "ok"
    before = held(a)[0]
    redis.stop()
    os.kill(a.keeper_pids()[-1], signal.SIGKILL)
    redis.start()
    wait_until(lambda: held(a, token=before["token"], state="held"), "the lease is put back")
    other.say("flock 0 ex")
    wait_until(lambda: not b.status()["store"]["grace"], "grace is over", 20)
    assert other.silent(0.3)
    one.do("flock 0 un")
    assert other.heard()[0] == "ok"


def test_a_lease_whose_time_is_over_is_lost(make_host, redis):
    """No contact for longer than the deadline, and the store is another one then: nobody can tell who had the lock meanwhile."""
    a = make_host("a", lease="ttl_ms = 1000;")
    one = opened(a)
    assert one.do("flock 0 ex") == "ok"
    redis.stop()
    wait_until(lambda: "run out" in a.log(), "the deadline comes near", 10)
    wait_until(lambda: a.status()["leases"][0]["state"] == "unsure", "the deadline passes", 10)
    redis.start()
    wait_until(lambda: a.status()["lost"], "the lease is lost")
    assert "LOST" in a.log()
