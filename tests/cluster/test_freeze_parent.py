"""The keeper's parent may not use ptrace(), or dies, while it stops holders."""
import os
import signal

import pytest
from harness import BUILD, Job, wait_until

from jobs import LEASE, SLOW_LEASE, end, frozen, grows, is_frozen, job, pid_of, state


def without_ptrace(host):
    """The parent's ptrace() fails from now on, so that it must do with SIGSTOP."""
    parent = host.keeper_pids()[0]
    trace = host.popen("strace", "-qq", "-o", "/dev/null", "-e", "inject=ptrace:error=EPERM", "-p", str(parent))
    wait_until(lambda: f"TracerPid:\t{trace.pid}\n" in open(f"/proc/{parent}/status").read(), "the parent is traced")
    return parent, trace


def test_a_tracer_that_drops_sigstop(make_host, redis):
    """The holder shows as stopped while its tracer looks at the signal. So the tracer is stopped, too, and nothing makes the holder run."""
    a = make_host("a", lease="ttl_ms = 6000; freeze_margin_ms = 2500;")
    process, path = job(a)
    pid = pid_of(path)
    tracer = Job(a, os.path.join(BUILD, "tests/agents/nopass"), str(pid))
    assert tracer.line() == "traced"
    frozen(a, redis)
    tracer.say("go on without it")
    assert is_frozen(path) and state(pid) == "t"
    wait_until(lambda: not a.status()["leases"] or a.status()["leases"][0]["state"] == "unsure", "the deadline passes", 20)
    assert is_frozen(path)
    redis.signal(signal.SIGCONT)
    assert tracer.line() == "SIGSTOP"  # it may have been stopped before it could say so
    grows(path)
    assert process.poll() is None and tracer.process.poll() is None
    end(process, path)


def test_sigstop_where_ptrace_is_refused(make_host, redis):
    """SIGSTOP outlives the parent. The next parent knows which processes the last one stopped, and lets them go on when their leases stand."""
    a = make_host("a", lease=SLOW_LEASE)
    process, path = job(a)
    parent, trace = without_ptrace(a)
    frozen(a, redis)
    pid = pid_of(path)
    assert state(pid) == "T" and is_frozen(path)
    os.kill(parent, signal.SIGKILL)
    trace.communicate(timeout=20)
    wait_until(lambda: len(a.keeper_pids()) == 2 and parent not in a.keeper_pids(), "the next keeper and parent")
    assert state(pid) == "T" and is_frozen(path)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: state(pid) in "SR", "it goes on")
    grows(path)
    end(process, path)


def test_a_parent_that_dies_takes_the_frozen_with_it(make_host, redis):
    """EXITKILL: for a moment no process would watch them. The next keeper and parent take over all the same."""
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    frozen(a, redis)
    old = a.keeper_pids()
    os.kill(old[0], signal.SIGKILL)
    wait_until(lambda: process.poll() is not None, "the holder is killed", 10)
    wait_until(lambda: len(a.keeper_pids()) == 2 and not set(a.keeper_pids()) & set(old), "the next keeper and parent")
    assert "held frozen died with it" in a.log()
    redis.signal(signal.SIGCONT)
    other = a.opened("f", "flock 0 ex")


@pytest.mark.parametrize("n", [1, 5, 20, 60, 150])
def test_a_parent_that_dies_while_it_freezes(make_host, redis, n):
    """At its nth system call: the holder is stopped or dead all the same when another host may get the lock."""
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    pid = pid_of(path)
    redis.signal(signal.SIGSTOP)
    parent = a.keeper_pids()[0]
    trace = a.popen("strace", "-qq", "-o", "/dev/null", "-e", f"inject=all:signal=SIGKILL:when={n}", "-p", str(parent))
    wait_until(lambda: parent not in a.keeper_pids(), "the parent is killed", 20)
    trace.communicate(timeout=20)
    wait_until(lambda: state(pid) in ("t", "T", "Z", "gone"), "the holder is stopped, or has died", 10)
    lives = state(pid) not in ("Z", "gone")
    assert not lives or is_frozen(path)
    redis.signal(signal.SIGCONT)
    if lives:
        grows(path)
        end(process, path)


@pytest.mark.parametrize("ptrace", [True, False])
def test_it_lets_go_before_it_ends(make_host, redis, ptrace):
    """The keeper was told to end, and ends as soon as the store has its last lease back, before the parent has looked again. What the
    holder, which was killed, had started goes on."""
    a = make_host("a", lease=LEASE)
    process, path = job(a, "-o")
    if not ptrace:
        without_ptrace(a)
    frozen(a, redis)
    process.kill()
    process.wait()
    parent, keeper = a.keeper_pids()
    os.kill(keeper, signal.SIGTERM)
    os.kill(parent, signal.SIGSTOP)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: state(keeper) == "Z", "the keeper has ended", 40)
    os.kill(parent, signal.SIGCONT)
    wait_until(lambda: not a.keeper_pids(), "the parent has ended", 40)
    grows(path)
    assert "is killed" not in a.log()
    os.kill(pid_of(path), signal.SIGKILL)
