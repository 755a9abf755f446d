"""
Record calls at random, against a keeper that answers at random: late, with refusals, by dying, with waits in which a signal
comes. After each call the locks of the process are what one kernel would have left: those of a second process that
made the same calls without the shim, but none of those that failed.
"""
import fcntl
import os
import random
import re
import signal
import struct
import termios

import pytest

import fake_keeper as fk
import record_keeper as rk
from harness import wait_until
from record_keeper import DESCRIPTION, PROCESS
from record_world import lockers, waits_in  # noqa: F401 (a fixture)
from test_faults import INTERRUPTIBLE, NOT_FAILED
from world import RECVFROM

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
        known = rk.Known()
        while request := connection.receive():
            known.saw(connection, request)
            if request.op == rk.BEFORE:
                known.answer_before(connection, request)
            elif not self.answer(known, connection, request):
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
        name, choice, pid = "have" if request.have else "ask", self.choose(request), rk.peer(connection)
        if not request.have:
            self.had = known.had
        self.happened.add((name, choice))
        if choice == "wait":
            rk.answer(connection, fk.WAITING)
            waits_after_reading(connection, pid)
            left = rk.locks(pid, request.fds[0], request.owner)
            if left != self.had:
                self.problems.append((self.had, left))
            choice = self.random.choice(["grant", "late", "refuse", "die", "deadlock", "interrupt", "unprotected"])
            self.happened.add((name, "wait, " + choice))
        self.dead = choice == "die"
        if choice in ("grant", "late", "untold"):
            known.grant(connection, request, 0 if choice == "late" else 10 * fk.SECOND, tell=choice != "untold")
        elif choice == "interrupt":
            waits_in(pid, RECVFROM)
            os.kill(pid, signal.SIGALRM)
        elif choice != "die":
            verdict = {"refuse": fk.REFUSED, "would block": fk.WOULD_BLOCK, "deadlock": fk.DEADLOCK,
                       "unprotected": fk.NOT_PROTECTED}[choice]
            rk.answer(connection, verdict, reason="no")
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


# --- each system call fails once ---

ERRORS = ["EIO", "ENOMEM", "EMFILE", "EPERM", "EINTR", "EAGAIN"]


def run(world, call, *wrap):
    done = world.run("record_left", call, world.lock, wrap=wrap)
    assert done.returncode == 0, done
    return done


def calls_of_the_lock(world, call):
    """The system calls of the second lock: (name, which one of that name)."""
    log = world.folder / "strace"
    run(world, call, "strace", "-o", str(log))
    counts, inside, found = {}, False, []
    for line in log.read_text().splitlines():
        match = re.match(r"^(\w+)\(", line)
        if not match:
            continue
        name = match[1]
        counts[name] = counts.get(name, 0) + 1
        if name in ("write", "writev") and '"second: ' in line:
            break
        if inside and name not in NOT_FAILED:
            found.append((name, counts[name]))
        inside |= name in ("write", "writev") and '"first: ' in line
    assert len(found) > 8, found
    return found


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call, late", [("setlk", False), ("setlkw", False), ("setlkw", True), ("ofd", True), ("lockf", True)])
def test_faults(world, call, late, error):
    granted = []

    def handler(connection):
        known, been_late = rk.Known(), False
        while request := connection.receive():
            known.saw(connection, request)
            if request.op == rk.BEFORE:
                known.answer_before(connection, request)
                continue
            # Once the second lock is granted too late, which makes it ask with the kernel lock in hand.
            is_late = late and request.to == 10 and not been_late
            been_late |= is_late
            known.grant(connection, request, 0 if is_late else 10 * fk.SECOND)
            granted.append(request)

    with world.keeper(handler):
        for name, which in calls_of_the_lock(world, call):
            if error == "EINTR" and name not in INTERRUPTIBLE | {"fcntl"}:
                continue
            granted.clear()
            done = run(world, call, "strace", "-o", "/dev/null", "-e", f"inject={name}:error={error}:when={which}")
            where = (name, which, error, done)
            lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
            if lines["second"] == "0 -":
                assert len(granted) > 1 and lines["left"] == "WRITE 0 9", where
            else:
                assert lines["left"] == "READ 5 7", where
                assert lines["second"] in ("-1 ENOLCK", "-1 " + error), where
                assert lines["second"] != "-1 ENOLCK" or done.stderr.count("\n") == 1, where
            assert lines["open"] == "0 1 2 3", where
