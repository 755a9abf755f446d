"""`dflock run --net=on` under limits and in surroundings of all kinds: it works, or says in one line why not."""
import os
import pty
import signal
import subprocess
from types import SimpleNamespace

import pytest
from common import leases
from harness import hanging, text_of, wait_until, write_text
from harness.host import CLI, Agent
from harness.netted import STATIC, both, netted, opened, supervisors

LEASE = "ttl_ms = 20000;"
REFUSED = "dflock: not started: "


@pytest.fixture
def host(make_host):
    host = make_host("a", shim=False, lease=LEASE)
    write_text(host.path("do"), f"open 0 {host.path('f')} rwc\nflock 0 ex\n")
    return host


def tried(host, *before, **more):
    """Exit status, the agent's words, and what was said on descriptor 2."""
    job = ["sh", "-c", f"{STATIC} <{host.path('do')} >{host.path('said')}; exit 7"]
    done = netted(host, *job, before=before, start=subprocess.run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, **more)
    wait_until(lambda: not supervisors(host), "no supervisor stays")
    if not os.path.exists(host.path("said")):
        return done.returncode, None, done.stderr
    return done.returncode, [line.split()[0] for line in text_of(host.path("said")).splitlines()], done.stderr


def ran(host, *before):
    return netted(host, "true", before=before, start=subprocess.run, capture_output=True, text=True, timeout=60)


WORKS = (7, ["ok", "ok"], "")


def may_raise_limits():
    """CAP_SYS_RESOURCE"""
    return any(line.startswith("CapEff:") and int(line.split()[1], 16) >> 24 & 1 for line in text_of("/proc/self/status").splitlines())


def test_limits(host):
    """Soft ones are the job's: the supervisors raise their own. Root exceeds hard ones, if it may."""
    for limit in "nofile=16", "as=10000000", "fsize=4000000", "memlock=0", "locks=0", "cpu=5", "sigpending=0":
        assert tried(host, "prlimit", "--" + limit) == WORKS, limit
    if os.geteuid():
        assert "no process for the net: Resource temporarily unavailable" in ran(host, "prlimit", "--nproc=1:").stderr
    else:
        assert tried(host, "prlimit", "--nproc=1:") == WORKS
    for limit, why in (("fsize=0:", ""), ("nofile=8:", ""), ("fsize=0", "raise the limit of file sizes (ulimit -f)"),
                       ("nofile=8", "raise their limit (ulimit -n)")):
        done = ran(host, "prlimit", "--" + limit)
        if may_raise_limits() or not why:
            assert (done.returncode, done.stderr) == (0, "")
        else:
            assert done.returncode == 125 and done.stderr.startswith(REFUSED) and done.stderr.endswith(why + "\n") and done.stderr.count("\n") == 1
    if os.geteuid() == 0:
        done = ran(host, "setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "prlimit", "--nproc=1")
        assert done.returncode == 125 and done.stderr.startswith(REFUSED + "no process for the net: "), done


def test_surroundings(host, folder):
    """Closed descriptors, signals that are ignored or blocked, a folder that is gone, and a /proc of another pid namespace."""
    for closed in "<&-", ">&-", "2>&-", "<&- >&- 2>&-":
        assert tried(host, "sh", "-c", f'exec "$@" {closed}', "-") == WORKS, closed
    numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    assert tried(host, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, numbers) and None) == WORKS
    assert tried(host, preexec_fn=lambda: [signal.signal(number, signal.SIG_IGN) for number in numbers]) == WORKS
    gone = os.path.join(folder, "gone")
    os.mkdir(gone)
    status, said, _ = tried(host, "sh", "-c", f'cd {gone}; rmdir {gone}; exec "$@"', "-")  # the shell itself says that it is gone
    assert (status, said) == WORKS[:2]
    if os.geteuid() == 0:
        os.unlink(host.path("said"))
        assert tried(host, "unshare", "--pid", "--fork") == (
            125, None, REFUSED + "/proc is not that of this pid namespace: mount it there (unshare --mount-proc)\n")


CROWD = """
import fcntl, os, signal, sys
protected, other, crowd = open(sys.argv[1], "w"), open(sys.argv[2], "w"), []
for _ in range(40):
    crowd.append(os.fork())
    if crowd[-1] == 0:
        try:
            fcntl.lockf(protected, fcntl.LOCK_EX)
        finally:
            os._exit(0)
late = list(crowd)
while late:
    late = [pid for pid in late if "seccomp" not in open(f"/proc/{pid}/wchan").read() and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)]
try:
    for _ in range(1000):
        fcntl.lockf(other, fcntl.LOCK_EX)
        fcntl.lockf(other, fcntl.LOCK_UN)
    print("ok")
finally:
    for pid in crowd:
        os.kill(pid, signal.SIGKILL)
"""


