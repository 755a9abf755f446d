"""on_refused: what calls get that no keeper serves, with a keeper that says why, and without any."""
import os
import signal
import subprocess
import threading
import time

import pytest

import fake_keeper as fk
from fake_keeper import BUSY, REFUSE, WAIT
from harness import wait_until
from harness.processes import children, comm
from world import BUILD, RECVFROM, has_timer, is_free, numbers_of, result


@pytest.fixture
def script():
    return fk.Script()


def rules(world, on_refused):
    return [(fk.GLOB, f"{world.lock}*", on_refused)]


def without_keeper(world, on_refused):
    """A page that a keeper has left; none can be started."""
    world.own_shim()
    world.order(fail="it is not to be")
    fk.write_page(world.runtime, world.config, rules(world, on_refused))


def serves(world, *handler):
    return world.keeper(*handler, rules=rules(world, WAIT))


LINE = "no keeper runs, and none can be started: it is not to be"


@pytest.mark.parametrize("on_refused", [REFUSE, BUSY, WAIT])
@pytest.mark.parametrize("known", ["keeper", "page"])
def test_a_refusal_that_waiting_never_mends(world, script, lockers, known, on_refused):
    """Whether the keeper or the page says what the rule is. Nor can waiting mend one of a call that does not wait."""
    with world.keeper(script, rules=rules(world, on_refused if known == "page" else REFUSE)):
        for command, may_mend in (("flock 0 ex nb", False), ("flock 0 ex nb", True), ("flock 0 ex", False)):
            one = lockers().say(command)
            script.next().refuse(on_refused=on_refused if known == "keeper" else REFUSE, may_mend=may_mend)
            one.hears("EAGAIN" if on_refused == BUSY and "nb" in command else "ENOLCK")
            assert one.said() == "dflock: so it is\n" and is_free(world.lock)


@pytest.mark.parametrize("known", ["keeper", "page"])
def test_one_that_waits_asks_again(world, script, lockers, known):
    """And says once that it waits. It asks again after a while, and less often each time."""
    said = dict(on_refused=WAIT) if known == "keeper" else {}
    with world.keeper(script, rules=rules(world, WAIT if known == "page" else REFUSE)):
        one = lockers().say("flock 0 ex")
        for _ in range(2):
            script.next().refuse(may_mend=True, **said)
            one.waits_for_a_keeper()
        script.next().grant()
        one.hears()
        assert one.said() == "dflock: waiting: so it is\n"


@pytest.mark.parametrize("says", ["refused", "waiting for the store"])
def test_a_wait_gives_up_the_kernel_lock_that_it_took(world, script, lockers, says):
    """The keeper cannot serve it: nobody on this host may wait for a lock that a caller got after its grant was over."""
    with serves(world, script):
        one = lockers().say("flock 0 ex")
        script.next().grant(-fk.SECOND)
        question = script.next(have=True)
        assert not is_free(world.lock)
        if says == "refused":
            question.refuse(may_mend=True)
            one.waits_for_a_keeper()
            assert is_free(world.lock)
            question = script.next(have=False)
        else:
            question.send(fk.WAITING, reason="waiting: for the store")
            wait_until(lambda: is_free(world.lock), "it has given up the lock")
        question.grant()
        one.hears()
        assert not is_free(world.lock)


@pytest.mark.parametrize("command, on_refused, error", [
    ("flock 0 ex", REFUSE, "ENOLCK"), ("flock 0 ex nb", REFUSE, "ENOLCK"), ("flock 0 ex", BUSY, "ENOLCK"), ("flock 0 ex nb", BUSY, "EAGAIN"),
    ("flock 0 ex nb", WAIT, "ENOLCK")])
def test_without_a_keeper(world, lockers, command, on_refused, error):
    without_keeper(world, on_refused)
    one = lockers()
    assert one.do(command) == error
    line, = one.said().splitlines()
    assert line.startswith(f"dflock: {world.lock}: lock refused: {LINE}; to see more: dflockd "), line
    assert is_free(world.lock)


@pytest.fixture
def waiting(world, lockers):
    """A program that waits for there to be a keeper."""
    without_keeper(world, WAIT)

    def start(*before, command="flock 0 ex"):
        one = lockers()
        assert all(one.do(word) == "ok" for word in before)
        one.say(command)
        one.waits_for_a_keeper()
        return one
    return start


