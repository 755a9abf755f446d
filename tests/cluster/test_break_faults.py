"""
dflock break when keeper, parent or store stop in the middle.

What must not be: another host has the lock while the former holder can go on. The dangerous places (keeper/leases/
breaking.c): the slot says "lost", and the holders run; they have ended, and the lease is not released. The first is held open
by stopping the parent, which ends the holders; the second by stopping the keeper, which sends the release.
"""
import os
import signal

import pytest
from harness import BUILD, wait_until
from harness.host import SHIM

from breaking import breaking, broken, runs, taker, waits
from jobs import grows, job, pid_of, size
from keepers import held, opened, wait_for_another

LEASE = "ttl_ms = 12000; freeze_margin_ms = 3000;"


@pytest.fixture
def doomed(make_host):
    """a, b, a's job, its file, b's job that waits, the command, a's parent and keeper: the slot says "lost", the parent is stopped."""
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE)
    process, path = job(a)
    next_one = taker(b)
    waits(a)
    parent, keeper = a.keeper_pids()
    os.kill(parent, signal.SIGSTOP)
    command = breaking(a, "t/f")
    wait_until(lambda: "is taken away on request of an operator here" in a.log(), "the holders are to be ended")
    grows(path)  # none has ended them
    assert b.status()["cluster"]["locks"][0]["leases"][0]["host"].startswith("a-")
    yield a, b, process, path, next_one, command, parent, keeper
    for each in (process, next_one, command):
        each.kill()
        each.wait()
        each.stdout.close()
        each.stderr.close()


def handed_over(b, next_one, path):
    """b's job has the lock, and the former holder does nothing any more. (A process that was killed may need some time to end.)"""
    assert next_one.stdout.readline() == "got\n"
    written = size(path)
    wait_until(lambda: not runs(pid_of(path)), "the former holder has ended")
    assert size(path) == written
    assert [lease["state"] for lease in held(b)] == ["held"]


def test_the_keeper_is_killed_before_the_holders_have_ended(doomed):
    a, b, process, path, next_one, command, parent, keeper = doomed
    os.kill(keeper, signal.SIGKILL)
    assert command.wait(20) == 1
    assert "the keeper" in command.stderr.read()
    os.kill(parent, signal.SIGCONT)
    handed_over(b, next_one, path)


def test_the_parent_is_killed_before_the_holders_have_ended(doomed):
    a, b, process, path, next_one, command, parent, keeper = doomed
    os.kill(parent, signal.SIGKILL)
    wait_for_another(a, keeper)
    handed_over(b, next_one, path)
    a.keeper.wait()


def test_the_keeper_is_killed_before_the_release(doomed):
    a, b, process, path, next_one, command, parent, keeper = doomed
    os.kill(keeper, signal.SIGSTOP)
    os.kill(parent, signal.SIGCONT)
    wait_until(lambda: not runs(pid_of(path)), "the holder has ended", 20)
    assert b.status()["cluster"]["locks"][0]["leases"][0]["host"].startswith("a-")  # not released
    os.kill(keeper, signal.SIGKILL)
    handed_over(b, next_one, path)


def test_the_store_is_away_before_the_release(doomed, redis):
    a, b, process, path, next_one, command, parent, keeper = doomed
    redis.signal(signal.SIGSTOP)
    os.kill(parent, signal.SIGCONT)
    wait_until(lambda: not runs(pid_of(path)), "the holder has ended", 20)
    redis.signal(signal.SIGCONT)
    handed_over(b, next_one, path)


def breaks_another(host):
    """A lock of another file is taken away from its holder, from the first step to the last."""
    holder = host.opened("g", "flock 0 ex nb")
    assert "taken away" in broken(host, "t/g").stdout
    assert holder.process.wait(20) == -signal.SIGKILL


@pytest.mark.parametrize("path", ["granted", "from the page"])
def test_a_program_between_its_grant_and_its_kernel_lock(make_host, tmp_path, path):
    """
    No search for holders finds it. Granted: the break waits for the end of its pin, and then it is a holder like others. From the
    page: it gets the kernel lock when the lease is another host's, and must ask again.
    """
    a, b = make_host("a", lease="ttl_ms = 60000; pin_ms = 30000; linger_ms = 30000;"), make_host("b", lease="ttl_ms = 60000;")
    sign = str(tmp_path / "held")
    a.inside = ["env", f"LD_PRELOAD={SHIM}:{os.path.join(BUILD, 'tests/preload/held.so')}", f"DFLOCK_TEST_HELD={sign}"]
    late, other = opened(a), opened(b)
    a.inside = []
    if path == "from the page":
        assert late.do("flock 0 ex") == "ok" and late.do("flock 0 un") == "ok"
    open(sign, "w").close()
    late.say("flock 0 ex")
    wait_until(lambda: os.path.exists(sign + ".reached"), "the program is about to take the kernel lock")
    command = breaking(a, "t/f")
    if path == "granted":
        wait_until(lambda: held(a, name="t/f", state="breaking"), "the lease is closed to all")
        breaks_another(a)  # a break that does not wait would have got further by then: it began earlier
        assert held(a, name="t/f", state="breaking")
        os.unlink(sign)
        assert late.heard()[0] == "ok"
        assert command.wait(20) == 0
        assert late.process.wait(20) == -signal.SIGKILL
        assert other.do("flock 0 ex nb") == "ok"
    else:
        assert command.wait(20) == 0
        assert other.do("flock 0 ex nb") == "ok"
        os.unlink(sign)
        assert late.silent()
        assert other.do("flock 0 un") == "ok"
        assert late.heard()[0] == "ok"
    command.communicate()


def test_a_keeper_that_ended_left_its_lease_in_the_store(make_host):
    """No host waits for it, so nothing has released it: breaking it again does."""
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE)
    process, path = job(a)
    parent, keeper = a.keeper_pids()
    os.kill(parent, signal.SIGSTOP)
    command = breaking(a, "t/f")
    wait_until(lambda: "is taken away on request" in a.log(), "the holders are to be ended")
    os.kill(keeper, signal.SIGKILL)
    os.kill(parent, signal.SIGCONT)
    assert process.wait(20) != 0
    wait_for_another(a, keeper)
    left, = b.status()["cluster"]["locks"]
    assert not held(a) and left["leases"][0]["host"].startswith("a-")
    for host in (b, a):  # b has no right to end processes of a, but there are none
        done = host.cli("break", "--yes", "t/f", check=False)
        assert done.returncode in (0, 3), done.stderr
    assert not b.status()["cluster"]["locks"]
    command.communicate(timeout=20)
