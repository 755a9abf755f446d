"""on_refused: what calls get that no keeper serves, with a keeper that says why, and without any."""
import os
import signal
import subprocess
import threading
import time

import pytest

import fake_keeper as fk
from harness import wait_until
from scripted import Local, Script, finish, result
from world import has_timer, wait_in_pause, wait_in_recv


@pytest.fixture
def local(world):
    local = Local(world.lock)
    yield local
    os.close(local.fd)


@pytest.fixture
def script():
    return Script()


def rules(world, on_refused):
    return [(fk.GLOB, f"{world.lock}*", on_refused)]


def without_keeper(world, on_refused):
    """A page that a keeper has left; none can be started."""
    world.own_shim()
    world.order(fail="it is not to be")
    fk.write_page(world.runtime, world.config, rules(world, on_refused))


LINE = "no keeper runs, and none can be started: it is not to be"


@pytest.mark.parametrize("on_refused", [fk.REFUSE, fk.BUSY, fk.WAIT])
@pytest.mark.parametrize("may_mend", [False, True])
def test_a_call_that_does_not_wait(world, script, local, on_refused, may_mend):
    """Whether the keeper or the page says what the rule is."""
    for known in ("keeper", "page"):
        with world.keeper(script, rules=rules(world, on_refused if known == "page" else fk.REFUSE)):
            process = world.start("waits", "restart", "xn", world.lock)
            connection, _ = script.next()
            connection.send(fk.REFUSED, reason="so it is", on_refused=on_refused if known == "keeper" else fk.REFUSE, may_mend=may_mend)
            assert result(process) == "flock: -1 " + ("EAGAIN" if on_refused == fk.BUSY else "ENOLCK")
            assert finish(process) == "dflock: so it is\n"
            assert local.free()


@pytest.mark.parametrize("on_refused,op", [(fk.REFUSE, "x"), (fk.BUSY, "x"), (fk.WAIT, "x"), (fk.WAIT, "xn")])
def test_a_refusal_that_waiting_never_mends(world, script, local, on_refused, op):
    with world.keeper(script, rules=rules(world, on_refused)):
        process = world.start("waits", "restart", op, world.lock)
        connection, _ = script.next()
        connection.send(fk.REFUSED, reason="so it is", on_refused=on_refused)
        assert result(process) == "flock: -1 ENOLCK"
        assert finish(process) == "dflock: so it is\n"
        assert local.free()


@pytest.mark.parametrize("known", ["keeper", "page"])
def test_one_that_waits_asks_again(world, script, known):
    """And says once that it waits. It asks again after a while, and less often each time."""
    said = dict(on_refused=fk.WAIT) if known == "keeper" else {}
    with world.keeper(script, rules=rules(world, fk.WAIT if known == "page" else fk.REFUSE)):
        process = world.start("waits", "restart", "x", world.lock)
        for _ in range(2):
            connection, _ = script.next()
            connection.send(fk.REFUSED, reason="so it is", may_mend=True, **said)
            wait_in_pause(process)
        connection, request = script.next()
        connection.grant(request)
        assert result(process) == "flock: 0 -"
        assert finish(process) == "dflock: waiting: so it is\n"


def takes_the_lock_too_late(world, script, local):
    """A caller whose grant was over when it had the kernel lock: it has that, and asks again."""
    process = world.start("waits", "restart", "x", world.lock)
    connection, request = script.next()
    connection.grant(request, -fk.SECOND)
    connection, request = script.next()
    assert request.have and not local.take()
    return process, connection, request


def gets_it(process, connection, request, local):
    connection.grant(request)
    assert result(process) == "flock: 0 -"
    assert not local.take()
    finish(process)


def test_a_wait_gives_up_the_kernel_lock_that_it_took(world, script, local):
    """The keeper cannot serve it: nobody on this host may wait for that lock."""
    with world.keeper(script, rules=rules(world, fk.WAIT)):
        process, connection, _ = takes_the_lock_too_late(world, script, local)
        connection.send(fk.REFUSED, reason="so it is", may_mend=True)
        wait_in_pause(process)
        assert local.free()
        connection, request = script.next()
        assert not request.have
        gets_it(process, connection, request, local)


def test_a_wait_for_the_store_gives_it_up_as_well(world, script, local):
    with world.keeper(script, rules=rules(world, fk.WAIT)):
        process, connection, request = takes_the_lock_too_late(world, script, local)
        connection.send(fk.WAITING, reason="waiting: for the store")
        wait_until(local.free, "it has given up the lock")
        gets_it(process, connection, request, local)


@pytest.mark.parametrize("op,on_refused,expected", [
    ("x", fk.REFUSE, "ENOLCK"), ("xn", fk.REFUSE, "ENOLCK"), ("x", fk.BUSY, "ENOLCK"), ("xn", fk.BUSY, "EAGAIN"), ("xn", fk.WAIT, "ENOLCK")])
def test_without_a_keeper(world, local, op, on_refused, expected):
    without_keeper(world, on_refused)
    process = world.start("waits", "restart", op, world.lock)
    assert result(process) == "flock: -1 " + expected
    line, = finish(process).splitlines()
    assert line.startswith(f"dflock: {world.lock}: lock refused: {LINE}; to see more: dflockd "), line
    assert local.free()


