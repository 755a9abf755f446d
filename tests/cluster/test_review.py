"""Orders of events that once went wrong, or could: each test says which."""
import os
import signal
import time

import pytest
from harness import wait_until
from harness.proxy import Proxy

from keepers import kill_keeper
from test_flock import held, opened
from test_freeze import state

# A lease of a host that is no more, as the scripts write it; but the store's record does not know of it.
GHOST = """
redis.call('SET', KEYS[1], cmsgpack.pack({q = {}, l = {{token = ARGV[1], host = ARGV[2], file = '1:1', space = 'flock',
    mode = 'exclusive', from = string.rep('0', 19), to = '9223372036854775807', fence = 1}}}))
redis.call('HSET', 'dflock:{0}:hosts', ARGV[2], ARGV[3])
"""


@pytest.fixture
def proxy(redis, folder):
    p = Proxy(redis, folder)
    yield p
    p.stop()


def test_who_waits_in_the_kernel_is_no_holder(make_host, redis, proxy):
    """The holder of a lost lease is killed; the kernel then gives the lock to whoever waits for it here. He has not been told
    of it yet, has done nothing wrong, and gets it when its turn has come."""
    lease = "ttl_ms = 2000; freeze_margin_ms = 600; pin_ms = 200;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, server=proxy.address).wait_up()
    holder, waiters = opened(a), [opened(a) for _ in range(3)]
    assert holder.do("flock 0 ex") == "ok"
    for w in waiters:
        w.say("flock 0 ex")
        assert w.silent(0.1)
    proxy.accepting = False
    proxy.cut()
    other = opened(b)
    assert other.do("flock 0 ex") == "ok"
    answer = proxy.fault("acquire", "late")  # until then the next one has the kernel lock, and no lease
    proxy.accepting = True
    wait_until(lambda: holder.process.poll() is not None, "the holder is killed")
    wait_until(answer.happened.is_set, "the next one asks")
    assert all(w.silent(0.1) for w in waiters)
    proxy.release()
    assert other.do("flock 0 un") == "ok"
    for _ in waiters:
        wait_until(lambda: any(not w.silent(0.05) for w in waiters), "one of those who wait gets it")
        first = next(w for w in waiters if not w.silent(0))
        assert first.heard()[0] == "ok"
        waiters.remove(first)
        assert first.do("flock 0 un") == "ok"


def test_the_next_holder_is_not_taken_for_the_lost_one(make_host, redis, proxy):
    """A lease that nobody used is lost; a caller gets a new one at once, and is not killed for the old one."""
    lease = "ttl_ms = 2000; freeze_margin_ms = 600; linger_ms = 60000;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, server=proxy.address).wait_up()
    one, other = opened(a), opened(b)
    assert one.do("flock 0 ex") == "ok"
    assert one.do("flock 0 un") == "ok"
    proxy.accepting = False
    proxy.cut()
    assert other.do("flock 0 ex") == "ok"
    assert other.do("close 0") == "ok"
    one.say("flock 0 ex")
    proxy.accepting = True
    assert one.heard()[0] == "ok"
    assert held(a, state="held")
    wait_until(lambda: a.status()["lost"], "the old lease is lost")
    assert one.do("flock 0 un") == "ok"


def test_a_short_outage_does_not_end_a_long_wait(make_host, redis, proxy):
    """store_wait_ms counts while the store is away, and not on when it is back."""
    lease = "ttl_ms = 6000; store_wait_ms = 1500;"
    a = make_host("a", lease=lease)
    b = make_host("b", lease=lease, server=proxy.address).wait_up()
    one, other = opened(a), opened(b)
    assert one.do("flock 0 ex") == "ok"
    other.say("flock 0 ex")
    wait_until(lambda: held(a, note="wanted by another host"), "b waits for a")
    proxy.accepting = False
    proxy.cut()
    wait_until(lambda: "is not reachable" in b.log(), "the outage is noticed")
    proxy.accepting = True
    b.wait_up()
    assert other.silent(2.5)
    assert one.do("flock 0 un") == "ok"
    assert other.heard()[0] == "ok"


def test_more_dead_hosts_than_can_be_named_at_once(make_host, redis):
    """Those in the way come first: else the rest would keep their locks for as long as the others are remembered."""
    count = 20
    a = make_host("a", lease="ttl_ms = 1000; dead_ms = 600000;")
    now = int(time.time() * 1000)
    for i in range(count):
        redis.command("EVAL", GHOST, 1, "dflock:{0}:lock:t/f%d" % i, "%032x" % (i + 1), "ghost-%d" % i, now)
    agents = [opened(a, "f%d" % i) for i in range(count)]
    for agent in agents:
        agent.say("flock 0 ex")
    for agent in agents:
        assert agent.heard(10)[0] == "ok"


