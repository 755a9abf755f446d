"""Holders are found, and stopped, on whatever file system their lock files are, and in whatever mount namespace they run."""
import os

import pytest
from harness import Job, wait_until

from jobs import frozen, let_go, state
from keepers import LONG, on, opened  # noqa: F401 (fixture)
from test_freeze_programs import HIDDEN, LONG_LEASE

HOLDER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | (os.O_CREAT if sys.argv[2:] else 0), 0o644)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
while sys.stdin.readline():
    print("runs", flush=True)
"""


def job(ground, host, *words):
    return Job(host, *ground.inside, "/usr/bin/python3", "-c", *words).held()


def holders(host, name):
    return {h["pid"] for lease in host.status()["leases"] for h in lease["holders"] if lease["name"] == "t/" + name}


def locked_by(pid):
    """One look may miss some, while others come and go."""
    with open("/proc/locks") as f:
        return [line.split()[5] for line in f if line.split()[4] == str(pid)]


@pytest.mark.parametrize("kind", ["tmpfs", "disk", "overlay", "btrfs", "container"])
def test_holders_are_stopped(on, redis, kind):  # noqa: F811
    """One that has a descriptor. One that has a mapping alone: only /proc/locks and /proc/PID/maps tell, by the kernel's own number of the file
    (not on overlayfs, which maps the file of a layer: there the lock ends with its descriptor). One whose lock is on its way through a socket:
    only /proc/locks shows it, and who took it. And not one that has locked another file with the same number in /proc/locks."""
    ground, host = on(kind, lease=LONG_LEASE)
    jobs = [job(ground, host, HOLDER, host.path("f"), "create"), job(ground, host, HIDDEN, "message, alive", host.path("g"))]
    mapping = job(ground, host, HIDDEN, "mapping", host.path("h"))
    wait_until(lambda: locked_by(jobs[1].pid), "it is listed")
    if kind not in ("overlay", "container"):
        wait_until(lambda: locked_by(mapping.pid), "it is listed")
    if locked_by(mapping.pid):
        jobs.append(mapping)
    assert holders(host, "f") == {jobs[0].pid}
    spared = []
    if ground.twins_there():
        mine, other = ground.twins()
        jobs.append(job(ground, host, HOLDER, mine))
        spared.append(job(ground, host, HOLDER, other))
        wait_until(lambda: locked_by(jobs[-1].pid) == locked_by(spared[0].pid) != [], "else this test shows nothing")
        assert holders(host, os.path.basename(mine)) == {jobs[-1].pid}
    frozen(host, redis)
    for one in jobs:
        wait_until(lambda: state(one.pid) in "tT", "a holder is frozen", 10)
    let_go(host, redis)
    assert [state(one.pid) for one in spared if state(one.pid) in "tT"] == []
    for one in jobs:
        one.say("")
        assert one.line() == "runs"


@pytest.mark.parametrize("kind", ["disk", "overlay", "btrfs"])
def test_record_locks_of_the_caller_are_known(on, kind):  # noqa: F811
    """With at_least_ms, a shared lock is had only by a caller that has the file locked already."""
    _, host = on(kind, more="at_least_ms = 1;", lease=LONG)
    holder = opened(host)
    assert [holder.do(f"setlk 0 {mode} 0 0") for mode in ("ex", "sh")] == ["ok", "ok"]
