"""`dflock run --net=on` under limits and in surroundings of all kinds: it works, or says in one line why not."""
import os
import pty
import signal
import subprocess
import sys

import pytest
from common import leases
from harness import hanging, wait_until
from harness.host import CLI
from harness.netted import STATIC, netted, opened, supervisors

LEASE = "ttl_ms = 20000; probe_ms = 5000;"
REFUSED = "dflock: not started: "


@pytest.fixture
def host(make_host):
    host = make_host("a", shim=False, lease=LEASE)
    with open(host.path("do"), "w") as f:
        f.write(f"open 0 {host.path('f')} rwc\nflock 0 ex\n")
    return host


def tried(host, *before, **more):
    """Exit status, the agent's words, and what was said on descriptor 2."""
    job = ["sh", "-c", f"{STATIC} <{host.path('do')} >{host.path('said')}; exit 7"]
    done = netted(host, *job, before=before, start=subprocess.run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, **more)
    wait_until(lambda: not supervisors(host), "no supervisor stays")
    if not os.path.exists(host.path("said")):
        return done.returncode, None, done.stderr
    with open(host.path("said")) as f:
        return done.returncode, [line.split()[0] for line in f], done.stderr


WORKS = (7, ["ok", "ok"], "")


@pytest.mark.parametrize("limit", ["nofile=16", "as=10000000", "fsize=4000000", "nproc=1:", "memlock=0", "locks=0", "cpu=5", "sigpending=0"])
def test_limits(host, limit):
    assert tried(host, "prlimit", "--" + limit) == WORKS


@pytest.mark.parametrize("limit", ["fsize=0:", "nofile=8:"])
def test_soft_limits(host, limit):
    """Those of the job: the supervisors raise their own."""
    done = netted(host, "true", before=["prlimit", "--" + limit], start=subprocess.run, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def may_raise_limits():
    with open("/proc/self/status") as f:
        return any(line.startswith("CapEff:") and int(line.split()[1], 16) >> 24 & 1 for line in f)  # CAP_SYS_RESOURCE


@pytest.mark.parametrize("limit,why", [("fsize=0", "raise the limit of file sizes (ulimit -f)"), ("nofile=8", "raise their limit (ulimit -n)")])
def test_hard_limits(host, limit, why):
    """Root exceeds them, if it may."""
    done = netted(host, "true", before=["prlimit", "--" + limit], start=subprocess.run, capture_output=True, text=True, timeout=60)
    if may_raise_limits():
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert done.returncode == 125 and done.stderr.startswith(REFUSED) and done.stderr.endswith(why + "\n") and done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_no_more_processes(host):
    done = netted(host, "true", before=["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "prlimit", "--nproc=1"], start=subprocess.run,
                  capture_output=True, text=True, timeout=60)
    assert done.returncode == 125 and done.stderr.startswith(REFUSED + "no process for the net: "), done


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors(host, closed):
    assert tried(host, "sh", "-c", f'exec "$@" {closed}', "-") == WORKS


@pytest.mark.parametrize("how", ["ignored", "blocked"])
def test_signals(host, how):
    numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}

    def before():
        if how == "blocked":
            signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        else:
            for number in numbers:
                signal.signal(number, signal.SIG_IGN)
    assert tried(host, preexec_fn=before) == WORKS


def test_a_folder_that_is_gone(host, folder):
    gone = os.path.join(folder, "gone")
    os.mkdir(gone)
    status, said, _ = tried(host, "sh", "-c", f'cd {gone}; rmdir {gone}; exec "$@"', "-")  # the shell itself says that it is gone
    assert (status, said) == WORKS[:2]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_folder_that_does_not_answer(host, folder):
    """No supervisor looks at it, or keeps it in use."""
    path = os.path.join(folder, "view")
    os.makedirs(path)
    with subprocess.Popen([sys.executable, hanging.__file__, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "ok\n"
        before = os.path.join(folder, "before")
        with open(before, "w") as f:
            f.write(f'cd {path}; echo there; read line; exec "$@"\n')
        job = netted(host, STATIC, before=["sh", before], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert job.stdout.readline() == "there\n"
        server.stdin.write(f"hold {' '.join(map(str, (hanging.LOOKUP, hanging.GETATTR, hanging.OPEN, hanging.FLUSH)))}\n")
        server.stdin.flush()
        said = job.communicate(f"\nopen 0 {host.path('f')} rwc\nflock 0 ex\n", timeout=60)
        assert job.returncode == 0 and [line.split()[0] for line in said[0].splitlines()] == ["ok", "ok"] and said[1] == ""
        wait_until(lambda: not supervisors(host), "no supervisor stays")
        server.stdin.close()
        server.wait(20)
        subprocess.run(["umount", "-l", path], stderr=subprocess.DEVNULL, check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a pid namespace")
def test_proc_of_another_pid_namespace(host):
    assert tried(host, "unshare", "--pid", "--fork") == (
        125, None, REFUSED + "/proc is not that of this pid namespace: mount it there (unshare --mount-proc)\n")


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
