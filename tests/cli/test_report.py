"""`dflock run --report` and --require=taken: what a job locked. Programs of all kinds, from unusual places."""
import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time

import pytest
from harness import BUILD, bytes_of, text_of, wait_until, write_text
from harness.host import CLI
from harness.processes import children

PLACES = os.path.join(BUILD, "tests", "interpose", "places")
UNSEEN = ["env", "-u", "LD_PRELOAD", "-u", "DFLOCK_REPORT"]
COUNTS = ("calls", "taken", "taken_unprotected", "busy", "refused", "failed", "not_ended", "tests", "tests_found", "unlocks")


@pytest.fixture
def two(make_host):
    """Hosts that protect f, and nothing else."""
    return [make_host(name, rules='{ path = "%s/f"; name = "t"; }', lease="ttl_ms = 5000;") for name in "ab"]


@pytest.fixture
def host(make_host):
    return make_host("a", rules='{ path = "%s/f"; name = "t"; }', lease="ttl_ms = 5000;")


def reported(host, *words, **more):
    return host.cli("run", *words, check=False, **more)


def begun(host, *words, before=(), **more):
    return subprocess.Popen([*before, CLI, "run", *words], env=host.plain_env(), text=True, **more)


class Report:
    """A job to its end, and what its report says: {(file, program, space): counts}."""

    def __init__(self, host, *job, options=(), **more):
        file = os.path.join(host.runtime, "report.json")
        self.done = reported(host, "--report=" + file, "--json", *options, "--", *job, **more)
        self.all = json.loads(text_of(file))
        self.rows = {(os.path.basename(row["file"]), row["program"], row["space"]): row for row in self.all["files"]}

    def row(self, file, program, space="flock"):
        assert (file, program, space) in self.rows, (self.rows.keys(), self.done)
        return self.rows[file, program, space]


def has(row, **counts):
    """These counts, and no others."""
    assert {name: row[name] for name in COUNTS if row[name]} == counts, row
    return row


def python(text, *arguments):
    return ["python3", "-c", "import fcntl, os, signal, struct, sys\nfile = open(sys.argv[1], 'a+')\n" + text, *arguments]


# --- what the net catches ---

def test_what_the_net_catches(two):
    """By programs without the preload. One call is granted, and one fails, since another host has the lock. What was let go on is taken."""
    path, other = two[0].path("f"), two[0].path("other")
    for file in path, other:
        open(file, "w").close()
    granted = Report(two[0], *UNSEEN, "flock", path, "true", options=["--net=on"])
    row = has(granted.row("f", "flock"))
    assert (row["caught"], row["caught_failed"], row["lock"]) == (1, 0, "t")
    assert len(granted.all["files"]) == 1
    for file, status in ((path, 0), (other, 122)):
        assert reported(two[0], "--net=on", "--require=taken", "--", *UNSEEN, "flock", file, "true").returncode == status
    two[1].opened("f", "flock 0 ex")
    busy = Report(two[0], *UNSEEN, "flock", "-n", path, "true", options=["--net=on"])
    row = has(busy.row("f", "flock"))
    assert (busy.done.returncode, row["caught"], row["caught_failed"], row["caught_busy"]) == (1, 0, 1, 1)


def test_verbose_below_the_net(two):
    """The line that says who has the lock: once, and the call's result is the same. Calls fail, or wait."""
    for at, where in (two[0], "this host"), (two[1], "host b"):
        holder = at.opened("f", "flock 0 ex")
        for how in ["-n"], ["-w", "3"]:
            done = reported(two[0], "--net=on", "--verbose", "--", *UNSEEN, "flock", *how, two[0].path("f"), "true")
            assert done.returncode == 1 and re.fullmatch(rf".*/f: held by {where}.* pid {holder.pid} \(agent\).*\n", done.stderr), done
        assert holder.do("flock 0 un") == "ok"


# --- what it says ---

def test_a_shell_job(host):
    """The lock is taken by one flock(1) and unlocked by another; that of `exec 9>` alone ends with the shell."""
    text = 'exec 9>"$0" 8>"$1"; flock 9; flock -s 8; echo working; flock -u 9'
    report = Report(host, "sh", "-c", text, host.path("f"), host.path("g"))
    assert (report.done.returncode, report.done.stdout, report.done.stderr) == (0, "working\n", "")
    row = has(report.row("f", "flock"), calls=1, taken=1, unlocks=1)
    assert row["lock"] == "t" and row["held"] == 1 and row["waited_max_ms"] <= row["waited_ms"], row
    row = has(report.row("g", "flock"), calls=1, taken_unprotected=1)
    assert "lock" not in row and row["held"] == 0, row
    assert len(report.rows) == 2 and report.all["left_out"] == 0
    report = Report(host, CLI, "lock", "nightly", "echo", "ran")
    assert report.done.stdout == "ran\n" and has(report.row("nightly", "flock"), calls=1, taken=1)["lock"] == "lock:nightly"


