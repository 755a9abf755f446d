"""flock(1) of util-linux: each option, each form, and which lock is left when parts of it are killed."""
import os
import re
import signal
import time

import pytest
from harness import Job, wait_until
from harness.processes import children, comm, files_of

HOLD = "echo held; read line"


def holder(pair, *options, name="f"):
    return Job(pair.a, "flock", *options, pair.a.path(name), "sh", "-c", HOLD).held()


@pytest.mark.parametrize("first,second,excludes", [("-x", "-x", True), ("--exclusive", "-s", True), ("-e", "--shared", True),
                                                   ("-s", "-x", True), ("-s", "-s", False), ("--shared", "-s", False)])
def test_modes(pair, first, second, excludes):
    job = holder(pair, first)
    assert pair.is_busy("f", second) == (excludes and pair.excludes)
    assert job.end() == 1  # read's, at the end of input
    pair.check_free()


@pytest.mark.parametrize("options", [["-n"], ["--nonblock"], ["--nb"], ["-w", "0"]], ids=" ".join)
def test_does_not_wait(pair, options):
    job = holder(pair)
    done = pair.b.run("flock", *options, pair.b.path("f"), "echo", "got it")
    assert (done.returncode, done.stdout) == ((1, "") if pair.excludes else (0, "got it\n"))
    assert done.stderr == ""
    job.end()


@pytest.mark.parametrize("option", ["-w", "--wait", "--timeout"])
def test_gives_up_after_a_second_and_leaves_no_waiter(pair, option):
    job = holder(pair)
    start = time.monotonic()
    done = pair.b.run("flock", option, "1", pair.b.path("f"), "echo", "got it")
    assert done.stderr == ""
    if pair.excludes:
        assert done.returncode == 1 and time.monotonic() - start >= 1
        wait_until(lambda: pair.waiters() == 0, "no waiter is left in the store")
    else:
        assert (done.returncode, done.stdout) == (0, "got it\n")
    job.end()


def test_a_wait_with_a_limit_succeeds_within_it(pair):
    job = holder(pair)
    waiter = pair.waiter("flock", "-w", "30", pair.b.path("f"), "echo", "held")
    job.end()
    pair.check_gets(waiter)


@pytest.mark.parametrize("options", [["-n", "-E", "42"], ["-w", "0.2", "--conflict-exit-code", "42"]], ids=" ".join)
def test_exit_status_of_a_conflict(pair, options):
    job = holder(pair)
    assert pair.b.run("flock", *options, pair.b.path("f"), "true").returncode == (42 if pair.excludes else 0)
    job.end()


@pytest.mark.parametrize("command,status", [(["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 128 + 9),
                                            (["/nonexistent"], 69)], ids=["exit", "killed", "not there"])
def test_exit_status_of_the_command(pair, command, status):
    assert pair.a.run("flock", pair.a.path("f"), *command).returncode == status
    pair.check_free()


@pytest.mark.parametrize("option", ["-c", "--command"])
def test_command_in_a_shell(pair, option):
    job = Job(pair.a, "flock", pair.a.path("f"), option, HOLD).held()
    pair.check_held()
    waiter = pair.waiter()
    job.end()
    pair.check_gets(waiter)


@pytest.mark.parametrize("option", ["-F", "--no-fork"])
def test_no_fork(pair, option):
    job = holder(pair, option)
    assert comm(job.pid) == "sh"  # flock has become the command
    waiter = pair.waiter()
    os.kill(job.pid, signal.SIGKILL)
    pair.check_gets(waiter)


@pytest.mark.parametrize("option", ["-o", "--close"])
def test_close_before_the_command(pair, option):
    """The command has no descriptor: the lock is flock's alone, and ends with it though the command goes on."""
    job = holder(pair, option)
    child, = children(job.pid)
    assert pair.a.path("f") in files_of(job.pid) and pair.a.path("f") not in files_of(child)
    waiter = pair.waiter()
    os.kill(job.pid, signal.SIGKILL)
    pair.check_gets(waiter)
    os.kill(child, 0)


def test_kill_flock_alone(pair):
    """Without -o the command has a copy of the descriptor and goes on holding."""
    job = holder(pair)
    child, = children(job.pid)
    assert pair.a.path("f") in files_of(child)
    waiter = pair.waiter()
    os.kill(job.pid, signal.SIGKILL)
    job.process.wait()
    if pair.excludes:
        assert waiter.silent(0.3)
    pair.check_held()
    os.kill(child, signal.SIGKILL)
    pair.check_gets(waiter)


def test_kill_the_command_alone(pair):
    job = holder(pair)
    waiter = pair.waiter()
    os.kill(children(job.pid)[0], signal.SIGKILL)
    pair.check_gets(waiter)
    assert job.process.wait(30) == 128 + 9


def test_kill_a_waiter(pair):
    job = holder(pair)
    waiter = pair.waiter()
    if pair.excludes:
        os.kill(waiter.pid, signal.SIGKILL)
        wait_until(lambda: pair.waiters() == 0, "the killed one waits no longer")
    job.end()
    pair.check_free()


@pytest.mark.parametrize("how", ["9>", "9>>", "9<", "9<>"])
def test_descriptor_form(pair, how):
    job = Job(pair.a, "sh", "-c", f'exec {how}"$1"; flock 9; {HOLD}; flock -u 9; echo unlocked; read line', "-",
              pair.a.path("f")).held()
    pair.check_held()
    waiter = pair.waiter()
    job.say("on")
    assert job.line() == "unlocked"
    pair.check_gets(waiter)
    job.end()


def test_descriptor_form_conversions(pair):
    """From exclusive to shared lets readers in, and no writers."""
    job = Job(pair.a, "sh", "-c", f'exec 9>"$1"; flock -x 9; {HOLD}; flock -s 9; echo shared; read line', "-",
              pair.a.path("f")).held()
    assert pair.is_busy("f", "-s") == pair.excludes
    job.say("on")
    assert job.line() == "shared"
    assert not pair.is_busy("f", "-s")
    assert pair.is_busy("f", "-x") == pair.excludes
    job.end()


def test_directory_form(pair):
    for host in (pair.a, pair.b):
        os.mkdir(host.path("d"))
    job = holder(pair, name="d")
    pair.check_held("d")
    waiter = pair.waiter(name="d")
    job.end()
    pair.check_gets(waiter)


def test_the_file_is_made(pair):
    job = holder(pair, name="new")
    assert os.path.exists(pair.a.path("new"))
    pair.check_held("new")
    job.end()
    pair.check_free("new")


def test_verbose(pair):
    def said(done):
        return done.returncode, re.sub(r"[0-9.]+ seconds", "N seconds", done.stdout + done.stderr)

    job = holder(pair)
    verbose = ["flock", "--verbose", "-n"]
    local = said(pair.a.run(*verbose, pair.a.path("f"), "true"))  # refused by a's kernel: the words to compare with
    assert local == (1, "flock: failed to get lock\n")
    remote = said(pair.b.run(*verbose, pair.b.path("f"), "true"))
    assert remote == (local if pair.excludes else (0, "flock: getting lock took N seconds\nflock: executing true\n"))
    done = said(pair.b.run("flock", "--verbose", "-w", "0.2", pair.b.path("f"), "true"))
    if pair.excludes:
        assert done == (1, "flock: timeout while waiting to get lock\n")
    job.end()
