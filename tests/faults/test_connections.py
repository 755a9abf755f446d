"""
Connections to the store that break at the worst moment. An answer that does not come means "maybe granted": whatever happened, a
lock that a program was told it has is protected, and nothing stays behind in the store.
"""
import os
import random
import signal

import pytest
from common import Alive, Waiting, agent_with, attempt, gone, is_busy, leases, opened, works
from harness import wait_until
from harness.crowd import Crowd

KINDS = ("lost", "no answer", "cut before", "cut after", "garbage")
# An answer that takes longer than connect_ms is one that does not come; and a beat is due after one that did not.
LEASE = "ttl_ms = 12000; linger_ms = 0;"
SHORT = "connect_ms = 2500;"


@pytest.fixture
def pair(request, make_host, make_proxy):
    """(a behind a proxy, b, the proxy), some with TCP."""
    kind = getattr(request.node, "callspec", None) and request.node.callspec.params.get("kind")
    proxy = make_proxy(tcp=kind in ("no answer", "cut after"))
    return make_host("a", server=proxy.address, lease=LEASE, store=SHORT), make_host("b", lease=LEASE), proxy


def is_up(host):
    wait_until(lambda: host.status()["store"]["up"], host.name + " is connected")


def ends_well(redis, agent, b):
    """The agent has the lock, and b cannot; then it leaves it, and nothing is left."""
    is_busy(b)
    assert agent.do("flock 0 un") == "ok"
    gone(redis)
    works(b)


@pytest.mark.parametrize("kind", KINDS)
def test_acquire(pair, redis, kind):
    a, b, proxy = pair
    fault = proxy.fault("acquire", kind)
    with Alive(a, b):
        agent = opened(a).say("flock 0 ex")
        assert fault.happened.wait(20)
        assert agent.heard()[0] == "ok"
        ends_well(redis, agent, b)


def test_granted_before_a_silence(make_host, make_proxy, redis):
    """The message says that a has it; but it comes late, a was silent meanwhile, and c has it since."""
    proxy = make_proxy()
    patient = "connect_ms = 60000;"
    a = make_host("a", server=proxy.address, lease="ttl_ms = 1000; linger_ms = 0;", store=patient)
    b, c = (make_host(name, lease="ttl_ms = 1000; linger_ms = 0;", store=patient) for name in "bc")

    with Alive(a, b, c):
        name = a.status()["host"]

        def beat():
            return int(redis.command("HGET", "dflock:{0}:hosts", name))

        holder = agent_with(b)
        first, second = opened(a).say("flock 0 ex"), opened(c)
        wait_until(lambda: leases(b, state="waiting"), "b was told that a waits")
        proxy.hold_messages()
        proxy.pause()
        assert holder.do("flock 0 un") == "ok"
        assert second.do("flock 0 ex", 30) == "ok"
        assert proxy.held
        before = beat()
        proxy.resume()
        wait_until(lambda: beat() > before, "a is heard again")
        again = beat()
        wait_until(lambda: beat() > again, "a has heard of that, and beats")
        a.status()
        proxy.pass_messages()
        a.status()
        assert first.silent()
        assert second.do("flock 0 un") == "ok"
        assert first.heard()[0] == "ok"


@pytest.mark.parametrize("kind", KINDS)
def test_acquire_without_waiting(pair, redis, kind):
    """It may fail, but then what the store may have granted must not stay."""
    a, b, proxy = pair
    fault = proxy.fault("acquire", kind)
    with Alive(a, b):
        agent = opened(a)
        word = agent.do("flock 0 ex nb")
        assert fault.happened.is_set() and word in ("ok", "ENOLCK")
        if word == "ok":
            ends_well(redis, agent, b)
        gone(redis)
        works(b)


@pytest.mark.parametrize("kind", KINDS)
def test_release(pair, redis, kind):
    a, b, proxy = pair
    agent = agent_with(a)
    fault = proxy.fault("release", kind)
    with Alive(a, b):
        assert agent.do("flock 0 un") == "ok"
        assert fault.happened.wait(20)
        gone(redis)
        works(b)
        works(a)


@pytest.mark.parametrize("kind", KINDS)
def test_release_while_another_waits(pair, redis, kind):
    a, b, proxy = pair
    agent, waiter = agent_with(a), opened(b).say("flock 0 ex")
    wait_until(lambda: leases(a, note="wanted by another host"), "a is recalled")
    fault = proxy.fault("release", kind)
    with Alive(a, b):
        assert agent.do("flock 0 un") == "ok"
        assert fault.happened.wait(20)
        assert waiter.heard()[0] == "ok"
        ends_well(redis, waiter, a)