def test_waiting_without_a_keeper(world, local):
    """The waiting call notices a keeper that another program started, and holds nothing until then."""
    without_keeper(world, fk.WAIT)
    process = world.start("waits", "restart", "x", world.lock)
    wait_in_pause(process)
    assert local.free()
    with world.keeper(rules=rules(world, fk.WAIT)):
        assert result(process) == "flock: 0 -"
        assert not local.take()
        line, = finish(process).splitlines()
    assert line.startswith(f"dflock: {world.lock}: waiting: {LINE}"), line


def test_it_starts_one_itself_when_that_works_again(world):
    without_keeper(world, fk.WAIT)
    process = world.start("waits", "restart", "x", world.lock)
    wait_in_pause(process)
    world.order(rules=[[fk.PATH, str(world.lock), fk.WAIT]])
    assert result(process) == "flock: 0 -"
    finish(process)


def test_the_keeper_dies_while_a_call_waits(world, script):
    without_keeper(world, fk.WAIT)
    with world.keeper(script, rules=rules(world, fk.WAIT)) as keeper:
        process = world.start("waits", "restart", "x", world.lock)
        connection, _ = script.next()
        connection.send(fk.WAITING)
        wait_in_recv(process)
    for connection in keeper.connections:
        connection.sock.shutdown(2)
    wait_in_pause(process)
    with world.keeper(rules=rules(world, fk.WAIT)):
        assert result(process) == "flock: 0 -"
        assert LINE in finish(process)


def test_a_keeper_of_another_version(world, script):
    """`dflock stop` and the next lock mend it; a caller that waits asks the next keeper."""
    with world.keeper(script, rules=rules(world, fk.WAIT)):
        process = world.start("waits", "restart", "x", world.lock)
        connection, _ = script.next()
        connection.send(fk.REFUSED, reason="", version=fk.VERSION + 1)
        wait_in_pause(process)
        connection, request = script.next()
        connection.grant(request)
        assert result(process) == "flock: 0 -"
        assert ": waiting: the keeper is of another version" in finish(process)


# --- signals ---

@pytest.fixture
def waiting(world):
    without_keeper(world, fk.WAIT)
    started = []

    def start(how):
        process = world.start("waits", how, "x", world.lock)
        started.append(process)
        wait_in_pause(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_handler_without_restart_ends_the_wait(waiting, local):
    process = waiting("interrupt")
    process.send_signal(signal.SIGUSR1)
    assert result(process) == "flock: -1 EINTR"
    finish(process)
    assert local.free()


def test_a_handler_with_restart_does_not(world, waiting):
    process = waiting("restart")
    for _ in range(3):
        wait_in_pause(process)
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "signal\n"
    with world.keeper(rules=rules(world, fk.WAIT)):
        assert result(process) == "flock: 0 -"
        finish(process)


def test_a_stop_and_a_continuation_do_not(world, waiting):
    process = waiting("interrupt")
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: " T " in open(f"/proc/{process.pid}/stat").read(), "it has stopped")
    process.send_signal(signal.SIGCONT)
    wait_in_pause(process)
    with world.keeper(rules=rules(world, fk.WAIT)):
        assert result(process) == "flock: 0 -"
        finish(process)


def test_no_signal_is_missed_while_it_looks_for_a_keeper(world, folder):
    """Each look takes long here, and the signal comes in the middle of one: it ends the wait as if it had come in the kernel."""
    without_keeper(world, fk.WAIT)
    env = world.environment()
    preload = env.pop("LD_PRELOAD")
    # The first two are made before the call waits.
    words = ["strace", "-o", os.path.join(folder, "trace"), "-E", "LD_PRELOAD=" + preload, "-e", "trace=connect",
             "-e", "inject=connect:delay_enter=300000:when=3+", *world.command("waits", "interrupt", "x", world.lock)]
    strace = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pid = strace.pid
    try:
        pid = wait_until(lambda: child_of(strace.pid, "waits"), "it runs")
        wait_until(lambda: has_timer(pid) and blocks(pid, signal.SIGUSR1), "it looks for a keeper")
        os.kill(pid, signal.SIGUSR1)
        end = threading.Timer(20, os.kill, (pid, signal.SIGKILL))
        end.start()
        assert result(strace) == "flock: -1 EINTR"
        end.cancel()
    finally:
        os.kill(pid, signal.SIGKILL)
        strace.wait()


def child_of(parent, name):
    for pid in open(f"/proc/{parent}/task/{parent}/children").read().split():
        try:
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == name:
                return int(pid)
        except FileNotFoundError:  # strace's own, for a test
            pass
    return None


def blocks(pid, number):
    with open(f"/proc/{pid}/status") as status:
        blocked, = [line.split()[1] for line in status if line.startswith("SigBlk")]
    return int(blocked, 16) >> (number - 1) & 1


def test_it_does_not_spin(waiting):
    """A wake-up each second, and a start of a keeper now and then: a few, where a loop that spins has thousands."""
    process = waiting("restart")

    def switches():
        with open(f"/proc/{process.pid}/status") as status:
            return sum(int(line.split()[1]) for line in status if "ctxt_switches" in line)

    first, starts = switches(), len(os.listdir(f"/proc/{process.pid}/fd"))
    wait_until(lambda: switches() >= first + 3, "it looks for a keeper, more than once")
    began = time.monotonic()
    before = switches()
    wait_until(lambda: time.monotonic() > began + 4, "some seconds pass")
    assert switches() - before < 100
    assert len(os.listdir(f"/proc/{process.pid}/fd")) <= starts


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM])
def test_killed_while_it_waits(waiting, kind):
    process = waiting("restart")
    process.send_signal(kind)
    assert process.wait(20) == -kind
