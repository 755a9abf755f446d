"""`dflock run --net=on`: what a job may be built with, started by, and do around its lock calls; and what it sees of itself."""
import contextlib
import errno
import json
import os
import shutil
import signal
import struct
import subprocess

import pytest
from harness import Job, bytes_of, text_of, wait_until
from harness.host import BUILD, CLI
from harness.netted import STATIC, opened
from harness.processes import children, comm, state, wait_channel

from jobs import LEASE
import keepers
from keepers import LONG, about, held, wanted_elsewhere
from terminal import on_terminal

DYNAMIC = os.path.join(BUILD, "tests/agents/agent")
SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net")
NETTED = [CLI, "run", "--net=on", "--"]


@pytest.fixture
def two(make_host):
    """LOCK_NB waits long for an answer, since this machine may be busy."""
    return [make_host(name, shim=False, lease=LONG) for name in "ab"]


def job(host, *words, **more):
    return Job(host, *NETTED, *words, **more)


def no_supervisor(host):
    """The processes that host.env() has started, and that are not the keeper, have ended."""
    def look():
        return [pid for pid in host.program_pids() if comm(pid) == "dflock-net"]
    wait_until(lambda: not look(), "the supervisors end")


def check_excludes(two, a, b):
    """a is of the first host, b of the second. Each is refused what the other one has, waits for it, and gets it."""
    assert a.do("flock 0 ex") == "ok"
    assert b.do("flock 0 ex nb") == "EAGAIN"
    b.say("flock 0 ex")
    wanted_elsewhere(two[0])
    assert b.silent(0.05)
    assert a.do("flock 0 un") == "ok"
    assert b.heard(60)[0] == "ok"
    assert a.do("flock 0 ex nb") == "EAGAIN"
    a.say("flock 0 ex")
    wanted_elsewhere(two[1])
    assert b.do("flock 0 un") == "ok"
    assert a.heard(60)[0] == "ok"
    assert a.do("flock 0 un") == "ok"
    assert b.do("setlk 0 ex 0 10") == "ok"
    assert a.do("setlk 0 ex 5 1 ofd") == "EAGAIN"
    assert a.do("getlk 0 ex 5 1").startswith("ex:0:10:")


@contextlib.contextmanager
def ended(*agents):
    yield agents
    for agent in agents:
        agent.kill()


AROUND = {
    "sudo to another user": ["sudo", "-n", "-u", "nobody"],
    "another user": ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
    "no_new_privs": ["setpriv", "--no-new-privs"],
    "strace, no environment": ["strace", "-f", "-o", "/dev/null", "-E", "LD_PRELOAD", "env", "-i"],
    "pid namespace": ["unshare", "--pid", "--fork", "--mount-proc"],
    "user namespace": ["unshare", "--user", "--map-root-user"],
    "time namespace": ["unshare", "--time", "--boottime", "1000000"],
    "all namespaces": ["unshare", "-m", "-p", "-f", "-i", "-n", "-u", "-C", "-U", "-r", "--mount-proc"],
    "changed root": ["chroot", "/"],
    "mount namespace": ["unshare", "--mount"],
    "pid namespace, the outer /proc": ["unshare", "--pid", "--fork"],
    "no environment": ["env", "-i"],
    "limits": ["prlimit", "--nofile=20", "--core=0"],
    "static shell": ["busybox", "sh", "-c", '"$0" "$@"'],
}


def test_around(two, folder):
    for path in (folder, *(host.files for host in two)):
        os.chmod(path, 0o777)
    for host in two:
        open(host.path("f"), "w").close()
        os.chmod(host.path("f"), 0o666)
    for around, words in AROUND.items():
        # What an ordinary user cannot do, it cannot do below the net.
        if shutil.which(words[0]) and (os.geteuid() == 0 or subprocess.run(["setpriv", "--no-new-privs", *words, "true"]).returncode == 0):
            with about(around), ended(opened(two[0]), opened(two[1], *words, STATIC)) as agents:
                check_excludes(two, *agents)


def test_beside_the_preload(two):
    """Programs with and without the preload below the net, and one with the preload alone."""
    for other in (STATIC, DYNAMIC):
        for words in ([DYNAMIC], ["env", "-u", "LD_PRELOAD", DYNAMIC], ["env", "-i", DYNAMIC]):
            with about((other, words)), ended(opened(two[0], other), opened(two[1], *words)) as agents:
                check_excludes(two, *agents)
    two[0].shim = True
    check_excludes(two, keepers.opened(two[0]), opened(two[1]))


