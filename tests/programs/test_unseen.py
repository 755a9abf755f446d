"""What a program sees of dflock: nothing. The first lock call starts a keeper; the lines before and after are the same. What that keeper has of
the program: interpose/test_starting.py."""
import os

import pytest
from harness import Job, wait_until
from harness.processes import stat

# Each says what it sees of itself, locks, says it again, and again after a second lock; "ECHILD" if it has no child.
PYTHON = """
import fcntl, os, signal, sys
came = []
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, lambda n, frame: came.append(n))
def look(what):
    fds = sorted(os.listdir("/proc/self/fd"), key=int)
    found = []
    for kinds in (0, 0x40000000):
        try:
            found.append(os.waitpid(-1, os.WNOHANG | kinds))
        except ChildProcessError:
            found.append("ECHILD")
    with open("/proc/self/task/%d/children" % os.getpid()) as f:
        children = f.read()
    print(fds, os.listdir("/proc/self/task") == [str(os.getpid())], *found, repr(children), came,
          sorted(signal.sigpending()), sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), os.getcwd(), flush=True)
f = open(sys.argv[1], "a")
look("before")
fcntl.flock(f, fcntl.LOCK_EX)
look("locked")
fcntl.flock(f, fcntl.LOCK_UN)
fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
look("again")
print("held", flush=True)
sys.stdin.readline()
"""
@pytest.fixture
def host(make_host):
    """A host without a keeper whose store is open."""
    host = make_host("a", foreground=False)
    host.cli("init", "--force")
    host.cli("stop")
    wait_until(lambda: not host.keeper_pids(), "the keeper has ended")
    return host


@pytest.mark.parametrize("keeper", ["none yet", "one runs"])
def test_a_program_sees_nothing(host, keeper):
    if keeper == "one runs":
        host.cli("init", "--force")
    job = Job(host, "/usr/bin/python3", "-c", PYTHON, host.path("f"))
    before, locked, again = job.line(), job.line(), job.line()
    assert job.line() == "held", (before, locked, again)
    assert "ECHILD" in before
    assert locked == before and again == before
    pids = host.keeper_pids()
    assert len(pids) == 2
    for pid in pids:
        assert int(stat(pid)[1]) != job.pid and os.getsid(pid) != os.getsid(job.pid)
    assert job.end() == 0
    assert host.keeper_pids() == pids
