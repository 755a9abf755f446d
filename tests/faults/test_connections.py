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


class Pair:
    """Hosts a, behind a proxy, and b. What happens while a request of a breaks in this way."""

    def __init__(self, make_host, make_proxy, redis, kind=None):
        self.kind, self.redis = kind, redis
        self.proxy = make_proxy(tcp=kind in ("no answer", "cut after"))
        self.a, self.b = make_host("a", server=self.proxy.address, lease=LEASE, store=SHORT), make_host("b", lease=LEASE)

    def fault(self, command):
        return self.proxy.fault(command, self.kind)

    def ready(self):
        """The connection of a is as it should be, and nothing is under way."""
        works(self.a, "ready")
        gone(self.redis, "ready")

    def ends_well(self, agent, other):
        """The agent has the lock, and the other host cannot; then it leaves it, and nothing is left."""
        is_busy(other)
        assert agent.do("flock 0 un") == "ok"
        gone(self.redis)
        works(other)

    def acquire(self):
        fault = self.fault("acquire")
        agent = opened(self.a).say("flock 0 ex")
        assert fault.happened.wait(20)
        assert agent.heard()[0] == "ok"
        self.ends_well(agent, self.b)

    def acquire_without_waiting(self):
        """It may fail, but then what the store may have granted must not stay."""
        fault, agent = self.fault("acquire"), opened(self.a)
        word = agent.do("flock 0 ex nb")
        assert fault.happened.is_set() and word in ("ok", "ENOLCK")
        if word == "ok":
            self.ends_well(agent, self.b)
        gone(self.redis)
        works(self.b)

    def release(self):
        agent = agent_with(self.a)
        fault = self.fault("release")
        assert agent.do("flock 0 un") == "ok"
        assert fault.happened.wait(20)
        gone(self.redis)
        works(self.b)
        works(self.a)

    def release_while_another_waits(self):
        agent, waiter = agent_with(self.a), opened(self.b).say("flock 0 ex")
        wait_until(lambda: leases(self.a, note="wanted by another host"), "a is recalled")
        fault = self.fault("release")
        assert agent.do("flock 0 un") == "ok"
        assert fault.happened.wait(20)
        assert waiter.heard()[0] == "ok"
        self.ends_well(waiter, self.a)

    def cancelled_wait(self):
        """The release that takes a waiter out of the queue is lost: no caller may wait behind that waiter for ever."""
        agent, waiter = agent_with(self.b), Waiting(self.a)
        wait_until(lambda: leases(self.a, note="waits for another host"), "a is queued")
        fault = self.fault("release")
        waiter.process.kill()
        waiter.process.communicate()
        assert fault.happened.wait(20)
        assert agent.do("flock 0 un") == "ok"
        gone(self.redis)
        works(self.b)

    def shrink(self):
        agent = agent_with(self.a)
        fault = self.fault("shrink")
        assert agent.do("flock 0 sh") == "ok"
        reader = agent_with(self.b, "flock 0 sh")
        assert fault.happened.wait(20)
        assert opened(self.b).do("flock 0 ex nb") == "EAGAIN"
        assert reader.do("flock 0 un") == "ok"
        assert opened(self.b).do("flock 0 ex nb") == "EAGAIN"
        assert agent.do("flock 0 un") == "ok"
        gone(self.redis)

    def beat(self):
        agent = agent_with(self.a)
        assert self.fault("beat").happened.wait(20)
        self.a.wait_up()
        assert not self.a.status()["lost"]
        self.ends_well(agent, self.b)

    def connecting(self):
        for command in "info", "script", "subscribe", "store":
            self.ready()
            agent = agent_with(self.a)
            fault = self.fault(command)
            self.proxy.cut()
            assert fault.happened.wait(20), command
            self.a.wait_up()
            self.ends_well(agent, self.b)

    def confirm(self):
        """A keeper that was killed takes its lease up, over a connection that breaks."""
        agent = agent_with(self.a)
        fault = self.fault("confirm")
        os.kill(self.a.keeper_pids()[1], signal.SIGKILL)
        assert fault.happened.wait(20)
        wait_until(lambda: leases(self.a, state="held"), "a has its lease again")
        self.ends_well(agent, self.b)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_each_request(make_host, make_proxy, redis, kind):
    pair = Pair(make_host, make_proxy, redis, kind)
    with Alive(pair.a, pair.b):
        for step in (pair.acquire, pair.acquire_without_waiting, pair.release, pair.release_while_another_waits, pair.cancelled_wait, pair.shrink,
                     pair.beat, pair.connecting):
            print(step.__name__)  # if it fails
            pair.ready()
            step()
    pair.ready()
    pair.confirm()


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


def test_cut_again_and_again_and_for_a_while(make_host, make_proxy, redis):
    """The last time the network is away while a's program leaves the lock, and b waits."""
    pair = Pair(make_host, make_proxy, redis)
    a, b, proxy = pair.a, pair.b, pair.proxy
    with Alive(a, b):
        agent, waiter = agent_with(a), opened(b).say("flock 0 ex")
        wait_until(lambda: leases(a, note="wanted by another host"), "a is recalled")
        for _ in range(10):
            a.wait_up()
            proxy.cut()
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


def test_lost_messages(make_host, make_proxy):
    """They only wake up. Hosts ask again, say again that they wait, and give back by themselves what they do not use."""
    to_a, to_b = make_proxy(), make_proxy()
    lease = "ttl_ms = 4000; linger_ms = 4000; probe_ms = 200;"
    a, b = make_host("a", server=to_a.address, lease=lease), make_host("b", server=to_b.address, lease=lease)
    agent = agent_with(a)
    # A call that does not wait asks a holder that never hears it: it is told busy within probe_ms.
    to_a.drop_messages = True
    answer = attempt(b)
    assert answer.word == "busy" and answer.seconds < 5
    wait_until(lambda: to_a.dropped, "the question was dropped")
    # a does not hear that b waits.
    before = to_a.dropped
    waiter = opened(b).say("flock 0 ex")
    wait_until(lambda: to_a.dropped > before, "the recall was dropped")
    assert not leases(a, note="wanted by another host")
    to_a.drop_messages = False
    wait_until(lambda: leases(a, note="wanted by another host"), "a hears it later", 10)
    # b does not hear that it got the lock.
    to_b.drop_messages = True
    assert agent.do("flock 0 un") == "ok"
    assert waiter.heard(10)[0] == "ok" and to_b.dropped
    assert attempt(a).word == "busy"
    # a never hears anything.
    to_b.drop_messages = False
    assert waiter.do("flock 0 un") == "ok"
    wait_until(lambda: agent.do("flock 0 ex nb") == "ok", "a has it")
    before, to_a.drop_messages = to_a.dropped, True
    waiter.say("flock 0 ex")
    wait_until(lambda: to_a.dropped > before + 1, "recalls were dropped")
    assert agent.do("flock 0 un") == "ok"
    assert waiter.heard(20)[0] == "ok"


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
        crowd.start()
        for _ in range(6):  # on a busy machine it comes to less
            crowd.run(float(os.environ.get("DFLOCK_HISTORY_SECONDS", "5")), redis, disturb)
            if crowd.history().handovers() >= 5:
                break
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