def test_for_people(host):
    """A file's name may contain anything."""
    done = reported(host, "--report", "sh", "-c", 'flock "$0" flock "$1" true; exit 3', host.path("f"), host.path("g"))
    assert (done.returncode, done.stdout) == (3, ""), done
    lines = done.stderr.splitlines()
    assert lines[0] == "dflock: lock calls of sh:" and lines[1].split() == \
        ["FILE", "PROGRAM", "LOCK", "PROTECTED", "AS", "CALLS", "RESULT", "WAITED", "HELD"], done
    assert lines[2].split()[:7] == [host.path("f"), "flock", "flock", "t", "1", "1", "taken"], done
    assert lines[2].endswith("until closed") and lines[3].split()[:5] == [host.path("g"), "flock", "flock", "no", "1"], done
    assert "dflock.conf(5)" in lines[4] and "dflock doctor PROGRAM" in lines[5] and len(lines) == 6
    done = reported(host, "--report", "true")
    assert (done.returncode, done.stdout) == (0, "") and done.stderr.startswith("dflock: lock calls of true: none that dflock saw\n"), done
    name = os.path.join(os.fsencode(host.files), b"\xff\x1b[31m\n")
    assert [row["file"] for row in Report(host, "flock", name, "true").all["files"]] == [host.path(r"\xff\x1b[31m\x0a")]
    done = reported(host, "--report", "flock", name, "true")
    assert "\x1b" not in done.stderr and r"\xff\x1b[31m\x0a" in done.stderr, done


def test_waiting_and_busy(two):
    host, holder = two[0], two[1].opened("f", "flock 0 ex")
    row = has(Report(host, "flock", "-n", host.path("f"), "true").row("f", "flock"), calls=1, busy=1)
    assert row["held"] == 0
    file = os.path.join(host.runtime, "waited")
    job = begun(host, "--report=" + file, "--json", "flock", host.path("f"), "true")
    wait_until(lambda: any(lease["waiting"] for lease in host.status()["leases"]), "the job waits")
    since = time.monotonic()
    wait_until(lambda: time.monotonic() > since + 0.05, "some time has passed")
    waited_ms = (time.monotonic() - since) * 1000
    assert holder.do("flock 0 un") == "ok" and job.wait(30) == 0
    row = has(json.loads(text_of(file))["files"][0], calls=1, taken=1)
    assert row["waited_ms"] >= int(waited_ms) and row["waited_max_ms"] == row["waited_ms"], (row, waited_ms)


def test_a_call_that_is_refused(host, redis):
    assert host.run("flock", host.path("g"), "true").returncode == 0
    redis.stop()
    wait_until(lambda: not host.status()["store"]["up"], "the keeper has noticed")
    report = Report(host, "flock", "-n", host.path("f"), "true")
    assert report.done.returncode != 0 and "is not reachable" in report.done.stderr
    has(report.row("f", "flock"), calls=1, refused=1)


# --- where calls come from ---

def test_places(host):
    """Two locks and an unlock, by a constructor that runs before the library's, in a handler with a small stack, in a child."""
    for where in "constructor", "handler", "fork", "vfork":
        for file, taken in ("f", "taken"), ("g", "taken_unprotected"):
            report = Report(host, PLACES, where, host.path(file))
            row = has(report.row(file, "places"), calls=2, unlocks=1, **{taken: 2})
            assert row["held"] == 1 and report.done.returncode == 0 and report.done.stderr == "", report.done
            assert "open: 0 1 2\n" in report.done.stdout, report.done.stdout


def test_many_threads_and_processes(host):
    """Each call is counted: 8 threads, 100 times an exclusive and a shared lock, and in children while they run."""
    row = Report(host, PLACES, "threads", host.path("g")).row("g", "places")
    assert row["calls"] == 1600 and row["taken_unprotected"] + row["busy"] == 1600 and row["unlocks"] == 800, row
    assert row["held"] <= 800
    text = 'for i in $(seq 40); do (for j in 1 2 3; do flock "$0" flock -s "$1" true; done) & done; wait'
    report = Report(host, "sh", "-c", text, host.path("f"), host.path("g"))
    has(report.row("f", "flock"), calls=120, taken=120)
    has(report.row("g", "flock"), calls=120, taken_unprotected=120)


