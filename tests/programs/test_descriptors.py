"""C programs: threads that lock each for itself, and locked descriptors that go from one process to another."""
import os
import signal

import pytest
from harness import THREADS, Job, wait_until


def test_threads_with_their_own_descriptors(pair):
    witness = os.path.join(os.path.dirname(pair.a.files), "witness")
    rounds = 100 if pair.excludes else 10000000  # without the shim: until two have it at once
    jobs = [Job(host, *THREADS, host.path("f"), witness, str(rounds)) for host in (pair.a, pair.b)]
    said = [job.line(120) for job in jobs]
    assert [job.end() for job in jobs] == [0, 0], said
    assert os.path.exists(witness + ".overlap") != pair.excludes
    if pair.excludes:
        assert said == ["800", "800"]


@pytest.fixture
def sender_and_receiver(pair, folder):
    socket = os.path.join(folder, "pass")
    sender, receiver = pair.a.agent(), pair.a.agent()
    for command in ("open 0 " + pair.a.path("f") + " rw", "flock 0 ex"):
        assert sender.do(command) == "ok"
    assert receiver.do("listen " + socket) == sender.do("send 0 " + socket) == "ok"
    return sender, receiver


def end(agent, how):
    if how == "kill":
        os.kill(agent.pid, signal.SIGKILL)
    else:
        assert agent.do("close 0") == "ok"


@pytest.mark.parametrize("how", ["kill", "close"])
def test_a_passed_descriptor_keeps_the_lock(pair, sender_and_receiver, how):
    """Also while it is in the socket, where no process has it."""
    sender, receiver = sender_and_receiver
    end(sender, how)
    pair.check_held()
    waiter = pair.waiter()
    if pair.excludes:
        assert waiter.silent(0.2)
    assert receiver.do("receive 0") == "ok"
    pair.check_held()
    end(receiver, how)
    pair.check_gets(waiter)


def test_the_receiver_dies_first(pair, sender_and_receiver):
    sender, receiver = sender_and_receiver
    assert receiver.do("receive 0") == "ok"
    waiter = pair.waiter()
    end(receiver, "kill")
    wait_until(lambda: receiver.process.poll() is not None, "it has ended")
    pair.check_held()
    end(sender, "kill")
    pair.check_gets(waiter)


def test_a_descriptor_that_nobody_received(pair, sender_and_receiver):
    """The lock ends with the socket in which it waited."""
    sender, receiver = sender_and_receiver
    end(sender, "kill")
    pair.check_held()
    waiter = pair.waiter()
    end(receiver, "kill")
    pair.check_gets(waiter)
