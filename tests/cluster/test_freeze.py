"""A lease that cannot be renewed: its holders, and all that they started, are stopped in time, and go on or are killed."""
import os
import pty
import signal
import time

import pytest
from harness import Job, wait_until
from harness.proxy import Proxy

from test_flock import held, opened

JOB = 'trap "" INT; echo $$ >>"$1.pid"; while :; do echo >>"$1"; read -t 0.01 <> <(:); done'
# Who is not stopped in half of the margin is killed, which happens where too many programs run at once.
LEASE = "ttl_ms = 3000; freeze_margin_ms = 1300;"
# For a parent that is traced, which makes its search slow.
SLOW_LEASE = "ttl_ms = 12000; freeze_margin_ms = 5000;"


def job(host, *how, out="out"):
    """A job under flock(1) that writes a line to a file again and again."""
    path = host.path("job." + out)
    process = host.popen("flock", *how, host.path("f"), "bash", "-c", JOB, "job", path)
    wait_until(lambda: size(path) > 3, "the job runs")
    return process, path


def size(path):
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def state(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "gone"


def is_frozen(path):
    before = size(path)
    time.sleep(0.2)  # a running job writes some 20 lines in that time; nothing but waiting can show that it does not
    return size(path) == before


def grows(path):
    before = size(path)
    wait_until(lambda: size(path) > before, "the job goes on")


@pytest.fixture
def proxy(redis, folder):
    p = Proxy(redis, folder)
    yield p
    p.stop()


@pytest.mark.parametrize("how", [(), ("-o",), ("-s",)])
def test_frozen_through_an_outage_and_nothing_lost(make_host, redis, how):
    a = make_host("a", lease=LEASE)
    process, path = job(a, *how)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "the job is frozen", 40)
    assert is_frozen(path)
    pid = int(open(path + ".pid").read())
    assert state(pid) in "tT"
    os.kill(pid, signal.SIGCONT)  # does not wake it
    assert is_frozen(path)
    assert a.status()["frozen"] >= 1
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in a.log(), "the job is let go", 20)
    grows(path)
    assert process.poll() is None
    assert not a.status()["lost"]
    os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=20)


def test_killed_when_another_host_got_it(make_host, redis, proxy):
    """Host a is cut off; b takes over after a ttl. When a is back, its job must not run one more instruction."""
    b = make_host("b", lease=LEASE)
    a = make_host("a", lease=LEASE, server=proxy.address).wait_up()
    process, path = job(a)
    proxy.accepting = False
    proxy.cut()
    other = opened(b)
    assert other.do("flock 0 ex", seconds=20) == "ok"  # after the ttl ...
    assert state(int(open(path + ".pid").read())) in "tT"  # ... and after a's job was stopped
    last = size(path)
    proxy.accepting = True
    wait_until(lambda: process.poll() is not None, "the job is killed", 20)
    assert size(path) == last
    assert a.status()["lost"]
    assert "is killed" in a.log()


def test_stop_is_refused_while_they_are_frozen(make_host, redis):
    """Ending the keeper would end them."""
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "frozen", 40)
    wait_until(lambda: not a.status()["store"]["up"], "the store counts as down", 20)
    stop = a.cli("stop", check=False)
    assert stop.returncode != 0 and "not reachable" in stop.stderr
    redis.signal(signal.SIGCONT)
    grows(path)
    os.kill(int(open(path + ".pid").read()), signal.SIGKILL)
    process.communicate(timeout=20)


@pytest.mark.parametrize("name", ["setlk 0 ex 0 10", "setlk 0 ex 0 10 ofd"])
def test_record_holders_too(make_host, redis, name):
    a = make_host("a", lease=LEASE)
    agent = opened(a)
    assert agent.do(name) == "ok"
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: state(agent.pid) in "tT", "the holder is frozen", 10)
    redis.signal(signal.SIGCONT)
    assert agent.do("pid") == "ok"


