"""The shim starts a keeper when there is none, and the program sees nothing of it."""
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import threading

import pytest

from harness import hanging as fuse, wait_until
from harness.processes import files_of, pids_where
from harness.view import View
from world import result

QUIET = "mask same\nchildren: -1 ECHILD\nchildren of all kinds: -1 ECHILD\nopen: 0 1 2 3\n"


def test_what_the_keeper_is_given(world):
    world.own_shim()
    script = "umask 0; ulimit -S -n 64; trap '' USR2 HUP; exec \"$@\" 7</etc/passwd"
    done = world.run("waits", "restart", "x", world.lock, wrap=["/bin/bash", "-c", script, "-"],
                     env={**world.environment(), "DFLOCK_LOG": "debug"})
    assert "flock: 0 -\n" in done.stdout and "signal" not in done.stdout
    assert done.stderr.count("\n") == 1 and ": flock lock exclusive, waiting: done; protected; after " in done.stderr
    about, = world.started()
    assert about["argv"] == ["--config", str(world.config), "--ready-fd", "3", "--runtime-dir", str(world.runtime)]
    # Python adds LC_CTYPE by itself.
    assert set(about["environ"]) - {"LC_CTYPE"} == {"PATH", "DFLOCK_LOG"} and about["environ"]["DFLOCK_LOG"] == "debug"
    assert about["cwd"] == "/" and about["umask"] == 0o22
    assert {fd: name.split(":")[0] for fd, name in about["fds"].items() if int(fd) <= 3} == {
        "0": "/dev/null", "1": "/dev/null", "2": "/dev/null", "3": "pipe"}
    assert not [name for name in about["fds"].values() if "passwd" in name or "the.lock" in name]
    assert about["sid"] == about["pid"] and about["files"][0] == about["files"][1]
    assert about["blocked"] == 0 and not about["ignored"] & (1 << signal.SIGUSR2 - 1 | 1 << signal.SIGHUP - 1)


@pytest.mark.parametrize("case", ["waits interrupt x", "waits before x", "places handler", "places vfork", "places constructor", "limits closed",
                                  "limits small-stack"])
def test_the_program_sees_nothing_of_it(world, case):
    """From unusual places, too. The next one finds that keeper."""
    world.own_shim()
    program, how, *more = case.split()
    plain = world.run(program, how, *more, world.lock, env=world.environment(preload=False))
    for _ in range(2):
        done = world.run(program, how, *more, world.lock)
        assert (done.stdout, done.stderr) == (plain.stdout, "")
    assert len(world.started()) == 1


@pytest.mark.parametrize("wrap", [[], ["strace", "-f", "-o", "/dev/null", "-e", "inject=fork:delay_enter=300000"]], ids=["plain", "fork is slow"])
def test_many_at_once(world, wrap):
    """Also beside a fork that holds locks of libc: the new processes have them locked for ever. musl forks by fork(), and takes a lock then
    that its sigaction() takes for SIGABRT."""
    world.own_shim()
    done = world.run("places", "threads-fork", world.lock, wrap=wrap)
    assert done.stdout == "failures: 0\nopen: 0 1 2\n", done.stderr


@pytest.mark.parametrize("words, wrap, says", [
    ("limits subreaper", [], "subreaper; start it first: dflockd --config {folder}/dflock.conf --runtime-dir {folder}/run"),
    ("limits seccomp", [], "restricted by seccomp"),
    pytest.param("limits children-elsewhere", [], "its children are in another pid namespace",
                 marks=pytest.mark.root("only root may make a pid namespace")),
    pytest.param("waits restart x", ["unshare", "--pid", "--fork", "--mount-proc", "--"], "first process of its pid namespace",
                 marks=pytest.mark.root("only root may make a pid namespace")),
    ("waits restart x", "no dflockd", "cannot run {folder}/lib/dflockd: No such file or directory"),
    ("waits restart x", "fails", "dflock.conf:1: a store is missing; to see more: dflockd --config"),
], ids=["subreaper", "seccomp", "children elsewhere", "first process", "no dflockd", "it fails"])
def test_none_is_started(world, words, wrap, says):
    world.own_shim(beside="something-else" if wrap == "no dflockd" else "dflockd")
    if wrap == "fails":
        world.order(fail="dflock.conf:1: a store is missing")
    done = world.run(*words.split(), world.lock, wrap=wrap if isinstance(wrap, list) else ())
    assert ": -1 ENOLCK\n" in done.stdout and "child: -1" not in done.stdout and says.format(folder=world.folder) in done.stderr
    assert len(world.started()) == (wrap == "fails") and (words != "waits restart x" or done.stdout == "flock: -1 ENOLCK\n" + QUIET)


