"""A process may have any number of descriptors, and the keeper looks at all of them when the process asks for a POSIX lock. No
other caller waits for that."""
import os
import signal
import subprocess

import pytest
from common import attempt, opened
from harness import Job, hanging, text_of, wait_until
from harness.metrics import value
from harness.processes import is_traced, threads_of

GETDENTS64 = {"x86_64": "217", "aarch64": "61"}[os.uname().machine]
# Nothing else makes the keeper list directories while a test runs.
LONG = "ttl_ms = 20000; past_look_ms = 0; linger_ms = 60000;"
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


class Traced:
    """What the keeper's threads call."""

    def __init__(self, host, *what):
        self.keeper = host.keeper_pids()[1]
        self.calls = host.log_path + ".trace"
        self.trace = subprocess.Popen(["strace", "-qq", "-f", "-o", self.calls, "-p", str(self.keeper), *what], stderr=subprocess.DEVNULL)
        wait_until(lambda: all(is_traced(tid, self.trace.pid) for tid in threads_of(self.keeper)), "the keeper is traced")

    def waiting(self):
        """Threads of the keeper that are about to list a directory."""
        return [tid for tid in map(int, os.listdir(f"/proc/{self.keeper}/task"))
                if text_of(f"/proc/{self.keeper}/task/{tid}/syscall").split()[0] == GETDENTS64]

    def end(self):
        self.trace.terminate()
        self.trace.wait(20)


@pytest.fixture
def traced():
    ends = []

    def start(host, *what):
        ends.append(Traced(host, *what))
        return ends[-1]
    yield start
    for each in ends:
        each.end()


# Each list of a directory's entries takes the keeper a minute, in whichever thread: of the descriptors of a process, say.
SLOWLY = "-e", "trace=getdents64", "-e", "inject=getdents64:delay_enter=60000000"


@pytest.fixture
def away(make_host, make_view):
    """A host with a file system that is not local, at "away"."""
    host = make_host("a", lease=LONG)
    make_view(host.path("away"), hanging.OPEN)
    return host


def test_others_are_served_meanwhile(away, traced):
    """Four processes of the same user whose descriptors are looked at, and callers of local files and of others."""
    crowd = [many(away, "f%d" % i) for i in range(4)]
    slow = traced(away, *SLOWLY)
    for each in crowd:
        each.say("0")
    wait_until(lambda: len(slow.waiting()) == 2, "two threads look at descriptors")
    for i in range(20):
        assert attempt(away, "g%d" % i).word == "ok"
    assert opened(away, "away/h").do("flock 0 ex nb") == "ok"
    assert all(each.silent(0) for each in crowd) and len(slow.waiting()) == 2
    assert slow.keeper not in slow.waiting() and away.keeper_pids()[1] == slow.keeper
    slow.end()
    assert [each.line() for each in crowd] == ["locked"] * 4


def test_others_are_served_while_deadlocks_are_searched(away, make_host, traced):
    """Twenty processes of a hold a byte each and wait for b. Twenty calls of b wait for these bytes: each may close a cycle."""
    b = make_host("b", lease=LONG)
    assert opened(b).do("setlk 0 ex 100 1") == "ok"
    for i in range(20):
        away.opened("f", f"setlk 0 ex {i} 1").say("setlk 0 ex 100 1 w")
    wait_until(lambda: sum(len(l["waiting"]) for l in away.status()["leases"]) == 20, "twenty calls of a wait")
    slow = traced(away, *SLOWLY)
    for i in range(20):
        opened(b).say(f"setlk 0 ex {i} 1 w")
    wait_until(lambda: value(b, "waiters", space="record") == 20 and slow.waiting(), "twenty calls of b wait, and are searched for")
    assert opened(away, "away/h").do("flock 0 ex nb") == "ok"
    assert len(slow.waiting()) == 1
    slow.end()


def test_a_contended_range_is_no_search_of_all_processes(make_host, traced):
    """Process 1 takes no part in it."""
    a, b = make_host("a", lease=LONG), make_host("b", lease=LONG)
    one, other = opened(a), opened(b)
    trace = traced(a, "-e", "trace=openat")
    for _ in range(10):
        assert one.do("setlk 0 ex 0 1 w") == "ok"
        other.say("setlk 0 ex 0 1 w")
        wait_until(lambda: value(a, "leases", space="record", state="waiting"), "the lease is wanted by the other host")
        one.do("setlk 0 un 0 1")
        assert other.heard()[0] == "ok" and other.do("setlk 0 un 0 1") == "ok"
    trace.end()
    calls = text_of(trace.calls)
    assert f'"/proc/{one.pid}"' in calls and '"/proc/1"' not in calls


CROWD = """
import fcntl, os, signal, sys
f = open(sys.argv[2], "a")
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        fcntl.lockf(f, fcntl.LOCK_EX, 10)
        os._exit(0)
print("ready", flush=True)
signal.pause()
"""


def test_a_crowd_does_not_flood_the_store(make_host):
    """Each call asks the store when it comes. If each answer had all others search for a deadlock, the messages would be half the square of
    the calls."""
    a, b = make_host("a", lease=LONG), make_host("b", lease=LONG)
    assert opened(b).do("setlk 0 ex 0 1") == "ok"
    job = Job(a, "/usr/bin/python3", "-c", CROWD, "150", a.path("f"))
    assert job.line() == "ready"
    wait_until(lambda: value(a, "waiters", space="record") == 150, "all wait")
    wait_until(lambda: value(a, "store_requests_total", operation="acquire") >= 150, "each has asked")
    a.status()  # the store has answered them before this
    assert value(a, "store_requests_total", operation="other") < 150 * 150 / 4


RANGES = CROWD.replace("fcntl.LOCK_EX, 10)", "fcntl.LOCK_EX, 1, 2 * _)")


def test_many_that_wait_ask_seldom(make_host):
    """The server looks at all that wait for the name each time that one asks again."""
    a, b = (make_host(name, lease="ttl_ms = 4000; idle_ms = 60000;") for name in "ab")
    assert opened(b).do("setlk 0 ex 0 0") == "ok"
    job = Job(a, "/usr/bin/python3", "-c", RANGES, "150", a.path("f"))
    assert job.line() == "ready"
    wait_until(lambda: value(a, "leases", space="record", state="asking") == 150, "all wait")
    beats, asked = (lambda: value(a, "beats_total", result="counted")), (lambda: value(a, "store_requests_total", operation="acquire"))
    before, at_first = beats(), asked()
    wait_until(lambda: beats() >= before + 3, "three thirds of a ttl", 30)
    assert asked() - at_first < 500  # 340; 1400 if each asked for itself, where there is time for so many


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
