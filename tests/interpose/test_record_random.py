"""
Record calls at random, against a keeper that answers at random: late, with refusals, by dying, with waits in which a signal
comes. After each call the locks of the process are what one kernel would have left: those of a second process that
made the same calls without the shim, but none of those that failed.
"""
import fcntl
import os
import random
import signal
import struct
import termios

import pytest

import fake_keeper as fk
from fake_keeper import DESCRIPTION, PROCESS
from harness import wait_until
from world import RECVFROM, waits_in

CALLS = 2000


def waits_after_reading(connection, pid):
    """Until the caller has read all that was sent, has done what it had to do, and waits for more."""
    unread = lambda: struct.unpack("i", fcntl.ioctl(connection.sock, termios.TIOCOUTQ, b"    "))[0]
    wait_until(lambda: unread() == 0, "the answer has been read")
    waits_in(pid, RECVFROM)


class Moody:
    """The handler of one connection after the other; each call is one."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.problems, self.happened = [], set()
        self.had, self.dead = [], False

    def __call__(self, connection):
        known = fk.Known(connection)
        while request := connection.receive():
            if not known.saw(request) and not self.answer(known, connection, request):
                return

    def choose(self, request):
        choices = ["grant", "grant", "late", "late", "untold", "refuse", "die", "unprotected"]
        choices += ["would block"] if request.nonblock else ["wait", "wait", "wait", "deadlock", "interrupt"]
        # Where one after the other dies, a real one is started.
        if self.dead:
            choices.remove("die")
        return self.random.choice(choices)

    def answer(self, known, connection, request):
        """false: this keeper has ended."""
        name, choice, pid = "have" if request.have else "ask", self.choose(request), connection.peer()
        if not request.have:
            self.had = known.had
        self.happened.add((name, choice))
        if choice == "wait":
            connection.send(fk.WAITING)
            waits_after_reading(connection, pid)
            left = fk.locks(pid, request.fds[0], request.owner)
            if left != self.had:
                self.problems.append((self.had, left))
            choice = self.random.choice(["grant", "late", "refuse", "die", "deadlock", "interrupt", "unprotected"])
            self.happened.add((name, "wait, " + choice))
        self.dead = choice == "die"
        if choice in ("grant", "late", "untold"):
            known.grant(request, 0 if choice == "late" else 10 * fk.SECOND, tell=choice != "untold")
        elif choice == "interrupt":
            waits_in(pid, RECVFROM)
            os.kill(pid, signal.SIGALRM)
        elif choice != "die":
            verdict = {"refuse": fk.REFUSED, "would block": fk.WOULD_BLOCK, "deadlock": fk.DEADLOCK,
                       "unprotected": fk.NOT_PROTECTED}[choice]
            connection.send(verdict, reason="no")
        return choice != "die"


def random_call(chance, ofd):
    kind = chance.choice(["sh", "ex", "ex", "sh", "un"])
    start, length = chance.randrange(24), chance.choice([0, 1, 2, 3, 5, 8, 13, -1, -4, -9])
    call = f"setlk 0 {kind} {start} {length}" if chance.randrange(5) else "setlk 0 un 0 0"
    return call + chance.choice([" w", ""]) + ofd


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("owner", [PROCESS, DESCRIPTION])
def test_whatever_happens(world, lockers, seed, owner):
    chance, moody, ofd = random.Random(seed), Moody(seed), " ofd" if owner == DESCRIPTION else ""
    failed = 0
    with world.keeper(moody, root=os.stat("/dev/shm")):  # the page cannot say whether it is protected
        one, twin = lockers(), lockers(preload=False, path=f"{world.lock}.twin")
        neighbour = lockers(preload=False)
        for i in range(CALLS):
            call = random_call(chance, ofd)
            # With another process's lock in the way, only calls that do not wait come to an end.
            assert neighbour.do("setlk 0 un 0 0") == "ok"
            if " w" not in call and chance.randrange(3) == 0:
                neighbour.do(f"setlk 0 {chance.choice(['sh', 'ex'])} {chance.randrange(24)} {chance.randrange(1, 4)}")
            result = one.do(call)
            if result == "ok":
                assert twin.do(call) == "ok", (i, call)
            failed += result != "ok"
            assert one.locks(owner) == twin.locks(owner), (i, call, result)
            assert moody.problems == [], (i, call, result)
    assert CALLS / 10 < failed < CALLS * 9 / 10
    # All of it did happen.
    for name in ("ask", "have"):
        for choice in ("grant", "refuse", "die", "unprotected", "would block", "wait", "deadlock", "interrupt"):
            assert (name, choice) in moody.happened, (name, choice)
