"""Lock calls on protected files, against a keeper that answers late, early, wrongly or not at all."""
import fcntl
import os
import pathlib
import signal
import socket
import subprocess
import threading

import pytest

import fake_keeper as fk
from harness import hanging as fuse, wait_until
from harness.view import View
from scripted import Local, Script, finish, result
from world import wait_in_recv


@pytest.fixture
def local(world):
    local = Local(world.lock)
    yield local
    os.close(local.fd)


@pytest.fixture
def script(world):
    script = Script()
    with world.keeper(script):
        yield script


def test_what_is_asked(world, script):
    process = world.start("waits", "restart", "s", world.lock)
    connection, request = script.next()
    assert (request.magic, request.version, request.size, request.op) == (fk.MAGIC, fk.VERSION, 120, fk.LOCK)
    assert (request.space, request.mode, request.flags, request.owner) == (0, fk.SHARED, 0, 0)
    assert (request.start, request.to, request.fds) == (0, 2**63 - 1, [str(world.lock)])
    assert request.config == fk.config_id(world.config) and request.path_hash == fk.path_hash(world.config)
    assert 0 <= fk.boottime() - request.sent_ns < 10 * fk.SECOND
    assert request.command == "waits"
    connection.grant(request)
    assert result(process) == "flock: 0 -"
    assert script.gone.wait(20)
    finish(process)

    process = world.start("waits", "restart", "xn", world.lock)
    connection, request = script.next()
    assert (request.mode, request.flags) == (fk.EXCLUSIVE, fk.NONBLOCK)
    os.rename(world.lock, world.lock.parent / "renamed")  # the page calls the new path not protected, too
    connection.send(fk.NOT_PROTECTED)
    assert result(process) == "flock: 0 -"
    finish(process)


def test_the_keeper_sees_another_path(world):
    """The page says yes, the keeper no, and nothing was renamed: the kernel lock alone would exclude no other host."""
    asked = []

    def handler(connection):
        while request := connection.receive():
            asked.append(request)
            connection.send(fk.NOT_PROTECTED, reason="/elsewhere/f")

    for program, words in (("waits", ["restart", "x"]), ("waits", ["restart", "xn"])):
        with world.keeper(handler):
            done = world.run(program, *words, world.lock)
        assert "flock: -1 ENOLCK" in done.stdout
        line, = done.stderr.splitlines()
        assert str(world.lock) in line and "/elsewhere/f" in line and "root directory" in line
    assert 2 <= len(asked) <= 20


def test_a_file_that_is_renamed_to_and_fro(world, script):
    """It was elsewhere when the keeper looked, and is back when the shim looks again: the keeper is asked again."""
    process = world.start("waits", "restart", "x", world.lock)
    connection, request = script.next()
    connection.send(fk.NOT_PROTECTED, reason="/elsewhere/f")
    connection, request = script.next()
    connection.grant(request)
    assert result(process) == "flock: 0 -"
    finish(process)


def held(world, script, op):
    """A program that has a shared lock and now asks for another."""
    process = world.start("waits", "held", op, world.lock)
    connection, request = script.next()
    connection.grant(request)
    return (process, *script.next())


def test_refused_at_once_keeps_the_old_lock(world, script, local):
    process, connection, _ = held(world, script, "x")
    connection.send(fk.REFUSED, reason="no more of these; ask\x1b[2J\nsomebody")
    assert result(process) == "flock: -1 ENOLCK"
    assert local.take(fcntl.LOCK_SH) and not local.take(fcntl.LOCK_EX)
    assert finish(process) == "dflock: no more of these; ask?[2J somebody\n"


def test_would_block_loses_the_old_lock(world, script, local):
    process, connection, _ = held(world, script, "xn")
    connection.send(fk.WOULD_BLOCK)
    assert result(process) == "flock: -1 EAGAIN"
    assert local.free()
    assert finish(process) == ""


def test_waiting_gives_up_the_old_lock_first(world, script, local):
    process, connection, request = held(world, script, "x")
    assert not local.free()
    connection.send(fk.WAITING)
    wait_until(local.free, "the old lock is given up")
    connection.send(fk.WAITING)
    connection.grant(request)
    assert result(process) == "flock: 0 -"
    assert not local.take(fcntl.LOCK_SH)
    finish(process)


def test_a_grant_that_is_over_is_asked_for_again(world, script, local):
    process = world.start("waits", "restart", "x", world.lock)
    connection, request = script.next()
    connection.send(fk.GRANTED, request.sent_ns)
    connection, second = script.next()
    assert second.have and not request.have and second.sent_ns > request.sent_ns
    assert second.fds == [str(world.lock)] and not local.take(fcntl.LOCK_SH)
    # It has gone: the kernel lock must be let go before the wait.
    connection.send(fk.WAITING)
    wait_until(local.free, "the kernel lock is let go")
    connection.send(fk.GRANTED, second.sent_ns)
    connection, third = script.next()
    assert third.have and not local.take(fcntl.LOCK_SH)
    # Over when it arrives, but given while the kernel lock was there.
    connection.send(fk.GRANTED, third.sent_ns)
    assert result(process) == "flock: 0 -"
    assert not local.take(fcntl.LOCK_SH)
    finish(process)


