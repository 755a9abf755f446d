"""Each system call that a lock makes is failed once: it may be refused, it is never granted by mistake."""
import re

import pytest


# Those that cannot fail but by a program's mistake, and those of the program's own printing (musl's: writev).
NOT_FAILED = {"close", "shutdown", "rt_sigprocmask", "wait4", "write", "writev", "nanosleep", "brk", "getrandom"}
INTERRUPTIBLE = {"connect", "sendmsg", "recvfrom", "flock"}
CALL = re.compile(r"^\d+ +(\w+)\(")


def calls_of_the_lock(world, *args):
    """The system calls between the opening of the lock file and the printing of the result: (name, which one)."""
    log = world.folder / "strace"
    world.run(*args, wrap=["strace", "-f", "-o", str(log)])
    counts, inside, found = {}, False, []
    for line in log.read_text().splitlines():
        match = CALL.match(line)
        if not match:
            continue
        name = match[1]
        counts[name] = counts.get(name, 0) + 1
        if name in ("write", "writev") and '"flock: ' in line:
            break
        if inside and name not in NOT_FAILED:
            found.append((name, counts[name]))
        inside |= name in ("open", "openat") and str(world.lock) in line
    assert len(found) > 5, found
    return found


def inject(world, args, name, which, error):
    return world.run(*args, wrap=["strace", "-f", "-o", "/dev/null", "-e", f"inject={name}:error={error}:when={which}"])


@pytest.mark.parametrize("error", ["EIO", "ENOMEM", "EMFILE", "EPERM", "EINTR", "EAGAIN"])
@pytest.mark.parametrize("op", ["x", "sn"])
def test_protected(world, op, error):
    args = ("waits", "restart", op, world.lock)
    granted = []

    def handler(connection):
        while request := connection.receive():
            granted.append(request)  # first: the program may be through before this thread is
            connection.grant(request)

    with world.keeper(handler):
        for name, which in calls_of_the_lock(world, *args):
            if error == "EINTR" and name not in INTERRUPTIBLE:
                continue
            granted.clear()
            done = inject(world, args, name, which, error)
            result = next(line for line in done.stdout.splitlines() if line.startswith("flock: "))
            where = (name, which, error, done)
            if result == "flock: 0 -":
                assert granted, where
            elif name == "flock":
                assert error in result, where
            else:
                assert result == "flock: -1 ENOLCK" and done.stderr.count("\n") == 1 or \
                    (op, error, result) == ("x", "EINTR", "flock: -1 EINTR"), where
            assert "children of all kinds: -1 ECHILD\nopen: 0 1 2 3\n" in done.stdout, where


def test_unprotected(world):
    args = ("waits", "restart", "x", world.lock)
    with world.keeper(rules=[]):
        for name, which in calls_of_the_lock(world, *args):
            done = inject(world, args, name, which, "EIO")
            assert re.search("flock: (0 -|-1 EIO|-1 ENOLCK)\n", done.stdout), (name, which, done)
            assert "open: 0 1 2 3\n" in done.stdout, (name, which, done)


def test_starting(world):
    world.own_shim()
    args = ("waits", "restart", "x", world.lock)
    for name, which in calls_of_the_lock(world, *args):
        world.end_keepers()
        done = inject(world, args, name, which, "EIO")
        assert re.search("flock: (0 -|-1 EIO|-1 ENOLCK)\n", done.stdout), (name, which, done)
        assert "children of all kinds: -1 ECHILD\nopen: 0 1 2 3\n" in done.stdout, (name, which, done)


def test_a_silent_keeper_is_given_up(world):
    """By a call that does not wait; the time limit itself is the kernel's."""
    log = world.folder / "strace"
    wrap = ["strace", "-o", str(log), "-e", "inject=recvfrom:error=EAGAIN:when=1"]
    with world.keeper(lambda connection: connection.receive()):
        done = world.run("waits", "restart", "xn", world.lock, wrap=wrap)
    assert "flock: -1 ENOLCK" in done.stdout and "does not answer" in done.stderr
    # 29 s and some microseconds, in strace's octal.
    assert re.search(r'SO_RCVTIMEO\w*, "\\35\\0', log.read_text())