def test_what_waits_here_is_traced(two):
    """The thread waits in the kernel for one of its own host, and cannot be sent out of its call while strace has it."""
    a, b = opened(two[0]), opened(two[1])
    traced = opened(two[0], "strace", "-f", "-o", "/dev/null", STATIC)
    assert a.do("flock 0 ex") == "ok"
    traced.say("flock 0 ex")
    wait_until(lambda: "lock" in wait_channel(children(traced.pid)[0]), "it waits in the kernel")  # before the other host asks
    b.say("flock 0 ex")
    wanted_elsewhere(two[0])
    assert traced.silent(0.05) and b.silent(0.05)
    assert a.do("flock 0 un") == "ok"
    assert traced.heard(60)[0] == "ok"
    assert traced.do("flock 0 un") == "ok"
    assert b.heard(60)[0] == "ok"


@pytest.mark.skipif(not shutil.which("gdb"), reason="there is no gdb")
@pytest.mark.parametrize("where", ["another host", "this host"])
def test_a_debugger_comes_while_it_waits(two, where):
    """The program is stopped in its call, looked at, and goes on waiting."""
    a, b = opened(two[0 if where == "another host" else 1]), opened(two[1])
    assert a.do("flock 0 ex") == "ok"
    b.say("flock 0 ex")
    if where == "another host":
        wanted_elsewhere(two[0])
    assert b.silent(0.05)
    for _ in range(2):
        done = subprocess.run(["gdb", "-q", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", "bt", "-ex", "detach", "-p", str(b.pid)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and "flock" in done.stdout, done
    assert b.silent(0.05)
    assert a.do("flock 0 un") == "ok"
    assert b.heard(60)[0] == "ok"


@pytest.fixture(params=["gcc", "musl-gcc"])
def shapes(request, folder):
    if not shutil.which(request.param):
        pytest.skip(f"there is no {request.param}")
    program = os.path.join(folder, "shapes")
    subprocess.run([request.param, "-O2", "-D_GNU_SOURCE", "-static", "-pthread", os.path.join(SOURCES, "shapes.c"), "-o", program], check=True)
    return program


def threads_have_pidfds():
    """From Linux 6.9 on. Before, the net cannot look at all descriptors."""
    try:
        os.close(os.pidfd_open(os.getpid(), os.O_EXCL))
    except OSError as e:
        assert e.errno == errno.EINVAL
        return False
    return True


UNSEEN = [] if threads_have_pidfds() else ["own-table", "leader-gone"]


def seen(shapes):
    return [shape for shape in shapes if shape not in UNSEEN]


def test_shapes(two, shapes):
    """Each way of coming to a lock call: has it against another host, is refused by another host."""
    for shape in seen(["take", "own-table", "leader-gone", "vfork", "vfork-only", "exec", "passed"]):
        with about(shape):
            first = job(two[0], shapes, shape, two[0].path(shape))
            assert first.line() == "ok"
            refused = job(two[1], shapes, shape, two[1].path(shape))
            assert refused.line() == "11"
            refused.end()
            assert first.end() == 0
            second = job(two[1], shapes, shape, two[1].path(shape))
            assert second.line() == "ok"
            second.end()


@pytest.mark.skipif(not UNSEEN, reason="this kernel has pidfds of threads")
def test_unseen_shapes_are_refused(two, shapes):
    """Before Linux 6.9: also on a file that nobody wants. The line comes only if the process has descriptors still."""
    for shape in UNSEEN:
        with about(shape):
            refused = job(two[0], shapes, shape, two[0].path("f"))
            if shape == "own-table":
                assert "what its thread locks cannot be found out" in refused.line()
            assert refused.line() == str(errno.ENOLCK)
            refused.end()


def test_fork_storm(two, shapes, folder):
    """Many processes on two hosts at once: none is lost, and never have two the lock."""
    count = os.path.join(folder, "count")
    jobs = [job(host, shapes, "storm", host.path("f"), "60", count) for host in two]
    assert [j.line(300) for j in jobs] == ["60", "60"]
    assert struct.unpack("l", bytes_of(count)) == (120,)
    assert [j.end() for j in jobs] == [0, 0]
    for host in two:
        no_supervisor(host)


def rust(program):
    """With system calls of its own, as rustix makes them."""
    subprocess.run(["rustc", "-O", os.path.join(SOURCES, "lock.rs"), "-o", program], check=True, capture_output=True)


def go(program):
    """Signals of its own runtime come to a thread that waits."""
    env = {**os.environ, "HOME": os.path.dirname(program), "GOCACHE": program + ".cache", "CGO_ENABLED": "0", "GO111MODULE": "off"}
    subprocess.run(["go", "build", "-o", program, os.path.join(SOURCES, "lock.go")], check=True, capture_output=True, env=env)


@pytest.mark.parametrize("build, compiler", [(rust, "rustc"), (go, "go")])
def test_languages(two, folder, build, compiler):
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    program = os.path.join(folder, "lock")
    build(program)
    for host in two:
        open(host.path("f"), "w").close()
    first = job(two[0], program, two[0].path("f"))
    assert first.line() == "had"
    second = job(two[1], program, two[1].path("f"))
    wanted_elsewhere(two[0])
    assert second.silent()
    assert first.end() == 0
    assert second.line() == "had" and second.end() == 0


# What a job sees of itself.
LOOK = """
import json, os, resource, signal
def children():
    try:
        return list(os.waitpid(-1, os.WNOHANG))
    except ChildProcessError:
        return "ECHILD"
status = dict(line.rstrip().split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "place": [os.getppid() == int(os.environ["PARENT"]), os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "files": sorted((fd, os.readlink("/proc/self/fd/" + fd)) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)
                    and "pipe:" not in os.readlink("/proc/self/fd/" + fd)),
    "children": children(), "status": {key: status[key] for key in status if key.startswith((
        "SigP", "Shd", "SigB", "SigI", "SigC", "Cap", "Uid", "Gid", "Groups", "Umask", "NoNewPrivs", "Threads"))},
    "limits": [resource.getrlimit(n) for n in range(16)], "nice": os.nice(0), "folder": os.getcwd(),
    "environment": sorted(key for key in os.environ if key not in ("LD_PRELOAD", "DFLOCK_NET")), "cgroup": open("/proc/self/cgroup").read(),
    "oom": open("/proc/self/oom_score_adj").read(), "terminal": open("/proc/self/stat").read().rpartition(")")[2].split()[4]}))
"""


def look(host, net, before=(), **more):
    words = [*before, *(NETTED if net else []), "/usr/bin/python3", "-c", LOOK]
    done = subprocess.run(words, env={**host.env(), "PARENT": str(os.getpid())}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                          start_new_session=True, **more)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def test_the_job_sees_nothing_of_it(two):
    """Its descriptors, children, signals, rights, limits, session and folder are the same as without the net."""
    with open("/dev/null") as null:
        more = {"stdin": null, "cwd": "/tmp", "pass_fds": [null.fileno()], "umask": 0o27,
                "preexec_fn": lambda: (signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]))}
        before = [] if os.geteuid() == 0 else ["setpriv", "--no-new-privs"]  # as the net is for an ordinary user
        assert look(two[0], True, **more) == look(two[0], False, before, **more)