def test_waiting_without_a_keeper(world, waiting):
    """The waiting call notices a keeper that another program started, and holds nothing until then. A stop and a continuation do not end it."""
    one = waiting()
    assert is_free(world.lock)
    one.signal(signal.SIGSTOP)
    wait_until(lambda: " T " in open(f"/proc/{one.pid}/stat").read(), "it has stopped")
    one.signal(signal.SIGCONT)
    one.waits_for_a_keeper()
    with serves(world):
        one.hears()
        assert not is_free(world.lock)
    line, = one.said().splitlines()
    assert line.startswith(f"dflock: {world.lock}: waiting: {LINE}"), line


def test_it_starts_one_itself_when_that_works_again(world, waiting):
    one = waiting()
    world.order(rules=[[fk.PATH, str(world.lock), WAIT]])
    one.hears()


def test_the_keeper_dies_while_a_call_waits(world, script, lockers):
    without_keeper(world, WAIT)
    with serves(world, script) as keeper:
        one = lockers().say("flock 0 ex")
        script.next().send(fk.WAITING)
        one.waits_in(RECVFROM)
    for connection in keeper.connections:
        connection.sock.shutdown(2)
    one.waits_for_a_keeper()
    with serves(world):
        one.hears()
    assert LINE in one.said()


def test_a_keeper_of_another_version(world, script, lockers):
    """`dflock stop` and the next lock mend it; a caller that waits asks the next keeper."""
    with serves(world, script):
        one = lockers().say("flock 0 ex")
        script.next().refuse(version=fk.VERSION + 1)
        one.waits_for_a_keeper()
        script.next().grant()
        one.hears()
        assert ": waiting: the keeper is of another version" in one.said()


@pytest.mark.parametrize("command", ["flock 0 ex", "setlk 0 ex 0 10 w", "setlk 0 ex 0 10 w ofd"])
def test_under_the_net(world, script, lockers, command):
    """There the program is restricted by seccomp, and waits in its call to the kernel: the net's supervisor asks again."""
    with serves(world, script):
        one = lockers(preload=False, wrap=[str(BUILD / "dflock"), "run", "--net=on", "--"]).say(command)
        for _ in range(2):
            script.next().refuse(may_mend=True)
        script.next().grant()
        one.hears()


# --- signals ---

def test_a_handler_without_restart_ends_the_wait(world, waiting):
    one = waiting()
    one.signal()
    one.hears("EINTR")
    assert is_free(world.lock)


def test_a_handler_with_restart_does_not(world, waiting):
    one = waiting("restart 0")
    for _ in range(3):
        one.waits_for_a_keeper()
        one.signal()
    with serves(world):
        one.hears()


def test_no_signal_is_missed_while_it_looks_for_a_keeper(world, folder):
    """Each look takes long here, and the signal comes in the middle of one: it ends the wait as if it had come in the kernel."""
    without_keeper(world, WAIT)
    env = world.environment()
    preload = env.pop("LD_PRELOAD")
    # The first two are made before the call waits.
    words = ["strace", "-o", os.path.join(folder, "trace"), "-E", "LD_PRELOAD=" + preload, "-e", "trace=connect",
             "-e", "inject=connect:delay_enter=300000:when=3+", *world.command("waits", "interrupt", "x", world.lock)]
    strace = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pid = strace.pid
    try:
        pid = wait_until(lambda: next((pid for pid in children(strace.pid) if comm(pid) == "waits"), None), "it runs")
        wait_until(lambda: has_timer(pid) and numbers_of(pid, "SigBlk", 16)[0] >> (signal.SIGUSR1 - 1) & 1, "it looks for a keeper")
        os.kill(pid, signal.SIGUSR1)
        end = threading.Timer(20, os.kill, (pid, signal.SIGKILL))
        end.start()
        assert result(strace) == "flock: -1 EINTR"
        end.cancel()
    finally:
        os.kill(pid, signal.SIGKILL)
        strace.wait()


def test_it_does_not_spin(waiting):
    """A wake-up each second, and a start of a keeper now and then: a few, where a loop that spins has thousands. And it can be killed."""
    one = waiting()

    def switches():
        return sum(numbers_of(one.pid, "ctxt_switches"))

    first, fds = switches(), len(os.listdir(f"/proc/{one.pid}/fd"))
    wait_until(lambda: switches() >= first + 3, "it looks for a keeper, more than once")
    began, before = time.monotonic(), switches()
    wait_until(lambda: time.monotonic() > began + 2, "some seconds pass")
    assert switches() - before < 50
    assert len(os.listdir(f"/proc/{one.pid}/fd")) <= fds
    one.signal(signal.SIGTERM)
    assert one.process.wait(20) == -signal.SIGTERM
