"""Record locks that cannot be had at once, or not at all: the caller keeps exactly what it had. After calls at random: test_record_random.py."""
import pytest

import fake_keeper as fk
from fake_keeper import DESCRIPTION, EXCLUSIVE as EX, PROCESS, SHARED as SH
from harness import text_of, wait_until
from world import FCNTL, FUTEX, RECVFROM, have, not_with_musl, waits_in


HAD = ("setlk 0 sh 0 4", "setlk 0 ex 6 2", "setlk 0 sh 12 100")
BEFORE = [(SH, 0, 4), (EX, 6, 8), (SH, 12, 112)]


@pytest.mark.parametrize("mode, taken, after", [
    ("ex", [(SH, 0, 2), (EX, 2, 20), (SH, 20, 112)], [(SH, 0, 2), (EX, 2, 20), (SH, 20, 112)]),
    # What was exclusive stays so until the end.
    ("sh", [(SH, 0, 6), (EX, 6, 8), (SH, 8, 112)], [(SH, 0, 112)]),
])
@pytest.mark.parametrize("owner", [PROCESS, DESCRIPTION])
def test_a_late_grant_is_put_back_for_the_wait(one, script, mode, taken, after, owner):
    ofd = " ofd" if owner == DESCRIPTION else ""
    have(script, one, *(command + ofd for command in HAD))
    one.say(f"setlk 0 {mode} 2 18 w{ofd}")
    # More than the first answer can tell.
    script.next().late()
    again = script.next()
    assert script.befores > 0 and not again.request.have and one.locks(owner) == BEFORE
    again.late()
    second = script.next(have=True)
    assert one.locks(owner) == taken
    second.send(fk.WAITING)
    wait_until(lambda: one.locks(owner) == BEFORE, "what was there before is put back")
    # And once more.
    second.late()
    third = script.next(have=True)
    assert one.locks(owner) == taken
    third.grant()
    one.hears()
    assert one.locks(owner) == after


def test_downgrade(one, script):
    """Nothing is given up before it is certain."""
    have(script, one, "setlk 0 ex 0 10")
    one.say("setlk 0 sh 0 10 w")
    script.next().late()
    question = script.next(have=True)
    assert question.request.mode == SH and one.locks() == [(EX, 0, 10)]
    question.send(fk.REFUSED, reason="no")
    one.hears("ENOLCK")
    assert one.locks() == [(EX, 0, 10)]
    have(script, one, "setlk 0 sh 5 5")
    assert one.locks() == [(EX, 0, 5), (SH, 5, 10)]


def test_a_long_list(one, script):
    """More than is kept in place."""
    have(script, one, *(f"setlk 0 {'ex' if i % 3 else 'sh'} {i * 10} 5" for i in range(30)))
    before = one.locks()
    sizes = []
    for mode in ("ex", "sh", "ex"):
        one.say(f"setlk 0 {mode} 0 0 w")
        script.next_known().late()
        question = script.next(have=True)
        assert one.locks() != before
        question.send(fk.REFUSED, reason="no")
        one.hears("ENOLCK")
        assert one.locks() == before
        sizes.append(int(text_of(f"/proc/{one.pid}/statm").split()[0]))
    assert len(set(sizes)) == 1, "the list is unmapped"


@pytest.mark.parametrize("mode, start, to", [(2, 0, 5), (SH, -5, 5), (SH, 5, 3), (EX, 0, 0), (SH, 20, 30)])
def test_what_cannot_have_been_there(world, lockers, mode, start, to):
    def handler(connection):
        while request := connection.receive():
            if request.op == fk.BEFORE:
                # Always the same: after the first, that is no answer any more.
                connection.send(fk.OK, mode=mode, start=start, to=to)
            else:
                connection.send(fk.GRANTED, request.sent_ns + fk.SECOND)

    with world.keeper(handler):
        one = lockers()
        # (EX, 0, 0) and (SH, 20, 30) say: nothing in this range.
        assert one.do("setlk 0 ex 3 7") == ("ok" if (start, to) in ((0, 0), (20, 30)) else "ENOLCK")


# --- interrupted, deadlocked, cancelled ---

@pytest.mark.parametrize("late", [False, True])
def test_a_handler_without_restart_ends_the_wait(one, script, late):
    have(script, one, "setlk 0 sh 5 10")
    one.say("setlk 0 ex 0 10 w")
    question = script.next_known()
    if late:
        question.late()
        question = script.next(have=True)
        assert one.locks() == [(EX, 0, 10), (SH, 10, 15)]
    one.waits_in(RECVFROM)
    one.signal()
    one.hears("EINTR")
    assert script.gone.wait(20) and one.locks() == [(SH, 5, 15)]


def test_interrupted_while_it_waits_for_a_local_holder(one, script, lockers):
    other = lockers(preload=False)
    assert other.do("setlk 0 ex 8 1") == "ok"
    have(script, one, "setlk 0 sh 0 2")
    one.say("setlk 0 ex 0 10 w")
    script.next_known().grant()
    one.waits_in(FCNTL)
    assert one.locks() == [(SH, 0, 2)]
    one.signal()
    one.hears("EINTR")
    assert one.locks() == [(SH, 0, 2)]