# What a job does, and what its report says of this file.
JOBS = {
    "a call that never ended: the kernel ends the process in it": ("g", "flock", {"calls": 2, "taken_unprotected": 1, "not_ended": 1}, """
holder = open(sys.argv[1], 'a+')
fcntl.flock(holder, fcntl.LOCK_EX)
pid = os.fork()
if pid == 0:
    signal.alarm(0)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    fcntl.flock(file, fcntl.LOCK_EX)
    os._exit(0)
assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGALRM
"""),
    "a job that closes all descriptors": ("f", "flock", {"calls": 1, "taken": 1}, """
os.closerange(3, 1000); fd = os.open(sys.argv[1], os.O_RDWR)
assert sorted(os.listdir('/proc/self/fd')) == ['0', '1', '2', '3', '4']; fcntl.flock(fd, fcntl.LOCK_EX)
"""),
    "a job that changes its root": ("g", "flock", {"calls": 1, "taken_unprotected": 1}, """
fcntl.flock(file, fcntl.LOCK_EX)
os.chroot(os.path.dirname(sys.argv[1]))
file = open('/inside', 'a+')
try:
    fcntl.flock(file, fcntl.LOCK_EX)
except OSError:
    pass
"""),
    "a job that changes its user": ("g", "flock", {"calls": 2, "taken_unprotected": 2}, """
fcntl.flock(file, fcntl.LOCK_SH); os.setgid(65534); os.setuid(65534); fcntl.flock(file, fcntl.LOCK_EX)
"""),
    "record locks": ("f", "record", {"calls": 2, "taken": 2, "unlocks": 1, "tests": 2}, """
fcntl.lockf(file, fcntl.LOCK_EX, 10)
fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 10, 100)
fcntl.lockf(file, fcntl.LOCK_UN, 10)
os.lockf(file.fileno(), os.F_TEST, 0)
fcntl.fcntl(file, fcntl.F_GETLK, struct.pack('hhqqi', fcntl.F_WRLCK, 0, 0, 0, 0))
"""),
}


def test_jobs_of_all_kinds(host):
    for what, (file, space, counts, text) in JOBS.items():
        if "changes its" in what and os.geteuid():
            continue  # only root can
        report = Report(host, *python(text, host.path(file)))
        assert report.done.returncode == 0, (what, report.done)
        row = has(report.row(file, "python3", space), **counts)
        assert space == "flock" or row["held"] == 1
        assert sum(row["calls"] for row in report.all["files"]) == (2 if "root" in what else counts["calls"]), what
    report = Report(host, "sqlite3", host.path("g"), "create table t (n); insert into t values (1); select n from t;")
    assert report.done.stdout == "1\n"
    row = report.row("g", "sqlite3", "record")
    assert row["taken_unprotected"] == row["calls"] > 2 and row["held"] > 0 and not row["failed"], row


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "2>&-"])
def test_a_job_without_standard_descriptors(host, closed):
    """Neither the tally nor the report may be what is written to as standard output or error, by the job or by dflock."""
    file = os.path.join(host.runtime, "report")
    done = subprocess.run(["sh", "-c", '"$@" ' + closed, "sh", CLI, "run", "--report=" + file, "--json",
                           "--require=taken", "flock", host.path("g"), "sh", "-c", "ls -l /proc/$$/fd >\"$0.fds\"; echo no >&2; true", file],
                          env=host.plain_env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert done.returncode == 122
    has(json.loads(text_of(file))["files"][0], calls=1, taken_unprotected=1)
    fds = text_of(file + ".fds")
    assert "/dev/null" not in fds and "report" not in fds.replace(file + ".fds", ""), fds


def test_locks_that_are_in_the_way_of_a_question(two):
    """F_GETLK and F_TEST succeed; qemu, which asks so, then refuses to start."""
    text = """
ask = lambda first: fcntl.fcntl(file, fcntl.F_GETLK, struct.pack('hhqqi', fcntl.F_WRLCK, 0, first, 1, 0))
ask(5), ask(50), ask(500)
try:
    os.lseek(file.fileno(), 5, 0), os.lockf(file.fileno(), os.F_TEST, 1)
except PermissionError:
    pass
"""
    for host, first in ((two[0], 5), (two[1], 50)):
        host.opened("f", f"setlk 0 ex {first} 1")
    job = python(text, two[0].path("f"))
    has(Report(two[0], *job).row("f", "python3", "record"), tests=4, tests_found=3)
    assert "1 tested, 3 tested and a lock found" in reported(two[0], "--report", *job).stderr


# --- how it ends ---

def test_the_status_is_the_jobs(host):
    """A parent may have left SIGCHLD ignored, or set an alarm: perl -e 'alarm 1; exec @ARGV' JOB. The job must end by it, and not dflock alone."""
    file = "--report=" + os.path.join(host.runtime, "r")
    for words, status in ((["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -TERM $$"], -signal.SIGTERM),
                          (["sh", "-c", "kill -KILL $$"], -signal.SIGKILL), ([host.config], 126)):
        assert reported(host, file, *words).returncode == status
    done = reported(host, file, "no-such-program")
    assert (done.returncode, done.stderr) == (127, "dflock: cannot run no-such-program: No such file or directory\n")
    assert reported(host, "--json", "true").returncode == 125
    for words, before, status in ((["sleep", "60"], lambda: signal.setitimer(signal.ITIMER_REAL, 0.3), -signal.SIGALRM),
                                  (["sh", "-c", "exit 5"], lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN), 5)):
        done = reported(host, "--report", *words, preexec_fn=before)
        assert done.returncode == status and "none that dflock saw" in done.stderr, done


