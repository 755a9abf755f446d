"""Record locks, fcntl() and lockf(), on protected files: what is asked, and what the answers mean."""
import os
import socket

import pytest
from harness import text_of

import fake_keeper as fk
import record_keeper as rk
from record_keeper import DESCRIPTION, EOF, PROCESS
from record_world import have, lockers, one, script  # noqa: F401 (fixtures)
from world import not_with_musl

SH, EX = fk.SHARED, fk.EXCLUSIVE


# --- what is asked ---

@pytest.mark.parametrize("command, mode, flags, owner, start, to, locked", [
    ("setlk 0 sh 10 5", SH, fk.NONBLOCK, PROCESS, 10, 15, (10, 15)),
    ("setlk 0 ex 10 -5 w", EX, 0, PROCESS, 5, 10, (5, 10)),
    ("setlk 0 ex 10 -5 w ofd", EX, 0, DESCRIPTION, 5, 10, (5, 10)),
    ("setlk 0 sh -20 0 ofd end", SH, fk.NONBLOCK, DESCRIPTION, 80, EOF, (80, EOF)),
    ("setlk 0 ex -3 1 w cur", EX, 0, PROCESS, 4, 5, (4, 5)),
    ("lockf 0 lock -4", EX, 0, PROCESS, 3, 7, (3, 7)),
    ("lockf 0 tlock 0", EX, fk.NONBLOCK, PROCESS, 7, EOF, (7, EOF)),
    ("setlk 0 ex 0 9223372036854775807", EX, fk.NONBLOCK, PROCESS, 0, EOF, (0, EOF)),
    ("setlk 0 sh 9223372036854775807 1", SH, fk.NONBLOCK, PROCESS, EOF - 1, EOF, (EOF, EOF)),
])
def test_what_is_asked(one, script, command, mode, flags, owner, start, to, locked):
    assert one.do("size 0 100") == one.do("seek 0 7") == "ok"
    question = one.say(command) and script.next()
    request = question.request
    assert (request.magic, request.version, request.size, request.op) == (fk.MAGIC, fk.VERSION, fk.REQUEST.size, fk.LOCK)
    assert (request.space, request.mode, request.flags, request.owner) == (1, mode, flags, owner)
    assert (request.start, request.to, request.fds) == (start, to, [one.path])
    assert 0 <= fk.boottime() - request.sent_ns < 10 * fk.SECOND
    assert one.locks(owner) == []
    question.grant()
    assert one.heard()[0] == "ok"
    got = one.locks(owner)
    # The last offsets are told apart by the kernel, and by nobody else.
    assert len(got) == 1 and got[0][0] == mode and got[0][1] == locked[0]
    assert got[0][2] == (EOF if locked[1] == EOF else locked[1]) or to == EOF
    assert script.befores == 0 and script.gone.wait(20)


def test_exact_at_the_end_of_the_world(one, script):
    """What is asked for is a byte more; what is locked is not."""
    one.say(f"setlk 0 ex 0 {2**63 - 1}")
    script.next().grant()
    assert one.heard()[0] == "ok"
    assert f" 0 {2**63 - 2}\n" in text_of(f"/proc/{one.pid}/fdinfo/{descriptor(one)}")


def descriptor(locker):
    return next(fd for fd in os.listdir(f"/proc/{locker.pid}/fd")
                if os.readlink(f"/proc/{locker.pid}/fd/{fd}") == locker.path)


def test_the_first_answer_need_not_tell(one, script):
    """Then the keeper is asked for what was there, and, since that ends the pin, for the lock again."""
    have(script, one, "setlk 0 sh 0 5")
    one.say("setlk 0 ex 0 10")
    script.next().grant(tell=False)
    again = script.next()
    assert script.befores == 2 and not again.request.have and one.locks() == [(SH, 0, 5)]
    again.grant(tell=False)
    assert one.heard()[0] == "ok"
    assert script.befores == 2 and one.locks() == [(EX, 0, 10)]


def test_unlocking_and_other_commands_ask_nothing(one, script):
    have(script, one, "setlk 0 ex 0 10", "setlk 0 ex 20 10 ofd")
    asked = script.keeper.requests
    for command in ("setlk 0 un 5 20", "setlk 0 un 0 0 w ofd", "lockf 0 ulock 0", "setlk 0 un -1 0", "lockf 0 other 5"):
        assert one.do(command) in ("ok", "EINVAL")
    assert one.locks() == one.locks(DESCRIPTION) == [] and script.keeper.requests == asked


def test_a_file_that_grows_meanwhile(one, script):
    assert one.do("size 0 100") == "ok"
    one.say("setlk 0 ex -20 10 w end")
    question = script.next()
    assert (question.request.start, question.request.to) == (80, 90)
    os.truncate(one.path, 500)
    question.grant()
    assert one.heard()[0] == "ok"
    assert one.locks() == [(EX, 80, 90)]


@pytest.mark.parametrize("command, error", [
    ("setlk 0 ex -1 0 w", "EINVAL"), ("setlk 0 ex 5 -6 w ofd", "EINVAL"), ("setlk 0 sh 2 9223372036854775807 w", "EOVERFLOW"),
    ("lockf 0 lock -1", "EINVAL"), ("setlk 5 sh 0 0 w", "EBADF"), ("lockf 5 tlock 0", "EBADF"),
])
def test_refused_without_a_question(one, script, command, error):
    assert one.do(command) == error and script.keeper.requests == 0


# --- the same as without ---

