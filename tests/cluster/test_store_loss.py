"""The store loses its memory while locks are held: leases that have not run out are put back, and nothing is granted twice."""
import os
import signal

import pytest
from harness import wait_until

from keepers import held, opened
from jobs import end, grows, is_frozen, job, pid_of, size


@pytest.mark.parametrize("how,take,mode", [
    ("flushall", "flock 0 {}", "ex"), ("restart", "setlk 0 {} 10 20", "ex"), ("flushall", "setlk 0 {} 10 20", "sh")],
    ids=["flushall", "restart", "shared-range"])
def test_a_held_lease_is_put_back(make_host, redis, how, take, mode):
    a, b = (make_host(n, lease="ttl_ms = 4000;") for n in "ab")  # it outlasts the start of a server
    one, other = opened(a), opened(b)
    assert one.do(take.format(mode)) == "ok"
    before = a.status()["leases"][0]
    if how == "flushall":
        redis.command("FLUSHALL")
    else:
        redis.restart()
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


def test_fences_grow_though_the_stores_clock_is_behind(make_host, redis):
    """The lease is not put back, since it was given back. A host tells what it knows, which never had a lease itself."""
    a = make_host("a", lease="ttl_ms = 1500; linger_ms = 50;").wait_up()
    redis.command("HINCRBY", "dflock:{0}:store", "fence", 10 ** 12)  # as if the clock had been 11 days ahead
    b = make_host("b", lease="ttl_ms = 1500; linger_ms = 50;").wait_up()
    one, other = a.opened("f", "flock 0 ex"), opened(b)
    before = held(a)[0]["fence"]
    assert one.do("flock 0 un") == "ok"
    wait_until(lambda: not redis.command("KEYS", "dflock:{0}:lock:*"), "the lease has gone back")
    redis.command("FLUSHALL")
    assert other.do("flock 0 ex") == "ok"  # when grace is over
    assert held(b)[0]["fence"] > before


def put_back(host, before, other, waiting_host):
    """The holder's lease stands as it was, and another host gets the lock only after the holder left it."""
    wait_until(lambda: "lost its memory" in host.log(), "the loss is noticed", 20)
    wait_until(lambda: held(host, token=before["token"], fence=before["fence"], state="held"), "the lease is put back")
    other.say("flock 0 ex")
    wait_until(lambda: not waiting_host.status()["store"]["grace"], "grace is over", 20)
    wait_until(lambda: held(waiting_host, note="waits for another host"), "it waits")
    assert other.silent(0.2)
    assert not host.status()["lost"]


@pytest.mark.parametrize("when", ["before all", "it was another's", "it was the same", "just now"])
def test_an_old_snapshot(make_host, make_server, when):
    """kill -9, and it starts with an RDB file from before: its record of the lock is out of date. Just now: it has an append-only file, and has
    lost nothing, but the server cannot tell: it is a new incarnation, with the same lease in it."""
    redis = make_server(*(("--appendonly", "yes", "--appendfsync", "always") if when == "just now" else ("--dbfilename", "old.rdb")))
    a, b = (make_host(n, server=redis, lease="ttl_ms = 3000; linger_ms = 0;") for n in "ab")
    one, other = opened(a), opened(b)
    if when == "it was another's":
        assert other.do("flock 0 ex") == "ok"
    if when == "it was the same":
        assert one.do("flock 0 ex") == "ok"
    if when != "just now":
        redis.command("SAVE")
    other.do("flock 0 un")
    assert one.do("flock 0 ex") == "ok"
    before = held(a)[0]
    redis.restart()
    assert when != "just now" or redis.command("EXISTS", "dflock:{0}:lock:t/f") == 1
    put_back(a, before, other, b)
    assert one.do("flock 0 un") == "ok"
    assert other.heard()[0] == "ok"
    assert held(b)[0]["fence"] > before["fence"]


@pytest.mark.parametrize("used", [False, True])
def test_another_server_behind_the_address(make_host, redis, proxy, make_server, used):
    """It is empty, or grants already to others. And back again to the first, which has kept its memory of before."""
    new = make_server()
    if used:
        stranger = make_host("c", server=new, lease="ttl_ms = 3000;")
        assert opened(stranger, "g").do("flock 0 ex") == "ok"
    a, b = (make_host(n, server=proxy.address, lease="ttl_ms = 3000; linger_ms = 0;") for n in "ab")
    a.init()
    b.wait_up()
    one, other = a.opened("f", "flock 0 ex"), opened(b)
    before = held(a)[0]
    proxy.redis = new
    proxy.cut()
    put_back(a, before, other, b)
    assert one.do("flock 0 un") == "ok"
    assert other.heard()[0] == "ok"
    before = held(b)[0]
    proxy.redis = redis
    proxy.cut()
    put_back(b, before, one, a)
    assert other.do("flock 0 un") == "ok"
    assert one.heard()[0] == "ok"


