"""A lease that another host waits for: calls on the holder's host meanwhile, and how it is tested and given back."""
import os
import signal

import pytest
from harness import wait_until

from keepers import LONG, held, opened


@pytest.mark.parametrize("held_already, wanted", [("flock 0 ex", "flock 0 ex nb"), ("setlk 0 ex 10 20", "setlk 0 ex 10 20"),
                                                  ("setlk 0 ex 10 20", "setlk 0 ex 20 30")], ids=["flock", "record", "part"])
def test_calls_that_do_not_wait_are_answered_at_once(make_host, redis, held_already, wanted):
    """Although another host waits for what a program of this host holds. A lease that is requested for such a call is recalled before the
    probes of the lease in use have ended; that once led to thousands of requests."""
    b, a = make_host("b", lease=LONG), make_host("a", lease=LONG)
    elsewhere, holder, waiter = opened(b), opened(a), opened(b)
    assert elsewhere.do("setlk 0 ex 100 1") == "ok"  # so that a gets no more than what it asks for
    assert holder.do(held_already) == "ok"
    waiter.say(held_already + (" w" if held_already.startswith("setlk") else ""))
    wait_until(lambda: held(a, state="waiting"), "the lease is recalled, and in use")
    for _ in range(5):
        other = opened(a)
        before = redis.commands_processed()
        assert other.do(wanted) == "EAGAIN"
        # The first call takes 7 or 8 requests of a dozen commands each (the last one gives up what it asked for, and may come after the
        # answer), the others fewer.
        assert redis.commands_processed() - before < 130
    assert waiter.silent(0.1)
    holder.kill()
    assert waiter.heard()[0] == "ok"


@pytest.mark.parametrize("had", [0, 1], ids=["in use", "unused"])
def test_many_hosts_ask_at_once(make_host, had):
    """The holder reads all their questions before it has looked at the lock; or one of them gets it, and is asked by the others. No answer here
    waits for the end of probe_ms."""
    lease = "ttl_ms = 120000; linger_ms = 120000; probe_ms = 60000;"
    holder, *others = [make_host("h%d" % i, lease=lease) for i in range(24)]
    holder.opened("f", "flock 0 ex", *["flock 0 un"] * had)
    agents = [opened(host) for host in others]
    pids = holder.keeper_pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        for agent in agents:
            agent.say("flock 0 ex nb")
        wait_until(lambda: [len(lock["waiters"]) for lock in others[0].status()["cluster"]["locks"]] == [len(agents)], "all are queued")
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert sorted(agent.heard()[0] for agent in agents) == ["EAGAIN"] * (len(agents) - had) + ["ok"] * had


def traced(host, folder, inject):
    """strace at the keeper's threads that wait for locks (the loop only tests); its output."""
    keeper, said = host.keeper_pids()[1], os.path.join(folder, "calls")
    threads = sorted(set(os.listdir(f"/proc/{keeper}/task")) - {str(keeper)})
    trace = host.popen("strace", "-qq", "-o", said, "-e", "trace=flock", "-e", f"inject=flock:{inject}",
                       *(word for tid in threads for word in ("-p", tid)))
    wait_until(lambda: all(f"TracerPid:\t{trace.pid}\n" in open(f"/proc/{keeper}/task/{tid}/status").read() for tid in threads),
               "the threads are traced")
    return trace, said


def test_the_end_of_a_lock_is_seen_by_calls_that_come_after_it(make_host, folder):
    """While another host waited, a thread of the keeper waits for the end of the lock. It may not have run since, as here."""
    lease = "ttl_ms = 20000; probe_ms = 8000;"
    a, b = make_host("a", lease=lease), make_host("b", lease=lease)
    here, waiter, there = a.opened("f", "flock 0 ex"), opened(b), opened(b)
    waiter.say("flock 0 ex")
    wait_until(lambda: held(a, state="waiting"), "a thread waits")
    trace, _ = traced(a, folder, "delay_exit=1000000")
    waiter.kill()
    wait_until(lambda: not any(lock["waiters"] for lock in a.status()["cluster"]["locks"]), "nobody waits any more")
    assert here.do("flock 0 un") == "ok"
    assert there.do("flock 0 ex nb") == "ok"
    trace.terminate()
    trace.communicate(timeout=20)


def test_a_kernel_that_refuses_to_wait_is_asked_at_growing_intervals(make_host, folder):
    """The kernel says that a lock is held, and then does not let the keeper wait for its end."""
    a, b = make_host("a", lease=LONG), make_host("b", lease=LONG)
    here, there = a.opened("f", "flock 0 ex"), opened(b).say("flock 0 ex")
    wait_until(lambda: held(a, state="waiting"), "a thread waits; it is parked afterwards")
    here.do("flock 0 un")
    assert there.heard()[0] == "ok" and there.do("flock 0 un") == "ok"
    assert here.do("flock 0 ex") == "ok"
    trace, said = traced(a, folder, "error=ENOLCK")
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


def test_a_lease_that_comes_before_the_old_one_is_acknowledged_as_released(make_host, redis, proxy):
    """The message that grants the next lease may overtake the acknowledgement that the last one was released. A caller must get its
    lock all the same, whatever lock the keeper's probe still has."""
    lease = "ttl_ms = 20000; linger_ms = 20000;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, server=proxy.address).wait_up()
    here, there = a.opened("f", "flock 0 ex", "flock 0 un"), opened(b)
    answer = proxy.fault("release", "late")
    there.say("flock 0 ex")
    wait_until(answer.happened.is_set, "a gives its lease back")
    assert there.heard()[0] == "ok" and there.do("flock 0 un") == "ok"
    assert here.do("flock 0 ex nb") == "ok"  # b gives it back at once
    proxy.release()


def test_a_lease_becomes_shared_while_it_is_split(make_host, redis, proxy):
    """The parts were requested as exclusive leases, and are open when the whole becomes shared: then the whole is released, and the parts answer."""
    lease = "ttl_ms = 60000; linger_ms = 60000;"
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
