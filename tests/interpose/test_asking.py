"""Lock calls on protected files, against a keeper that answers late, early, wrongly or not at all. What the answers mean for the record
locks that a process has: test_record_undo.py."""
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

import fake_keeper as fk
from fake_keeper import DESCRIPTION, EOF, EXCLUSIVE as EX, FLOCKED, PROCESS, SHARED as SH
from harness import hanging as fuse, text_of, wait_until
from harness.view import View
from world import FCNTL, FLOCK_CALL, RECVFROM, not_with_musl, result, waits_in

# An exclusive lock on the whole file, or of a part; without waiting; a shared one; no lock; whose it is; what the kernel says of it.
FLOCK = ("flock 0 ex", "flock 0 ex nb", "flock 0 sh", "flock 0 un", FLOCKED, [(EX, 0, EOF)])
RECORD = ("setlk 0 ex 0 10 w", "setlk 0 ex 0 10", "setlk 0 sh 0 10 w", "setlk 0 un 0 0", PROCESS, [(EX, 0, 10)])
each_space = pytest.mark.parametrize("space", [FLOCK, RECORD], ids=["flock", "record"])
KERNEL = {FLOCKED: FLOCK_CALL, PROCESS: FCNTL}


@pytest.mark.parametrize("command, space, mode, flags, owner, start, to, locked", [
    ("flock 0 sh", fk.FLOCK, SH, 0, 0, 0, EOF, (0, EOF)),
    ("flock 0 ex nb", fk.FLOCK, EX, fk.NONBLOCK, 0, 0, EOF, (0, EOF)),
    ("setlk 0 sh 10 5", fk.RECORD, SH, fk.NONBLOCK, PROCESS, 10, 15, (10, 15)),
    ("setlk 0 ex 10 -5 w", fk.RECORD, EX, 0, PROCESS, 5, 10, (5, 10)),
    ("setlk 0 ex 10 -5 w ofd", fk.RECORD, EX, 0, DESCRIPTION, 5, 10, (5, 10)),
    ("setlk 0 sh -20 0 ofd end", fk.RECORD, SH, fk.NONBLOCK, DESCRIPTION, 80, EOF, (80, EOF)),
    ("setlk 0 ex -3 1 w cur", fk.RECORD, EX, 0, PROCESS, 4, 5, (4, 5)),
    ("lockf 0 lock -4", fk.RECORD, EX, 0, PROCESS, 3, 7, (3, 7)),
    ("lockf 0 tlock 0", fk.RECORD, EX, fk.NONBLOCK, PROCESS, 7, EOF, (7, EOF)),
    # The last offsets are told apart by the kernel, and by nobody else: what is asked for is a byte more, what is locked is not.
    ("setlk 0 ex 0 9223372036854775807", fk.RECORD, EX, fk.NONBLOCK, PROCESS, 0, EOF, (0, EOF)),
    ("setlk 0 sh 9223372036854775807 1", fk.RECORD, SH, fk.NONBLOCK, PROCESS, EOF - 1, EOF, (EOF, EOF)),
])
def test_what_is_asked(world, one, script, command, space, mode, flags, owner, start, to, locked):
    assert one.do("size 0 100") == one.do("seek 0 7") == "ok"
    question = one.say(command) and script.next()
    request = question.request
    assert (request.magic, request.version, request.size, request.op) == (fk.MAGIC, fk.VERSION, 120, fk.LOCK)
    assert (request.space, request.mode, request.flags, request.owner) == (space, mode, flags, owner)
    assert (request.start, request.to, request.fds) == (start, to, [one.path])
    assert request.config == fk.config_id(world.config) and request.path_hash == fk.path_hash(world.config)
    assert 0 <= fk.boottime() - request.sent_ns < 10 * fk.SECOND and request.command == "agent"
    whose = owner if space == fk.RECORD else FLOCKED
    assert one.locks(whose) == []
    question.grant()
    one.hears()
    assert one.locks(whose) == [(mode, *locked)]
    assert (start, space) != (0, fk.RECORD) or f" 0 {EOF - 1}\n" in text_of(f"/proc/{one.pid}/fdinfo/3")
    assert script.befores == 0 and script.gone.wait(20)


# --- what the path is ---

