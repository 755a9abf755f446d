"""
Holders of every kind are found and stopped: hidden ones, a container's first process, pipelines, those that start programs all the time, and
jobs of an interactive shell, or under programs that look after them.
"""
import contextlib
import os
import re
import shlex
import signal

import pytest
from harness import BUILD, Job, wait_until, write_text
from harness.host import SHIM
from harness.processes import comm, stat

from jobs import JOB, LEASE, children, frozen, grows, is_frozen, let_go, outage, pid_of, size, state
from keepers import held, opened
from terminal import shell

LONG_LEASE = "ttl_ms = 6000; freeze_margin_ms = 2500;"  # where many processes are stopped

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
    job = Job(host, "/usr/bin/python3", "-c", HIDDEN, how, host.path(how))
    said = job.line()
    assert said in ("held", "no io_uring")  # this kernel has none for this user
    return job if said == "held" else None


def test_a_holder_without_a_descriptor(make_host, redis):
    """The lock lives on when its descriptor is closed: in a mapping, an io_uring, a loop device, a message. The process that took it lives."""
    a = make_host("a", lease=LONG_LEASE)
    ways = ["mapping", "ring", "message, alive"] + (["loop"] if os.access("/dev/loop-control", os.W_OK) else [])
    jobs = {how: job for how in ways if (job := hidden(a, how))}
    for how, job in jobs.items():
        if how != "mapping":
            wait_until(lambda: re.search(f"held by .*{job.pid}", a.cli("status").stdout), f"status names it: {how}")
    assert "CANNOT" not in a.cli("status").stdout
    outage(a, redis, [job.pid for job in jobs.values()])
    for job in jobs.values():
        job.say("")
    assert {how: job.line() for how, job in jobs.items()} == dict.fromkeys(jobs, "runs")
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

def first_of_a_container(host):
    """It is process 1 of its own pid namespace, where signals do less than elsewhere."""
    path = host.path("job.container")
    script = 'exec 9>"$1"; flock 9; test $$ = 1 || exit 1; ' + JOB.replace('"$1', '"$2')
    process = host.popen("unshare", "--pid", "--fork", "bash", "-c", script, "job", host.path("container"), path)
    wait_until(lambda: size(path) > 3, "the job runs")
    return path, children(process.pid)


def pipeline(host):
    """Its processes have the lock by inheritance, or not at all; none of them is the other's parent."""
    path = host.path("job.pipeline")
    script = 'flock 9; (while :; do echo x; read -t 0.01 <> <(:); done) | cat | (exec 9>&-; cat >"$1"; :)'
    process = host.popen("bash", "-c", 'exec 9>"$2"; ' + script, "pipeline", path, host.path("pipeline"))
    wait_until(lambda: size(path) > 3, "the pipeline runs")
    members = children(process.pid)
    assert len(members) == 3
    return path, [process.pid, *members]


IN_A_SHELL = {"in front": "flock {f} bash {job} {out}", "behind": "flock {f} bash {job} {out} &",
              "the shell has it, behind": "exec 9>{f}; flock 9; bash {job} {out} &",
              "the shell has it, in front": "exec 9>{f}; flock 9; bash {job} {out}"}


@pytest.mark.root("only root may make a pid namespace")
def test_containers_pipelines_and_interactive_shells(make_host, redis):
    """With job control: the shell does not see that its job is stopped, and the terminal keeps its foreground group."""
    a = make_host("a", lease=LONG_LEASE)
    script = a.path("job.sh")
    write_text(script, JOB)
    (contained, first), (piped, members) = first_of_a_container(a), pipeline(a)
    paths, pids, terminals = [contained, piped], first + members, []
    with contextlib.ExitStack() as stack:
        for i, line in enumerate(IN_A_SHELL.values()):
            terminals.append(stack.enter_context(shell(a)))
            paths.append(a.path(f"job.out{i}"))
            terminals[i].until("ready> ")
            terminals[i].say(line.format(f=a.path(f"f{i}"), job=script, out=paths[-1]))
            wait_until(lambda: size(paths[-1]) > 3, "the job runs")
            pids += [pid_of(paths[-1]), *([terminals[i].process.pid] if "exec" in line else [])]
        foreground = [os.tcgetpgrp(t.master) for t in terminals]
        outage(a, redis, pids)
        for path in paths:
            grows(path)
        assert [os.tcgetpgrp(t.master) for t in terminals] == foreground
        for path, t in zip(paths[2:], terminals):
            os.kill(pid_of(path), signal.SIGKILL)
            t.say("echo still $((40 + 2))")
            t.until("still 42")
            assert "Stopped" not in t.text and "Suspended" not in t.text
    for pid in first + members:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.root("only root may make a pid namespace")
