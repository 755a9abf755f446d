"""A holder that hangs in the kernel when its lease runs out does not delay the stop of others, and is not killed for it."""
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest
from harness import Job, text_of, wait_until, write_text
from harness.metrics import value
from harness.processes import children

from breaking import breaking
from jobs import frozen, grows, is_frozen, let_go, size, state

LEASE = "ttl_ms = 6000; freeze_margin_ms = 2500;"
COUNT = 40  # of processes that hang
# Writes the time to a file again and again, as long as it runs: CLOCK_MONOTONIC is the same for all hosts here.
CLOCK_JOB = """
import sys, time
out = open(sys.argv[1], "a", buffering=1)
while True:
    out.write("%d\\n" % time.monotonic_ns())
    time.sleep(0.002)  # the pace of this job: a gap between its times that is longer is a freeze
"""
# Holds the lock; N children of it go to exec a program when they read a line.
HANGING = """
import fcntl, os, sys
file, program, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
fcntl.flock(fd, fcntl.LOCK_EX)
os.set_inheritable(fd, True)
go, said = os.pipe()
for i in range(count):
    if os.fork() == 0:
        os.close(said)
        os.read(go, 1)
        os.execv(program, [program])
os.close(go)
print("held", flush=True)
sys.stdin.readline()
os.close(said)
print("gone", flush=True)
for i in range(count):
    os.wait()
    print("ended", flush=True)
sys.stdin.read()
"""


class View:
    """A FUSE file system that has a program, and does not answer from stop() to go(). What the kernel has learnt of it stays cached
    for ever."""

    def __init__(self, host):
        self.path, data = host.path("view"), host.path("data-view")
        os.mkdir(self.path)
        os.mkdir(data)
        shutil.copy("/bin/true", os.path.join(data, "program"))
        self.server = subprocess.Popen(["bindfs", "-f", "-o", "attr_timeout=3600,entry_timeout=3600", data, self.path])
        wait_until(lambda: os.path.ismount(self.path), "it is mounted")
        # Its directory entry is known, its pages are not.
        assert os.stat(os.path.join(self.path, "program")).st_mode & stat.S_IXUSR

    def stop(self):
        self.server.send_signal(signal.SIGSTOP)

    def go(self):
        self.server.send_signal(signal.SIGCONT)

    def end(self):
        subprocess.run(["umount", "-l", self.path], check=False)
        self.server.terminate()
        self.server.wait(20)


@pytest.fixture
def ground(make_host, redis, proxy):
    """Host a is behind the proxy, b is not; a has a view."""
    b = make_host("b", lease=LEASE)
    a = make_host("a", lease=LEASE, server=proxy.address).wait_up()
    view = View(a)
    yield a, b, view
    view.go()
    for agent in a.agents:
        agent.kill()
    view.end()


def times(path):
    return [int(line) for line in text_of(path).split("\n")[:-1]]


def clock_job(host, name, *how):
    path = host.path(name + ".out")
    process = host.popen("flock", *how, host.path(name), "/usr/bin/python3", "-c", CLOCK_JOB, path)
    wait_until(lambda: size(path), "the job runs")
    return process, path


def hanging(host, view, count):
    """
    A holder whose children hang in execve() when the view has stopped. The program is a script, whose interpreter is what
    hangs: only then (since Linux 6.8) the kernel has cred_guard_mutex, which PTRACE_SEIZE waits for.
    """
    script = host.path("script")
    write_text(script, "#!%s\n" % os.path.join(view.path, "program"))
    os.chmod(script, 0o755)
    holder = Job(host, "/usr/bin/python3", "-c", HANGING, host.path("hanging"), script, str(count)).held()
    view.stop()
    holder.say("")
    assert holder.line() == "gone"
    pids = wait_until(lambda: hanging_children(holder.pid, count), "they hang in execve()")
    return holder, pids


def hanging_children(pid, count):
    pids = children(pid)

    def hangs(p):
        try:
            return "fuse" in open(f"/proc/{p}/wchan").read() or "fuse" in open(f"/proc/{p}/stack").read()
        except OSError:
            return False
    return pids if len(pids) == count and all(hangs(p) for p in pids) else None


