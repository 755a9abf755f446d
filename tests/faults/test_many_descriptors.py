"""A process may have any number of descriptors, and the keeper looks at all of them when the process asks for a POSIX lock. No
other caller waits for that."""
import os
import signal
import subprocess
import sys

import harness.host as host_module
import pytest
from common import attempt, opened
from harness import Job, wait_until

GETDENTS64 = {"x86_64": "217", "aarch64": "61"}[os.uname().machine]
LONG = "ttl_ms = 20000; probe_ms = 5000;"
# Opens 10,000 descriptors, then locks its first argument as often as it is told to.
MANY = """
import fcntl, os, resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
null = os.open("/dev/null", os.O_RDONLY)
for _ in range(10000):
    os.dup(null)
f = open(sys.argv[1], "a")
print("ready", flush=True)
for line in sys.stdin:
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, int(line))
    print("locked", flush=True)
"""


def many(host, name):
    job = Job(host, "/usr/bin/python3", "-c", MANY, host.path(name))
    assert job.line() == "ready"
    return job


class SlowLists:
    """Each list of a directory's entries takes the keeper a minute, in whichever thread: of the descriptors of a process, say."""

    def __init__(self, host):
        self.keeper = host.keeper_pids()[1]
        self.trace = subprocess.Popen(["strace", "-qq", "-f", "-o", host.log_path + ".trace", "-e", "trace=getdents64",
                                       "-e", "inject=getdents64:delay_enter=60000000", "-p", str(self.keeper)],
                                      stderr=subprocess.DEVNULL)
        self.calls = host.log_path + ".trace"
        wait_until(lambda: self.is_traced(), "the keeper is traced")

    def is_traced(self):
        def traced(tid):
            with open(f"/proc/{self.keeper}/task/{tid}/status") as f:
                return f"TracerPid:\t{self.trace.pid}\n" in f.read()
        return all(map(traced, os.listdir(f"/proc/{self.keeper}/task")))

    def end(self):
        self.trace.terminate()
        self.trace.wait(20)


@pytest.fixture
def slowly():
    ends = []

    def start(host):
        ends.append(SlowLists(host))
        return ends[-1]
    yield start
    for each in ends:
        each.end()


def test_others_are_served_meanwhile(make_host, slowly):
    """Four processes of the same user whose descriptors are looked at, and callers of local files and of others."""
    host = make_host("a", lease=LONG)
    crowd = [many(host, "f%d" % i) for i in range(4)]
    away = host.path("away")
    os.mkdir(away)
    program = os.path.join(os.path.dirname(host_module.__file__), "hanging.py")
    with subprocess.Popen([sys.executable, program, away], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout.readline() == "ok\n"
            keeper = host.keeper_pids()[1]
            slow = slowly(host)
            for each in crowd:
                each.say("0")
            wait_until(lambda: len(waiting(keeper)) == 2, "two threads look at descriptors")
            for i in range(20):
                assert attempt(host, "g%d" % i).word == "ok"
            remote = opened(host, "away/h")
            assert remote.do("flock 0 ex nb") == "ok"
            assert all(each.silent(0) for each in crowd) and len(waiting(keeper)) == 2
            assert keeper not in waiting(keeper) and host.keeper_pids()[1] == keeper
            slow.end()
            assert [each.line() for each in crowd] == ["locked"] * 4
            remote.kill()
        finally:
            server.stdin.close()
            server.wait(20)
            subprocess.run(["umount", "-l", away], stderr=subprocess.DEVNULL, check=False)


def waiting(keeper):
    """Threads of the keeper that are about to list a directory."""
    found = []
    for tid in map(int, os.listdir(f"/proc/{keeper}/task")):
        with open(f"/proc/{keeper}/task/{tid}/syscall") as f:
            if f.read().split()[0] == GETDENTS64:
                found.append(tid)
    return found


def test_what_such_a_process_holds_is_known(make_host):
    """It holds one lock, and asks for another under a lease that is recalled: it is no newcomer; and it undoes nothing else."""
    a, b = make_host("a", lease=LONG), make_host("b", lease=LONG)
    job, other = many(a, "f"), opened(b)
    for start in "0", "100":
        job.say(start)
        assert job.line() == "locked"
    other.say("setlk 0 ex 0 5 w")
    wait_until(lambda: [l for l in a.status()["leases"] if l["state"] == "waiting"], "it is recalled")
    job.say("3")
    assert job.line() == "locked"
    assert other.silent()
    os.kill(job.pid, signal.SIGKILL)
    assert other.heard()[0] == "ok"