def test_the_first_process_of_a_container_is_killed(make_host, proxy):
    """Its lease is lost."""
    b = make_host("b", lease=LEASE)
    a = make_host("a", lease=LEASE, server=proxy.address).wait_up()
    path, (first,) = first_of_a_container(a)
    proxy.accepting = False
    proxy.cut()
    assert opened(b, "container").do("flock 0 ex", seconds=20) == "ok"
    last = size(path)
    proxy.accepting = True
    wait_until(lambda: state(first) in ("Z", "gone"), "it is killed", 20)
    assert size(path) == last

# --- holders that start programs all the time: stopped in the middle of vfork() and posix_spawn(), and not killed for it ---

HOLDER = """
import fcntl, os, subprocess, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
fcntl.flock(fd, fcntl.LOCK_EX)
os.set_inheritable(fd, True)
children = [subprocess.Popen([sys.argv[2], sys.argv[3]], pass_fds=[fd], stdout=subprocess.DEVNULL) for _ in range(int(sys.argv[4]))]
print("held", *[c.pid for c in children], flush=True)
sys.stdin.readline()
print(*[c.poll() for c in children], flush=True)
for c in children:
    c.kill()
"""
COUNT = 200


def test_in_the_middle_of_vfork(make_host, redis):
    """200 parents wait in vfork() (state D) for a child that is stopped before its exec: they are held, and go on with it."""
    a = make_host("a", lease=LONG_LEASE)
    holder = Job(a, "/usr/bin/python3", "-c", HOLDER, a.path("f"), os.path.join(BUILD, "tests/agents/vforks"), a.path("out"), str(COUNT))
    held = holder.line().split()
    assert held[0] == "held"
    pids = [int(p) for p in held[1:]]
    wait_until(lambda: sum(state(p) == "D" for p in pids) > COUNT // 2, "most of them wait in vfork()")
    frozen(a, redis)
    before = size(a.path("out"))
    assert is_frozen(a.path("out")) and size(a.path("out")) == before
    let_go(a, redis)
    grows(a.path("out"))
    holder.say("")
    assert holder.line().split() == ["None"] * COUNT, "all of them run"
    assert "killed" not in a.log()


def test_siblings_by_clone_parent(make_host, redis):
    """A process that a holder starts by clone(CLONE_PARENT) is its sibling, and no descendant. It is stopped if it holds the lock itself: by the
    description, or with the same table of descriptors. Else nothing shows that the holder has started it, and it runs on: docs/guarantees.md says so."""
    a = make_host("a", lease=LONG_LEASE)
    kinds = {"flock": True, "fcntl files": True, "fcntl": False, "fcntl vm": False}
    out = {how: a.path("out " + how) for how in kinds}
    # A shell is the parent of both: what the test starts may not end while it has a child that nobody waits for.
    pids = {how: int(Job(a, "bash", "-c", '"$@" & wait', "bash", os.path.join(BUILD, "tests/agents/sibling"), a.path("f " + how), out[how],
                         *how.split()).line()) for how in kinds}
    try:
        for how in kinds:
            grows(out[how])
        frozen(a, redis)
        assert {how: is_frozen(out[how]) for how in kinds} == kinds
        assert {how: state(pid) in "tT" for how, pid in pids.items()} == kinds
        let_go(a, redis)
        for how in kinds:
            grows(out[how])
    finally:
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)


# --- jobs under programs that look after them ---

# Before the words of a keeper that cannot use ptrace().
NO_PTRACE = [os.path.join(BUILD, "tests/agents/older"), "117:EPERM" if os.uname().machine == "aarch64" else "101:EPERM"]
PARENTS = {"su": "su root -c {0}", "su in su": "su root -c 'su root -c {0}'", "sudo": "sudo {0}", "sudo in su": "su root -c 'sudo {0}'",
           "timeout": "timeout 600 {0}", "a script": "bash -c 'timeout 600 {0}; true' & wait"}


