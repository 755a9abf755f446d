"""A hand-over begins in the probe's thread, which sends the release: killed, delayed and refused at exactly that place. And probes
that need no thread."""
import contextlib
import os

import pytest
from harness import wait_until
from harness.processes import is_traced, threads_of

from keepers import LONG, held, leases, opened

pytestmark = pytest.mark.of_redis("is about the release that a thread of the keeper sends to a Redis")



@contextlib.contextmanager
def traced(host, folder, call, *inject):
    """The keeper; yields how often it made the call, but for lines of its log. What is injected is not meant for the loop, whose beats
    make the same calls: without -f, strace attaches no thread but those that are named."""
    keeper, said = host.keeper_pids()[1], os.path.join(folder, f"{call}.trace")
    threads = [tid for tid in threads_of(keeper) if tid != keeper or not inject]
    trace = host.popen("strace", "-qq", *(() if inject else ("-f",)), "-o", said, "-e", f"trace={call}",
                       *(word for text in inject for word in ("-e", text)), *(f"-p{tid}" for tid in threads))
    try:
        wait_until(lambda: all(is_traced(tid, trace.pid) for tid in threads), "the keeper is traced")
        yield lambda: len([line for line in open(said) if "(" in line and "resumed" not in line and "sa_family" not in line])
    finally:
        trace.terminate()
        trace.communicate(timeout=20)


@pytest.fixture
def waited_for(make_host):
    """(host a, whose program has the lock, the program, host b, its program, which waits)"""
    b, a = make_host("b", lease=LONG), make_host("a", lease=LONG, foreground=False)
    holder, waiter = a.opened("f", "flock 0 ex"), opened(b).say("flock 0 ex")
    wait_until(lambda: held(a, state="waiting"), "the lease is recalled, and in use")
    return a, holder, b, waiter


def test_killed_before_it_has_sent(waited_for, folder):
    """The table says that the lease goes back: the next keeper sends the release, and nobody is killed for it."""
    a, holder, _, waiter = waited_for
    before = a.keeper_pids()[1]
    with traced(a, folder, "sendto", "inject=sendto:signal=SIGKILL:when=1"):
        holder.do("flock 0 un")
        wait_until(lambda: not os.path.exists(f"/proc/{before}"), "the keeper is dead")
    assert waiter.heard()[0] == "ok"
    assert a.status()["lost"] == []
    other = opened(a).say("flock 0 ex")
    assert other.silent()
    waiter.do("flock 0 un")
    assert other.heard()[0] == "ok"


@pytest.mark.parametrize("inject", [(), ("inject=sendto:error=EAGAIN:when=1",), ("inject=sendto:error=ECONNRESET:when=1",)],
                         ids=["sent", "EAGAIN", "ECONNRESET"])
def test_refused_it_is_sent_by_the_loop(waited_for, folder, inject):
    a, holder, _, waiter = waited_for
    with traced(a, folder, "sendto", *inject) as sent:
        holder.do("flock 0 un")
        assert waiter.heard()[0] == "ok"
        wait_until(lambda: not leases(a), "its end is known")
        assert inject or sent() == 1
    assert a.status()["lost"] == []


def test_delayed_while_another_call_comes(waited_for, folder):
    """The thread has written into the table and not sent so far: a program of the same host asks for the lock in this moment. It
    comes after the host that waits."""
    a, holder, _, waiter = waited_for
    other = opened(a)
    with traced(a, folder, "sendto", "inject=sendto:delay_enter=1000000:when=1") as sent:
        holder.do("flock 0 un")
        wait_until(lambda: sent() == 1, "the thread is about to send")
        other.say("flock 0 ex")
        assert waiter.heard()[0] == "ok"
        assert other.silent()
    waiter.do("flock 0 un")
    assert other.heard()[0] == "ok"


def test_probes_that_need_no_thread(make_host, folder):
    """A call that does not wait is refused, and leases that no process uses are given back."""
    a, b = make_host("a", lease=LONG + "linger_ms = 20000;"), make_host("b", lease=LONG)
    here, there = a.opened("f", "flock 0 ex"), opened(b)
    cached = [opened(a, f"cached-{i}") for i in range(10)]
    for agent in cached:
        assert agent.do("flock 0 ex") == "ok" and agent.do("flock 0 un") == "ok"
    with traced(a, folder, "clone,clone3") as started:
        for _ in range(5):
            assert there.do("flock 0 ex nb") == "EAGAIN"
        wanted = [opened(b, f"cached-{i}") for i in range(10)]
        for agent in wanted:
            agent.say("flock 0 ex")
        for agent in wanted:
            assert agent.heard()[0] == "ok"
        assert started() == 0
        there.say("flock 0 ex")
        wait_until(lambda: held(a, state="waiting"), "this one waits")
        assert started() >= 1
    here.do("flock 0 un")
    assert there.heard()[0] == "ok"
