"""What a program sees of dflock: nothing. The first lock call starts a keeper; the lines before and after are the same."""
import os

import pytest
from harness import Job, text_of, wait_until
from harness.processes import files_of, stat

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


def test_the_keeper_has_nothing_of_the_program(host):
    """Its descriptors, its directory and its environment would keep a mount busy, or a lock held."""
    os.mkdir(host.path("dir"))
    job = Job(host, "bash", "-c", 'cd "$2"; export SECRET=1; exec 7>other; exec 9>"$1"; flock 9; echo held; read line', "-",
              host.path("f"), host.path("dir")).held()
    for pid in host.keeper_pids():
        assert not [f for f in files_of(pid) if f.startswith(host.path("dir"))]
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert "SECRET" not in text_of(f"/proc/{pid}/environ")
    parent, keeper = host.keeper_pids()
    assert not locks_of(parent, host.path("f")) and locks_of(keeper, host.path("f")) == [""]
    job.end()


def test_bash_waits_for_its_own_children_only(host):
    """`wait` without arguments would hang on a child that never ends."""
    text = 'exec 9>"$1"; flock 9; sleep 0 & wait; echo "status $?"; jobs; echo end'
    job = Job(host, "bash", "-c", text, "-", host.path("f"))
    assert [job.line() for _ in range(3)] == ["status 0", "end", None]


def locks_of(pid, path):
    """What the process holds on the file by each of its descriptors of it."""
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        if os.readlink(f"/proc/{pid}/fd/{fd}") == path:
            with open(f"/proc/{pid}/fdinfo/{fd}") as f:
                found.append("".join(line for line in f if line.startswith("lock:")))
    return found