def test_the_keeper_sees_another_path(world):
    """The page says yes, the keeper no, and nothing was renamed: the kernel lock alone would exclude no other host."""
    asked = []

    def handler(connection):
        while request := connection.receive():
            asked.append(request)
            connection.send(fk.NOT_PROTECTED, reason="/elsewhere/f")

    for op in ("x", "xn"):
        with world.keeper(handler):
            done = world.run("waits", "restart", op, world.lock)
        assert "flock: -1 ENOLCK" in done.stdout
        line, = done.stderr.splitlines()
        assert str(world.lock) in line and "/elsewhere/f" in line and "root directory" in line
    assert 2 <= len(asked) <= 20


@each_space
def test_a_file_that_is_renamed(world, script, one, space):
    """It was elsewhere when the keeper looked. If it is back when the shim looks again, the keeper is asked again."""
    take, nonblocking, shared, unlock, owner, had = space
    one.say(take)
    script.next().send(fk.NOT_PROTECTED, reason="/elsewhere/f")
    script.next().grant()
    one.hears()
    one.say(shared)
    question = script.next()
    os.rename(world.lock, world.lock.parent / "renamed")  # the page calls the new path not protected, too
    question.send(fk.NOT_PROTECTED)
    one.hears()
    os.rename(world.lock.parent / "renamed", world.lock)
    assert one.locks(owner) == [(SH, *had[0][1:])]


@pytest.mark.parametrize("rules, handler, expected", [
    ([], fk.grant_all, ("flock: 0 -", "")), (None, fk.refuse_all, ("flock: -1 ENOLCK", "dflock: so it is\n"))])
@pytest.mark.root("mounts, and so needs root")
def test_a_file_whose_server_does_not_answer(world, rules, handler, expected):
    """The keeper finds that out, if it must know something of the file. The program itself never asks the server."""
    view = View(str(world.folder / "view"), fuse.GETATTR, valid=0)
    world.lock = pathlib.Path(view.path) / "f"
    try:
        with world.keeper(handler, rules=rules):
            view.do("hold")
            process = world.start("waits", "restart", "xn", world.lock)
            limit = threading.Timer(20, process.kill)
            limit.start()
            assert (result(process), process.communicate()[1]) == expected
            limit.cancel()
    finally:
        view.end()


# --- flock(): a failed conversion, and one that waits, lose what was there ---

@pytest.mark.parametrize("command, verdict, error, left", [
    ("flock 0 ex", fk.REFUSED, "ENOLCK", [(SH, 0, EOF)]), ("flock 0 ex nb", fk.WOULD_BLOCK, "EAGAIN", [])])
def test_a_conversion_that_fails(script, one, command, verdict, error, left):
    one.say("flock 0 sh")
    script.next().grant()
    one.hears()
    one.say(command)
    script.next().send(verdict, reason="no")
    one.hears(error)
    assert one.locks(FLOCKED) == left


def test_waiting_gives_up_the_old_lock_first(script, one):
    one.say("flock 0 sh")
    script.next().grant()
    one.hears()
    one.say("flock 0 ex")
    question = script.next()
    assert one.locks(FLOCKED) == [(SH, 0, EOF)]
    question.send(fk.WAITING)
    wait_until(lambda: not one.locks(FLOCKED), "the old lock is given up")
    question.send(fk.WAITING)
    question.grant()
    one.hears()
    assert one.locks(FLOCKED) == [(EX, 0, EOF)]


# --- grants that are over ---

@each_space
def test_a_grant_that_is_over_is_asked_for_again(script, one, space):
    take, _, _, _, owner, had = space
    one.say(take)
    first = script.next(have=False)
    first.late()
    second = script.next(have=True)
    assert second.request.sent_ns > first.request.sent_ns and second.request.fds == [one.path] and one.locks(owner) == had
    # It has gone: the kernel lock must be let go before the wait.
    second.send(fk.WAITING)
    wait_until(lambda: not one.locks(owner), "the kernel lock is let go")
    second.late()
    third = script.next(have=True)
    assert one.locks(owner) == had
    # Over when it arrives, but given while the kernel lock was there.
    third.late()
    one.hears()
    assert one.locks(owner) == had