def test_deadlocks(one, script, lockers):
    """The keeper's, and the kernel's own."""
    have(script, one, "setlk 0 ex 0 1")
    one.say("setlk 0 ex 5 1 w")
    question = script.next()
    question.send(fk.WAITING)
    question.send(fk.DEADLOCK)
    one.hears("EDEADLK")
    other = lockers(preload=False)
    assert other.do("setlk 0 ex 5 1") == "ok"
    other.say("setlk 0 ex 0 1 w")
    other.waits_in(FCNTL)
    one.say("setlk 0 ex 5 1 w")
    script.next().grant()
    one.hears("EDEADLK")
    assert one.locks() == [(EX, 0, 1)]


CANCELLED = [("setlkw", PROCESS), ("lockf", PROCESS), ("ofd", DESCRIPTION)]
CANCELLED_IN_KERNEL = [("setlkw", PROCESS), ("lockf", PROCESS),
                       pytest.param("ofd", DESCRIPTION, marks=not_with_musl("F_OFD_SETLKW is no cancellation point of musl's"))]


def cancelled(world, script, call, known=True):
    process = world.start("waits", "order", call, world.lock)
    script.next().grant()
    return process, script.next_known() if known else script.next()


def lines_of(process, *lines):
    for line in lines:
        assert process.stdout.readline() == line + "\n"


def order(process):
    process.stdin.write("!")
    process.stdin.flush()


def check_cancelled(script, process):
    order(process)
    lines_of(process, "first: 0 -", "returned 0, cancelled 1", "left: READ 5 7", "mask same", "children: -1 ECHILD",
             "children of all kinds: -1 ECHILD", "open: 0 1 2 3")
    assert script.gone.wait(20), "the keeper learns of it"
    assert process.communicate(timeout=20) == ("", "") and process.returncode == 0


@pytest.mark.parametrize("call, owner", CANCELLED)
@pytest.mark.parametrize("late", [False, True])
def test_cancelled_while_it_waits_for_the_keeper(world, script, call, owner, late):
    process, question = cancelled(world, script, call)
    question.send(fk.WAITING)
    if late:
        question.late()
        question = script.next(have=True)
        assert fk.locks(process.pid, world.lock, owner) == [(EX, 0, 10)]
    waits_in(process.pid, RECVFROM)
    check_cancelled(script, process)


@pytest.mark.parametrize("protected", [True, False])
@pytest.mark.parametrize("call, owner", CANCELLED_IN_KERNEL)
def test_cancelled_while_it_waits_for_a_local_holder(world, script, lockers, call, owner, protected):
    other = lockers(preload=False)
    assert other.do("setlk 0 ex 8 1") == "ok"
    process, question = cancelled(world, script, call, known=protected)
    if protected:
        question.grant()
    else:
        world.lock = world.lock.rename(world.lock.parent / "renamed")
        question.send(fk.NOT_PROTECTED)
    waits_in(process.pid, FCNTL)
    check_cancelled(script, process)


def test_flock_is_not_cancelled(world, script):
    process, question = cancelled(world, script, "x", known=False)
    waits_in(process.pid, RECVFROM)
    order(process)
    # The order has been read, and the thread is waited for.
    waits_in(process.pid, FUTEX)
    question.grant()
    lines_of(process, "first: 0 -", "call: 0 -", "returned 1, cancelled 1")
    process.communicate(timeout=20)


# --- local holders ---

def test_a_local_holder_outlasts_the_pin(one, script, lockers):
    other = lockers(preload=False)
    assert other.do("setlk 0 ex 8 1") == "ok"
    have(script, one, "setlk 0 sh 0 2")
    one.say("setlk 0 ex 0 10 w")
    question = script.next_known()
    question.grant(fk.SECOND // 5)
    one.waits_in(FCNTL)
    wait_until(lambda: fk.boottime() > question.request.sent_ns + fk.SECOND // 5, "the pin is over")
    other.do("setlk 0 un 0 0")
    question = script.next(have=True)
    assert one.locks() == [(EX, 0, 10)]
    question.send(fk.WAITING)
    wait_until(lambda: one.locks() == [(SH, 0, 2)], "what was there before is put back")
    question.grant()
    one.hears()
    assert one.locks() == [(EX, 0, 10)]


@pytest.mark.parametrize("gap", [0, 8])
def test_nobody_waits_with_a_part_of_it(one, script, lockers, gap):
    """A shared lock around an exclusive one: two gaps, of which one is taken."""
    other = lockers(preload=False)
    have(script, one, "setlk 0 ex 4 2")
    assert other.do(f"setlk 0 ex {gap} 1") == "ok"
    one.say("setlk 0 sh 0 10")
    script.next_known().grant()
    one.hears("EAGAIN")
    assert one.locks() == [(EX, 4, 6)]
    one.say("setlk 0 sh 0 10 w")
    script.next_known().grant()
    one.waits_in(FCNTL)
    assert one.locks() == [(EX, 4, 6)]
    assert other.do(f"setlk 0 ex {8 - gap} 1") == "ok"  # now the other gap
    assert other.do(f"setlk 0 un {gap} 1") == "ok"
    one.waits_in(FCNTL)
    wait_until(lambda: one.locks() == [(EX, 4, 6)], "it waits for the other gap, and holds none")
    assert other.do("setlk 0 un 0 0") == "ok"
    one.hears()
    assert one.locks() == [(SH, 0, 10)]
