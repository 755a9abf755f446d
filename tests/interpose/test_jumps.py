"""A program that leaves a waiting call by siglongjmp(): the keeper must hear of it at the next call, and only then."""
import os
import signal

import pytest

from harness import wait_until
from world import wait_in_recv
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