@pytest.mark.parametrize("command, verdict, error", [
    ("flock 0 ex", fk.REFUSED, "ENOLCK"), ("flock 0 sh nb", fk.REFUSED, "ENOLCK"), ("flock 0 ex nb", fk.WOULD_BLOCK, "EAGAIN"),
    ("flock 0 ex", fk.OK, "ENOLCK"), ("setlk 0 ex 0 10 w", fk.DEADLOCK, "EDEADLK"), ("setlk 0 ex 0 10", fk.DEADLOCK, "ENOLCK"),
    ("setlk 0 ex 0 10 w", fk.WOULD_BLOCK, "ENOLCK")])
def test_a_second_question_with_a_bad_end(script, one, command, verdict, error):
    one.say(command)
    script.next().late()
    script.next(have=True).send(verdict, reason="gone")
    one.hears(error)
    assert not one.locks(FLOCKED) + one.locks()


def test_a_keeper_that_dies_is_followed_by_another(script, one):
    one.say("flock 0 ex")
    question = script.next()
    question.send(fk.WAITING)
    question.die()
    script.next(have=False).late()
    # With the kernel lock in hand, the next one is told so.
    script.next(have=True).die()
    script.next(have=True).grant()
    one.hears()


def test_keepers_that_all_die(world):
    # A dflockd that the shim could start would connect to this one, too.
    world.own_shim(beside="something-else")
    for answer, questions in ((lambda c: None, 5), (lambda c: c.send(fk.WAITING), 100)):
        with world.keeper(lambda connection: connection.receive() and answer(connection)) as keeper:
            done = world.run("waits", "restart", "x", world.lock)
            assert "flock: -1 ENOLCK" in done.stdout and keeper.requests == questions
            assert "keepers end before they answer" in done.stderr and done.stderr.count("\n") == 1 or questions == 100


# --- local holders ---