def test_threads_and_inherited_descriptors(make_host, redis):
    """The holder is a shell that never called flock(); its children, and theirs, are stopped with it."""
    a = make_host("a", lease=LEASE)
    path = a.path("job.out")
    script = f'exec 9>"$1"; flock 9; (bash -c "$2" job "$3") & bash -c "$2" job "$3" & wait'
    process = a.popen("bash", "-c", script, "shell", a.path("f"), JOB, path)
    wait_until(lambda: size(path + ".pid") and len(open(path + ".pid").read().split()) == 2, "both children run")
    pids = [int(p) for p in open(path + ".pid").read().split()] + [process.pid]
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: all(state(p) in "tT" for p in pids), "all are frozen", 10)
    assert is_frozen(path)
    redis.signal(signal.SIGCONT)
    grows(path)
    for p in pids:
        os.kill(p, signal.SIGKILL)
    process.communicate(timeout=20)


def test_who_was_stopped_before_stays_so(make_host, redis):
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    pid = int(open(path + ".pid").read())
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state(pid) == "T", "it is stopped")
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "frozen", 40)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in a.log(), "let go", 20)
    wait_until(lambda: state(pid) == "T", "it is stopped as before")
    assert is_frozen(path)
    os.kill(pid, signal.SIGCONT)
    grows(path)
    os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=20)


def test_on_lost_kill(make_host, redis):
    a = make_host("a", lease=LEASE + ' on_lost = "kill";')
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: process.poll() is not None, "the job is ended", 10)
    redis.signal(signal.SIGCONT)
    assert "SIGTERM" in a.log()


def test_on_lost_warn(make_host, redis):
    a = make_host("a", lease=LEASE + ' on_lost = "warn";')
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "run out" in a.log(), "the warning", 10)
    wait_until(lambda: a.status()["leases"][0]["state"] == "unsure", "the deadline has passed", 10)
    grows(path)
    redis.signal(signal.SIGCONT)
    os.kill(int(open(path + ".pid").read()), signal.SIGKILL)
    process.communicate(timeout=20)


def test_a_keeper_that_dies_while_they_are_frozen(make_host, redis):
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "frozen", 40)
    old = a.keeper_pids()[-1]
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: len(a.keeper_pids()) == 2 and a.keeper_pids()[-1] != old, "the next keeper")
    assert is_frozen(path)
    redis.signal(signal.SIGCONT)
    grows(path)
    os.kill(int(open(path + ".pid").read()), signal.SIGKILL)
    process.communicate(timeout=20)


def test_a_parent_that_dies_takes_the_frozen_with_it(make_host, redis):
    """EXITKILL: nobody would watch them for a moment. The next keeper and parent take over all the same."""
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "frozen", 40)
    old = a.keeper_pids()
    os.kill(old[0], signal.SIGKILL)
    wait_until(lambda: process.poll() is not None, "the holder is killed", 10)
    wait_until(lambda: len(a.keeper_pids()) == 2 and not set(a.keeper_pids()) & set(old), "the next keeper and parent")
    assert "held frozen died with it" in a.log()
    redis.signal(signal.SIGCONT)
    other = opened(a)
    assert other.do("flock 0 ex") == "ok"


@pytest.mark.parametrize("again", [False, True])
def test_told_to_end_while_they_are_frozen(make_host, redis, again):
    """It waits until the leases stand and their locks end, for its end would be theirs. Unless it is told twice."""
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "frozen", 40)
    a.keeper.send_signal(signal.SIGTERM)
    wait_until(lambda: "told to end: waits" in a.log(), "it says what it waits for")
    assert is_frozen(path) and process.poll() is None
    if again:
        wait_until(lambda: a.keeper.send_signal(signal.SIGTERM) or a.keeper.poll() is not None, "it ends at once")
        wait_until(lambda: process.poll() is not None, "the holder ends with it")
        assert "end with the keeper's parent" in a.log()
        redis.signal(signal.SIGCONT)
        return
    redis.signal(signal.SIGCONT)
    grows(path)
    assert a.keeper.poll() is None
    os.kill(int(open(path + ".pid").read()), signal.SIGKILL)
    process.communicate(timeout=20)
    assert a.keeper.wait(20) == 0


# --- holders that are hard to find ---