@pytest.mark.parametrize("key", ["store", "hosts", "lock:t/f"])
def test_a_key_is_evicted(make_host, redis, key):
    """As if by a maxmemory-policy that was set after the keepers had looked at it, or by hand."""
    a, b = (make_host(n, lease="ttl_ms = 2500; probe_ms = 100; linger_ms = 0;") for n in "ab")
    process, path = job(a)
    before, other = held(a)[0], opened(b)
    assert redis.command("DEL", "dflock:{0}:" + key) == 1
    assert other.do("flock 0 ex nb") in ("EAGAIN", "ENOLCK")
    other.say("flock 0 ex")
    beat = redis.command("TIME")[0]
    wait_until(lambda: int(redis.command("TIME")[0]) > int(beat) + 5, "two ttls pass", 20)
    assert other.silent(0.1)
    assert held(a, token=before["token"], fence=before["fence"]) and not a.status()["lost"]
    grows(path)
    end(process, path)
    assert other.heard()[0] == "ok"


def test_the_store_stops_for_longer_than_a_ttl(make_host, redis):
    """No other host gets the lock, neither meanwhile nor when the store goes on; the holder loses nothing but time."""
    a, b = (make_host(n, lease="ttl_ms = 2000; linger_ms = 0;", store="connect_ms = 700;") for n in "ab")
    process, path = job(a)
    other = opened(b).say("flock 0 ex")
    wait_until(lambda: held(b, note="waits for another host"), "b waits")
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "the job is frozen", 20)
    wait_until(lambda: held(a, state="unsure"), "its lease has run out", 20)
    assert is_frozen(path) and other.silent(0.1)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in a.log() or process.poll() is not None, "the job goes on, or b was there first", 20)
    if process.poll() is None:
        grows(path)
        assert other.silent(0.1)
        os.kill(pid_of(path), signal.SIGKILL)
    last = size(path)
    process.communicate(timeout=20)
    assert other.heard()[0] == "ok"
    assert size(path) == last


def test_nothing_new_in_grace(make_host, redis):
    a, b = (make_host(n, lease="ttl_ms = 2000;") for n in "ab")
    a.opened("f", "flock 0 ex")
    other = opened(b)
    redis.command("FLUSHALL")
    wait_until(lambda: "lost its memory" in b.log() or other.do("flock 0 ex nb") == "ENOLCK", "b notices", 10)
    assert other.do("flock 0 ex nb") == "ENOLCK"


def test_grace_ends_each_time(make_host, redis):
    """Also if no keeper connects anew: FLUSHALL breaks no connection. The second time, since the keeper's start counts as one,
    too."""
    a = make_host("a", lease="ttl_ms = 1500;")
    one = opened(a)
    for _ in range(2):
        assert one.do("flock 0 ex") == "ok"
        before = a.status()["store"]["incarnation"]
        redis.command("FLUSHALL")
        wait_until(lambda: a.status()["store"]["incarnation"] != before, "the loss is noticed", 10)
        wait_until(lambda: not a.status()["store"]["grace"], "grace is over", 20)
        assert one.do("flock 0 un") == "ok"


def test_keeper_and_store_restart_together(make_host, redis):
    """The table of leases says of which incarnation the leases were."""
    a, b = (make_host(n, lease="ttl_ms = 4000;") for n in "ab")
    one, other = a.opened("f", "flock 0 ex"), opened(b)
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
    """No contact for longer than the deadline, and the store is another one then: which host had the lock meanwhile is not known."""
    a = make_host("a", lease="ttl_ms = 1000;")
    a.opened("f", "flock 0 ex")
    redis.stop()
    wait_until(lambda: "run out" in a.log(), "the deadline comes near", 10)
    wait_until(lambda: a.status()["leases"][0]["state"] == "unsure", "the deadline passes", 10)
    redis.start()
    wait_until(lambda: a.status()["lost"], "the lease is lost")
    assert "LOST" in a.log()


def test_what_cannot_be_put_back_is_not_renewed(make_host, redis):
    """The store has forgotten a lease and refuses to have it back, but goes on answering beats: its holder has no more time."""
    a = make_host("a", lease="ttl_ms = 3000;")
    one = a.opened("f", "flock 0 ex")
    key = "dflock:{0}:lock:t/f"
    redis.command("EVAL", "redis.call('FLUSHALL') redis.call('SET', KEYS[1], 'of somebody else')", 1, key)
    one.process.wait(20)
    assert "of somebody else" == redis.command("GET", key)
    redis.command("DEL", key)
    wait_until(lambda: opened(a).do("flock 0 ex nb") == "ok", "all goes on", 20)
