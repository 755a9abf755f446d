"""Each system call that a lock makes is failed once: it may be refused, it is never granted by mistake."""
import re

import pytest

import fake_keeper as fk

# Those that cannot fail but by a program's mistake, and those of the program's own printing (musl's: writev).
NOT_FAILED = {"close", "shutdown", "rt_sigprocmask", "wait4", "write", "writev", "nanosleep", "brk", "getrandom"}
INTERRUPTIBLE = {"connect", "sendmsg", "recvfrom", "flock", "fcntl"}


def calls_of_the_lock(world, *args):
    """The system calls between the opening of the lock file, or a first lock, and the printing of the result: (name, which one)."""
    log = world.folder / "strace"
    world.run("waits", *args, world.lock, wrap=["strace", "-f", "-o", str(log)])
    counts, inside, found = {}, False, []
    for line in log.read_text().splitlines():
        match = re.match(r"^\d+ +(\w+)\(", line)
        if not match:
            continue
        name = match[1]
        prints = name in ("write", "writev")
        counts[name] = counts.get(name, 0) + 1
        if prints and re.search('"(flock|record): ', line):
            break
        if inside and name not in NOT_FAILED:
            found.append((name, counts[name]))
        inside |= prints and '"first: ' in line if args[0] == "held" else name in ("open", "openat") and str(world.lock) in line
    assert len(found) > 5, found
    return found


def inject(world, args, name, which, error):
    return world.run("waits", *args, world.lock, wrap=["strace", "-f", "-o", "/dev/null", "-e", f"inject={name}:error={error}:when={which}"])


@pytest.mark.parametrize("error", ["EIO", "ENOMEM", "EPERM", "EINTR", "EAGAIN"])
@pytest.mark.parametrize("how, call, late", [("restart", "x", False), ("restart", "sn", False), ("held", "setlk", False), ("held", "setlkw", False),
                                             ("held", "setlkw", True), ("held", "ofd", True), ("held", "lockf", True)])
def test_protected(world, how, call, late, error):
    """late: once the lock is granted too late, which makes it ask with the kernel lock in hand."""
    granted, args = [], (how, call)

    def handler(connection):
        known, been_late = fk.Known(connection), False
        while request := connection.receive():
            if known.saw(request):
                continue
            is_late = late and request.to == 10 and not been_late
            been_late |= is_late
            granted.append(request)  # first: the program may be through before this thread is
            known.grant(request, 0 if is_late else 10 * fk.SECOND)

    with world.keeper(handler):
        for name, which in calls_of_the_lock(world, *args):
            if error == "EINTR" and name not in INTERRUPTIBLE:
                continue
            granted.clear()
            done = inject(world, args, name, which, error)
            where = (name, which, error, done)
            lines = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
            result, left = lines.get("flock") or lines["record"], lines.get("left")
            if result == "0 -":
                assert len(granted) > (how == "held") and left in (None, "WRITE 0 9"), where
            else:
                assert result == "-1 ENOLCK" and done.stderr.count("\n") == 1 or result == "-1 " + error and (
                    name in ("flock", "fcntl") or error == "EINTR" and call != "sn"), where
                assert left in (None, "READ 5 7"), where
            assert (lines["children of all kinds"], lines["open"]) == ("-1 ECHILD", "0 1 2 3"), where


@pytest.mark.parametrize("keeper", ["says that it is unprotected", "is started"])
def test_unprotected_and_starting(world, keeper):
    world.own_shim()
    if keeper == "says that it is unprotected":
        fk.write_page(world.runtime, world.config, [])
    args = ("restart", "x")
    for name, which in calls_of_the_lock(world, *args):
        if keeper == "is started":
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
