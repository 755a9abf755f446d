"""Record locks, fcntl() and lockf(), on protected files: what is asked, and what the answers to F_GETLK and F_TEST mean."""
import os

import pytest

import fake_keeper as fk
from fake_keeper import DESCRIPTION, EOF, EXCLUSIVE as EX, PROCESS, SHARED as SH
from world import have


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
        assert (request.op, request.space, request.mode, request.owner) == (fk.TEST, 1, EX, owner)
        assert (request.start, request.to, request.fds) == (5, 25, [one.path]) and request.nonblock
        question.send(*args, **fields)
        assert one.heard()[0] == expected
        assert one.locks() == one.locks(DESCRIPTION) == []


def test_a_test_that_fails_changes_nothing(world):
    def handler(connection):
        known = fk.Known(connection)
        while request := connection.receive():
            if request.op == fk.TEST:
                connection.send(fk.REFUSED, reason="no")
            elif not known.saw(request):
                known.grant(request)

    with world.keeper(handler):
        result = world.run("calls", "record", world.lock)
    assert "F_GETLK beside it: -1 ENOLCK\n  type 0 whence 1 start 5 len 4 pid 9\n" in result.stdout


def test_lockf_test(one, script):
    assert one.do("seek 0 10") == "ok"
    for verdict, expected in ((fk.GRANTED, "ok"), (fk.WOULD_BLOCK, "EACCES"), (fk.REFUSED, "ENOLCK")):
        one.say("lockf 0 test -4")
        question = script.next()
        # As libc: which lock keeps out a reader?
        assert (question.request.op, question.request.mode, question.request.owner) == (fk.TEST, SH, PROCESS)
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
