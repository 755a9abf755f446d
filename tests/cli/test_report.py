"""`dflock run --report` and --require=taken: what a job locked. Programs of all kinds, from unusual places."""
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from harness import BUILD, bytes_of, wait_until, write_text
from harness.processes import children

PLACES = os.path.join(BUILD, "tests", "interpose", "places")


@pytest.fixture
def host(make_host):
    return make_host("a", rules='{ path = "%s/f"; name = "t"; }', lease="ttl_ms = 5000;")


class Report:
    """A job to its end, and what its report says: {(file, program, space): counts}."""

    def __init__(self, host, *job, options=(), **more):
        self.file = os.path.join(host.runtime, "report.json")
        self.done = subprocess.run([os.path.join(BUILD, "dflock"), "run", "--report=" + self.file, "--json", *options, "--", *job],
                                   env=environment(host), capture_output=True, text=True, timeout=60, **more)
        with open(self.file) as f:
            self.all = json.load(f)
        self.rows = {(os.path.basename(row["file"]), row["program"], row["space"]): row for row in self.all["files"]}

    def row(self, file, program, space="flock"):
        assert (file, program, space) in self.rows, (self.rows.keys(), self.done)
        return self.rows[file, program, space]


def environment(host):
    env = host.env()
    env.pop("LD_PRELOAD", None)
    return env


def has(row, **counts):
    """These counts, and no others."""
    names = ("calls", "taken", "taken_unprotected", "busy", "refused", "failed", "not_ended", "tests", "tests_found", "unlocks")
    assert {name: row[name] for name in names if row[name]} == counts, row
    return row


PYTHON = "import fcntl, os, signal, sys\nfile = open(sys.argv[1], 'a+')\n"


def python(text, *arguments):
    return ["python3", "-c", PYTHON + text, *arguments]


# --- what the net catches ---

UNSEEN = ["env", "-u", "LD_PRELOAD", "-u", "DFLOCK_REPORT"]


@pytest.fixture
def two(make_host):
    return [make_host(name, rules='{ path = "%s/f"; name = "t"; }', lease="ttl_ms = 5000;") for name in "ab"]


def test_what_the_net_catches(two):
    """By programs without the preload. One call is granted, and one fails, since another host has the lock."""
    path = two[0].path("f")
    with open(path, "w"), open(two[0].path("other"), "w"):
        pass
    granted = Report(two[0], *UNSEEN, "flock", path, "true", options=["--net=on"])
    row = has(granted.row("f", "flock"))
    assert (row["caught"], row["caught_failed"], row["lock"]) == (1, 0, "t")
    assert len(granted.all["files"]) == 1
    holder = two[1].opened("f", "flock 0 ex")
    busy = Report(two[0], *UNSEEN, "flock", "-n", path, "true", options=["--net=on"])
    row = has(busy.row("f", "flock"))
    assert (busy.done.returncode, row["caught"], row["caught_failed"], row["caught_busy"]) == (1, 0, 1, 1)


def test_a_lock_that_the_net_let_go_on_is_taken(two):
    path = two[0].path("f")
    for file, status in ((path, 0), (two[0].path("other"), 122)):
        done = subprocess.run([os.path.join(BUILD, "dflock"), "run", "--net=on", "--require=taken", "--", *UNSEEN, "flock", file, "true"],
                              env=environment(two[0]), capture_output=True, text=True, timeout=60)
        assert done.returncode == status, done