def test_one_of_the_frozen_is_killed(make_host, redis):
    """By somebody else: its parent is told, and the others go on."""
    a = make_host("a", lease="ttl_ms = 2000; freeze_margin_ms = 600;")
    agent = opened(a)
    assert agent.do("flock 0 ex") == "ok"
    child = agent.say("fork").heard()[1]
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "frozen", 10)
    assert state(child) in "tT"
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: state(child) in ("Z", "gone"), "the child ends")
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in a.log(), "let go", 20)
    assert agent.do("pid") == "ok"


def test_a_lease_that_comes_before_the_old_one_is_acknowledged_as_released(make_host, redis, proxy):
    """The message that grants the next lease may overtake the answer that the last one was given back. Until that comes the
    keeper has the kernel lock itself, and a caller must not take it for somebody's."""
    lease = "ttl_ms = 20000; probe_ms = 5000; linger_ms = 20000;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, server=proxy.address).wait_up()
    here, there = opened(a), opened(b)
    assert here.do("flock 0 ex") == "ok" and here.do("flock 0 un") == "ok"
    answer = proxy.fault("release", "late")
    there.say("flock 0 ex")
    wait_until(answer.happened.is_set, "a gives its lease back")
    assert there.heard()[0] == "ok" and there.do("flock 0 un") == "ok"
    assert here.do("flock 0 ex nb") == "ok"  # b gives it back at once
    proxy.release()


def test_a_keeper_dies_while_its_lease_becomes_shared_and_the_store_forgets(make_host, redis, proxy):
    """Another host has it shared as well by then: no more than shared may be put back."""
    lease = "ttl_ms = 20000; probe_ms = 5000;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, server=proxy.address).wait_up()
    here, there = opened(a), opened(b)
    assert here.do("flock 0 ex") == "ok" and here.do("flock 0 sh") == "ok"
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


def test_a_keeper_dies_and_what_it_sent_arrives_after_that(make_host, proxy):
    """It had promised to share its lease. The next one, which the store tells that the lease is exclusive, may not take that
    back: the promise may be on its way still."""
    lease = "ttl_ms = 20000; probe_ms = 5000;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, server=proxy.address).wait_up()
    here, there = opened(a), opened(b)
    assert here.do("flock 0 ex") == "ok" and here.do("flock 0 sh") == "ok"
    promise = proxy.fault("shrink", "lost")
    there.say("flock 0 sh")
    wait_until(promise.happened.is_set, "a makes its lease a shared one")
    kill_keeper(a)
    wait_until(lambda: held(a, state="held"), "the next keeper has taken it up")
    assert proxy.arrives(promise) == [b"OK"]
    assert there.heard()[0] == "ok"
    assert here.do("flock 0 un") == "ok"
    assert here.do("flock 0 ex nb") == "EAGAIN"


@pytest.mark.parametrize("held_already, wanted", [("flock 0 ex", "flock 0 ex nb"), ("setlk 0 ex 10 20", "setlk 0 ex 10 20"),
                                                  ("setlk 0 ex 10 20", "setlk 0 ex 20 30")], ids=["flock", "record", "part"])
def test_who_does_not_wait_is_answered_at_once_while_another_host_waits(make_host, redis, held_already, wanted):
    """For what a program of his own host has. The lease that was asked for because of him was recalled before the probes of the
    one that is in use had ended; so another one was asked for, thousands of times."""
    lease = "ttl_ms = 20000; probe_ms = 5000;"
    b, a = make_host("b", lease=lease), make_host("a", lease=lease)
    elsewhere, holder, waiter = opened(b), opened(a), opened(b)
    assert elsewhere.do("setlk 0 ex 100 1") == "ok"  # so that a gets no more than what it asks for
    assert holder.do(held_already) == "ok"
    waiter.say(held_already + (" w" if held_already.startswith("setlk") else ""))
    wait_until(lambda: held(a, state="waiting"), "the lease is recalled, and in use")
    for _ in range(5):
        other = opened(a)
        before = redis.commands_processed()
        assert other.do(wanted) == "EAGAIN"
        assert redis.commands_processed() - before < 100
    assert waiter.silent(0.1)
    holder.kill()
    assert waiter.heard()[0] == "ok"


