"""flock() between hosts: what excludes, what does not, and in which order. Conversions: tests/model."""
import os
import signal
import subprocess
import time

import pytest
from harness import Job, wait_until
from harness.host import BUILD, SHIM

from jobs import state
from keepers import held, open_at, opened, wanted_elsewhere  # noqa: F401 (fixture)


MODES = [("ex", "ex", True), ("ex", "sh", True), ("sh", "ex", True), ("sh", "sh", False)]


def test_modes(two, open_at):
    a, b = open_at(two[0]), open_at(two[1])
    for first, second, excludes in MODES:
        assert a.do(f"flock 0 {first} nb") == "ok"
        assert b.do(f"flock 0 {second} nb") == ("EAGAIN" if excludes else "ok"), (first, second)
        assert a.do("flock 0 un") == "ok"
        assert b.do(f"flock 0 {second} nb") == "ok"
        assert b.do("flock 0 un") == "ok"


def test_without_shim_nothing_excludes(make_host):
    """The control: the same files without the shim. If this excluded, the tests here and in test_record.py would show nothing."""
    a, b = opened(make_host("a", shim=False)), opened(make_host("b", shim=False))
    assert [agent.do("flock 0 ex nb") for agent in (a, b)] == ["ok"] * 2
    assert [agent.do("setlk 0 ex 0 10") for agent in (a, b)] == ["ok"] * 2


def test_waiter_gets_it_soon_after_unlock(two, open_at):
    a, b = open_at(two[0]), open_at(two[1])
    assert a.do("flock 0 ex") == "ok"
    b.say("flock 0 ex")
    wanted_elsewhere(two[0])
    assert b.silent(0.05)
    before = time.monotonic_ns()
    assert a.do("flock 0 un") == "ok"
    word, got = b.heard()
    assert word == "ok" and got > before
    assert a.do("flock 0 sh nb") == "EAGAIN"


def test_every_end_of_the_description_hands_over(two):
    for end in ("close", "kill", "exit"):
        a, b = two[0].opened(end, "flock 0 ex"), opened(two[1], end).say("flock 0 ex")
        wanted_elsewhere(two[0])
        if end == "close":
            a.do("close 0")
        elif end == "kill":
            os.kill(a.pid, signal.SIGKILL)
        else:
            a.process.stdin.close()
        assert b.heard()[0] == "ok", end


def test_lives_as_long_as_a_copy_in_another_process(two):
    """fork: the child's copy keeps the lock after the parent's close and death."""
    a, b = two[0].opened("f", "flock 0 ex"), opened(two[1])
    child = a.say("fork").heard()[1]
    os.kill(a.pid, signal.SIGKILL)
    try:
        b.say("flock 0 ex")
        wanted_elsewhere(two[0])
        assert b.silent(0.2)
    finally:
        os.kill(child, signal.SIGKILL)
    assert b.heard()[0] == "ok"


def test_upgraders_on_two_hosts_both_succeed(two):
    a, b = two[0].opened("f", "flock 0 sh"), two[1].opened("f", "flock 0 sh")
    a.say("flock 0 ex")
    b.say("flock 0 ex")
    first, second = (a, b) if not a.silent(5) else (b, a)
    assert first.heard()[0] == "ok"
    assert second.silent(0.1)
    assert first.do("flock 0 un") == "ok"
    assert second.heard()[0] == "ok"


def test_two_files_under_one_name_on_one_host(make_host):
    """A lock file deleted and made anew: two inodes, one name. They exclude each other as two hosts do."""
    a = make_host("a")
    one, two_ = opened(a), None
    assert one.do("flock 0 ex") == "ok"
    os.unlink(a.path("f"))
    two_ = opened(a)
    assert two_.do("flock 0 ex nb") == "EAGAIN"
    two_.say("flock 0 ex")
    assert two_.silent(0.2)
    one.do("flock 0 un")
    assert two_.heard()[0] == "ok"


@pytest.mark.parametrize("command", ["flock 0 ex", "setlk 0 ex 0 1 w"])
def test_a_signal_ends_the_wait(two, open_at, command):
    """Nothing is left of it. Where the handler says so, the call goes on."""
    a, b = open_at(two[0]), open_at(two[1])
    assert a.do(command) == "ok"
    b.do("alarm 200")
    assert b.do(command) == "EINTR"
    wait_until(lambda: not held(two[1]), "nothing is left of the wait")
    locks = two[0].status()["cluster"]["locks"]
    assert [len(l["waiters"]) for l in locks if l["name"] == "t/f"] == [0]
    b.do("restart 100")
    b.say(command)
    wanted_elsewhere(two[0])
    assert b.silent(0.5)
    assert a.do("close 0") == "ok"
    assert b.heard()[0] == "ok"


def test_a_waiter_that_is_killed_leaves_nothing(two):
    """Though a child that it forked meanwhile has a copy of its connection."""
    one = opened(two[0])
    assert one.do("flock 0 ex") == "ok"
    waiter = Job(two[1], os.path.join(BUILD, "tests/interpose/waits"), "fork", "x", two[1].path("f"))
    wait_until(lambda: held(two[1]), "it waits")
    os.kill(waiter.pid, signal.SIGUSR1)
    wait_until(lambda: len(waiter.processes()) == 2, "it has forked")
    waiter.process.kill()
    waiter.process.wait()
    wait_until(lambda: not held(two[1]), "nothing is left of the wait")
    assert [pid for pid in waiter.processes() if state(pid) != "Z"], "else this test shows nothing"