class LookedAfter:
    """A program that has a lock and writes to a file again and again, and those above it, up to the process that start(line) names."""

    def __init__(self, host, parent, start):
        self.path, script = host.path("job." + parent.replace(" ", "-")), host.path(parent.replace(" ", "-") + ".sh")
        # su and sudo may take its environment away.
        write_text(script, f"#!/bin/bash\nexport LD_PRELOAD={SHIM} DFLOCK_CONFIG={host.config} DFLOCK_RUNTIME_DIR={host.runtime}\n"
                           f"exec flock {host.path(parent)!r} bash -c {shlex.quote(JOB)} job {self.path}\n")
        os.chmod(script, 0o755)
        last = start(PARENTS[parent].format(script))
        wait_until(lambda: size(self.path) > 3, "the job runs")
        self.pid = pid_of(self.path)
        self.above = [int(stat(self.pid)[1])]
        while self.above[-1] not in (last, 1):
            self.above.append(int(stat(self.above[-1])[1]))

    def stops(self):
        """su and sudo stop with a child that is stopped by a signal; timeout and a script do not."""
        return [pid for pid in self.above if comm(pid) in ("su", "sudo")]

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: all(state(pid) in ("Z", "gone") for pid in self.above), "all that looked after it end")


@pytest.mark.root("runs su, and so needs root")
@pytest.mark.parametrize("inside", [[], NO_PTRACE], ids=["ptrace", "sigstop"])
def test_they_go_on_with_a_job_that_got_sigstop(make_host, redis, inside):
    """With ptrace() they see nothing of it. Where the keeper has to use SIGSTOP, they stop with their job, as they do after any SIGSTOP, and
    go on with it; but for one that was stopped by hand before."""
    a = make_host("a", lease=LONG_LEASE, inside=inside)
    jobs = {parent: LookedAfter(a, parent, lambda line: a.popen("bash", "-c", line, start_new_session=True).pid) for parent in PARENTS}
    by_hand = jobs["su"].stops()[0]
    if inside:
        os.kill(by_hand, signal.SIGSTOP)
        wait_until(lambda: state(by_hand) == "T", "it is stopped")
    frozen(a, redis)
    for parent, job in jobs.items():
        assert is_frozen(job.path), parent
        if inside:
            assert state(job.pid) == "T"
            wait_until(lambda: not job.stops() or any(state(pid) == "T" for pid in job.stops()), f"one that looks after it stops, too: {parent}")
    let_go(a, redis)
    for parent, job in jobs.items():
        grows(job.path)
        wait_until(lambda: not any(state(pid) == "T" for pid in job.above if pid != by_hand), f"all go on: {parent}")
    assert (state(by_hand) == "T") == bool(inside)
    os.kill(by_hand, signal.SIGCONT)
    for job in jobs.values():
        job.end()


@pytest.mark.root("runs su, and so needs root")
@pytest.mark.parametrize("inside", [[], NO_PTRACE], ids=["ptrace", "sigstop"])
def test_in_a_terminal(make_host, redis, inside):
    """Under an interactive shell; sudo gives its job a terminal of its own, if it is told to (use_pty)."""
    a, parents = make_host("a", lease=LONG_LEASE, inside=inside), ["su", "sudo", "timeout"]
    with contextlib.ExitStack() as stack:
        terminals = [stack.enter_context(shell(a)) for _ in parents]
        jobs = [LookedAfter(a, parent, lambda line: t.say(line) or t.process.pid) for parent, t in zip(parents, terminals)]
        assert [job.above.pop() for job in jobs] == [t.process.pid for t in terminals]
        frozen(a, redis)
        assert [job.path for job in jobs if not is_frozen(job.path)] == []
        let_go(a, redis)
        for job, t in zip(jobs, terminals):
            grows(job.path)
            wait_until(lambda: not any(state(pid) == "T" for pid in job.above), "all go on")
            job.end()
            t.say("echo still $((40 + 2))")
            t.until("still 42")
            assert inside or "Stopped" not in t.text
