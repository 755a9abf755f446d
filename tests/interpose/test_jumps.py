"""A program that leaves a waiting call by siglongjmp(): the keeper must hear of it at the next call, and only then."""
import os
import signal

import pytest

import fake_keeper as fk
from harness import wait_until
from world import not_with_musl, wait_in_pause, wait_in_recv
from test_asking import Script


@pytest.fixture
def script(world):
    script = Script()
    with world.keeper(script):
        yield script


def start(world, how):
    return world.start("jumps", how, world.lock, str(world.lock) + "2")


def end(process):
    process.stdin.close()
    out, err = process.stdout.read(), process.stderr.read()
    assert process.wait(20) == 0, (out, err)
    return out.splitlines()


@pytest.mark.parametrize("how", ["same", "deeper", "unlock", "record", "alternate"])
def test_the_next_call_ends_it(world, script, how):
    process = start(world, how)
    waiting, _ = script.next()
    wait_in_recv(process)
    os.kill(process.pid, signal.SIGALRM)
    assert process.stdout.readline() == "open: 0 1 2 3 4 5\n"  # nobody has noticed yet
    if how in ("same", "deeper", "alternate"):
        connection, request = script.next()
        connection.grant(request)
    assert process.stdout.readline() == "other: 0 -\n"
    assert process.stdout.readline() == "open: 0 1 2 3 4\n"
    wait_until(lambda: waiting.sock.fileno() < 0, "the keeper hears that nobody waits any more")
    assert end(process) == []


def test_a_call_of_another_thread_ends_it(world, script):
    """The thread that waited was ended by a handler."""
    process = start(world, "exit")
    waiting, _ = script.next()
    os.kill(process.pid, signal.SIGALRM)
    assert process.stdout.readline() == "open: 0 1 2 3 4 5\n"
    assert process.stdout.readline() == "other: 0 -\n"
    assert process.stdout.readline() == "open: 0 1 2 3 4\n"
    wait_until(lambda: waiting.sock.fileno() < 0, "the keeper hears that nobody waits any more")
    assert end(process) == []


def test_a_call_of_a_child_ends_nothing(world, script):
    """It has copies of its parent's conversations, and none of its threads."""
    process = start(world, "fork")
    waiting, question = script.next()
    os.kill(process.pid, signal.SIGALRM)
    assert process.stdout.readline() == "other: 0 -\n"
    waiting.grant(question)
    assert process.stdout.readline() == "lock: 0 -\n"
    assert process.stdout.readline() == "open: 0 1 2 3 4\n"
    assert end(process) == []


@not_with_musl("longjmp() of musl runs no cleanup handler, and the next call ends it")
def test_a_jump_beside_other_threads_ends_a_record_call_at_once(world, script):
    """glibc runs the handler that is for cancelled threads."""
    process = start(world, "beside")
    waiting, _ = script.next()
    wait_in_recv(process)
    os.kill(process.pid, signal.SIGALRM)
    assert process.stdout.readline() == "open: 0 1 2 3 4\n"
    wait_until(lambda: waiting.sock.fileno() < 0, "the keeper hears that nobody waits any more")
    assert process.stdout.readline() == "other: 0 -\n"
    assert process.stdout.readline() == "open: 0 1 2 3 4\n"
    assert end(process) == []


@pytest.mark.parametrize("how", ["nested", "nested-alternate"])
def test_a_call_in_a_handler_that_returns_ends_nothing(world, script, how):
    process = start(world, how)
    waiting, question = script.next()
    wait_in_recv(process)
    os.kill(process.pid, signal.SIGALRM)
    connection, request = script.next()
    connection.grant(request)
    assert process.stdout.readline() == "other: 0 -\n"
    assert process.stdout.readline() == "open: 0 1 2 3 4 5\n"
    waiting.grant(question)
    assert process.stdout.readline() == "lock: 0 -\n"
    assert process.stdout.readline() == "open: 0 1 2 3 4\n"
    assert end(process) == []


@pytest.mark.parametrize("how, left", [("unlock", ""), ("closed-epoll", " 5"), ("closed-timer", " 5"), ("closed-socket", " 5")])
@pytest.mark.parametrize("waits_for", ["an answer", "a keeper"])
def test_it_closes_what_is_its_own(world, script, waits_for, how, left):
    """The program may have closed that, and have something of its own under the number."""
    process = start(world, how)
    connection, _ = script.next()
    if waits_for == "an answer":
        wait_in_recv(process)
    else:
        connection.send(fk.REFUSED, reason="not now", may_mend=True, on_refused=fk.WAIT)
        wait_in_pause(process)
    os.kill(process.pid, signal.SIGALRM)
    assert process.stdout.readline() == "open: 0 1 2 3 4 5\n"
    if left:
        assert process.stdout.readline() == "the program's: 5\n"
    assert process.stdout.readline() == "other: 0 -\n"
    assert process.stdout.readline() == f"open: 0 1 2 3 4{left}\n"
    assert end(process) == []


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("kind", ["epoll", "timer", "socket"])
def test_another_thread_closes_all_while_a_call_waits(world, script, kind, told):
    process = world.start("jumps", "thread-" + kind, world.lock, f"{world.lock}2", env=world.environment(DFLOCK_LOG="debug"))
    connection, question = script.next()
    if told:
        connection.send(fk.WAITING)
        assert "waiting for another host" in process.stderr.readline()
    wait_in_recv(process)
    os.kill(process.pid, signal.SIGALRM)
    assert process.stdout.readline() == "the program's: 5\n"
    connection.grant(question)
    assert process.stdout.readline() == "lock: 0 -\n"
    assert process.stdout.readline() == "open: 0 1 2 3 4 5\n"
    assert end(process) == []
