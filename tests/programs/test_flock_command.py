"""flock(1) of util-linux: each option, each form, and which lock is left when parts of it are killed; and commands beside it."""
import os
import re
import signal
import time

import pytest
from harness import Job, wait_until
from harness.processes import children, comm, files_of

from installed import needs

HOLD = "echo held; read line"


def holder(pair, *options, name="f"):
    return Job(pair.a, "flock", *options, pair.a.path(name), "sh", "-c", HOLD).held()


def test_modes(pair):
    for first, second, excludes in (("-x", "-x", True), ("--exclusive", "-s", True), ("-e", "--shared", True), ("-s", "-x", True),
                                    ("-s", "-s", False), ("--shared", "-s", False)):
        job = holder(pair, first)
        assert pair.is_busy("f", second) == (excludes and pair.excludes), (first, second)
        assert job.end() == 1  # read's, at the end of input
        pair.check_free()


def test_does_not_wait(pair):
    """Or for a second; then it leaves no waiter."""
    job = holder(pair)
    for options, status in ((["-n"], 1), (["--nonblock"], 1), (["--nb"], 1), (["-w", "0"], 1), (["-n", "-E", "42"], 42),
                            (["-w", "0.2", "--conflict-exit-code", "42"], 42), (["--wait", "1"], 1), (["--timeout", "0.2"], 1)):
        start = time.monotonic()
        done = pair.b.run("flock", *options, pair.b.path("f"), "echo", "got it")
        assert (done.returncode, done.stdout, done.stderr) == ((status, "", "") if pair.excludes else (0, "got it\n", "")), options
        assert "1" not in options or not pair.excludes or time.monotonic() - start >= 1
    wait_until(lambda: not pair.excludes or pair.waiters() == 0, "no waiter is left in the store")
    job.end()


def test_a_wait_with_a_limit_succeeds_within_it(pair):
    job = holder(pair)
    waiter = pair.waiter("flock", "-w", "30", pair.b.path("f"), "echo", "held")
    job.end()
    pair.check_gets(waiter)


def test_exit_status_of_the_command(pair):
    for command, status in ((["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 128 + 9), (["/nonexistent"], 69)):
        assert pair.a.run("flock", pair.a.path("f"), *command).returncode == status
        pair.check_free()


@pytest.mark.parametrize("option", ["-c", "--command"])
def test_command_in_a_shell(pair, option):
    job = Job(pair.a, "flock", pair.a.path("f"), option, HOLD).held()
    pair.check_held()
    waiter = pair.waiter()
    job.end()
    pair.check_gets(waiter)


@pytest.mark.parametrize("option", ["-F", "--no-fork", "-o", "--close"])
def test_one_process_has_the_lock(pair, option):
    """flock has become the command; or the command has no descriptor: the lock ends with flock though the command goes on."""
    job, closes = holder(pair, option), option in ("-o", "--close")
    assert comm(job.pid) == ("flock" if closes else "sh")
    if closes:
        child, = children(job.pid)
        assert pair.a.path("f") in files_of(job.pid) and pair.a.path("f") not in files_of(child)
    waiter = pair.waiter()
    os.kill(job.pid, signal.SIGKILL)
    pair.check_gets(waiter)
    if closes:
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
    """A conversion from exclusive to shared lets readers in, and no writers."""
    job = Job(pair.a, "sh", "-c", f'exec {how}"$1"; flock 9; {HOLD}; flock -s 9; echo shared; read line; flock -u 9; echo unlocked; read line', "-",
              pair.a.path("f")).held()
    assert pair.is_busy("f", "-s") == pair.excludes
    job.say("on")
    assert job.line() == "shared" and not pair.is_busy("f", "-s")
    pair.check_held()
    waiter = pair.waiter()
    job.say("on")
    assert job.line() == "unlocked"
    pair.check_gets(waiter)
    job.end()


def test_a_directory_and_a_file_that_is_made(pair):
    for host in (pair.a, pair.b):
        os.mkdir(host.path("d"))
    for name in ("d", "new"):
        job = holder(pair, name=name)
        assert os.path.exists(pair.a.path(name))
        pair.check_held(name)
        waiter = pair.waiter(name=name)
        job.end()
        pair.check_gets(waiter)


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


# Commands beside it: words that wait; words that do not, what these say if the lock is taken, and with which status they end.
COMMANDS = {
    "lckdo": (["lckdo", "-w"], ["lckdo"], "is already locked", 75, "moreutils"),
    "setlock": (["setlock"], ["setlock", "-n"], "unable to lock", 111, "daemontools"),
    "chpst": (["chpst", "-l"], ["chpst", "-L"], "unable to lock", 111, "runit"),
    "with-lock-ex": (["with-lock-ex", "-w"], ["with-lock-ex", "-f"], "could not acquire lock", 255, "chiark-utils-bin"),
}


@pytest.mark.parametrize("command", [pytest.param(name, marks=needs(name, row[-1])) for name, row in COMMANDS.items()])
def test_another_command(pair, command):
    """Refused while it is held; and it waits, and gets it when the holder is killed."""
    waits, tries, said, status, _ = COMMANDS[command]
    job = Job(pair.a, *waits, pair.a.path("f"), "sh", "-c", HOLD).held()
    done = pair.b.run(*tries, pair.b.path("f"), "echo", "got it")
    if pair.excludes:
        assert (done.returncode, done.stdout) == (status, "") and said in done.stderr, done
    else:
        assert (done.returncode, done.stdout) == (0, "got it\n"), done
    waiter = Job(pair.b, *waits, pair.b.path("f"), "echo", "held")
    pair.check_waits(waiter)
    job.kill()
    pair.check_gets(waiter)
    done = pair.b.run(*tries, pair.b.path("f"), "echo", "got it")
    assert (done.returncode, done.stdout, done.stderr) == (0, "got it\n", "")


@needs("lckdo", "moreutils")
def test_lckdo_with_a_limit_and_shared(pair):
    job = Job(pair.a, "lckdo", "-s", pair.a.path("f"), "sh", "-c", HOLD).held()
    assert pair.b.run("lckdo", "-s", pair.b.path("f"), "true").returncode == 0
    assert pair.b.run("lckdo", "-W", "1", pair.b.path("f"), "true").returncode == (75 if pair.excludes else 0)
    job.end()


# Around, or in a job of, programs whose own locks are this machine's.

@needs("tsp", "task-spooler")
def test_flock_in_a_job_of_task_spooler(pair):
    """The job is a child of the command that queued it, so the preload is there. The queue then waits for the lock."""
    def queue(host):
        return Job(host, "sh", "-c", 'export TS_SOCKET="$1" TMPDIR="$2"; tsp -nf flock "$3" sh -c "echo held; until test -e $4; do sleep 0.02; done"',
                   "-", host.path("socket"), host.files, host.path("f"), host.path("done"))
    first = queue(pair.a).held()
    second = queue(pair.b)
    pair.check_waits(second)
    open(pair.a.path("done"), "w").close()
    open(pair.b.path("done"), "w").close()
    assert second.line() == "held"


@needs("sem", "parallel")
def test_flock_around_parallel_semaphore(pair):
    job = Job(pair.a, "flock", pair.a.path("f"), "sem", "-u", "--fg", "--id", "x", "echo held; exec sleep 600").held()
    pair.check_held()
    job.kill()
    wait_until(lambda: not pair.is_busy(), "it is free")