def test_as_cron_starts_it(two):
    """A pipe for its output, no terminal, a small environment: the pipe ends when the job does, also if its lock call waited."""
    a = opened(two[0])
    assert a.do("flock 0 ex") == "ok"
    env = {key: two[1].env()[key] for key in ("DFLOCK_CONFIG", "DFLOCK_RUNTIME_DIR")}
    cron = subprocess.Popen([*NETTED, "/bin/sh", "-c", f"echo begun; printf 'open 0 {two[1].path('f')} rwc\nflock 0 ex\n' | {STATIC}; exit 3"],
                            env={**env, "PATH": "/usr/bin:/bin", "HOME": "/", "SHELL": "/bin/sh"}, cwd="/", start_new_session=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert cron.stdout.readline() == "begun\n"
    wanted_elsewhere(two[0])
    assert a.do("flock 0 un") == "ok"
    assert [line.split()[0] for line in cron.stdout] == ["ok", "ok"] and cron.wait(60) == 3
    cron.stdout.close()


def test_on_a_terminal(two):
    """Ctrl-C ends the job, and not the supervisors of a job that ignores it; what the terminal says is only the job's."""
    words = [*NETTED, "/bin/sh", "-c", f"trap '' INT; {STATIC}; trap - INT; echo last; read line"]
    with on_terminal(words, two[1].env()) as t:
        t.say(f"open 0 {two[1].path('f')} rwc\nflock 0 ex")
        t.until("ok ")
        wait_until(lambda: held(two[1]), "b has it")
        t.say("\x03flock 0 un\nflock 0 sh\nclose 0\npid")
        t.until("ok %d" % children(t.process.pid)[0])
        t.say("\x04", end="")
        t.until("last")
        assert "dflock:" not in t.text
        t.say("\x03", end="")
        assert t.process.wait(20) == -signal.SIGINT
    no_supervisor(two[1])


@pytest.mark.parametrize("waits", [False, True], ids=["runs", "waits"])
def test_a_signal_ends_the_job(two, waits):
    """At once, with the status of the signal, also while it waits for another host; nothing of it is left."""
    a = opened(two[0])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL):
        b = opened(two[1])
        with about(number):
            if waits:
                assert a.do("flock 0 ex") == "ok"
                b.say("flock 0 ex")
                wanted_elsewhere(two[0])
            else:
                assert b.do("flock 0 ex") == "ok"
            os.kill(b.pid, number)
            assert b.process.wait(20) == -number and b.process.stdout.read() == b""
            no_supervisor(two[1])
            if waits:
                wait_until(lambda: not any(lease["waiting"] for lease in two[1].status()["leases"]), "no caller is left")
                assert a.do("flock 0 un") == "ok"
            assert a.do("flock 0 ex") == "ok" and a.do("flock 0 un") == "ok"


