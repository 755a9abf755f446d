"""A program that leaves a waiting call by siglongjmp(): the keeper must hear of it at the next call, and only then."""
import signal

import pytest

import fake_keeper as fk
from harness import wait_until
from world import READ, RECVFROM, has_timer, not_with_musl, waits_in


class Jumping:
    """The program waits for the lock, and the test has its question."""

    def __init__(self, world, script, how, waits=True, **env):
        self.process = world.start("jumps", how, world.lock, str(world.lock) + "2", env=world.environment(**env))
        self.script, self.waiting = script, script.next()
        if waits:
            waits_in(self.process.pid, RECVFROM)

    def alarm(self):
        self.process.send_signal(signal.SIGALRM)

    def says(self, *lines):
        for line in lines:
            assert self.process.stdout.readline() == line + "\n"

    def is_given_up(self):
        wait_until(lambda: self.waiting.connection.sock.fileno() < 0, "the keeper hears that nobody waits any more")

    def end(self):
        self.process.stdin.close()
        out, err = self.process.stdout.read(), self.process.stderr.read()
        assert (self.process.wait(20), out) == (0, ""), (out, err)


WAITS, LEFT = "open: 0 1 2 3 4 5", "open: 0 1 2 3 4"


@pytest.fixture
def jumping(world, script):
    return lambda how, **more: Jumping(world, script, how, **more)


@pytest.mark.parametrize("how", ["same", "deeper", "unlock", "record", "alternate", "exit"])
def test_the_next_call_ends_it(jumping, script, how):
    """exit: a call of another thread; the one that waited was ended by a handler."""
    program = jumping(how, waits=how != "exit")
    program.alarm()
    program.says(WAITS)  # nobody has noticed yet
    if how in ("same", "deeper", "alternate"):
        script.next().grant()
    program.says("other: 0 -", LEFT)
    program.is_given_up()
    program.end()


def test_a_call_of_a_child_ends_nothing(jumping):
    """It has copies of its parent's conversations, and none of its threads."""
    program = jumping("fork", waits=False)
    program.alarm()
    program.says("other: 0 -")
    program.waiting.grant()
    program.says("lock: 0 -", LEFT)
    program.end()


@not_with_musl("longjmp() of musl runs no cleanup handler, and the next call ends it")
def test_a_jump_beside_other_threads_ends_a_record_call_at_once(jumping):
    """glibc runs the handler that is for cancelled threads."""
    program = jumping("beside")
    program.alarm()
    program.says(LEFT)
    program.is_given_up()
    program.says("other: 0 -", LEFT)
    program.end()


@pytest.mark.parametrize("how", ["nested", "nested-alternate"])
def test_a_call_in_a_handler_that_returns_ends_nothing(jumping, script, how):
    program = jumping(how)
    program.alarm()
    script.next().grant()
    program.says("other: 0 -", WAITS)
    program.waiting.grant()
    program.says("lock: 0 -", LEFT)
    program.end()


@pytest.mark.parametrize("kind", ["epoll", "timer", "socket", None])
@pytest.mark.parametrize("waits_for", ["an answer", "a keeper"])
def test_it_closes_what_is_its_own(jumping, waits_for, kind):
    """The program may have closed that, and have something of its own under the number."""
    program = jumping(f"closed-{kind}" if kind else "unlock")
    if waits_for == "a keeper":
        program.waiting.refuse(may_mend=True, on_refused=fk.WAIT)
        wait_until(lambda: has_timer(program.process.pid), "it has a timer")
        waits_in(program.process.pid, READ)
    program.alarm()
    program.says(WAITS, *(["the program's: 5"] if kind else []), "other: 0 -", WAITS if kind else LEFT)
    program.end()


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("kind", ["epoll", "timer", "socket"])
def test_another_thread_closes_all_while_a_call_waits(jumping, kind, told):
    program = jumping("thread-" + kind, waits=False, DFLOCK_LOG="debug")
    if told:
        program.waiting.send(fk.WAITING)
        assert "waiting for another host" in program.process.stderr.readline()
    waits_in(program.process.pid, RECVFROM)
    program.alarm()
    program.says("the program's: 5")
    program.waiting.grant()
    program.says("lock: 0 -", WAITS)
    program.end()