def cut(proxy):
    proxy.accepting = False
    proxy.cut()


def exclude(path, other_path):
    """The first job has not run since the second one began."""
    wait_until(lambda: size(other_path) > 1000, "the other job runs")
    first = times(other_path)[0]
    late = [t for t in times(path) if t >= first]
    assert not late, f"{len(late)} lines of the first job after the second one began"


def test_it_delays_the_stop_of_no_other_process(ground, proxy):
    """The job of host a, and then that of b, have the same lock: never both at a time, though others hang in execve(). Before that, an outage
    shorter than a ttl of the other host, in which no process is killed."""
    a, b, view = ground
    holder, pids = hanging(a, view, COUNT)
    process, path = clock_job(a, "f")
    cut(proxy)
    wait_until(lambda: "are frozen" in a.log(), "they are frozen", 20)
    assert is_frozen(path)
    proxy.accepting = True
    wait_until(lambda: "go on" in a.log(), "the leases stand", 20)
    grows(path)
    assert "killed" not in a.log()
    cut(proxy)
    other, other_path = clock_job(b, "f")  # after a ttl
    exclude(path, other_path)
    assert f"{2 + 1 + COUNT} processes that hold locks" in a.log()
    assert "could not be stopped in time" not in a.log()
    assert all(state(p) == "D" for p in pids)
    other.kill()
    process.kill()


READER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
print(len(open(sys.argv[2], "rb").read(100000)), flush=True)
sys.stdin.read()
"""


def test_the_mount_answers_while_they_are_frozen(ground, redis):
    """Not one instruction of the new program runs before the leases stand. One that waits in D for a file need not die: it is traced all the
    same, and goes on when the file can be read."""
    a, b, view = ground
    reader = Job(a, "/usr/bin/python3", "-c", READER, a.path("f"), os.path.join(view.path, "program")).held()
    holder, (pid,) = hanging(a, view, 1)
    reader.say("")
    wait_until(lambda: "fuse" in open(f"/proc/{reader.pid}/stack").read(), "it waits for the file")
    frozen(a, redis)
    assert state(pid) == state(reader.pid) == "D"
    view.go()
    wait_until(lambda: state(pid) in "tT", "it is stopped as soon as execve() has ended")
    assert os.path.realpath(f"/proc/{pid}/exe").endswith("/program")
    let_go(a, redis)
    assert holder.line() == "ended"
    assert int(reader.line()) > 1000
    assert "killed" not in a.log()


def is_killed(pid):
    """Has it ended, or a SIGKILL pending, which ends it when its mount answers?"""
    try:
        with open(f"/proc/{pid}/status") as f:
            status = f.read()
    except FileNotFoundError:
        return True
    return any(int(pending, 16) & 1 << signal.SIGKILL - 1 for pending in re.findall(r"^S..Pnd:\s*(\w+)$", status, re.M)) or state(pid) in ("Z", "X", "gone")


def test_the_keeper_ends_while_one_that_was_to_be_stopped_waits(ground, redis):
    """It cannot be let go, so the kernel kills it with its tracer: the log names it. On a busy machine its parent may have had no time to trace it,
    and has sent it SIGSTOP: then it lives."""
    a, _, view = ground
    script = 'echo held; read go; cat "$0" >/dev/null & echo $!; read line; true'
    holder = Job(a, "flock", "-o", a.path("f"), "sh", "-c", script, os.path.join(view.path, "program")).held()
    view.stop()
    holder.say("")
    pid = int(holder.line())
    wait_until(lambda: "fuse" in open(f"/proc/{pid}/stack").read(), "it waits for the file")
    frozen(a, redis)
    let_go(a, redis)
    assert state(pid) == "D"
    holder.say("")
    keepers = a.keeper_pids()
    wait_until(lambda: a.cli("stop", check=False).returncode == 0, "the keeper has ended")
    wait_until(lambda: all(state(p) in ("Z", "X", "gone") for p in keepers), "and its parent: what it has traced is killed by then")
    assert (f"pid {pid} was to be stopped, and waits in the kernel since then: it is killed" in a.log()) == is_killed(pid)


# Many processes with one table of as many descriptors as they may have: that costs the user next to nothing.
CROWD = """
import ctypes, os, resource, signal, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
os.setuid(12345)
a, b = os.pipe()
for _ in range(min(hard, 500000) - 100):
    os.dup(a)
