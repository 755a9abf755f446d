"""
The preload beside the net: its own calls pass the filter, and no other call does. Supervisors that are stopped answer nothing, so what
ends while they are has not asked them.
"""
import os
import signal
import subprocess

import pytest
from harness import text_of, wait_until
from harness.host import BUILD

from harness.netted import both, netted, opened, supervisors
from harness.processes import wait_channel

AGENT = os.path.join(BUILD, "tests/agents/agent")
PAST = os.path.join(BUILD, "tests/agents/past")


@pytest.fixture
def still(two):
    """still(host): from now on its supervisors do nothing; until go(host)."""
    stopped = []

    def stop(host):
        for pid in both(host):
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)

    yield stop
    for pid in stopped:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:  # its job has ended
            continue


def cont(host):
    for pid in supervisors(host):
        os.kill(pid, signal.SIGCONT)


# An unlock never waits, whatever its name.
PASS = {"flock 0 ex nb": "flock 0 un", "flock 0 sh": "flock 0 un", "setlk 0 ex 0 10": "setlk 0 un 0 10 w", "setlk 0 sh 0 10": "setlk 0 un 0 10",
        "setlk 0 ex 0 10 ofd": "setlk 0 un 0 10 ofd w", "setlk 0 sh 0 10 ofd": "setlk 0 un 0 10 ofd", "lockf 0 tlock 5": "lockf 0 ulock 5"}


def test_the_preloads_calls_pass(two, still, folder):
    """Also on a file that no rule names."""
    a = opened(two[0], AGENT)
    assert a.do(f"open 1 {folder}/elsewhere rwc") == "ok"
    still(two[0])
    for take, give in PASS.items():
        assert [a.do(call) for call in (take, give) * 3] == ["ok"] * 6, take
    assert a.do("getlk 0 ex 0 10") == "un"
    assert a.do("flock 1 ex nb") == "ok" and a.do("setlk 1 ex 0 10") == "ok"


def test_calls_by_syscall_pass(two, still):
    flock, fcntl = (73, 72) if os.uname().machine == "x86_64" else (32, 25)
    text = f"""
import ctypes, struct, sys
file, call = open(sys.argv[1], "w"), ctypes.CDLL(None).syscall
input("there\\n")
print([call({flock}, file.fileno(), op) for op in (6, 8)],
      [call({fcntl}, file.fileno(), cmd, struct.pack("hhqqi", kind, 0, 0, 0, 0)) for cmd, kind in ((6, 1), (7, 2), (37, 1), (38, 2))])
"""
    job = netted(two[0], "python3", "-c", text, two[0].path("f"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert job.stdout.readline() == "there\n"
    still(two[0])
    assert job.communicate("\n", timeout=20)[0] == "[0, 0] [0, 0, 0, 0]\n"


def test_and_exclude(two, still):
    a, b = opened(two[0], AGENT), opened(two[1], AGENT)
    still(two[0])
    still(two[1])
    assert a.do("flock 0 ex") == "ok"
    assert b.do("flock 0 ex nb") == "EAGAIN"
    b.say("flock 0 ex")
    assert a.do("flock 0 un") == "ok"
    assert b.heard()[0] == "ok"


@pytest.mark.parametrize("how", ["flock", "fcntl"])
def test_the_register_is_clear_afterwards(two, still, how):
    """The second call is the same as the first, so the first one's key would fit."""
    job = netted(two[1], PAST, "after-" + how, two[1].path("f"), stdout=subprocess.PIPE, text=True)
    assert job.stdout.readline() == "first\n"
    assert job.stdout.readline() == "second\n"
    assert job.wait(20) == 0
    wait_until(lambda: not supervisors(two[1]), "the first net is gone")
    waits = netted(two[1], "sh", "-c", f"echo there; read x; exec {PAST} after-{how} {two[1].path('f')}", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert waits.stdout.readline() == "there\n"  # not dflock-net any more
    still(two[1])
    waits.stdin.write("go\n")
    waits.stdin.flush()
    wait_until(lambda: "seccomp" in wait_channel(waits.pid), "its second call waits for the supervisor")
    cont(two[1])
    assert waits.stdout.readline() == "first\n"
    assert waits.wait(20) == 0


@pytest.mark.parametrize("take, answer", [("flock 0 ex", "ok"), ("flock 0 ex nb", "ok"), ("setlk 0 ex 0 10 w", "ok"), ("getlk 0 ex 0 10", "un")])
@pytest.mark.parametrize("key", [[], ["env", "-u", "DFLOCK_NET"]], ids=["key", "no key"])
def test_without_a_keeper(redis, make_host, take, answer, key):
    """One that the program started would be under the net, too: so the supervisor starts it. A test alone finds nothing without one."""
    make_host("opener")
    c = make_host("c", foreground=False)
    agent = opened(c, *key, AGENT)
    assert agent.do(take) == answer
    for pid in c.keeper_pids():
        assert "\nSeccomp:\t0\n" in text_of(f"/proc/{pid}/status")
    assert answer == "un" or len(c.keeper_pids()) == 2
    assert agent.do("getlk 0 ex 100 10") == "un" and agent.do("lockf 0 test 0") == "ok"


@pytest.mark.parametrize("take", ["flock 0 ex nb", "flock 0 ex", "setlk 0 ex 0 10 w"])
def test_a_key_that_was_left(redis, make_host, take):
    """The environment of a job under the net may come to programs outside of it (at, env files): no supervisor catches their calls."""
    holder = make_host("opener").opened("f", take)
    c = make_host("c", foreground=False)
    before, c.env = c.env(), lambda: {**before, "DFLOCK_NET": "0123456789abcdef"}
    agent = c.agent()
    assert agent.do(f"open 0 {c.path('f')} rwc") == "ok"
    agent.say(take)
    if "nb" in take:
        assert agent.heard()[0] == "EAGAIN"
    assert agent.silent() and holder.do("close 0") == "ok"
    wait_until(lambda: (agent.do(take) if "nb" in take else agent.heard()[0]) == "ok", "it has the lock")


def test_under_the_net_of_another_configuration(make_host):
    """Its supervisor knows other files, or another keeper: it would let the call go on without a lease."""
    a = make_host("a")
    c = make_host("c", foreground=False)
    agent = opened(a, "env", f"DFLOCK_CONFIG={c.config}", f"DFLOCK_RUNTIME_DIR={c.runtime}", AGENT)
    assert agent.do(f"open 1 {c.path('f')} rwc") == "ok"
    assert [agent.do(f"{call}") for call in ("flock 1 ex nb", "flock 1 ex", "setlk 1 ex 0 10 w")] == ["ENOLCK"] * 3
    c.start()
    assert agent.do("flock 1 ex nb") == "ok"
