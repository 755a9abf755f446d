"""The basic promises on each kind of file system, for root, for an ordinary user, and for two users of a system keeper."""
import os
import signal
import subprocess

import pytest
from harness import wait_until
from harness.filesystems import MANY_LOCKS
from harness.processes import state


def frozen_and_on(redis, pid, seconds=20):
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: state(pid) in "tT", "the holder is stopped", seconds)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: state(pid) not in "tT", "the holder goes on", seconds)


def test_the_basic_promises(sides, redis):
    a, b = sides
    # Of two hosts one has it; another user here is refused by the kernel; the end of the holder hands over.
    holder, neighbour, other = a.agent("f"), a.agent("f", 1), b.agent("f", 1)
    assert holder.do("flock 0 ex nb") == "ok"
    assert neighbour.do("flock 0 ex nb") == "EAGAIN"
    assert other.do("flock 0 sh nb") == "EAGAIN"
    other.say("flock 0 ex")
    wait_until(lambda: any(l["note"] == "wanted by another host" for l in a.host.status()["leases"]), "it is recalled")
    assert other.silent(0.1)
    holder.process.kill()
    assert other.heard()[0] == "ok"
    assert neighbour.do("flock 0 ex nb") == "EAGAIN"
    # Record locks exclude range by range.
    holder, other = a.agent("g"), b.agent("g", 1)
    assert holder.do("setlk 0 ex 10 10") == "ok"
    assert other.do("setlk 0 ex 0 10") == "ok"
    assert other.do("setlk 0 ex 15 1") == "EAGAIN"
    for _ in range(3):
        assert other.do("getlk 0 ex 0 100") == "ex:10:10:-1"
    holder.process.kill()
    wait_until(lambda: other.do("setlk 0 ex 15 1") == "ok", "the range is free")
    # The keeper is killed: the next one takes the lease up, and does not give it back while the lock is held.
    holder, other = a.agent("h", 1), b.agent("h")
    assert holder.do("flock 0 ex nb") == "ok"
    keeper = a.host.keeper_pids()[1]
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: keeper not in a.host.keeper_pids() and a.host.serves(), "the next one serves")
    assert other.say("flock 0 ex").silent(1)  # only time can show that it is not given back
    # The store does not answer: the holder is stopped, and goes on when the lease stands.
    frozen_and_on(redis, holder.pid)
    assert holder.do("flock 0 un") == "ok"
    assert other.heard()[0] == "ok"


MANY = """
import fcntl, os, sys
folder, count = sys.argv[1], int(sys.argv[2])
fds = []
for i in range(count):
    fds.append(os.open("%s/many-%d" % (folder, i), os.O_RDWR | os.O_CREAT, 0o644))
    fcntl.flock(fds[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
print("ok", count, flush=True)
sys.stdin.readline()
for fd in fds:
    fcntl.flock(fd, fcntl.LOCK_UN)
print("ok", flush=True)
"""


@pytest.mark.alone
@pytest.mark.parametrize("ground", ["tmpfs"], indirect=True)  # the number does not depend on the file system
@pytest.mark.parametrize("sides", ["user", "system"], indirect=True)  # and a system's keeper is root's
def test_many(sides, redis):
    """As many locks as there is room for, 20,000 at the most: all are held, taken up by the next keeper, frozen, and given back."""
    a, b = sides
    count = MANY_LOCKS * 3 // 4 if a.users else MANY_LOCKS  # root's share of a system keeper's room
    many = a.host.popen("/usr/bin/python3", "-c", MANY, a.host.files, str(count), stdin=subprocess.PIPE)
    said = many.stdout.readline()
    assert said == f"ok {count}\n", said + many.stderr.read()
    os.kill(a.host.keeper_pids()[1], signal.SIGKILL)
    wait_until(a.host.serves, "the next one serves", 60)
    other = b.agent(f"many-{count - 1}")
    assert other.do("flock 0 ex nb") == "EAGAIN"
    frozen_and_on(redis, many.pid, 60)
    many.stdin.write("un\n")
    many.stdin.flush()
    assert many.stdout.readline() == "ok\n"
    wait_until(lambda: other.do("flock 0 ex nb") == "ok", "the other host has it", 60)
    many.communicate(timeout=20)
