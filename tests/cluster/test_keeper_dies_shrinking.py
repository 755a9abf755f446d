"""A keeper dies while a lease of its host becomes a shared one: the request may be executed later, so the lease never is exclusive again."""
import os
import signal

from harness import wait_until

from keepers import held, kill_keeper, opened


def test_the_store_forgets(make_host, redis, proxy):
    """Another host has it shared by then: only a shared lease may be put back."""
    lease = "ttl_ms = 20000; probe_ms = 5000;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, server=proxy.address).wait_up()
    here, there = a.opened("f", "flock 0 ex", "flock 0 sh"), opened(b)
    answer = proxy.fault("shrink", "no answer")
    there.say("flock 0 sh")
    wait_until(answer.happened.is_set, "a makes its lease a shared one")
    assert there.heard()[0] == "ok"
    keeper = a.keeper_pids()[1]
    proxy.accepting = False
    proxy.cut()
    os.kill(keeper, signal.SIGKILL)
    redis.command("FLUSHALL")
    wait_until(lambda: "lost its memory" in b.log() and held(b, state="held"), "b has put its lease back")
    proxy.accepting = True
    wait_until(lambda: "lost its memory" in a.log() and not held(a, state="unsure"), "a knows about its lease")
    assert [l["mode"] for l in held(a, state="held")] == ["shared"]
    assert here.do("pid") == "ok" and not a.status()["lost"] + b.status()["lost"]


def test_its_request_arrives_later(make_host, proxy):
    """The store tells the next keeper that the lease is exclusive. It must shrink the lease again: the request of the keeper that died may
    still arrive."""
    lease = "ttl_ms = 20000; probe_ms = 5000;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, server=proxy.address).wait_up()
    here, there = a.opened("f", "flock 0 ex", "flock 0 sh"), opened(b)
    promise = proxy.fault("shrink", "lost")
    there.say("flock 0 sh")
    wait_until(promise.happened.is_set, "a makes its lease a shared one")
    kill_keeper(a)
    wait_until(lambda: held(a, state="held"), "the next keeper has taken it up")
    assert proxy.arrives(promise) == [b"OK"]
    assert there.heard()[0] == "ok"
    assert here.do("flock 0 un") == "ok"
    assert here.do("flock 0 ex nb") == "EAGAIN"