@pytest.mark.parametrize("kind", KINDS)
def test_cancelled_wait(pair, redis, kind):
    """The release that takes a waiter out of the queue is lost: no caller may wait behind that waiter for ever."""
    a, b, proxy = pair
    agent, waiter = agent_with(b), Waiting(a)
    wait_until(lambda: leases(a, note="waits for another host"), "a is queued")
    fault = proxy.fault("release", kind)
    with Alive(a, b):
        waiter.process.kill()
        waiter.process.communicate()
        assert fault.happened.wait(20)
        assert agent.do("flock 0 un") == "ok"
        gone(redis)
        works(b)


@pytest.mark.parametrize("kind", KINDS)
def test_shrink(pair, redis, kind):
    a, b, proxy = pair
    agent = agent_with(a)
    fault = proxy.fault("shrink", kind)
    with Alive(a, b):
        assert agent.do("flock 0 sh") == "ok"
        reader = agent_with(b, "flock 0 sh")
        assert fault.happened.wait(20)
        assert opened(b).do("flock 0 ex nb") == "EAGAIN"
        assert reader.do("flock 0 un") == "ok"
        assert opened(b).do("flock 0 ex nb") == "EAGAIN"
        assert agent.do("flock 0 un") == "ok"
        gone(redis)


@pytest.mark.parametrize("kind", KINDS)
def test_beat(pair, redis, kind):
    a, b, proxy = pair
    agent = agent_with(a)
    fault = proxy.fault("beat", kind)
    with Alive(a, b):
        assert fault.happened.wait(20)
        is_up(a)
        assert not a.status()["lost"]
        ends_well(redis, agent, b)


@pytest.mark.parametrize("kind", KINDS)
def test_confirm(pair, redis, kind):
    """A keeper that was killed takes its lease up, over a connection that breaks."""
    a, b, proxy = pair
    agent = agent_with(a)
    fault = proxy.fault("confirm", kind)
    os.kill(a.keeper_pids()[1], signal.SIGKILL)
    assert fault.happened.wait(20)
    wait_until(lambda: leases(a, state="held"), "a has its lease again")
    ends_well(redis, agent, b)


@pytest.mark.parametrize("command", ["info", "script", "subscribe", "store"])
@pytest.mark.parametrize("kind", KINDS)
def test_connecting(pair, redis, kind, command):
    a, b, proxy = pair
    agent = agent_with(a)
    fault = proxy.fault(command, kind)
    with Alive(a, b):
        proxy.cut()
        assert fault.happened.wait(20)
        is_up(a)
        ends_well(redis, agent, b)


def test_cut_again_and_again(pair, redis):
    a, b, proxy = pair
    agent = agent_with(a)
    with Alive(a, b):
        for _ in range(10):
            is_up(a)
            proxy.cut()
        ends_well(redis, agent, b)


def test_gone_for_a_while(pair, redis):
    """The network is away while a's program leaves the lock; b waits."""
    a, b, proxy = pair
    agent, waiter = agent_with(a), opened(b).say("flock 0 ex")
    wait_until(lambda: leases(a, note="wanted by another host"), "a is recalled")
    proxy.accepting = False
    proxy.cut()
    wait_until(lambda: not a.status()["store"]["up"], "a notices")
    assert agent.do("flock 0 un") == "ok"
    assert waiter.silent(0.1)
    proxy.accepting = True
    assert waiter.heard()[0] == "ok"


def test_late_grant_is_not_believed(make_host, make_proxy):
    """The store granted it, the answer was under way for longer than the lease, and meanwhile another host took it."""
    proxy = make_proxy()
    b = make_host("b", lease="ttl_ms = 1000;")
    a = make_host("a", server=proxy.address, lease="ttl_ms = 1000;", store="connect_ms = 60000;").wait_up()
    fault = proxy.fault("acquire", "late")
    proxy.drop_messages = True  # or it would ask again when it is recalled, and so show that it lives
    late = opened(a).say("flock 0 ex")
    assert fault.happened.wait(20)
    holder = agent_with(b, "flock 0 ex")  # after it has seen a's silence for a ttl
    proxy.drop_messages = False
    proxy.release()
    wait_until(lambda: leases(a, note="waits for another host"), "a asks again")
    assert late.silent(0.1)
    assert holder.do("flock 0 un") == "ok"
    assert late.heard()[0] == "ok"
    assert attempt(b).word == "busy"