HIDDEN = """
import ctypes, fcntl, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
fd = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 4096)
fcntl.flock(fd, fcntl.LOCK_EX)
if sys.argv[1] == "mapping":
    assert libc.mmap(None, 4096, 1, 1, fd, 0) != ctypes.c_void_p(-1).value
else:
    pair = socket.socketpair()
    socket.send_fds(pair[0], [b"x"], [fd])
os.close(fd)
print("held", flush=True)
while sys.stdin.readline():
    print("runs", flush=True)
"""


def hidden(host, how):
    job = Job(host, "/usr/bin/python3", "-c", HIDDEN, how, host.path("f"))
    assert job.line() == "held"
    return job


def test_a_holder_that_has_only_a_mapping(make_host, redis):
    """The lock lives on in it when the descriptor is closed."""
    a = make_host("a", lease=LEASE)
    job = hidden(a, "mapping")
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: state(job.pid) in "tT", "the holder is frozen", 10)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in a.log(), "it is let go", 20)
    job.say("")
    assert job.line() == "runs"


def test_a_lock_on_its_way_through_a_socket(make_host, redis):
    """Whoever will receive it is nobody's holder yet: that is said, in the log and in status."""
    a = make_host("a", lease=LEASE)
    job = hidden(a, "message")
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "no process can be stopped for it" in a.log(), "it is said", 10)
    wait_until(lambda: held(a, note="cannot be renewed; held, but no holder can be stopped"), "status says so, too")
    assert a.log().count("no process can be stopped for it") == 1
    redis.signal(signal.SIGCONT)
    wait_until(lambda: held(a, state="held", note=""), "the lease stands")
    job.say("")
    assert job.line() == "runs"


# --- whoever it may be ---

def outage(host, redis, pids):
    """All these are frozen, and go on."""
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: all(state(p) in "tT" for p in pids), "all are frozen", 10)
    wait_until(lambda: "are frozen" in host.log(), "and that is said", 10)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in host.log(), "they are let go", 20)
    assert not any(state(p) in "tT" for p in pids)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(p) for p in f.read().split()]


@pytest.mark.parametrize("lost", [False, True], ids=["the lease stands", "it is lost"])
def test_the_first_process_of_a_container(make_host, redis, proxy, lost):
    """It is process 1 of its own pid namespace, where signals do less than elsewhere."""
    b = make_host("b", lease=LEASE)
    a = make_host("a", lease=LEASE, server=proxy.address if lost else redis).wait_up()
    path = a.path("job.out")
    script = 'exec 9>"$1"; flock 9; test $$ = 1 || exit 1; ' + JOB.replace('"$1', '"$2')
    process = a.popen("unshare", "--pid", "--fork", "bash", "-c", script, "job", a.path("f"), path)
    wait_until(lambda: size(path) > 3, "the job runs")
    first, = children(process.pid)
    if not lost:
        outage(a, redis, [first])
        grows(path)
        os.kill(first, signal.SIGKILL)
    else:
        proxy.accepting = False
        proxy.cut()
        assert opened(b).do("flock 0 ex", seconds=20) == "ok"
        last = size(path)
        proxy.accepting = True
        wait_until(lambda: state(first) in ("Z", "gone"), "it is killed", 20)
        assert size(path) == last
    process.communicate(timeout=20)


def test_a_pipeline(make_host, redis):
    """Its processes have the lock by inheritance, or not at all; none of them is the other's parent."""
    a = make_host("a", lease=LEASE)
    path = a.path("job.out")
    script = 'flock 9; (while :; do echo x; read -t 0.01 <> <(:); done) | cat | (exec 9>&-; cat >"$1"; :)'
    process = a.popen("bash", "-c", "exec 9>\"$2\"; " + script, "pipeline", path, a.path("f"))
    wait_until(lambda: size(path) > 3, "the pipeline runs")
    members = children(process.pid)
    assert len(members) == 3
    outage(a, redis, [process.pid, *members])
    grows(path)
    for pid in (process.pid, *members):
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=20)