def test_directory_and_open_modes(two):
    for h in two:
        os.mkdir(h.path("d"))
        open(h.path("f"), "w").close()
    for flags, name in (("dir", "d"), ("r", "f"), ("wc", "w")):
        a, b = opened(two[0], name, flags), opened(two[1], name, flags)
        assert a.do("flock 0 ex nb") == "ok"
        assert b.do("flock 0 ex nb") == b.do("flock 0 sh nb") == "EAGAIN", flags


def test_idle_lease_is_taken_without_waiting(make_host):
    """A host that has the lease cached and does not use it gives it to a non-blocking caller elsewhere."""
    a, b = make_host("a", lease="ttl_ms = 30000; linger_ms = 30000;"), make_host("b", lease="ttl_ms = 30000;")
    one, other = a.opened("f", "flock 0 ex"), opened(b)
    one.do("flock 0 un")
    assert held(a, state="held")
    assert other.do("flock 0 ex nb") == "ok"


def test_dead_host_is_taken_over_after_a_ttl(make_host):
    a, b = make_host("a", lease="ttl_ms = 1000;"), make_host("b", lease="ttl_ms = 1000;")
    one, other = a.opened("f", "flock 0 ex"), opened(b)
    wait_until(a.kill_keeper, "the host is dead")
    start = time.monotonic()
    assert other.do("flock 0 ex", seconds=10) == "ok"
    assert time.monotonic() - start >= 0.99  # not before it has watched the silence for one ttl


# A lease of a host that is no more, as the scripts write it; but the store's record does not know of it.
GHOST = """
redis.call('SET', KEYS[1], cmsgpack.pack({q = {}, l = {{token = ARGV[1], host = ARGV[2], file = '1:1', space = 'flock',
    mode = 'exclusive', from = string.rep('0', 19), to = '9223372036854775807', fence = 1}}}))
redis.call('HSET', 'dflock:{0}:hosts', ARGV[2], ARGV[3])
"""


def test_more_dead_hosts_than_can_be_named_at_once(make_host, redis):
    """An acquire names the dead hosts that are in its way first: the others may be remembered for long."""
    count = 20
    a = make_host("a", lease="ttl_ms = 1000; dead_ms = 600000;")
    now = int(time.time() * 1000)
    for i in range(count):
        redis.command("EVAL", GHOST, 1, "dflock:{0}:lock:t/f%d" % i, "%032x" % (i + 1), "ghost-%d" % i, now)
    agents = [opened(a, "f%d" % i) for i in range(count)]
    for agent in agents:
        agent.say("flock 0 ex")
    for agent in agents:
        assert agent.heard(10)[0] == "ok"


def test_fence_numbers_grow(two):
    fences = []
    for host in (two[0], two[1]) * 3:
        agent = host.opened("f", "flock 0 ex")
        fences.append(held(host)[0]["fence"])
        agent.kill()
    assert fences == sorted(set(fences))


# The pause is long enough for the keeper to free all that it knows of a file that nobody uses.
LOOP = """
import fcntl, sys, time
f = open(sys.argv[1], "w")
print("ready", flush=True)
sys.stdin.readline()
for i in range(300):
    fcntl.flock(f, fcntl.LOCK_EX)
    fcntl.flock(f, fcntl.LOCK_UN)
    time.sleep(0.001)
"""


def test_a_hot_file_does_not_go_to_and_fro_all_the_time(make_host, redis):
    """The same with and without min_hold_ms: how often the lease changes hands while two hosts lock all the time."""
    grants = {}
    for hold in (0, 1000):
        hosts = [make_host(f"{name}{hold}", lease=f"ttl_ms = 3000; min_hold_ms = {hold};") for name in "ab"]
        loops = [h.popen("/usr/bin/python3", "-c", LOOP, h.path("hot"), stdin=subprocess.PIPE) for h in hosts]
        assert all(p.stdout.readline() == "ready\n" for p in loops)
        before = int(redis.command("HGET", "dflock:{0}:store", "fence"))
        for p in loops:
            p.stdin.write("\n")
            p.stdin.flush()
        assert all(p.wait(60) == 0 for p in loops)
        grants[hold] = int(redis.command("HGET", "dflock:{0}:store", "fence")) - before
    assert grants[1000] * 2 < grants[0], grants


@pytest.mark.parametrize("path", ["granted", "from the page"])
def test_a_kernel_lock_that_is_taken_late_counts_for_nothing(make_host, tmp_path, path):
    """
    A program is stopped between its pin, or its look at the page, and its kernel lock, until the lease is another host's. The probe
    has found no holder, and holds nothing: the program gets the kernel lock at once, and must ask again.
    """
    a, b = make_host("a"), make_host("b")
    held = str(tmp_path / "held")
    a.inside = ["env", f"LD_PRELOAD={SHIM}:{os.path.join(BUILD, 'tests/preload/held.so')}", f"DFLOCK_TEST_HELD={held}"]
    late, other = opened(a), opened(b)
    if path == "from the page":
        assert late.do("flock 0 ex") == "ok" and late.do("flock 0 un") == "ok"
    open(held, "w").close()
    late.say("flock 0 ex")
    wait_until(lambda: os.path.exists(held + ".reached"), "the program is about to take the kernel lock")
    assert other.do("flock 0 ex") == "ok"
    os.unlink(held)
    assert late.silent()
    before = time.monotonic_ns()
    assert other.do("flock 0 un") == "ok"
    word, got = late.heard()
    assert word == "ok" and got > before