# --- messages that do not arrive: they only wake up ---


def test_lost_grants(make_host, make_proxy):
    """b never hears that it got the lock: it asks again."""
    proxy = make_proxy()
    a, b = make_host("a", lease=LEASE), make_host("b", server=proxy.address, lease=LEASE)
    agent, waiter = agent_with(a), opened(b).say("flock 0 ex")
    wait_until(lambda: leases(a, note="wanted by another host"), "a is recalled")
    proxy.drop_messages = True
    assert agent.do("flock 0 un") == "ok"
    assert waiter.heard(10)[0] == "ok"
    assert proxy.dropped
    assert attempt(a).word == "busy"


def test_lost_recall(make_host, make_proxy):
    """a does not hear that b waits, but b says so again."""
    proxy = make_proxy()
    lease = "ttl_ms = 4000; linger_ms = 4000;"
    a, b = make_host("a", server=proxy.address, lease=lease), make_host("b", lease=lease)
    agent = agent_with(a)
    proxy.drop_messages = True
    waiter = opened(b).say("flock 0 ex")
    wait_until(lambda: proxy.dropped, "the recall was dropped")
    assert not leases(a, note="wanted by another host")
    proxy.drop_messages = False
    wait_until(lambda: leases(a, note="wanted by another host"), "a hears it later", 10)
    assert agent.do("flock 0 un") == "ok"
    assert waiter.heard()[0] == "ok"


def test_all_recalls_lost(make_host, make_proxy):
    """a never hears anything: it gives unused leases back by itself."""
    proxy = make_proxy()
    a, b = make_host("a", server=proxy.address, lease="ttl_ms = 3000;"), make_host("b")
    agent = agent_with(a)
    proxy.drop_messages = True
    waiter = opened(b).say("flock 0 ex")
    wait_until(lambda: proxy.dropped > 1, "recalls were dropped")
    assert agent.do("flock 0 un") == "ok"
    assert waiter.heard(20)[0] == "ok"


def test_lost_answer_of_a_holder(make_host, make_proxy):
    """A call that does not wait asks a holder that never hears it: it is told busy within probe_ms."""
    proxy = make_proxy()
    a, b = make_host("a", server=proxy.address, lease=LEASE), make_host("b", lease=LEASE)
    agent_with(a)
    proxy.drop_messages = True
    answer = attempt(b)
    assert answer.word == "busy" and answer.seconds < 5
    wait_until(lambda: proxy.dropped, "the question was dropped")


def test_random_faults(make_host, make_proxy, folder, redis):
    """A crowd (see test_history.py) whose connections break at random: calls may fail, but no two locks may overlap."""
    names = {"a": 20, "b": 0, "c": 10}
    proxies = {n: make_proxy(tcp=n == "a") for n in names}
    hosts = [make_host(n, server=p.address, lease="ttl_ms = 6000; linger_ms = 20;", store=SHORT) for n, p in proxies.items()]
    seed = int(os.environ.get("DFLOCK_HISTORY_SEED", random.SystemRandom().randrange(1 << 32)))
    crowd = Crowd(hosts, folder, seed, names)

    def disturb():
        for proxy in proxies.values():
            proxy.drop_messages = False
        proxy = crowd.random.choice(list(proxies.values()))
        dice = crowd.random.random()
        if dice < 0.2:
            proxy.cut()
        elif dice < 0.4:
            proxy.drop_messages = True  # until the next disturbance
        else:
            proxy.fault(crowd.random.choice(["acquire", "acquire", "release", "release", "shrink"]), crowd.random.choice(KINDS))

    try:
        crowd.start().run(float(os.environ.get("DFLOCK_HISTORY_SECONDS", "5")), redis, disturb)
        for proxy in proxies.values():
            proxy.drop_messages = False
        crowd.stop()
        h = crowd.history()
        print(h.summary())
        assert crowd.wrong() == []
        assert not set(h.failures) - {"EAGAIN", "EINTR", "ENOLCK"}
        assert {c.host for c in h.calls} == set(names) and h.handovers() >= 5
        for name in ("f", "g"):
            gone(redis, name)
    finally:
        crowd.abandon()
        crowd.recorder.close()