def test_where_the_report_goes(host):
    """An earlier one is replaced by a job that has run, and nothing that is said of that job changes its status, not even a full disk."""
    file = os.path.join(host.runtime, "r")
    write_text(file, "x" * 100000)
    assert reported(host, "--report=" + file, "no-such-program").returncode == 127
    assert os.stat(file).st_size == 100000
    assert reported(host, "--report=" + file, "true").returncode == 0
    assert "none that dflock saw" in text_of(file) and os.stat(file).st_size < 1000
    missing = host.path("missing/report")
    for file, status, out, said in (missing, 125, "", "not started: the report cannot be written to " + missing), \
            ("/dev/full", 0, "ran\n", "the report could not be written to /dev/full: No space left on device"):
        done = reported(host, "--report=" + file, "flock", host.path("f"), "echo", "ran")
        assert (done.returncode, done.stdout) == (status, out) and done.stderr.count("\n") == 1 and said in done.stderr, done


def test_signals_are_passed_on(host):
    """Those of other processes, once; the job's own to its group come back to nobody."""
    ready = os.path.join(host.runtime, "ready")
    text = """
import os, signal, sys
got = []
def on_first(*_):
    got.append("USR1")
    os.kill(0, signal.SIGUSR2)
    open(sys.argv[1] + "2", "w")
signal.signal(signal.SIGUSR1, on_first)
signal.signal(signal.SIGUSR2, lambda *_: got.append("USR2"))
signal.signal(signal.SIGTERM, lambda *_: (print(*got), sys.exit(3)))
ends = os.pipe()
os.set_blocking(ends[1], False)
signal.set_wakeup_fd(ends[1])  # a signal that comes just before the read ends it, too
open(sys.argv[1], "w")
while os.read(ends[0], 1):
    pass
"""
    job = begun(host, "--report=" + os.path.join(host.runtime, "r"), sys.executable, "-c", text, ready, stdout=subprocess.PIPE,
                start_new_session=True)
    wait_until(lambda: os.path.exists(ready), "the job runs")
    os.kill(job.pid, signal.SIGUSR1)
    wait_until(lambda: os.path.exists(ready + "2"), "the job has signalled its group")
    os.kill(job.pid, signal.SIGTERM)
    assert job.communicate(timeout=30)[0] == "USR1 USR2\n" and job.returncode == 3


@pytest.mark.parametrize("option", ["--report", "--init"])
def test_a_signal_of_the_program_that_started_it(host, option):
    """As of a script (kill $!), or of Popen.terminate(): it is in the same group, and the job is told."""
    ready = os.path.join(host.runtime, "ready")
    job = begun(host, option, "sh", "-c", 'trap "exit 3" TERM; touch "$0"; sleep 60 & wait; sleep 60', ready, stderr=subprocess.DEVNULL)
    wait_until(lambda: os.path.exists(ready), "the job runs")
    assert os.getpgid(job.pid) == os.getpgrp()
    job.terminate()
    assert job.wait(30) == 3