@each_space
def test_a_local_holder_outlasts_the_pin(script, one, lockers, space):
    take, _, _, unlock, owner, had = space
    other = lockers(preload=False)
    assert other.do(take) == "ok"
    one.say(take)
    question = script.next()
    question.grant(fk.SECOND // 10)
    one.waits_in(KERNEL[owner])
    wait_until(lambda: fk.boottime() > question.request.sent_ns + fk.SECOND // 10, "the pin is over")
    assert other.do(unlock) == "ok"
    question = script.next(have=True)
    assert one.locks(owner) == had
    question.grant()
    one.hears()


@not_with_musl("the second preload is glibc's")
def test_the_pin_ends_where_clocks_stand_still(world, script, lockers):
    one, other = lockers(**world.standing_clock()), lockers(preload=False)
    assert other.do("flock 0 ex") == "ok"
    one.say("flock 0 ex")
    question = script.next()
    question.grant(fk.SECOND // 10)
    one.waits_in(FLOCK_CALL)
    time.sleep(0.2)
    assert other.do("flock 0 un") == "ok"
    script.next(have=True).grant()
    one.hears()


@each_space
def test_local_would_block_is_believed_within_a_pin_only(script, one, lockers, space):
    _, nonblocking, shared, unlock, owner, _ = space
    other = lockers(preload=False)
    assert other.do(shared) == "ok"
    one.say(nonblocking)
    script.next().late()
    question = script.next(have=False)
    assert not one.locks(owner) and other.do(unlock) == "ok"
    question.grant()
    one.hears()
    assert one.do(unlock) == "ok" and other.do(shared) == "ok"
    one.say(nonblocking)
    script.next().grant()
    one.hears("EAGAIN")
    assert not one.locks(owner)


# --- signals ---

@each_space
def test_a_handler_without_restart_ends_the_wait(script, one, space):
    for told in (False, True):
        one.say(space[0])
        question = script.next()
        if told:
            question.send(fk.WAITING)
        one.waits_in(RECVFROM)
        one.signal()
        one.hears("EINTR")
        assert script.gone.wait(20), "the keeper learns of it"
    assert not one.locks(space[4])


@pytest.mark.parametrize("command", ["flock 0 ex", "lockf 0 lock 10"])
def test_a_handler_with_restart_does_not(script, one, command):
    assert one.do("restart 0") == "ok"
    one.say(command)
    question = script.next()
    question.send(fk.WAITING)
    for _ in range(3):
        one.waits_in(RECVFROM)
        one.signal()
    question.grant()
    one.hears()


def test_a_call_that_does_not_wait_is_never_interrupted(world, script):
    process = world.start("waits", "interrupt", "xn", world.lock)
    question = script.next()
    for _ in range(3):
        waits_in(process.pid, RECVFROM)
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "signal\n"
    question.send(fk.WOULD_BLOCK)
    assert result(process) == "flock: -1 EAGAIN"
    process.communicate()


def test_killed_while_it_waits(world, script, lockers):
    one = lockers().say("flock 0 ex")
    script.next().send(fk.WAITING)
    one.waits_in(RECVFROM)
    one.signal(signal.SIGKILL)
    assert script.gone.wait(20)


def test_a_forked_copy_does_not_keep_the_connection(world, script):
    process = world.start("waits", "fork", "x", world.lock)
    question = script.next()
    waits_in(process.pid, RECVFROM)
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "signal\n"
    waits_in(process.pid, RECVFROM)
    question.grant()
    assert script.gone.wait(20), "the keeper sees the end while the child lives"
    assert process.poll() is None
    process.communicate()


def test_the_connection_is_no_standard_descriptor(world, script):
    command = ["/bin/sh", "-c", 'exec "$@" <&- 2>&-', "-", *world.command("waits", "restart", "x", world.lock)]
    process = subprocess.Popen(command, env=world.environment(), stdout=subprocess.PIPE, text=True)
    question = script.next()
    waits_in(process.pid, RECVFROM)
    # 0 is the locked file, opened first.
    assert sorted(os.listdir(f"/proc/{process.pid}/fd")) == ["0", "1", "3"]
    question.grant()
    assert "flock: 0 -\n" in process.communicate()[0]


# --- answers that no keeper gives ---

def raw(**fields):
    return lambda connection: connection.send(fk.GRANTED, 1 << 62, **fields)


CUT_OFF = fk.REPLY.pack(fk.MAGIC, fk.VERSION, fk.REPLY.size, fk.GRANTED, 0, 0, 0, 0, b"", 1 << 62, 0, 0, 0)[:100]


@pytest.mark.parametrize("answer, line", [
    (raw(magic=1), "no keeper"),
    (raw(version=fk.VERSION + 1), "another version"),
    (raw(size=8), "malformed"),
    (raw(reason="x" * 1024), "malformed"),
    (lambda c: c.sock.send(b"hello"), "no keeper"),
    (lambda c: c.sock.send(CUT_OFF), "malformed"),
    (lambda c: c.sock.send(b"x" * 4096), "no keeper"),
    (lambda c: c.send(fk.DEADLOCK), "no sense"),
    (lambda c: c.send(77), "no sense"),
    (lambda c: c.send(fk.WOULD_BLOCK), "no sense"),
])
def test_answers_that_no_keeper_gives(world, answer, line):
    with world.keeper(lambda connection: connection.receive() and answer(connection)):
        done = world.run("waits", "restart", "x", world.lock)
    assert "flock: -1 ENOLCK" in done.stdout and "open: 0 1 2 3\n" in done.stdout
    assert line in done.stderr and done.stderr.count("\n") == 1 and str(world.lock) in done.stderr


def test_a_lines_text_controls_no_terminal(world):
    """Other users may have made the file: neither escape sequences, in one byte or as U+009B, nor what turns the direction."""
    name = f"{world.lock}\x1b[2J\u009b31m\u202e\xf6\n"
    with world.keeper(lambda connection: connection.receive() and raw(size=8)(connection)):
        done = world.run("waits", "restart", "x", name)
    assert f"{world.lock}?[2J??31m???\xf6 : lock refused: " in done.stderr and done.stderr.count("\n") == 1
    with world.keeper(lambda connection: connection.receive() and connection.send(fk.REFUSED, reason="no more; ask\x1b[2J\nsomebody")):
        done = world.run("waits", "restart", "x", world.lock)
    assert done.stderr == "dflock: no more; ask?[2J somebody\n"


@each_space
def test_descriptors_in_an_answer_do_not_arrive(script, one, space):
    """Neither through libc's recv(), which the calls of the record locks use: the fixture looks at the descriptors."""
    one.say(space[0])
    question = script.next()
    question.send(fk.GRANTED, question.request.sent_ns + 10 * fk.SECOND, start=10, to=10, fds=[0, 1, 2])
    one.hears()