def test_a_kernel_that_refuses_to_wait_is_asked_at_growing_intervals(make_host, folder):
    """It says that a lock is held, and then will not let the keeper wait for its end."""
    lease = "ttl_ms = 20000; probe_ms = 5000;"
    a, b = make_host("a", lease=lease), make_host("b", lease=lease)
    here, there = opened(a), opened(b)
    assert here.do("flock 0 ex") == "ok"
    keeper, said = a.keeper_pids()[1], os.path.join(folder, "calls")
    trace = a.popen("strace", "-qq", "-f", "-o", said, "-e", "trace=flock", "-e", "inject=flock:error=ENOLCK:when=2", "-p",
                    str(keeper))
    wait_until(lambda: f"TracerPid:\t{trace.pid}\n" in open(f"/proc/{keeper}/status").read(), "the keeper is traced")
    there.say("flock 0 ex")

    def refused():
        return open(said).read().count("(INJECTED)") if os.path.exists(said) else 0
    wait_until(lambda: refused() >= 3, "it asks again")
    assert "the kernel cannot tell whether it is in use: No locks available" in a.log()
    before = refused()
    assert there.silent(1)
    assert refused() - before <= 5
    here.do("flock 0 un")
    trace.terminate()
    trace.communicate(timeout=20)
    assert there.heard()[0] == "ok"


def test_on_lost_kill_spares_who_got_the_kernel_lock_afterwards(make_host, redis):
    """The holder ends at SIGTERM, and the kernel gives the lock to whoever waits for it here. He was told nothing yet."""
    a = make_host("a", lease='ttl_ms = 4000; freeze_margin_ms = 1500; pin_ms = 200; on_lost = "kill";')
    holder, waiter = opened(a), opened(a)
    assert holder.do("flock 0 ex") == "ok"
    waiter.say("flock 0 ex")
    assert waiter.silent(0.5)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: holder.process.poll() is not None, "the holder is ended")
    wait_until(lambda: held(a, state="unsure"), "its time is over")
    assert holder_pids(a) == [waiter.pid] and waiter.process.poll() is None
    redis.signal(signal.SIGCONT)
    assert waiter.heard()[0] == "ok"
    assert "SIGKILL" not in a.log()


def test_who_gets_the_kernel_lock_of_one_that_was_frozen(make_host, redis, proxy):
    """Somebody kills the frozen holder. Who then gets the lock here is neither frozen nor killed, though the lease is gone."""
    lease = "ttl_ms = 2000; freeze_margin_ms = 600; pin_ms = 200;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, server=proxy.address).wait_up()
    holder, waiter = opened(a), opened(a)
    assert holder.do("flock 0 ex") == "ok"
    waiter.say("flock 0 ex")
    assert waiter.silent(0.5)
    proxy.accepting = False
    proxy.cut()
    wait_until(lambda: "are frozen" in a.log(), "frozen", 10)
    other = opened(b)
    assert other.do("flock 0 ex") == "ok"
    holder.kill()
    wait_until(lambda: holder_pids(a) == [waiter.pid], "the next one has the kernel lock")
    assert state(waiter.pid) not in "tT"
    proxy.accepting = True
    wait_until(lambda: a.status()["lost"], "the lease is gone")
    wait_until(lambda: held(a, note="waits for another host"), "the next one asks for another")
    assert waiter.process.poll() is None
    assert other.do("flock 0 un") == "ok"
    assert waiter.heard()[0] == "ok"


def holder_pids(host):
    return [h["pid"] for lease in host.status()["leases"] for h in lease["holders"]]


def test_a_lease_becomes_shared_while_it_is_split(make_host, redis, proxy):
    """The parts were asked for as exclusive ones, and are open when it has become shared: then it goes, and they answer."""
    lease = "ttl_ms = 60000; probe_ms = 5000; linger_ms = 60000;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, server=proxy.address, debug=True).wait_up()
    here, waiter, test = opened(a), opened(b), opened(b)
    assert here.do("setlk 0 ex 0 1") == "ok"
    parts = proxy.fault("acquire", "late")
    waiter.say("setlk 0 ex 0 2 w")
    wait_until(parts.happened.is_set, "a asks for the parts of its lease")
    assert here.do("setlk 0 sh 0 1") == "ok"
    test.say("getlk 0 sh 0 0")
    wait_until(lambda: "in probing -> shrinking" in a.log(), "a makes the whole a shared one")
    proxy.release()
    assert test.heard()[0] == "un"
    assert waiter.silent(0.1) and here.do("setlk 0 un 0 1") == "ok"
    assert waiter.heard()[0] == "ok"