@pytest.mark.parametrize("option", ["--report", "--init"])
def test_the_terminal_is_gone(host, option):
    """As at the end of `ssh -t HOST dflock run ...`: the kernel tells the leader of the session alone, and that would be the job without dflock."""
    ready = os.path.join(host.runtime, "ready")
    master, slave = pty.openpty()
    job = begun(host, option, "sh", "-c", 'trap "exit 3" HUP; touch "$0"; sleep 60 & wait', ready, stdin=slave, stdout=slave, stderr=slave,
                start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(slave)
    wait_until(lambda: os.path.exists(ready), "the job runs")
    os.close(master)
    try:
        assert job.wait(10) == 3
    finally:
        job.kill()


@pytest.mark.root("only root may make a pid namespace")
def test_a_signal_from_outside_of_the_pid_namespace(host):
    ready = os.path.join(host.runtime, "ready")
    job = begun(host, "--report", "sh", "-c", 'trap "echo got it; exit 3" TERM; touch "$0"; while :; do sleep 60 & wait; done', ready,
                before=["unshare", "--pid", "--fork", "--mount-proc"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: os.path.exists(ready), "the job runs")
    os.kill(children(job.pid)[0], signal.SIGTERM)
    out, err = job.communicate(timeout=30)
    assert (job.returncode, out) == (3, "got it\n") and err.startswith("dflock: lock calls of sh"), (job.returncode, out, err)


def test_dflock_is_killed(host):
    """The job goes on, and so do the programs that it starts later."""
    ready = os.path.join(host.runtime, "ready")
    text = 'exec 9>"$1"; flock 9; touch "$0"; read line <"$0.fifo"; flock -u 9; flock "$1" echo done >"$0.out"'
    os.mkfifo(ready + ".fifo")
    job = begun(host, "--report", "sh", "-c", text, ready, host.path("f"))
    wait_until(lambda: os.path.exists(ready), "the job has its lock")
    job.kill()
    job.wait()
    write_text(ready + ".fifo", "go\n")
    wait_until(lambda: os.path.exists(ready + ".out") and text_of(ready + ".out") == "done\n", "the job has ended")


def test_a_job_that_spoils_the_tally(host):
    """It may write there what it likes, but not shrink it; dflock shows what it can."""
    text = """
import random
fd = os.open(os.environ['DFLOCK_REPORT'], os.O_RDWR)
size = os.fstat(fd).st_size
for change in (0, size // 2, size * 2):
    try:
        os.ftruncate(fd, change)
        print("changed")
    except PermissionError:
        pass
random.seed(int(sys.argv[2]))
os.pwrite(fd, random.randbytes(size) if sys.argv[2] != '0' else bytes([2]) * size, 0)
for i in range(3):
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.flock(file, fcntl.LOCK_UN)
print("ran")
"""
    for seed in "0", "1":
        done = reported(host, "--report", *python(text, host.path("f"), seed))
        assert (done.returncode, done.stdout) == (0, "ran\n") and done.stderr.startswith("dflock: lock calls of python3"), done
        assert reported(host, "--report", "--json", *python(text, host.path("f"), seed)).returncode == 0


@pytest.mark.root("needs root, for another user")
def test_a_program_of_another_user(host):
    """It is not counted, and works."""
    done = reported(host, "--report", "setpriv", "--reuid", "65534", "--clear-groups", "flock", "-s", "/usr/bin/env", "echo", "ran",
                    env={"DFLOCK_CONFIG": "", "HOME": host.runtime})
    assert (done.returncode, done.stdout) == (0, "ran\n") and "none that dflock saw" in done.stderr, done


def test_what_the_variable_may_name(host):
    """Nothing but a tally is mapped or written, and nothing but a /proc/PID/fd/N is opened."""
    path, fifo, log = (os.path.join(host.runtime, name) for name in ("named", "fifo", "strace"))
    tally = host.cli("run", "--report=/dev/null", "sh", "-c", f'cat "$DFLOCK_REPORT" >{path}') and bytes_of(path)
    assert len(tally) > 1000000
    os.mkfifo(fifo)
    with open(path, "r+b") as own:
        opened = f"/proc/{os.getpid()}/fd/{own.fileno()}"
        for name in path, fifo, "/dev/zero", "/proc/self/fd/../fd/0", opened:
            done = subprocess.run(["strace", "-f", "-e", "trace=open,openat", "-o", log, "env", "LD_PRELOAD=" + host.env()["LD_PRELOAD"],
                                   "DFLOCK_REPORT=" + name, "flock", host.path("f"), "echo", "ran"], env=host.plain_env(),
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
            assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
            assert (f'"{name}"' in text_of(log)) == (name == opened)
    assert bytes_of(path) == tally


# --- --require=taken ---

def test_taken(host):
    """Past the library, and of another file: what was taken is said at the end, when it is too late for a 123."""
    path, f, typo = host.path("f"), "--require=" + host.path("f"), "--require=" + host.path("typo")
    none = "took no lock on a protected file\n"
    for words, expected in ((["flock", path, "echo", "ran"], (0, "ran\n", "")),
                            (["flock", host.path("g"), "echo", "ran"], (122, "ran\n", "dflock: flock " + none)),
                            (["sh", "-c", "exit 4"], (4, "", "dflock: sh " + none))):
        done = reported(host, "--require=taken", *words)
        assert (done.returncode, done.stdout, done.stderr) == expected
    assert reported(host, f, "--require=taken", "flock", path, "true").returncode == 0
    for words in [(typo, f), (f, typo), (typo, "--require=taken")]:
        done = reported(host, *words, "echo", "ran")
        assert (done.returncode, done.stdout) == (123, "") and host.path("typo") + " is not protected" in done.stderr, done
    assert reported(host, "--require=./taken", "true", cwd=host.files).returncode == 123
    for words in (["sh", "-c", f"env -i flock -n {path} echo ran"], ["flock", host.path("h"), "echo", "ran"]):
        done = reported(host, f, "--require=taken", *words)
        assert (done.returncode, done.stdout) == (122, "ran\n"), done
        assert done.stderr.startswith(f"dflock: {words[0]} took no lock on {path} that dflock has seen"), done


def test_a_lock_file_that_the_job_removes(host, folder):
    """Its path may lead there by a link, as /var/lock does, or begin in the working directory."""
    os.symlink(host.files, os.path.join(folder, "elsewhere"))
    for file in host.path("f"), os.path.join(folder, "elsewhere/f"), "f":
        done = reported(host, "--require=" + file, "--require=taken", "flock", file, "rm", file, cwd=host.files)
        assert (done.returncode, done.stderr) == (0, ""), done


@pytest.mark.parametrize("net", [[], ["--net=on", *UNSEEN]])
def test_a_lock_that_was_busy_did_not_go_past_dflock(two, net):
    """All hosts but one end like this, each night. With -E 0 the job succeeds, as with `flock -n 9 || exit 0`."""
    path, required = two[0].path("f"), "--require=" + two[0].path("f")
    two[1].opened("f", "flock 0 ex")
    for status in (0, 1):
        for options in (["--require=taken"], [required, "--require=taken"]):
            done = reported(two[0], *options, *net, "flock", "-n", "-E", str(status), path, "echo", "ran")
            assert (done.returncode, done.stdout, done.stderr) == (status, "", ""), done
    with open(two[0].path("other"), "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        done = reported(two[0], "--require=taken", *net, "flock", "-n", "-E", "0", two[0].path("other"), "true")
    assert (done.returncode, done.stderr) == (122, "dflock: %s took no lock on a protected file\n" % (net[1:] + ["flock"])[0])


# --- DFLOCK_LOG=debug ---

def test_a_line_for_each_call(host):
    text = """
fcntl.flock(file, fcntl.LOCK_EX)
fcntl.flock(file, fcntl.LOCK_UN)
fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 10, 5)
try:
    fcntl.flock(file, 77)
except OSError:
    pass
"""
    for file, rule in [("f", 'protected by path = "%s"' % host.path("f")), ("g", "not protected")]:
        done = host.run("env", "DFLOCK_LOG=debug", *python(text, host.path(file)))
        lines = [line for line in done.stderr.splitlines() if " us" in line]
        begin = f"{host.path(file)}: "
        assert all(re.match(r"dflock: debug: pid \d+: ", line) for line in lines)
        assert [line.split(": ", 3)[3].rsplit(" after ", 1)[0] for line in lines] == [
            begin + what + "; " + rule + ";" for what in (
                "flock lock exclusive, waiting: done", "flock unlock: done", "fcntl lock shared 5-14, not waiting: done",
                "flock (no known lock call): Invalid argument")], done