for i in range(int(sys.argv[1])):
    if ctypes.CDLL(None).syscall({"x86_64": 56, "aarch64": 220}[os.uname().machine], 0x400 | signal.SIGCHLD, 0, 0, 0, 0) == 0:  # CLONE_FILES
        signal.pause()
print("there", flush=True)
signal.pause()
"""


# Many processes with copies of one description that has very many locks, of a file that is not protected.
LOCKS = """
import fcntl, os, signal, struct, sys, tempfile
os.setuid(12345)
f = tempfile.TemporaryFile(dir="/dev/shm")
for i in range(10000):
    fcntl.fcntl(f, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2 * i, 1, 0))  # F_OFD_SETLK
for i in range(int(sys.argv[1])):
    if os.fork() == 0:
        signal.pause()
print("there", flush=True)
signal.pause()
"""


@pytest.fixture
def crowd(request):
    """Of 500 with descriptors, unless the test says otherwise."""
    text, count = getattr(request, "param", (CROWD, "500"))
    with subprocess.Popen([sys.executable, "-c", text, count], stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout.readline() == "there\n"
        yield
        os.killpg(process.pid, signal.SIGKILL)


alone = pytest.mark.alone  # the keepers of other tests would search as long


@alone
@pytest.mark.parametrize("crowd", [(CROWD, "500"), (LOCKS, "400")], ids=["descriptors", "locks"], indirect=True)
def test_a_crowd_delays_nobody(ground, proxy, crowd):
    """Neither the stop of a process that has not the lock itself, nor its going on when the store answers again. To read what one of the
    processes with millions of locks has takes the kernel 40 ms."""
    a, b, _ = ground
    process, path = clock_job(a, "f", "-o")
    cut(proxy)
    wait_until(lambda: is_frozen(path), "it is frozen")
    proxy.accepting = True
    grows(path)
    cut(proxy)
    other, other_path = clock_job(b, "f")
    exclude(path, other_path)
    other.kill()
    process.kill()


@alone
def test_status_and_who_beside_a_crowd(ground, crowd):
    """They name the holders but for those with the most descriptors."""
    a, b, _ = ground
    process, path = clock_job(a, "f")
    for _ in range(2):
        lease, = a.status()["leases"]
        assert process.pid in [holder["pid"] for holder in lease["holders"]]
    assert f"pid {process.pid}" in a.cli("who", a.path("f")).stdout
    process.kill()


@alone
def test_a_break_beside_a_crowd_delays_nobody(ground, crowd):
    """It must know all holders, and is refused when they cannot be found in time. Until then others ask and are answered, and the lock stays."""
    a, _, _ = ground
    process, path = clock_job(a, "f")
    with breaking(a, a.path("f")) as breaks:
        wait_until(lambda: value(a, "leases", space="flock", state="breaking") == 1, "it is closed")
        assert process.pid in [holder["pid"] for holder in json.loads(a.cli("status", "--json").stdout)["leases"][0]["holders"]]
        assert breaks.wait(20) == 1
        assert "could not do it" in breaks.stderr.read()
    grows(path)
    process.kill()


@alone
def test_a_crowd_delays_no_stop_after_the_deadline(ground, crowd):
    """Parent and keeper did not run for a ttl, and no deadline bounds the search any more. What a holder has started, without the lock
    itself, is stopped before the search has ended."""
    a, b, _ = ground
    process, path = clock_job(a, "f", "-o")
    parent, keeper = a.keeper_pids()
    for pid in (keeper, parent):
        os.kill(pid, signal.SIGSTOP)
    other, other_path = clock_job(b, "f")  # after a ttl
    grows(path)
    begin = time.monotonic_ns()
    os.kill(parent, signal.SIGCONT)
    wait_until(lambda: is_frozen(path), "it is stopped, or has ended", 10)
    late = (times(path)[-1] - begin) / 1e9
    assert late < 2, f"it ran for {late} s"
    other.kill()
    process.kill()