@pytest.mark.root("takes the right from root to exceed hard limits")
def test_few_descriptors(host, make_host, folder):
    """Calls that ask the keeper have most of them, and more are refused, with a line. Unlocking, and locks of other files, go on."""
    other = opened(make_host("b", lease=LEASE))
    assert other.do("setlk 0 ex 0 10") == "ok"
    limited = ["setpriv", "--bounding-set=-sys_resource", "prlimit", "--nofile=64:64"]
    done = netted(host, "env", "-u", "LD_PRELOAD", "/usr/bin/python3", "-c", CROWD, host.path("f"), os.path.join(folder, "other"),
                  before=limited, start=subprocess.run, capture_output=True, text=True, timeout=60)
    assert done.stdout == "ok\n", done.stderr
    assert "raise the limit of descriptors (ulimit -Hn)" in done.stderr


def test_a_folder_that_does_not_answer(host, make_view, folder):
    """No supervisor looks at it, or keeps it in use."""
    view = make_view(os.path.join(folder, "view"), f"{hanging.LOOKUP} {hanging.GETATTR} {hanging.OPEN} {hanging.FLUSH}", valid=0)
    before = os.path.join(folder, "before")
    write_text(before, f'cd {view.path}; echo there; read line; exec "$@"\n')
    job = netted(host, STATIC, before=["sh", before], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert job.stdout.readline() == "there\n"
    view.do("hold")
    said = job.communicate(f"\nopen 0 {host.path('f')} rwc\nflock 0 ex\n", timeout=60)
    assert job.returncode == 0 and [line.split()[0] for line in said[0].splitlines()] == ["ok", "ok"] and said[1] == ""
    wait_until(lambda: not supervisors(host), "no supervisor stays")


def test_a_second_supervisor_that_does_not_begin(host, make_view, folder):
    """The dynamic linker waits for a folder of LD_LIBRARY_PATH that does not answer. The one that takes over serves meanwhile."""
    view, library = make_view(os.path.join(folder, "view"), hanging.LOOKUP, valid=0), os.path.join(folder, "lib")
    os.mkdir(library)
    agent = opened(host, before=["env", f"LD_LIBRARY_PATH={library}"])
    first, second = both(host)
    view.do("hold")
    os.rmdir(library)
    os.symlink(view.path, library)
    os.kill(first, signal.SIGKILL)
    assert agent.do("flock 0 ex nb") == "ok"
    os.unlink(library)
    view.do("let")
    assert both(host, [first])[0] == second


def test_a_terminal_that_goes_away(make_host):
    """As with ssh -tt, when the connection is lost: the job hears SIGHUP and ends, and its lock is free."""
    a, b = make_host("a", shim=False, lease=LEASE), make_host("b", shim=False, lease=LEASE)
    other = opened(a)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(CLI, [CLI, "run", "--net=on", "--", STATIC], b.env())
    os.write(terminal, f"open 0 {b.path('f')} rwc\nflock 0 ex\n".encode())
    wait_until(lambda: leases(b), "it has the lock")
    wait_until(lambda: other.do("flock 0 ex nb") == "EAGAIN", "it has the kernel lock")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGHUP
    wait_until(lambda: not supervisors(b), "no supervisor stays")
    assert other.do("flock 0 ex") == "ok"


class Beside(Agent):
    """Another agent below the same net as `words`, which start it."""

    def __init__(self):
        inner, outer = os.pipe(), os.pipe()
        self.fds = inner[0], outer[1]
        self.process = SimpleNamespace(stdin=os.fdopen(inner[1], "wb", buffering=0), stdout=os.fdopen(outer[0], "rb", buffering=0))
        self.words = ["bash", "-c", f'"$0" <&{inner[0]} >&{outer[1]} & exec "$0" {inner[0]}<&- {outer[1]}>&-', STATIC]

    def started(self):
        for fd in self.fds:
            os.close(fd)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()


def test_a_thread_of_a_supervisor_hangs(make_host, make_view, folder):
    """In a file system that does not answer, which no signal ends. The next one takes over at once: a call that waits goes on, and so do new ones;
    only that on the hanging file waits until the file system answers."""
    two = make_host("a", shim=False, lease=LEASE), make_host("b", shim=False, lease=LEASE)
    view, beside = make_view(os.path.join(folder, "view"), hanging.FLUSH), Beside()
    a, b = opened(two[0]), opened(two[1], *beside.words, pass_fds=beside.fds)
    beside.started()
    assert beside.do(f"open 0 {view.path}/h rw") == "ok"
    assert a.do("flock 0 ex") == "ok"
    b.say("flock 0 ex")
    wait_until(lambda: leases(two[0], note="wanted by another host"), "the lease is recalled")
    view.do("hold")
    beside.say("flock 0 ex")
    first, second = both(two[1])
    hanging_thread = f"/proc/{first}/task/{int(view.hears('held').split()[2])}"
    assert os.path.exists(hanging_thread)
    os.kill(first, signal.SIGKILL)
    assert both(two[1], [first])[0] == second
    assert a.do("flock 0 un") == "ok"
    assert b.heard()[0] == "ok" and a.do("flock 0 ex nb") == "EAGAIN"
    assert b.do("flock 0 un") == "ok" and b.do("setlk 0 ex 0 10") == "ok"
    assert os.path.exists(hanging_thread) and beside.silent(0.1)
    view.do("let")
    assert beside.heard()[0] == "ok"
    wait_until(lambda: not os.path.exists(hanging_thread), "the thread ends")
    assert beside.do("flock 0 un") == "ok" and beside.do("flock 0 ex nb") == "ok"
    beside.end()
