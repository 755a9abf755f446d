"""
Lock calls that the net's supervisor let go on: the lease stays until the thread was seen out of the call, whatever dies meanwhile. The
tests ask on behalf of a thread (onbehalf.py), and the thread is where they want it: it sleeps, runs, waits for a lock, or cannot be
looked at because another process traces it.
"""
import ctypes
import os
import signal
import subprocess
import sys
import time

import pytest
from harness import wait_until
from harness.processes import wait_channel

from jobs import LEASE, state
from keepers import held, opened, wanted_elsewhere
from onbehalf import Asked, fk, granted

LIBC = ctypes.CDLL(None, use_errno=True)
SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000


@pytest.fixture
def program():
    """program(text): a Python program, which says a line when it is where it should be."""
    started = []

    def start(text, *words):
        p = subprocess.Popen([sys.executable, "-c", text, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(p)
        assert p.stdout.readline() == "here\n"
        return p

    yield start
    for p in started:
        p.kill()
        p.communicate()


SLEEPS = "import sys; print('here', flush=True); sys.stdin.read()"
RUNS = "import os\nos.nice(19)\nprint('here', flush=True)\nwhile True: pass"
WAITS = """
import fcntl, sys
f = open(sys.argv[1], "r+")
print("here", flush=True)
fcntl.flock(f, fcntl.LOCK_EX)
print("got it", flush=True)
sys.stdin.read()
"""


class Tracer:
    """Nobody else can look whether the thread has left the kernel."""

    def __init__(self, pid):
        self.pid = pid
        assert LIBC.ptrace(SEIZE, pid, None, None) == 0

    def let_go(self):
        assert LIBC.ptrace(INTERRUPT, self.pid, None, None) == 0
        os.waitpid(self.pid, WALL)
        assert LIBC.ptrace(DETACH, self.pid, None, None) == 0


@pytest.mark.parametrize("how", ["sleeps", "runs", "ended"])
def test_a_thread_that_has_left_the_call(two, program, how):
    a, b = two
    p = program(RUNS if how == "runs" else SLEEPS)
    assert granted(a, p.pid, 1)
    if how == "ended":
        p.communicate()
    assert opened(b).do("flock 0 ex nb") == "ok"
    assert how == "ended" or p.poll() is None


def in_flock(p):
    return "lock" in wait_channel(p.pid)


def test_a_thread_that_waits_for_a_local_holder(two, program):
    """It is called back, and what it waits for is the kernel's business: it gets the lock when the holder has ended."""
    a, b = two
    opened(a).do("flock 0 un")  # the file is there
    holder = a.opened("f", "flock 0 ex nb")
    p = program(WAITS, a.path("f"))
    wait_until(lambda: in_flock(p), "it waits")
    assert granted(a, p.pid, 1)
    other = opened(b).say("flock 0 ex")
    wanted_elsewhere(a)
    assert holder.do("flock 0 un") == "ok"
    assert p.stdout.readline() == "got it\n"
    p.communicate()
    assert other.heard()[0] == "ok"


@pytest.fixture
def two(make_host):
    """Hosts a and b. Host b asks, and a cannot say whether it uses the lock: a short probe_ms."""
    return make_host("a"), make_host("b", lease="ttl_ms = 3000; probe_ms = 200;")


@pytest.fixture
def stuck(two, program):
    """A call of a thread that nobody can see out of it; let_go() ends that."""
    p = program(RUNS)
    tracer = Tracer(p.pid)
    assert granted(two[0], p.pid, 7)
    return p, tracer


def test_the_lease_stays_until_it_was_seen_out(two, stuck):
    p, tracer = stuck
    other = opened(two[1])
    assert other.do("flock 0 ex nb") == "EAGAIN"
    other.say("flock 0 ex")
    assert other.silent(0.3)
    tracer.let_go()
    assert other.heard()[0] == "ok"


def test_status_and_who_name_it(two, stuck):
    """No process holds the lock, and the other host does not get it; the log and metrics say so, too."""
    p, tracer = stuck
    assert not held(two[0])[0]["calls"]
    other = opened(two[1]).say("flock 0 ex")
    wanted_elsewhere(two[0])
    call, = held(two[0])[0]["calls"]
    assert (call["pid"], call["thread"], call["from"], call["to"]) == (p.pid, p.pid, 0, None)
    assert f"kept by pid {p.pid} (thread {p.pid}, python3" in two[0].cli("status").stdout
    for host in two:
        wait_until(lambda: f"pid {p.pid} (python3" in host.cli("who", host.path("f")).stdout, "each host says who")
    wait_until(lambda: f"pid {p.pid} (thread {p.pid}) has not been seen out of its lock call" in two[0].log(), "the log says it")
    assert "dflock_calls_under_way 1" in two[0].cli("metrics").stdout
    tracer.let_go()
    assert other.heard()[0] == "ok"
    assert "dflock_calls_under_way 0" in two[0].cli("metrics").stdout


def test_the_next_keeper_knows_it(two, stuck):
    p, tracer = stuck
    a = two[0]
    keeper = a.keeper_pids()[1]
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: a.keeper_pids()[1:] not in ([], [keeper]), "the next keeper is there")
    a.wait_up()
    other = opened(two[1]).say("flock 0 ex")
    wanted_elsewhere(a)
    assert other.silent(0.3)
    tracer.let_go()
    assert other.heard()[0] == "ok"


def test_a_late_question_of_a_supervisor_that_died(two, stuck):
    """It names an earlier call. Neither it nor the same call's number ends the entry."""
    p, tracer = stuck
    a = two[0]
    assert Asked(a, p.pid, 6).answer() == (fk.REFUSED, "the thread has made another call since")
    assert granted(a, p.pid, 7)
    other = opened(two[1]).say("flock 0 ex")
    assert other.silent(0.3)
    tracer.let_go()
    assert other.heard()[0] == "ok"


@pytest.mark.parametrize("number", [1, (1 << 64) - 1], ids=["small", "largest"])
def test_the_next_call_of_the_thread_ends_it(two, program, number):
    """Numbers pass from the largest to the smallest."""
    p = program(RUNS)
    tracer = Tracer(p.pid)
    assert granted(two[0], p.pid, number)
    assert granted(two[0], p.pid, (number + 1) % (1 << 64), name="1")
    assert opened(two[1]).do("flock 0 ex nb") == "ok"
    assert opened(two[1], "1").do("flock 0 ex nb") == "EAGAIN"
    tracer.let_go()


def test_a_thread_that_is_never_seen_out_leaves_room(two, program):
    """Its debugger stays, and it makes more calls than the keeper can look after at once: those of the past do not count."""
    a, b = two
    p = program(RUNS)
    tracer = Tracer(p.pid)
    other = opened(b)
    for call in (1, 2):
        assert all(granted(a, p.pid, call, space=1, start=i, to=i + 1) for i in range(700))
        assert other.do("setlk 0 ex 0 700") == "EAGAIN"
    assert granted(a, p.pid, 3, name="1")
    assert other.do("setlk 0 ex 0 700") == "ok"
    assert granted(a, program(RUNS).pid, 1, name="2")
    assert opened(b, "2").do("flock 0 ex nb") == "ok"
    tracer.let_go()


MANY = """
import ctypes, os, sys, threading
libc = ctypes.CDLL(None)
call = 73 if os.uname().machine == "x86_64" else 32
fds = [os.open(sys.argv[1], os.O_RDWR | os.O_CREAT) for _ in range(2)]
libc.syscall(call, fds[0], 2)
def wait():
    os.write(1, b"%d\\n" % threading.get_native_id())
    libc.syscall(call, fds[1], 2)
threading.stack_size(65536)
for _ in range(int(sys.argv[2])):
    threading.Thread(target=wait, daemon=True).start()
sys.stdin.read()
os._exit(0)
"""


def test_many_calls_do_not_make_a_question_slow(two):
    """800 threads sleep in a lock call, so that nothing shows them out of it. A question took 2 ms then; now as without them, 0.1 ms."""
    def seconds():
        seconds.number += 200
        begin = time.monotonic()
        assert all(granted(two[0], os.getpid(), seconds.number + i) for i in range(200))
        return time.monotonic() - begin

    seconds.number = 0
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    p = subprocess.Popen(["/usr/bin/python3", "-c", MANY, two[0].path("other"), "800"], stdin=-1, stdout=-1, text=True, env=env)
    try:
        threads = [int(p.stdout.readline()) for _ in range(800)]
        seconds()
        few = min(seconds() for _ in range(5))
        assert all(granted(two[0], thread, 1) for thread in threads)
        assert min(seconds() for _ in range(5)) < 5 * few + 0.02
        assert "dflock_calls_under_way 801" in two[0].cli("metrics").stdout
    finally:
        p.kill()
        p.communicate()


def test_no_such_thread(two):
    verdict, reason = Asked(two[0], 4_000_000, 1).answer()
    assert verdict == fk.REFUSED and "has ended" in reason


@pytest.mark.parametrize("on_lost", ["freeze", "kill"])
def test_it_is_stopped_in_an_outage(make_host, redis, program, on_lost):
    """Whether it computes or waits. With "kill" the holder ends, and it does not: it does not have the lock, or has it no more, and is stopped
    until that is known."""
    a = make_host("a", lease=LEASE, rules='{ tree = "%%s"; name = "t"; on_lost = "%s"; }' % on_lost).wait_up()
    holder = a.opened("f", "flock 0 ex nb")
    runs, waits = program(RUNS), program(WAITS, a.path("f"))
    wait_until(lambda: in_flock(waits), "it waits")
    assert granted(a, runs.pid, 1) and granted(a, waits.pid, 1)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: state(runs.pid) in "tT" and state(waits.pid) in "tT", "they are stopped", 40)
    if on_lost == "kill":
        wait_until(lambda: holder.process.poll() is not None, "the holder is killed", 40)
    else:
        wait_until(lambda: "are frozen" in a.log(), "frozen", 40)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: state(runs.pid) == "R" and state(waits.pid) not in "tT", "they go on", 20)


def test_a_process_that_only_waits_outlives_the_loss(make_host, redis, proxy, program):
    """The holder is killed; who waited for it begins its call anew, in the kernel here, and is not killed."""
    b = make_host("b", lease=LEASE)
    a = make_host("a", lease=LEASE, server=proxy.address).wait_up()
    holder = a.opened("f", "flock 0 ex nb")
    p = program(WAITS, a.path("f"))
    wait_until(lambda: in_flock(p), "it waits")
    assert granted(a, p.pid, 1)
    proxy.accepting = False
    proxy.cut()
    other = opened(b)
    assert other.do("flock 0 ex", seconds=20) == "ok"
    assert state(p.pid) in "tT"
    proxy.accepting = True
    wait_until(lambda: holder.process.poll() is not None, "the holder is killed", 20)
    wait_until(lambda: state(p.pid) not in "tT", "the other one goes on", 20)
    assert p.poll() is None
    assert "is killed" in a.log()
