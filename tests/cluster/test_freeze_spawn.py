"""Holders that start programs all the time are stopped in the middle of vfork() and posix_spawn(), and not killed for it."""
import os
import signal

import pytest
from harness import BUILD, Job, wait_until

from jobs import grows, is_frozen, size, state

LEASE = "ttl_ms = 6000; freeze_margin_ms = 2500;"
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
    a = make_host("a", lease=LEASE)
    holder = Job(a, "/usr/bin/python3", "-c", HOLDER, a.path("f"), os.path.join(BUILD, "tests/agents/vforks"),
                 a.path("out"), str(COUNT))
    held = holder.line().split()
    assert held[0] == "held"
    pids = [int(p) for p in held[1:]]
    wait_until(lambda: sum(state(p) == "D" for p in pids) > COUNT // 2, "most of them wait in vfork()")
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "they are frozen", 20)
    before = size(a.path("out"))
    assert is_frozen(a.path("out")) and size(a.path("out")) == before
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in a.log(), "the leases stand", 20)
    grows(a.path("out"))
    holder.say("")
    assert holder.line().split() == ["None"] * COUNT, "all of them run"
    assert "killed" not in a.log()


@pytest.mark.parametrize("how", ["flock", "fcntl files", "fcntl", "fcntl vm"])
def test_siblings_by_clone_parent(make_host, redis, how):
    """A process that a holder starts by clone(CLONE_PARENT) is its sibling, and no descendant. It is stopped if it holds the lock itself: by the
    description, or with the same table of descriptors. Else nothing shows that the holder has started it, and it runs on: docs/guarantees.md says so."""
    a = make_host("a", lease=LEASE)
    out = a.path("out")
    # A shell is the parent of both: what the test starts may not end while it has a child that nobody waits for.
    job = Job(a, "bash", "-c", '"$@" & wait', "bash", os.path.join(BUILD, "tests/agents/sibling"), a.path("f"), out, *how.split())
    pid = int(job.line())
    try:
        grows(out)
        redis.signal(signal.SIGSTOP)
        wait_until(lambda: "are frozen" in a.log(), "the holder is frozen", 20)
        if how in ("flock", "fcntl files"):
            assert is_frozen(out) and state(pid) in "tT"
        else:
            grows(out)
        redis.signal(signal.SIGCONT)
        wait_until(lambda: "go on" in a.log(), "the leases stand", 20)
        grows(out)
    finally:
        os.kill(pid, signal.SIGKILL)