@pytest.mark.parametrize("verdict, op, expected", [
    (fk.REFUSED, "x", "flock: -1 ENOLCK"),
    (fk.REFUSED, "sn", "flock: -1 ENOLCK"),
    (fk.WOULD_BLOCK, "xn", "flock: -1 EAGAIN"),
    (fk.OK, "x", "flock: -1 ENOLCK"),
])
def test_a_second_question_with_a_bad_end(world, script, local, verdict, op, expected):
    process = world.start("waits", "restart", op, world.lock)
    connection, request = script.next()
    connection.send(fk.GRANTED, request.sent_ns)
    connection, request = script.next()
    assert request.have
    connection.send(verdict, reason="gone")
    assert result(process) == expected
    assert local.free()
    finish(process)


def test_a_keeper_that_dies_is_followed_by_another(world, script, local):
    process = world.start("waits", "restart", "x", world.lock)
    connection, request = script.next()
    connection.send(fk.WAITING)
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection, request = script.next()
    assert not request.have
    connection.send(fk.GRANTED, request.sent_ns)
    connection, request = script.next()
    # With the kernel lock in hand, the next one is told so.
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection, request = script.next()
    assert request.have
    connection.grant(request)
    assert result(process) == "flock: 0 -"
    finish(process)


def test_keepers_that_all_die(world):
    # A dflockd that the shim could start would connect to this one, too.
    world.own_shim(beside="something-else")
    with world.keeper(lambda connection: connection.receive()) as keeper:
        done = world.run("waits", "restart", "x", world.lock)
        assert "flock: -1 ENOLCK" in done.stdout and keeper.requests == 5
        assert "keepers end before they answer" in done.stderr and done.stderr.count("\n") == 1


def test_a_question_that_keepers_die_of(world):
    with world.keeper(lambda connection: connection.receive() and connection.send(fk.WAITING)) as keeper:
        done = world.run("waits", "restart", "x", world.lock)
        assert "flock: -1 ENOLCK" in done.stdout and keeper.requests == 100


