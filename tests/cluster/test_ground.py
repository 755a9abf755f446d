"""Holders are found, and stopped, on whatever file system their lock files are, and in whatever mount namespace they run."""
import os
import signal

import pytest
from harness import Job, wait_until
from harness.ground import ALL, ground

from keepers import held
from jobs import LEASE, state
from test_freeze_programs import HIDDEN

HOLDER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | (os.O_CREAT if sys.argv[2:] else 0), 0o644)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
while sys.stdin.readline():
    print("runs", flush=True)
"""


@pytest.fixture
def on(request, make_host):
    """on(kind): the ground, and a host that protects its folder."""
    stack = []

    def make(kind):
        context = ground(kind)
        made = context.__enter__()
        stack.append(context)
        host = make_host("a", lease=LEASE, rules='{ tree = "%s"; name = "t"; }' % made.path)
        stack.append(host)
        return made, host

    yield make
    for context, host in zip(stack[::2], stack[1::2]):
        host.stop()  # nothing may be open there any more
        context.__exit__(None, None, None)


def job(made, host, *words):
    return Job(host, *made.inside, "/usr/bin/python3", "-c", *words).held()


def holders(host):
    return {h["pid"] for lease in host.status()["leases"] for h in lease["holders"]}


@pytest.mark.parametrize("kind", ALL)
def test_a_descriptor(on, redis, kind):
    made, host = on(kind)
    holder = job(made, host, HOLDER, os.path.join(made.path, "f"), "create")
    assert holders(host) == {holder.pid}
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: state(holder.pid) in "tT", "the holder is frozen", 10)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in host.log(), "it is let go", 20)
    holder.say("")
    assert holder.line() == "runs"


def locked_by(pid):
    with open("/proc/locks") as f:
        return [line for line in f if line.split()[4] == str(pid)]


@pytest.mark.parametrize("kind", ALL)
def test_a_mapping_alone(on, redis, kind):
    """The lock lives on in the mapping: only /proc/locks and /proc/PID/maps tell, by the kernel's own number of the file. (Not on
    overlayfs, which maps the file of a layer: there the lock ends with its descriptor.)"""
    made, host = on(kind)
    holder = job(made, host, HIDDEN, "mapping", os.path.join(made.path, "f"))
    if not locked_by(holder.pid):
        assert kind in ("overlayfs", "container")
        return
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: state(holder.pid) in "tT", "the holder is frozen", 10)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in host.log(), "it is let go", 20)
    holder.say("")
    assert holder.line() == "runs"


@pytest.mark.parametrize("kind", ALL)
def test_on_its_way_through_a_socket(on, redis, kind):
    """Only /proc/locks shows the lock, and who took it: that process is stopped."""
    made, host = on(kind)
    holder = job(made, host, HIDDEN, "message, alive", os.path.join(made.path, "f"))
    assert locked_by(holder.pid)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: state(holder.pid) in "tT", "the holder is frozen", 10)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: held(host, state="held", note=""), "the lease stands")
    holder.say("")
    assert holder.line() == "runs"


@pytest.mark.parametrize("kind", ["overlayfs", "btrfs"])
def test_another_file_with_the_same_number(on, redis, kind):
    """/proc/locks shows one number for a file of each of two subvolumes, or layers. A process that has locked the other file must
    be left alone."""
    made, host = on(kind)
    path, other = made.twins()
    holder = job(made, host, HOLDER, path)
    neighbour = job(made, host, HOLDER, other)
    with open("/proc/locks") as f:
        numbers = {line.split()[4]: line.split()[5] for line in f if line.split()[4] in (str(holder.pid), str(neighbour.pid))}
    assert len(numbers) == 2 and len(set(numbers.values())) == 1, numbers  # else this test shows nothing
    assert holders(host) == {holder.pid}
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in host.log(), "the holder is frozen", 10)
    assert state(holder.pid) in "tT"
    assert state(neighbour.pid) not in "tT"
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in host.log(), "it is let go", 20)
    assert state(neighbour.pid) not in "tT"
