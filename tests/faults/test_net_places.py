"""
`dflock run --net=on`: each supervisor is killed at each of its system calls, one after the other, since only by those does it do anything
that others see. The job's calls give what they would have given; nothing stays locked; two supervisors are there again.

DFLOCK_NET_PLACES: every so many places are tried; 1: all of them (make net-places).
"""
import os
import signal
import subprocess
from itertools import count

import pytest
from common import leases
from harness import text_of, wait_until
from harness.host import BUILD, NET
from harness.netted import both, netted, opened, stat, supervisors
from harness.processes import wait_channel

NTH = os.path.join(BUILD, "tests/net/nth")
STEP = int(os.environ.get("DFLOCK_NET_PLACES", "7"))
FIRST, SECOND = 0, 1
# Nothing runs out while a test looks.
LEASE = "ttl_ms = 20000;"


class Nth:
    """Kills a process at its Nth system call. depth 1: the next child that it starts."""

    def __init__(self, pid, n, depth=0):
        self.process = subprocess.Popen([NTH, str(depth), str(n), str(pid)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def end(self):
        """Was the process killed? If not, it has made fewer system calls."""
        self.process.send_signal(signal.SIGTERM)
        with self.process:
            return self.process.stdout.read().startswith("killed")


@pytest.fixture
def two(make_host):
    a, b = make_host("a", shim=False, lease=LEASE), make_host("b", lease=LEASE)
    for host in (a, b):
        open(host.path("f"), "w").close()
    return a, b


def places(step=STEP):
    """Each place of this run; the test ends the loop when there are no more."""
    return count(1, step)


class Calls:
    """Kinds of caught calls of the job b. a: of the other host, under a net there. local: of the same host, without a net."""

    def __init__(self, two):
        self.two = two
        self.a, self.b, self.local = opened(two[0]), opened(two[1]), two[1].agent()
        assert self.local.do(f"open 0 {two[1].path('f')} rwc") == "ok"

    def wanted(self, host):
        wait_until(lambda: leases(host, note="wanted by another host"), "the lease is recalled")

    def end(self):
        for agent in (self.a, self.b, self.local):
            agent.kill()

    def has_it(self):
        """b has the lock, and nobody else; b gives it back, and nothing stays."""
        assert self.a.do("flock 0 ex nb") == "EAGAIN"
        assert self.b.do("flock 0 un") == "ok"
        self.is_free()

    def is_free(self):
        wait_until(lambda: self.a.do("flock 0 ex nb") == "ok", "it is free")
        assert self.a.do("flock 0 un") == "ok"

    def granted(self):
        assert self.b.do("flock 0 ex") == "ok"
        return self.has_it

    def record(self):
        """Both calls are caught."""
        assert self.b.do("setlk 0 ex 0 10") == "ok"
        assert self.a.do("setlk 0 ex 5 10") == "EAGAIN"
        assert self.b.do("setlk 0 un 0 10") == "ok"

        def free():
            wait_until(lambda: self.a.do("setlk 0 ex 5 10") == "ok", "it is free")
            assert self.a.do("setlk 0 un 5 10") == "ok"
        return free

    def waits(self):
        assert self.a.do("flock 0 ex") == "ok"
        self.b.say("flock 0 ex")
        self.wanted(self.two[0])
        assert self.a.do("flock 0 un") == "ok"
        assert self.b.heard()[0] == "ok"
        return self.has_it

    def refused(self):
        assert self.a.do("flock 0 ex") == "ok"
        assert self.b.do("flock 0 ex nb") == "EAGAIN"
        assert self.a.do("flock 0 un") == "ok"
        return self.is_free

    def converted(self):
        """The lock that it had is given up, and only once."""
        assert self.b.do("flock 0 sh") == "ok" and self.a.do("flock 0 sh") == "ok"
        assert self.b.do("flock 0 ex nb") == "EAGAIN"
        assert self.a.do("flock 0 ex nb") == "ok"
        assert self.a.do("flock 0 un") == "ok"
        return self.is_free

    def getlk(self):
        assert self.b.do("getlk 0 ex 0 5") == "un"
        assert self.a.do("setlk 0 ex 0 10") == "ok"
        assert self.b.do("getlk 0 ex 0 5").startswith("ex:0:10:")
        assert self.a.do("setlk 0 un 0 10") == "ok"
        wait_until(lambda: self.b.do("getlk 0 ex 0 5") == "un", "nothing is in the way")
        return self.is_free

    def called_back(self):
        """It waits in the kernel for a local holder, until the other host wants the lease."""
        assert self.local.do("flock 0 ex") == "ok"
        self.b.say("flock 0 ex")
        wait_until(lambda: "lock" in wait_channel(self.b.pid), "it waits in the kernel")
        self.a.say("flock 0 ex")
        self.wanted(self.two[1])
        assert self.local.do("flock 0 un") == "ok"
        first = wait_until(lambda: [agent for agent in (self.a, self.b) if not agent.silent(0)], "one of them has it")[0]
        second = self.b if first is self.a else self.a
        assert first.heard()[0] == "ok" and first.do("flock 0 un") == "ok"
        assert second.heard()[0] == "ok" and second.do("flock 0 un") == "ok"
        return self.is_free


KINDS = ["granted", "record", "waits", "refused", "converted", "getlk", "called_back"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_one_is_killed(two, kind):
    """At each place of its part in these calls. The second one decides what it has left."""
    calls = Calls(two)
    for n in places():
        pids = both(two[1])
        nth = Nth(pids[FIRST], n)
        then = getattr(calls, kind)()
        killed = nth.end()
        then()
        if not killed:
            break
        assert both(two[1], pids[:1])[FIRST] == pids[SECOND]
    assert n > STEP


def test_the_second_one_takes_over(two):
    """While a call waits; it is killed at each place of that. If no third one was there, all calls of the job fail from then on."""
    alone = 0
    for n in places():
        calls = Calls(two)
        assert calls.a.do("flock 0 ex") == "ok"
        calls.b.say("flock 0 ex")
        calls.wanted(two[0])
        pids = both(two[1])
        nth = Nth(pids[SECOND], n)
        os.kill(pids[FIRST], signal.SIGKILL)
        wait_until(lambda: not alive(pids[SECOND]) or len(others(two[1], pids)) == 1, "it has a second one, or is dead")
        assert calls.a.do("flock 0 un") == "ok"
        said = calls.b.heard()[0]
        killed = nth.end()
        if said == "ok":
            calls.has_it()
        else:
            assert said == "ENOSYS" and killed and not supervisors(two[1])
            assert calls.b.do("flock 0 ex nb") == "ENOSYS"
            calls.is_free()
            alone += 1
        calls.end()
        if not killed:
            break
    assert n > STEP and (alone or STEP > 1)


def others(host, pids):
    return set(supervisors(host)) - set(pids)


def alive(pid):
    return (stat(pid) or "Z")[0] != "Z"


@pytest.mark.parametrize("which", ["the first one", "the new one"])
def test_a_new_second_one_is_started(two, which):
    """After the second one was killed. The first one, or the new one, is killed at each place of that; calls are decided meanwhile."""
    for n in places():
        calls = Calls(two)
        pids = both(two[1])
        nth = Nth(pids[FIRST], n, depth=1 if which == "the new one" else 0)
        os.kill(pids[SECOND], signal.SIGKILL)
        if which == "the first one":
            # Alone until the new one waits: then it may die. It has said so, and sleeps in the kernel.
            wait_until(lambda: not alive(pids[FIRST]) or len(others(two[1], pids)) == 1, "a new one, or none")
            said = calls.b.do("flock 0 ex")
            killed = nth.end()
            assert said == "ok" or said == "ENOSYS" and killed and not supervisors(two[1])
            assert calls.b.do("flock 0 ex nb") == said
        else:
            then = calls.granted()
            then()
            both(two[1], pids[SECOND:])
            killed = nth.end()
            said = calls.b.do("flock 0 ex")
            assert said == "ok"
        if said == "ok":
            calls.has_it()
        calls.end()
        if not killed:
            break
    assert n > STEP


@pytest.mark.parametrize("which", [FIRST, SECOND])
def test_the_job_ends(two, which):
    """With its status, and no supervisor stays, at whatever place of their end one was killed."""
    for n in places(1):
        job = netted(two[1], "sh", "-c", "read line; exit 7", stdin=subprocess.PIPE)
        pids = wait_until(lambda: job_runs(job) and both(two[1]), "the job runs")
        nth = Nth(pids[which], n)
        job.communicate(timeout=20)
        assert job.returncode == 7
        wait_until(lambda: not supervisors(two[1]), "the supervisors end")
        if not nth.end():
            break
    assert n > 1 or which == SECOND


def job_runs(job):
    return text_of(f"/proc/{job.pid}/comm") == "sh\n"


# The process in the middle (net/main.c), the first supervisor, the second one.
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_job_begins(two, depth):
    """It runs under a net, or not at all, after a line. No supervisor stays."""
    refused = 0
    for n in places():
        job = subprocess.Popen(["sh", "-c", 'read line; exec "$@"', "-", NET, "", "sh", "-c", "exit 7"], env=two[0].env(), stdin=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        nth = Nth(job.pid, n, depth)
        stderr = job.communicate("\n", timeout=40)[1]
        if job.returncode == 125:
            assert stderr.startswith("dflock: not started: ") and stderr.count("\n") == 1, stderr
            refused += 1
        else:
            assert (job.returncode, stderr) == (7, "")
        wait_until(lambda: not supervisors(two[0]), "the supervisors end")
        if not nth.end():
            break
    assert n > STEP and (refused or depth == 3)