def hanging(world, how, op):
    world.own_shim()
    world.order(hang=True)
    process = world.start("waits", how, op, world.lock)
    wait_until(world.started, "the keeper was started")
    return process


def test_the_starter_keeps_no_copy_of_the_programs_descriptors(world):
    process = hanging(world, "restart", "x")
    about, = world.started()
    starter = f"/proc/{about['ppid']}"
    assert about["ppid"] != process.pid and f"\nPPid:\t{process.pid}\n" in open(f"{starter}/status").read()
    names = [os.readlink(f"{starter}/fd/{fd}").split(":")[0] for fd in sorted(os.listdir(f"{starter}/fd"), key=int)]
    assert names == ["/dev/null"] * 3 + ["socket", "pipe"]
    process.kill()
    process.communicate()
    wait_until(lambda: not os.path.exists(starter), "the starter ends with the program")


def with_the_lock_file(world):
    return pids_where(lambda pid: str(world.lock) in files_of(pid))


@pytest.mark.root("mounts, and so needs root")
def test_a_close_that_hangs_is_no_ones_but_its_own(world):
    """The program has a file open whose server hangs: the starter must close its copy of that, and the server would answer to that."""
    world.own_shim()
    view = View(str(world.folder / "view"), fuse.FLUSH)
    hung = os.open(f"{view.path}/f", os.O_RDWR)
    try:
        view.do("hold")
        process = subprocess.Popen(world.command("waits", "restart", "xn", world.lock), env=world.environment(), pass_fds=(hung,),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: with_the_lock_file(world) == [process.pid] and world.started(), "the starter has no copy of the lock's description")
        assert result(process) == "flock: 0 -"
        view.do("let")
        process.communicate()
    finally:
        view.end()
        with contextlib.suppress(OSError):  # the end of its server
            os.close(hung)


@pytest.mark.parametrize("how, expected", [("interrupt", "flock: -1 EINTR"), ("restart", "flock: -1 ENOLCK")])
def test_signals_while_it_waits_for_the_next_keeper(world, how, expected):
    """A keeper ran here, and this process must not start another one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listened:
        listened.bind(f"{world.runtime}/keeper.sock")
    prctl, subreaper = ctypes.CDLL(None).prctl, 36
    process = subprocess.Popen(world.command("waits", how, "x", world.lock), env=world.environment(), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: prctl(subreaper, 1, 0, 0, 0))
    wait_until(lambda: with_the_lock_file(world), "it has opened the file")
    over = threading.Event()

    def send():
        while not over.wait(0.01):
            process.send_signal(signal.SIGUSR1)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        assert result(process) == expected
    finally:
        over.set()
        thread.join()
        process.communicate()


def test_a_signal_ends_the_start(world):
    process = hanging(world, "interrupt", "x")
    process.send_signal(signal.SIGUSR1)
    out, err = process.communicate("\n", timeout=20)
    assert (out, err) == ("signal\nflock: -1 EINTR\n" + QUIET, "")


def test_a_signal_with_restart_does_not_and_time_does(world):
    process = hanging(world, "restart", "x")
    process.send_signal(signal.SIGUSR1)
    out, err = process.communicate("\n", timeout=20)
    assert process.returncode == 0 and out == "signal\nflock: -1 ENOLCK\n" + QUIET and "does not serve" in err


def test_a_tracer_that_follows_forks_does_not_see_it(world):
    world.own_shim()
    log = world.folder / "strace"
    done = world.run("waits", "restart", "x", world.lock, wrap=["strace", "-f", "-o", str(log), "-e", "trace=execve"])
    assert "flock: 0 -\n" in done.stdout
    assert len({line.split()[0] for line in log.read_text().splitlines()}) == 1


def test_the_library_through_a_link(world):
    world.own_shim()
    link = world.folder / "link.so"
    link.symlink_to(world.shim)
    env = world.environment(LD_PRELOAD="./link.so")
    done = subprocess.run(world.command("waits", "restart", "x", world.lock), env=env, cwd=world.folder,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert "flock: 0 -\n" in done.stdout and len(world.started()) == 1
