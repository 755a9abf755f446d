"""Holders of every kind are found and stopped: hidden ones, a container's first process, pipelines, jobs of an interactive shell."""
import os
import pty
import re
import signal

import pytest
from harness import Job, wait_until, write_text

from jobs import JOB, LEASE, children, grows, outage, pid_of, size, state
from keepers import held, opened

# --- holders that are hard to find ---

HIDDEN = """
import ctypes, fcntl, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
pair = socket.socketpair()
child = os.fork() if sys.argv[1] == "message" else 0  # the process that takes the lock ends
if child:
    os.waitpid(child, 0)
    print("held", flush=True)
    while sys.stdin.readline():
        print("runs", flush=True)
    sys.exit()
fd = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 4096)
fcntl.flock(fd, fcntl.LOCK_EX)
if sys.argv[1] == "mapping":
    assert libc.mmap(None, 4096, 1, 1, fd, 0) != ctypes.c_void_p(-1).value
elif sys.argv[1] == "ring":
    ring = libc.syscall(425, 1, ctypes.create_string_buffer(120))  # io_uring_setup()
    if ring < 0 or libc.syscall(427, ring, 2, struct.pack("i", fd), 1) != 0:  # io_uring_register(): IORING_REGISTER_FILES
        print("no io_uring")  # an older kernel, or kernel.io_uring_disabled
        sys.exit()
elif sys.argv[1] == "loop":
    control = os.open("/dev/loop-control", os.O_RDWR)
    while True:
        loop = os.open("/dev/loop%d" % fcntl.ioctl(control, 0x4c82), os.O_RDWR)  # LOOP_CTL_GET_FREE
        try:
            fcntl.ioctl(loop, 0x4c00, fd)  # LOOP_SET_FD
            break
        except BlockingIOError:
            os.close(loop)  # another process was faster
    fcntl.ioctl(loop, 0x4c04, struct.pack("=52xI176x", 4))  # LOOP_SET_STATUS64: it ends with the process
else:
    socket.send_fds(pair[0], [b"x"], [fd])
    if sys.argv[1] == "message":
        os._exit(0)
os.close(fd)
print("held", flush=True)
while sys.stdin.readline():
    print("runs", flush=True)
"""


def hidden(host, how):
    job = Job(host, "/usr/bin/python3", "-c", HIDDEN, how, host.path("f"))
    said = job.line()
    if said == "no io_uring":
        pytest.skip("this kernel has no io_uring for this user")
    assert said == "held"
    return job


@pytest.mark.parametrize("how", ["mapping", "ring", "loop", "message, alive"])
def test_a_holder_without_a_descriptor(make_host, redis, how):
    """The lock lives on when its descriptor is closed: in a mapping, an io_uring, a loop device, a message. The process that took it lives."""
    if how == "loop" and not os.access("/dev/loop-control", os.W_OK):
        pytest.skip("no /dev/loop-control that may be opened")
    a = make_host("a", lease=LEASE)
    job = hidden(a, how)
    held_by = f"held by .*{job.pid}" if how != "mapping" else ""
    wait_until(lambda: re.search(held_by, a.cli("status").stdout), "status names it")
    assert "CANNOT" not in a.cli("status").stdout
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: state(job.pid) in "tT", "the holder is frozen", 10)
    wait_until(lambda: "are frozen" in a.log(), "and that is said", 10)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in a.log(), "it is let go", 20)
    job.say("")
    assert job.line() == "runs"
    assert "cannot be stopped" not in a.log() and "no process can be stopped" not in a.log()


def test_a_lock_on_its_way_through_a_socket(make_host, redis):
    """No process has received it, and the one that took it has ended, so there is none to stop: the log and the status say so."""
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


# --- holders that are harder to stop ---


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
    """With job control: the shell does not see that its job is stopped, and the terminal keeps its foreground group."""
    a = make_host("a", lease=LEASE)
    path, script = a.path("job.out"), a.path("job.sh")
    write_text(script, JOB)
    terminal = Terminal(a)
    terminal.type(line.format(f=a.path("f"), job=script, out=path))
    wait_until(lambda: size(path) > 3, "the job runs")
    foreground = os.tcgetpgrp(terminal.fd)
    job = pid_of(path)
    outage(a, redis, [job, *([terminal.pid] if "exec" in line else [])])
    grows(path)
    assert os.tcgetpgrp(terminal.fd) == foreground
    os.kill(job, signal.SIGKILL)
    terminal.type("echo still $((40 + 2))")
    terminal.shows("still 42")
    assert "Stopped" not in terminal.text and "Suspended" not in terminal.text
    terminal.end()