def test_a_local_holder_outlasts_the_pin(world, script, local):
    assert local.take()
    process = world.start("waits", "restart", "x", world.lock)
    connection, request = script.next()
    connection.send(fk.GRANTED, fk.boottime() + fk.SECOND // 20)
    wait_until(lambda: fk.boottime() > request.sent_ns + fk.SECOND // 10, "the pin is over")
    local.release()
    connection, request = script.next()
    assert request.have
    connection.grant(request)
    assert result(process) == "flock: 0 -"
    finish(process)


def test_local_would_block_is_believed_within_a_pin_only(world, script, local):
    assert local.take()
    process = world.start("waits", "restart", "xn", world.lock)
    connection, request = script.next()
    connection.send(fk.GRANTED, request.sent_ns)
    connection, request = script.next()
    assert not request.have
    local.release()
    connection.grant(request)
    assert result(process) == "flock: 0 -"
    finish(process)

    assert local.take()
    process = world.start("waits", "restart", "xn", world.lock)
    connection, request = script.next()
    connection.grant(request)
    assert result(process) == "flock: -1 EAGAIN"
    finish(process)


def test_a_handler_without_restart_ends_the_wait(world, script, local):
    for answers in ([], [fk.WAITING]):
        process = world.start("waits", "interrupt", "x", world.lock)
        connection, _ = script.next()
        for verdict in answers:
            connection.send(verdict)
        wait_in_recv(process)
        script.gone.clear()
        process.send_signal(signal.SIGUSR1)
        assert result(process) == "flock: -1 EINTR"
        assert script.gone.wait(20), "the keeper learns of it"
        assert finish(process) == ""
    assert local.free()


def test_a_handler_with_restart_does_not(world, script):
    process = world.start("waits", "restart", "x", world.lock)
    connection, request = script.next()
    connection.send(fk.WAITING)
    for _ in range(3):
        wait_in_recv(process)
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "signal\n"
    connection.grant(request)
    assert result(process) == "flock: 0 -"
    finish(process)


def test_a_call_that_does_not_wait_is_never_interrupted(world, script):
    process = world.start("waits", "interrupt", "xn", world.lock)
    connection, _ = script.next()
    for _ in range(3):
        wait_in_recv(process)
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "signal\n"
    connection.send(fk.WOULD_BLOCK)
    assert result(process) == "flock: -1 EAGAIN"
    finish(process)


def test_killed_while_it_waits(world, script):
    process = world.start("waits", "restart", "x", world.lock)
    connection, _ = script.next()
    connection.send(fk.WAITING)
    wait_in_recv(process)
    process.kill()
    assert script.gone.wait(20)
    process.communicate()


def test_a_forked_copy_does_not_keep_the_connection(world, script):
    process = world.start("waits", "fork", "x", world.lock)
    connection, request = script.next()
    wait_in_recv(process)
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "signal\n"
    wait_in_recv(process)
    connection.grant(request)
    assert script.gone.wait(20), "the keeper sees the end while the child lives"
    assert process.poll() is None
    process.communicate()


def test_the_connection_is_no_standard_descriptor(world, script):
    command = ["/bin/sh", "-c", 'exec "$@" <&- 2>&-', "-", *world.command("waits", "restart", "x", world.lock)]
    process = subprocess.Popen(command, env=world.environment(), stdout=subprocess.PIPE, text=True)
    connection, request = script.next()
    wait_in_recv(process)
    # 0 is the locked file, opened first.
    assert sorted(os.listdir(f"/proc/{process.pid}/fd")) == ["0", "1", "3"]
    connection.grant(request)
    assert "flock: 0 -\n" in process.communicate()[0]


def refusal(connection):
    return connection.receive() and connection.send(fk.REFUSED, reason="no")


def raw(**fields):
    return lambda connection: connection.receive() and connection.send(fk.GRANTED, 1 << 62, **fields)


CUT_OFF = fk.REPLY.pack(fk.MAGIC, fk.VERSION, fk.REPLY.size, fk.GRANTED, 0, 0, 0, 0, b"", 1 << 62, 0, 0, 0)[:100]


@pytest.mark.parametrize("handler, line", [
    (raw(magic=1), "no keeper"),
    (raw(version=fk.VERSION + 1), "another version"),
    (raw(size=8), "malformed"),
    (raw(reason="x" * 1024), "malformed"),
    (lambda c: c.receive() and c.sock.send(b"hello"), "no keeper"),
    (lambda c: c.receive() and c.sock.send(CUT_OFF), "malformed"),
    (lambda c: c.receive() and c.sock.send(b"x" * 4096), "no keeper"),
    (lambda c: c.receive() and c.send(fk.DEADLOCK), "no sense"),
    (lambda c: c.receive() and c.send(77), "no sense"),
    (lambda c: c.receive() and c.send(fk.WOULD_BLOCK), "no sense"),
])
def test_answers_that_no_keeper_gives(world, handler, line):
    with world.keeper(handler):
        done = world.run("waits", "restart", "x", world.lock)
    assert "flock: -1 ENOLCK" in done.stdout and "open: 0 1 2 3\n" in done.stdout
    assert line in done.stderr and done.stderr.count("\n") == 1 and str(world.lock) in done.stderr


def test_a_files_name_controls_no_terminal(world):
    """Other users may have made the file: neither escape sequences, in one byte or as U+009B, nor what turns the direction."""
    name = f"{world.lock}\x1b[2J\u009b31m\u202e\xf6\n"
    with world.keeper(raw(size=8)):
        done = world.run("waits", "restart", "x", name)
    assert f"{world.lock}?[2J??31m???\xf6 : lock refused: " in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("rules, handler, expected", [([], None, ("flock: 0 -", "")), (None, refusal, ("flock: -1 ENOLCK", "dflock: no\n"))])
def test_a_file_whose_server_does_not_answer(world, rules, handler, expected):
    """The keeper finds that out, if it must know something of the file. The program itself never asks the server."""
    view = View(str(world.folder / "view"), fuse.GETATTR, valid=0)
    world.lock = pathlib.Path(view.path) / "f"
    try:
        with world.keeper(handler or fk.grant_all, rules=rules):
            view.do("hold")
            process = world.start("waits", "restart", "xn", world.lock)
            limit = threading.Timer(20, process.kill)
            limit.start()
            assert (result(process), finish(process)) == expected
            limit.cancel()
    finally:
        view.end()


def test_descriptors_in_an_answer_do_not_arrive(world):
    def handler(connection):
        request = connection.receive()
        reply = fk.REPLY.pack(fk.MAGIC, fk.VERSION, fk.REPLY.size, fk.GRANTED, 0, 0, 0, 0, b"", request.sent_ns + fk.SECOND, 1, 0, 0)
        socket.send_fds(connection.sock, [reply], [0, 1, 2])

    with world.keeper(handler):
        done = world.run("waits", "restart", "x", world.lock)
    assert "flock: 0 -" in done.stdout and "open: 0 1 2 3\n" in done.stdout