class Terminal:
    """An interactive bash with job control."""

    def __init__(self, host):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], {**host.env(), "PS1": "ready> ", "HISTFILE": ""})
        os.set_blocking(self.fd, False)
        self.text = ""
        self.shows("ready> ")

    def read(self):
        try:
            self.text += os.read(self.fd, 65536).decode(errors="replace")
        except OSError:
            pass
        return self.text

    def shows(self, text):
        wait_until(lambda: text in self.read(), f"the terminal shows {text!r}")

    def type(self, line):
        os.write(self.fd, line.encode() + b"\n")

    def end(self):
        for pid in [*children(self.pid), self.pid]:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.mark.parametrize("line", ["flock {f} bash {job} {out}", "flock {f} bash {job} {out} &",
                                  "exec 9>{f}; flock 9; bash {job} {out} &", "exec 9>{f}; flock 9; bash {job} {out}"],
                         ids=["in front", "behind", "the shell has it, behind", "the shell has it, in front"])
def test_an_interactive_shell(make_host, redis, line):
    """With job control: it does not see that its job is stopped, and the terminal stays whose it was."""
    a = make_host("a", lease=LEASE)
    path, script = a.path("job.out"), a.path("job.sh")
    with open(script, "w") as f:
        f.write(JOB)
    terminal = Terminal(a)
    terminal.type(line.format(f=a.path("f"), job=script, out=path))
    wait_until(lambda: size(path) > 3, "the job runs")
    foreground = os.tcgetpgrp(terminal.fd)
    job = int(open(path + ".pid").read())
    outage(a, redis, [job, *([terminal.pid] if "exec" in line else [])])
    grows(path)
    assert os.tcgetpgrp(terminal.fd) == foreground
    os.kill(job, signal.SIGKILL)
    terminal.type("echo still $((40 + 2))")
    terminal.shows("still 42")
    assert "Stopped" not in terminal.text and "Suspended" not in terminal.text
    terminal.end()


def without_ptrace(host):
    """The parent's ptrace() fails from now on, so that it must do with SIGSTOP."""
    parent = host.keeper_pids()[0]
    trace = host.popen("strace", "-qq", "-o", "/dev/null", "-e", "inject=ptrace:error=EPERM", "-p", str(parent))
    wait_until(lambda: f"TracerPid:\t{trace.pid}\n" in open(f"/proc/{parent}/status").read(), "the parent is traced")
    return parent, trace


def test_sigstop_where_ptrace_is_refused(make_host, redis):
    a = make_host("a", lease=SLOW_LEASE)
    process, path = job(a)
    without_ptrace(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "frozen", 40)
    pid = int(open(path + ".pid").read())
    assert state(pid) == "T" and is_frozen(path)
    redis.signal(signal.SIGCONT)
    grows(path)
    os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=20)


def test_who_was_stopped_by_a_parent_that_dies_goes_on(make_host, redis):
    """SIGSTOP outlives it: the next one knows that it was the keeper's doing, and lets go of them when their leases stand."""
    a = make_host("a", lease=SLOW_LEASE)
    process, path = job(a)
    parent, trace = without_ptrace(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "frozen", 40)
    pid = int(open(path + ".pid").read())
    assert state(pid) == "T"
    os.kill(parent, signal.SIGKILL)
    trace.communicate(timeout=20)
    wait_until(lambda: len(a.keeper_pids()) == 2 and parent not in a.keeper_pids(), "the next keeper and parent")
    assert state(pid) == "T" and is_frozen(path)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: state(pid) in "SR", "it goes on")
    grows(path)
    os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=20)


@pytest.mark.parametrize("n", [1, 5, 20, 60, 150])
def test_a_parent_that_dies_while_it_freezes(make_host, redis, n):
    """At its nth system call: whoever holds the lock is stopped all the same, or dead, when another host may get it."""
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    pid = int(open(path + ".pid").read())
    redis.signal(signal.SIGSTOP)
    parent = a.keeper_pids()[0]
    trace = a.popen("strace", "-qq", "-o", "/dev/null", "-e", f"inject=all:signal=SIGKILL:when={n}", "-p", str(parent))
    wait_until(lambda: parent not in a.keeper_pids(), "the parent is killed", 20)
    trace.communicate(timeout=20)
    wait_until(lambda: state(pid) in ("t", "T", "Z", "gone"), "the holder is stopped, or has died", 10)
    assert state(pid) in ("Z", "gone") or is_frozen(path)
    redis.signal(signal.SIGCONT)
    if state(pid) not in ("Z", "gone"):
        grows(path)
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=20)