@pytest.mark.parametrize("where", ["this host", "host b"])
@pytest.mark.parametrize("how", [["-n"], ["-w", "3"]], ids=["fails", "waits"])
def test_verbose_below_the_net(two, how, where):
    """The line that says who has the lock: once, and the call's result is the same."""
    holder = two[where == "host b"].opened("f", "flock 0 ex")
    done = subprocess.run([os.path.join(BUILD, "dflock"), "run", "--net=on", "--verbose", "--", *UNSEEN, "flock", *how, two[0].path("f"), "true"],
                          env=environment(two[0]), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and re.fullmatch(rf".*/f: held by {where}.* pid {holder.pid} \(agent\).*\n", done.stderr), done


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


def test_for_people(host):
    done = host.cli("run", "--report", "sh", "-c", 'flock "$0" flock "$1" true; exit 3', host.path("f"), host.path("g"), check=False)
    assert (done.returncode, done.stdout) == (3, ""), done
    lines = done.stderr.splitlines()
    assert lines[0] == "dflock: lock calls of sh:" and lines[1].split() == \
        ["FILE", "PROGRAM", "LOCK", "PROTECTED", "AS", "CALLS", "RESULT", "WAITED", "HELD"], done
    assert lines[2].split()[:7] == [host.path("f"), "flock", "flock", "t", "1", "1", "taken"], done
    assert lines[2].endswith("until closed") and lines[3].split()[:5] == [host.path("g"), "flock", "flock", "no", "1"], done
    assert "dflock.conf(5)" in lines[4] and "dflock doctor PROGRAM" in lines[5] and len(lines) == 6


def test_a_lock_without_a_file(host):
    report = Report(host, os.path.join(BUILD, "dflock"), "lock", "nightly", "echo", "ran")
    assert report.done.stdout == "ran\n" and has(report.row("nightly", "flock"), calls=1, taken=1)["lock"] == "lock:nightly"


def test_no_lock_at_all(host):
    done = host.cli("run", "--report", "true")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("dflock: lock calls of true: none that dflock saw\n"), done


def test_names_that_are_no_text(host):
    """A file's name may contain anything."""
    name = os.path.join(os.fsencode(host.files), b"\xff\x1b[31m\n")
    report = Report(host, "flock", name, "true")
    assert [row["file"] for row in report.all["files"]] == [host.path(r"\xff\x1b[31m\x0a")], report.all
    done = host.cli("run", "--report", "flock", name, "true")
    assert "\x1b" not in done.stderr and r"\xff\x1b[31m\x0a" in done.stderr, done


def test_waiting_and_busy(host, make_host):
    other = make_host("b", rules='{ path = "%s/f"; name = "t"; }', lease="ttl_ms = 5000;")
    holder = other.agent()
    assert holder.do("open 1 %s rwc" % other.path("f")) == "ok" and holder.do("flock 1 ex") == "ok"
    row = has(Report(host, "flock", "-n", host.path("f"), "true").row("f", "flock"), calls=1, busy=1)
    assert row["held"] == 0
    file = os.path.join(host.runtime, "waited")
    job = subprocess.Popen([os.path.join(BUILD, "dflock"), "run", "--report=" + file, "--json", "flock", host.path("f"), "true"],
                           env=environment(host))
    wait_until(lambda: any(lease["waiting"] for lease in host.status()["leases"]), "the job waits")
    since = time.monotonic()
    wait_until(lambda: time.monotonic() > since + 0.05, "some time has passed")
    waited_ms = (time.monotonic() - since) * 1000
    assert holder.do("flock 1 un") == "ok" and job.wait(30) == 0
    with open(file) as f:
        row = has(json.load(f)["files"][0], calls=1, taken=1)
    assert row["waited_ms"] >= int(waited_ms) and row["waited_max_ms"] == row["waited_ms"], (row, waited_ms)


def test_a_call_that_is_refused(host, redis):
    assert host.run("flock", host.path("g"), "true").returncode == 0
    redis.stop()
    wait_until(lambda: not host.status()["store"]["up"], "the keeper has noticed")
    report = Report(host, "flock", "-n", host.path("f"), "true")
    assert report.done.returncode != 0 and "is not reachable" in report.done.stderr
    has(report.row("f", "flock"), calls=1, refused=1)


def test_a_call_that_never_ended(host):
    """The kernel ends the process in it."""
    text = """
holder = open(sys.argv[1], 'a+')
fcntl.flock(holder, fcntl.LOCK_EX)
pid = os.fork()
if pid == 0:
    signal.alarm(0)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    fcntl.flock(file, fcntl.LOCK_EX)
    os._exit(0)
assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGALRM
"""
    has(Report(host, *python(text, host.path("g"))).row("g", "python3"), calls=2, taken_unprotected=1, not_ended=1)


# --- where calls come from ---

@pytest.mark.parametrize("file", ["f", "g"])
@pytest.mark.parametrize("where", ["constructor", "handler", "fork", "vfork"])
def test_places(host, where, file):
    """Two locks and an unlock, by a constructor that runs before the library's, in a handler with a small stack, in a child."""
    report = Report(host, PLACES, where, host.path(file))
    taken = {"taken" if file == "f" else "taken_unprotected": 2}
    row = has(report.row(file, "places"), calls=2, unlocks=1, **taken)
    assert row["held"] == 1 and report.done.returncode == 0 and report.done.stderr == "", report.done
    assert "open: 0 1 2\n" in report.done.stdout, report.done.stdout


def test_many_threads(host):
    """Each call is counted: 8 threads, 200 times an exclusive and a shared lock, and in children while they run."""
    row = Report(host, PLACES, "threads", host.path("g")).row("g", "places")
    assert row["calls"] == 3200 and row["taken_unprotected"] + row["busy"] == 3200 and row["unlocks"] == 1600, row
    assert row["held"] <= 1600


def test_many_processes(host):
    text = 'for i in $(seq 40); do (for j in 1 2 3; do flock "$0" flock -s "$1" true; done) & done; wait'
    report = Report(host, "sh", "-c", text, host.path("f"), host.path("g"))
    has(report.row("f", "flock"), calls=120, taken=120)
    has(report.row("g", "flock"), calls=120, taken_unprotected=120)


def test_a_job_that_closes_all_descriptors(host):
    text = "os.closerange(3, 1000); fd = os.open(sys.argv[1], os.O_RDWR)\n" \
           "assert sorted(os.listdir('/proc/self/fd')) == ['0', '1', '2', '3', '4']; fcntl.flock(fd, fcntl.LOCK_EX)"
    report = Report(host, *python(text, host.path("f")))
    has(report.row("f", "python3"), calls=1, taken=1)
    assert report.done.returncode == 0, report.done


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "2>&-"])
def test_a_job_without_standard_descriptors(host, closed):
    """Neither the tally nor the report may be what is written to as standard output or error, by the job or by dflock."""
    file = os.path.join(host.runtime, "report")
    done = subprocess.run(["sh", "-c", '"$@" ' + closed, "sh", os.path.join(BUILD, "dflock"), "run", "--report=" + file, "--json",
                           "--require=taken", "flock", host.path("g"), "sh", "-c", "ls -l /proc/$$/fd >\"$0.fds\"; echo no >&2; true", file],
                          env=environment(host), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert done.returncode == 122
    with open(file) as f:
        has(json.load(f)["files"][0], calls=1, taken_unprotected=1)
    with open(file + ".fds") as f:
        text = f.read()
        assert "/dev/null" not in text and "report" not in text.replace(file + ".fds", ""), text


def test_a_job_that_changes_its_root(host):
    text = """
fcntl.flock(file, fcntl.LOCK_EX)
os.chroot(os.path.dirname(sys.argv[1]))
file = open('/inside', 'a+')
try:
    fcntl.flock(file, fcntl.LOCK_EX)
except OSError as e:
    print(e.errno)
"""
    report = Report(host, *python(text, host.path("g")))
    has(report.row("g", "python3"), calls=1, taken_unprotected=1)
    assert sum(row["calls"] for row in report.all["files"]) == 2, report.all


def test_a_job_that_changes_its_user(host):
    text = "fcntl.flock(file, fcntl.LOCK_SH); os.setgid(65534); os.setuid(65534); fcntl.flock(file, fcntl.LOCK_EX)"
    has(Report(host, *python(text, host.path("g"))).row("g", "python3"), calls=2, taken_unprotected=2)


def test_record_locks(host):
    text = """
fcntl.lockf(file, fcntl.LOCK_EX, 10)
fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 10, 100)
fcntl.lockf(file, fcntl.LOCK_UN, 10)
os.lockf(file.fileno(), os.F_TEST, 0)
import struct
fcntl.fcntl(file, fcntl.F_GETLK, struct.pack('hhqqi', fcntl.F_WRLCK, 0, 0, 0, 0))
"""
    row = has(Report(host, *python(text, host.path("f"))).row("f", "python3", "record"), calls=2, taken=2, unlocks=1, tests=2)
    assert row["held"] == 1


def test_locks_that_are_in_the_way_of_a_question(two):
    """F_GETLK and F_TEST succeed; qemu, which asks so, then refuses to start."""
    text = """
import struct
ask = lambda first: fcntl.fcntl(file, fcntl.F_GETLK, struct.pack('hhqqi', fcntl.F_WRLCK, 0, first, 1, 0))
ask(5), ask(50), ask(500)
try:
    os.lseek(file.fileno(), 5, 0), os.lockf(file.fileno(), os.F_TEST, 1)
except PermissionError:
    pass
"""
    for host, first in ((two[0], 5), (two[1], 50)):
        holder = host.opened("f", f"setlk 0 ex {first} 1")
    job = python(text, two[0].path("f"))
    has(Report(two[0], *job).row("f", "python3", "record"), tests=4, tests_found=3)
    assert "1 tested, 3 tested and a lock found" in two[0].cli("run", "--report", *job).stderr


def test_sqlite(host):
    report = Report(host, "sqlite3", host.path("g"), "create table t (n); insert into t values (1); select n from t;")
    assert report.done.stdout == "1\n"
    row = report.row("g", "sqlite3", "record")
    assert row["taken_unprotected"] == row["calls"] > 2 and row["held"] > 0 and not row["failed"], row


# --- how it ends ---

def reported(host, *words, **more):
    return subprocess.run([os.path.join(BUILD, "dflock"), "run", *words], env=environment(host), capture_output=True, text=True, timeout=60,
                          **more)


def test_the_status_is_the_jobs(host):
    file = "--report=" + os.path.join(host.runtime, "r")
    assert reported(host, file, "sh", "-c", "exit 7").returncode == 7
    assert reported(host, file, "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    assert reported(host, file, "sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL
    done = reported(host, file, "no-such-program")
    assert (done.returncode, done.stderr) == (127, "dflock: cannot run no-such-program: No such file or directory\n")
    assert reported(host, file, host.config).returncode == 126
    assert reported(host, "--json", "true").returncode == 125


def test_a_file_that_cannot_be_written(host):
    done = reported(host, "--report=" + host.path("missing/report"), "echo", "ran")
    assert (done.returncode, done.stdout) == (125, "") and done.stderr.count("\n") == 1, done
    assert "not started: the report cannot be written to " + host.path("missing/report") in done.stderr


def test_a_disk_that_is_full(host):
    """The job has run; nothing that is said of it changes its status."""
    done = reported(host, "--report=/dev/full", "sh", "-c", 'flock "$0" echo ran', host.path("f"))
    assert (done.returncode, done.stdout) == (0, "ran\n") and done.stderr.count("\n") == 1, done
    assert "the report could not be written to /dev/full: No space left on device" in done.stderr


def test_an_earlier_report_is_replaced(host):
    file = os.path.join(host.runtime, "r")
    write_text(file, "x" * 100000)
    assert reported(host, "--report=" + file, "no-such-program").returncode == 127
    assert os.stat(file).st_size == 100000
    assert reported(host, "--report=" + file, "true").returncode == 0
    with open(file) as f:
        assert "none that dflock saw" in f.read(1000) and os.stat(file).st_size < 1000


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
    job = subprocess.Popen([os.path.join(BUILD, "dflock"), "run", "--report=" + os.path.join(host.runtime, "r"), sys.executable, "-c", text,
                            ready], env=environment(host), stdout=subprocess.PIPE, text=True, start_new_session=True)
    wait_until(lambda: os.path.exists(ready), "the job runs")
    os.kill(job.pid, signal.SIGUSR1)
    wait_until(lambda: os.path.exists(ready + "2"), "the job has signalled its group")
    os.kill(job.pid, signal.SIGTERM)
    assert job.communicate(timeout=30)[0] == "USR1 USR2\n" and job.returncode == 3


def test_an_alarm_that_was_set_before(host):
    """perl -e 'alarm 1; exec @ARGV' JOB: the job must end by it, and not dflock alone, or nothing."""
    done = reported(host, "--report", "sleep", "60", preexec_fn=lambda: signal.setitimer(signal.ITIMER_REAL, 0.3))
    assert done.returncode == -signal.SIGALRM and "none that dflock saw" in done.stderr, done


def test_a_signal_from_outside_of_the_pid_namespace(host):
    ready = os.path.join(host.runtime, "ready")
    job = subprocess.Popen(["unshare", "--pid", "--fork", "--mount-proc", os.path.join(BUILD, "dflock"), "run", "--report", "sh", "-c",
                            'trap "echo got it; exit 3" TERM; touch "$0"; while :; do sleep 60 & wait; done', ready], env=environment(host),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: os.path.exists(ready), "the job runs")
    os.kill(children(job.pid)[0], signal.SIGTERM)
    out, err = job.communicate(timeout=30)
    assert (job.returncode, out) == (3, "got it\n") and err.startswith("dflock: lock calls of sh"), (job.returncode, out, err)


def test_dflock_is_killed(host):
    """The job goes on, and so do the programs that it starts later."""
    ready = os.path.join(host.runtime, "ready")
    text = 'exec 9>"$1"; flock 9; touch "$0"; read line <"$0.fifo"; flock -u 9; flock "$1" echo done >"$0.out"'
    os.mkfifo(ready + ".fifo")
    job = subprocess.Popen([os.path.join(BUILD, "dflock"), "run", "--report", "sh", "-c", text, ready, host.path("f")],
                           env=environment(host))
    wait_until(lambda: os.path.exists(ready), "the job has its lock")
    job.kill()
    job.wait()
    write_text(ready + ".fifo", "go\n")
    wait_until(lambda: os.path.exists(ready + ".out") and open(ready + ".out").read() == "done\n", "the job has ended")


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


def test_a_program_of_another_user(host):
    """It is not counted, and works."""
    env = {**environment(host), "DFLOCK_CONFIG": "", "HOME": host.runtime}
    done = subprocess.run([os.path.join(BUILD, "dflock"), "run", "--report", "setpriv", "--reuid", "65534", "--clear-groups", "flock",
                           "-s", "/usr/bin/env", "echo", "ran"], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "ran\n") and "none that dflock saw" in done.stderr, done


def test_a_child_that_is_ignored(host):
    """A parent may have left SIGCHLD ignored."""
    done = reported(host, "--report", "sh", "-c", "exit 5", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert done.returncode == 5 and "none that dflock saw" in done.stderr, done


@pytest.mark.parametrize("hostile", ["file", "fifo", "device", "descriptor", "other"])
def test_what_the_variable_may_name(host, hostile):
    """Nothing but a tally is mapped or written, and nothing but a /proc/PID/fd/N is opened."""
    path = os.path.join(host.runtime, "named")
    tally = subprocess.run([os.path.join(BUILD, "dflock"), "run", "--report=/dev/null", "sh", "-c", 'cat "$DFLOCK_REPORT"'],
                           env=environment(host), capture_output=True).stdout
    assert len(tally) > 1000000
    with open(path, "wb") as f:
        f.write(tally)
    own = os.open(path, os.O_RDWR)
    if hostile == "fifo":
        path = os.path.join(host.runtime, "fifo")
        os.mkfifo(path)
    name = {"device": "/dev/zero", "descriptor": f"/proc/{os.getpid()}/fd/{own}", "other": "/proc/self/fd/../fd/0"}.get(hostile, path)
    log = os.path.join(host.runtime, "strace")
    done = subprocess.run(["strace", "-f", "-e", "trace=open,openat", "-o", log, "env", "LD_PRELOAD=" + host.env()["LD_PRELOAD"],
                           "DFLOCK_REPORT=" + name, "flock", host.path("f"), "echo", "ran"], env=environment(host),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    with open(log) as f:
        assert (f'"{name}"' in f.read()) == (hostile == "descriptor")
    os.close(own)
    assert bytes_of(os.path.join(host.runtime, "named")) == tally


# --- --require=taken ---

def test_taken(host):
    done = reported(host, "--require=taken", "flock", host.path("f"), "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    done = reported(host, "--require=taken", "flock", host.path("g"), "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (122, "ran\n", "dflock: flock took no lock on a protected file\n")
    done = reported(host, "--require=taken", "sh", "-c", "exit 4")
    assert (done.returncode, done.stderr) == (4, "dflock: sh took no lock on a protected file\n")


def test_taken_and_files(host):
    f, typo = "--require=" + host.path("f"), "--require=" + host.path("typo")
    assert reported(host, f, "--require=taken", "flock", host.path("f"), "true").returncode == 0
    for words in [(typo, f), (f, typo), (typo, "--require=taken")]:
        done = reported(host, *words, "echo", "ran")
        assert (done.returncode, done.stdout) == (123, "") and host.path("typo") + " is not protected" in done.stderr, done
    assert reported(host, "--require=./taken", "true", cwd=host.files).returncode == 123
    # Past the library, and of another file: what was taken is said at the end, when it is too late for a 123.
    for words in (["sh", "-c", f"env -i flock -n {host.path('f')} echo ran"], ["flock", host.path("h"), "echo", "ran"]):
        done = reported(host, f, "--require=taken", *words)
        assert (done.returncode, done.stdout) == (122, "ran\n"), done
        assert done.stderr.startswith(f"dflock: {words[0]} took no lock on {host.path('f')} that dflock has seen"), done


@pytest.mark.parametrize("net", [[], ["--net=on", *UNSEEN]])
def test_a_lock_that_was_busy_did_not_go_past_dflock(two, net):
    """All hosts but one end like this, each night. With -E 0 the job succeeds, as with `flock -n 9 || exit 0`."""
    holder, path, required = two[1].agent(), two[0].path("f"), "--require=" + two[0].path("f")
    assert holder.do(f"open 0 {two[1].path('f')} rwc") == "ok" and holder.do("flock 0 ex") == "ok"
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
        done = subprocess.run(python(text, host.path(file)), env={**host.env(), "DFLOCK_LOG": "debug"}, capture_output=True, text=True)
        lines = [line for line in done.stderr.splitlines() if " us" in line]
        begin = f"{host.path(file)}: "
        assert all(re.match(r"dflock: debug: pid \d+: ", line) for line in lines)
        assert [line.split(": ", 3)[3].rsplit(" after ", 1)[0] for line in lines] == [
            begin + what + "; " + rule + ";" for what in (
                "flock lock exclusive, waiting: done", "flock unlock: done", "fcntl lock shared 5-14, not waiting: done",
                "flock (no known lock call): Invalid argument")], done