def test_signals_of_its_group_and_session(two):
    """They end no supervisor: of a job that hears none of them, each further call is still decided."""
    a = opened(two[0])
    b = opened(two[1], "/bin/sh", "-c", f"trap '' TERM INT HUP QUIT USR1 USR2; exec {STATIC}", start_new_session=True)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        os.killpg(b.pid, number)
    check_excludes(two, a, b)


@pytest.mark.parametrize("where", ["another host", "this host"])
def test_stopped_while_it_waits(two, where):
    """It waits on when it is continued, and sees nothing."""
    a, b = opened(two[0 if where == "another host" else 1]), opened(two[1])
    assert a.do("flock 0 ex") == "ok"
    b.say("flock 0 ex")
    if where == "another host":
        wanted_elsewhere(two[0])
    assert b.silent(0.05)
    for _ in range(3):
        os.kill(b.pid, signal.SIGSTOP)
        wait_until(lambda: state(b.pid) == "T", "it is stopped")
        os.kill(b.pid, signal.SIGCONT)
        wait_until(lambda: state(b.pid) != "T", "it goes on")
    os.kill(b.pid, signal.SIGSTOP)
    wait_until(lambda: state(b.pid) == "T", "it is stopped")
    assert a.do("flock 0 un") == "ok"
    assert b.silent(0.05)
    assert opened(two[0]).do("flock 0 ex nb", 60) == "ok" or where == "this host"
    os.kill(b.pid, signal.SIGCONT)
    for agent in two[0].agents:
        agent.kill()
    assert b.heard(60)[0] == "ok"


def states(pid):
    """Of all threads of this process and of its children."""
    found = ""
    for tid in map(int, os.listdir(f"/proc/{pid}/task")):
        found += state(tid)
        found += "".join(states(int(child)) for child in text_of(f"/proc/{pid}/task/{tid}/children").split())
    return found


def test_shapes_are_frozen(make_host, redis, shapes):
    """In an outage of the store, however the holder came to its lock. D: the parent of a child by vfork()."""
    host = make_host("a", shim=False, lease=LEASE)
    holders = {shape: job(host, shapes, shape, host.path(shape)) for shape in seen(["take", "own-table", "leader-gone", "vfork-only", "passed"])}
    assert {shape: holder.line() for shape, holder in holders.items()} == dict.fromkeys(holders, "ok")
    redis.signal(signal.SIGSTOP)
    for shape, holder in holders.items():
        wait_until(lambda: set(states(holder.pid)) <= set("tTDZ"), f"the holder is frozen: {shape}", 10)
    wait_until(lambda: "processes that hold locks, or were started by one that does, are frozen" in host.log(), "that is logged")
    redis.signal(signal.SIGCONT)
    for shape, holder in holders.items():
        wait_until(lambda: not set(states(holder.pid)) & set("tT"), f"it goes on: {shape}")
    wait_until(lambda: "frozen processes go on" in host.log(), "that is logged, too")
    assert {shape: holder.end() for shape, holder in holders.items()} == dict.fromkeys(holders, 0)