CASES = [("fcntl_calls", "{lock}"), ("record_calls", "{lock}"),
         *[("record_places", where, "{lock}") for where in ("constructor", "handler", "fork", "vfork", "threads")],
         *[("cancels", call, "before", "{lock}") for call in ("setlkw", "lockf", "setlk", "tlock", "getlk", "flock", "syssetlkw", "sysflock")],
         pytest.param(("cancels", "ofd", "before", "{lock}"), marks=not_with_musl("F_OFD_SETLKW is no cancellation point of musl's; with the shim it "
                                                                                  "may be one, as pthreads(7) has it"))]


def run(world, case, **kwargs):
    if world.lock.exists():
        world.lock.unlink()
    result = world.run(case[0], *(arg.format(lock=world.lock) for arg in case[1:]), **kwargs)
    assert result.returncode == 0, result
    return result


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_same_as_plain(world, case):
    plain = run(world, case, env=world.environment(preload=False))
    assert plain.stdout and plain.stderr == ""

    with world.keeper(rules=[(fk.PATH, "/another.lock"), (fk.GLOB, "/x/*")]) as keeper:
        unprotected = run(world, case)
        assert (unprotected.stdout, unprotected.stderr, keeper.requests) == (plain.stdout, "", 0)

    with world.keeper(rk.grant_all, rules=[(fk.GLOB, f"{world.lock}*"), (fk.PATH, "/dev/shm")]) as keeper:
        protected = run(world, case)
        assert (protected.stdout, protected.stderr) == (plain.stdout, "")
        assert keeper.requests > 0


# --- tests ---

def test_a_local_lock_in_the_way_is_the_answer(one, script, lockers):
    other = lockers(preload=False)
    assert other.do("setlk 0 ex 3 4") == "ok"
    asked = script.keeper.requests
    assert one.do("getlk 0 sh 0 0") == one.do("getlk 0 ex 5 1 ofd") == f"ex:3:4:{other.pid}"
    assert one.do("lockf 0 test 0") == "EACCES" and script.keeper.requests == asked


@pytest.mark.parametrize("command, owner", [("getlk 0 ex 5 20", PROCESS), ("getlk 0 ex 25 -20 ofd", DESCRIPTION),
                                            ("getlk 0 ex -5 20 cur", PROCESS)])
def test_remote_locks(one, script, command, owner):
    assert one.do("seek 0 10") == "ok"
    answers = [((fk.GRANTED,), {}, "un"), ((fk.REFUSED,), {}, "ENOLCK"),
               ((fk.WOULD_BLOCK,), {"mode": SH, "start": 3, "to": 9, "pid": -1}, "sh:3:6:-1"),
               ((fk.WOULD_BLOCK,), {"mode": EX, "start": 20, "to": EOF, "pid": -1}, "ex:20:0:-1"),
               ((fk.WOULD_BLOCK,), {"mode": EX, "start": 20, "to": 20, "pid": -1}, "ENOLCK"),
               ((fk.WOULD_BLOCK,), {"mode": 7, "start": 20, "to": 30, "pid": -1}, "ENOLCK"),
               ((fk.OK,), {}, "ENOLCK"), ((fk.WAITING,), {}, "ENOLCK"), ((fk.DEADLOCK,), {}, "ENOLCK")]
    for args, fields, expected in answers:
        one.say(command)
        question = script.next()
        request = question.request
        assert (request.op, request.space, request.mode, request.owner) == (rk.TEST, 1, EX, owner)
        assert (request.start, request.to, request.fds) == (5, 25, [one.path]) and request.nonblock
        question.send(*args, **fields)
        assert one.heard()[0] == expected
        assert one.locks() == one.locks(DESCRIPTION) == []


def test_a_test_that_fails_changes_nothing(world):
    def handler(connection):
        while request := connection.receive():
            rk.answer(connection, fk.REFUSED if request.op == rk.TEST else fk.GRANTED,
                      request.sent_ns + 10 * fk.SECOND, reason="no")

    with world.keeper(handler):
        result = world.run("record_calls", world.lock)
    assert "F_GETLK beside it: -1 ENOLCK\n  type 0 whence 1 start 5 len 4 pid 9\n" in result.stdout


def test_lockf_test(one, script):
    assert one.do("seek 0 10") == "ok"
    for verdict, expected in ((fk.GRANTED, "ok"), (fk.WOULD_BLOCK, "EACCES"), (fk.REFUSED, "ENOLCK")):
        one.say("lockf 0 test -4")
        question = script.next()
        # As libc: which lock keeps out a reader?
        assert (question.request.op, question.request.mode, question.request.owner) == (rk.TEST, SH, PROCESS)
        assert (question.request.start, question.request.to) == (6, 10)
        question.send(verdict, start=6, to=7, pid=-1)
        assert one.heard()[0] == expected


def test_a_test_needs_no_mode_of_access(script, lockers):
    one = lockers()
    one.do(f"open 0 {one.path} r")
    one.say("getlk 0 ex 0 0")
    script.next().send(fk.WOULD_BLOCK, mode=EX, start=1, to=2, pid=-1)
    assert one.heard()[0] == "ex:1:1:-1"
    assert one.do("setlk 0 ex 0 0") == "EBADF"


def test_descriptors_in_an_answer_do_not_arrive(world, lockers):
    """Neither through libc's recv()."""
    def handler(connection):
        request = connection.receive()
        reply = fk.REPLY.pack(fk.MAGIC, fk.VERSION, fk.REPLY.size, fk.GRANTED, 0, 0, 0, 0, b"", request.sent_ns + fk.SECOND, 1, EOF, EOF)
        socket.send_fds(connection.sock, [reply], [0, 1, 2])

    with world.keeper(handler):
        one = lockers()
        before = os.listdir(f"/proc/{one.pid}/fd")
        assert one.do("setlk 0 ex 0 0 w") == "ok" and os.listdir(f"/proc/{one.pid}/fd") == before
