"""The process that gets the kernel lock after a holder was lost has not been told that it holds the lock: it is neither frozen nor killed."""
import signal

from harness import wait_until

from jobs import state
from keepers import held, opened


def holder_pids(host):
    return [h["pid"] for lease in host.status()["leases"] for h in lease["holders"]]


def test_waiters_in_the_kernel_are_no_holders(make_host, redis, proxy):
    """The holder of a lost lease is killed; the kernel then gives the lock to a process that waits for it on this host. That
    process goes on waiting, and gets the lock when its turn has come."""
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
    other = b.opened("f", "flock 0 ex")
    answer = proxy.fault("acquire", "late")  # until then the next one has the kernel lock, and no lease
    proxy.accepting = True
    wait_until(lambda: holder.process.poll() is not None, "the holder is killed")
    wait_until(answer.happened.is_set, "the next one asks")
    assert all(w.silent(0.1) for w in waiters)
    proxy.release()
    assert other.do("flock 0 un") == "ok"
    for _ in waiters:
        wait_until(lambda: any(not w.silent(0.05) for w in waiters), "one of the waiters gets it")
        first = next(w for w in waiters if not w.silent(0))
        assert first.heard()[0] == "ok"
        waiters.remove(first)
        assert first.do("flock 0 un") == "ok"


def test_the_next_holder_is_not_taken_for_the_lost_one(make_host, redis, proxy):
    """A lease that no process used is lost; a caller gets a new one at once, and is not killed for the old one."""
    lease = "ttl_ms = 2000; freeze_margin_ms = 600; linger_ms = 60000;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, server=proxy.address).wait_up()
    one, other = a.opened("f", "flock 0 ex", "flock 0 un"), opened(b)
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


def test_on_lost_kill_spares_the_next_holder(make_host, redis):
    """The holder ends at SIGTERM, and the kernel gives the lock to a process that waits for it on this host. It has the kernel lock when
    holders that have not ended get SIGKILL, after half of the margin; only after a second it is told that it waits for the store."""
    a = make_host("a", lease='ttl_ms = 4000; freeze_margin_ms = 1500; pin_ms = 200; on_lost = "kill";')
    holder, waiter = a.opened("f", "flock 0 ex"), opened(a).say("flock 0 ex")
    assert waiter.silent(0.5)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: holder.process.poll() is not None, "the holder is ended")
    wait_until(lambda: held(a, state="unsure"), "its time is over")
    assert waiter.process.poll() is None
    redis.signal(signal.SIGCONT)
    assert waiter.heard()[0] == "ok"


def test_the_next_holder_after_a_frozen_one(make_host, redis, proxy):
    """The frozen holder is killed by another process. The next one is neither frozen nor killed, though the lease is gone."""
    lease = "ttl_ms = 2000; freeze_margin_ms = 600; pin_ms = 200;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, server=proxy.address).wait_up()
    holder, waiter = a.opened("f", "flock 0 ex"), opened(a).say("flock 0 ex")
    assert waiter.silent(0.5)
    proxy.accepting = False
    proxy.cut()
    wait_until(lambda: "are frozen" in a.log(), "frozen", 10)
    other = b.opened("f", "flock 0 ex")
    holder.kill()
    wait_until(lambda: holder_pids(a) == [waiter.pid], "the next one has the kernel lock")
    assert state(waiter.pid) not in "tT"
    proxy.accepting = True
    wait_until(lambda: a.status()["lost"], "the lease is gone")
    wait_until(lambda: held(a, note="waits for another host"), "the next one asks for another")
    assert waiter.process.poll() is None
    assert other.do("flock 0 un") == "ok"
    assert waiter.heard()[0] == "ok"
