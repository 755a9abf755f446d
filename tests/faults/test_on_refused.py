"""
on_refused with a real keeper and a store that is away, in each way: "busy" for calls that do not wait, "wait" for those that do, and
what neither changes.
"""
import os
import signal
import subprocess
import sys

import pytest
from common import attempt, opened, refused, works
from harness import Job, wait_until, write_text

RULES = """{ path = "%s/busy*"; name = "busy"; on_refused = "busy"; }, { path = "%s/wait*"; name = "wait"; on_refused = "wait"; },
           { path = "%s/once*"; name = "once"; on_refused = "wait"; at_least_ms = 1; }, { tree = "%s"; name = "t"; }"""
LEASE = "ttl_ms = 3000; linger_ms = 0; store_wait_ms = 300;"
CALLS = {"flock": "flock 0 ex{nb}", "fcntl": "setlk 0 ex 0 0{w}", "OFD": "setlk 0 ex 0 0{w} ofd", "lockf": "lockf 0 {lock} 0"}


def call(kind, waits):
    return CALLS[kind].format(nb="" if waits else " nb", w=" w" if waits else "", lock="lock" if waits else "tlock")


class Away:
    """A store, or a keeper, that is taken away in one way and comes back."""

    def __init__(self, how, redis, host_of, folder):
        self.how, self.redis = how, redis
        self.redis.command("CONFIG", "SET", "requirepass", "secret")
        self.password = os.path.join(folder, "password")
        write_text(self.password, "secret\n")
        os.chmod(self.password, 0o600)
        self.host = host_of(redis, rules=RULES, lease=LEASE, store=f'password_file = "{self.password}"; connect_ms = 300;').init()

    def take(self, how=None):
        self.how = how or self.how
        if self.how == "no keeper":
            os.chmod(self.password, 0o644)  # no keeper starts with it
            wait_until(self.host.kill_keeper, "the keeper has ended")
            return
        if self.how == "stopped":
            self.redis.signal(signal.SIGSTOP)
        elif self.how == "killed":
            self.redis.stop()
        else:
            self.command("CONFIG", "SET", "requirepass", "another", password="secret")
            self.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")
            self.command("CLIENT", "KILL", "TYPE", "pubsub")
        wait_until(lambda: not self.host.status()["store"]["up"], "the keeper has noticed")

    def command(self, *words, password="another"):
        """Its own connection may be killed by it."""
        subprocess.run(["redis-cli", "-s", self.redis.socket, "--no-auth-warning", "-a", password, *words], capture_output=True, timeout=20)

    def end(self):
        if self.how == "no keeper":
            os.chmod(self.password, 0o600)
            try:
                self.host.start()
            except RuntimeError as why:  # a program that waits was faster
                assert "another keeper serves" in str(why), why
        elif self.how == "stopped":
            self.redis.signal(signal.SIGCONT)
        elif self.how == "killed":
            self.redis.start()
            self.redis.command("CONFIG", "SET", "requirepass", "secret")
        else:
            self.command("CONFIG", "SET", "requirepass", "secret")


@pytest.fixture
def make_away(redis, host_of, folder):
    return lambda how: Away(how, redis, host_of, folder)


@pytest.fixture(params=["stopped", "killed", "NOAUTH", "no keeper"])
def away(request, make_away):
    return make_away(request.param)


def test_calls_that_do_not_wait(away):
    agents = {name: opened(away.host, name) for name in ("busy", "wait", "t")}
    for agent in agents.values():  # it has seen the rules
        assert agent.do("flock 0 ex nb") == "ok" and agent.do("flock 0 un") == "ok"
    wait_until(lambda: not away.host.status()["leases"], "all leases have gone back: what the page shows needs no keeper")
    away.take()
    for kind in CALLS:
        assert {name: agent.do(call(kind, False)) for name, agent in agents.items()} == {"busy": "EAGAIN", "wait": "ENOLCK", "t": "ENOLCK"}
    away.end()
    works(away.host, "busy")
    assert [opened(away.host, "busy" + kind).do(call(kind, False)) for kind in CALLS] == ["ok"] * len(CALLS)


def test_a_program_that_starts_meanwhile(away):
    """It knows the rules from the page that the keeper has left."""
    assert attempt(away.host, "busy").word == attempt(away.host, "t").word == "ok"
    away.take()
    done = attempt(away.host, "busy")
    assert done.word == "busy" and (": store " in done.line or ": lock refused: no keeper runs" in done.line), done
    refused(attempt(away.host, "t"), "store|no keeper runs")
    refused(attempt(away.host, "wait"), "store|no keeper runs")


def test_calls_that_wait(away):
    agents = {(name, kind): opened(away.host, name + kind) for name in ("busy", "wait", "t") for kind in CALLS}
    away.take()
    for (name, kind), agent in agents.items():
        agent.say(call(kind, True))
    for (name, kind), agent in agents.items():
        if name != "wait":
            assert agent.heard()[0] == "ENOLCK"  # so store_wait_ms is over for all
    for (name, kind), agent in agents.items():
        if name == "wait":
            assert agent.silent()
    away.end()
    for (name, kind), agent in agents.items():
        if name == "wait":
            assert agent.heard(60)[0] == "ok"


def test_it_says_once_that_it_waits_and_for_what(away):
    away.take()
    waiting = away.host.popen("flock", away.host.path("wait"), "true")
    line = waiting.stderr.readline()
    assert line.startswith("dflock: " + away.host.path("wait") + ": waiting: "), line
    assert "no keeper runs" in line if away.how == "no keeper" else "store " in line, line
    wait_until(lambda: attempt(away.host, "t", wait=True).word == "ENOLCK", "store_wait_ms is over")
    away.end()
    assert waiting.wait(60) == 0
    assert waiting.stderr.read() == ""


def test_tests_are_no_attempts(away):
    """F_GETLK and F_TEST must name a lock that there is, or none: they fail under each rule."""
    agents = [opened(away.host, name) for name in ("busy", "wait", "t")]
    away.take()
    for agent in agents:
        assert agent.do("getlk 0 ex 0 0") == agent.do("getlk 0 ex 0 0 ofd") == agent.do("lockf 0 test 0") == "ENOLCK"


@pytest.mark.parametrize("kind", CALLS)
def test_signals_end_a_wait_as_they_end_the_kernels(away, kind):
    agent = opened(away.host, "wait")
    away.take()
    assert agent.do("alarm 1500") == "ok"
    assert agent.do(call(kind, True)) == "EINTR"
    assert agent.do("restart 700") == "ok"
    agent.say(call(kind, True))
    assert agent.silent(2)
    agent.process.send_signal(signal.SIGSTOP)
    agent.process.send_signal(signal.SIGCONT)
    assert agent.silent(0.3)
    away.end()
    assert agent.heard(60)[0] == "ok"


def test_flock_w_and_python_end_their_waits(away):
    away.take()
    done = away.host.run("flock", "-E", "99", "-w", "2", away.host.path("wait"), "true")
    assert done.returncode == 99 and done.stderr.count(": waiting: ") == 1, done
    program = ("import fcntl, signal, sys\n"
               "def stop(*_): raise TimeoutError\n"
               "signal.signal(signal.SIGALRM, stop); signal.alarm(2)\n"
               "try: fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX)\n"
               "except TimeoutError: print('in time')\n"
               "signal.alarm(0)\n"
               "try: fcntl.flock(open(sys.argv[2], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
               "except BlockingIOError: print('busy')\n")
    done = away.host.run(sys.executable, "-c", program, away.host.path("wait"), away.host.path("busy"))
    assert done.stdout == "in time\nbusy\n", done


def test_a_failed_conversion_loses_the_lock_as_in_the_kernel(make_away):
    """With "busy" only: a refusal changes nothing."""
    away = make_away("killed")
    plain = make_plain(away.host)
    agents = {name: opened(away.host, name) for name in ("busy", "t")}
    for agent in agents.values():
        assert agent.do("flock 0 sh") == "ok"
    away.take()
    assert agents["busy"].do("flock 0 ex nb") == "EAGAIN"
    assert agents["t"].do("flock 0 ex nb") == "ENOLCK"
    assert plain("busy") and not plain("t")


def make_plain(host):
    env = {k: v for k, v in host.env().items() if k != "LD_PRELOAD"}
    return lambda name: subprocess.run(["flock", "-n", host.path(name), "true"], env=env, timeout=20).returncode == 0


def test_what_waiting_never_mends_is_refused_at_once(make_away):
    """A part of a file that has at_least_ms."""
    away = make_away("killed")
    agent = opened(away.host, "once")
    assert agent.do("setlk 0 ex 0 1 w") == "ENOLCK"
    assert agent.do("setlk 0 ex 0 0 w") == "ok"


def test_the_keeper_goes_while_a_call_waits_for_the_store(make_away):
    away = make_away("stopped")
    away.take()
    waiting = Job(away.host, "flock", away.host.path("wait"), "echo", "had it")
    assert ": waiting: store" in waiting.line()
    away.take("no keeper")
    assert ": waiting: no keeper runs" in waiting.line()
    away.end()
    assert waiting.silent()
    away.redis.signal(signal.SIGCONT)
    assert waiting.line(60) == "had it"


def test_a_store_in_grace(make_away):
    """A caller that waits waits for its end, whatever the rule says; one that does not wait is refused."""
    away = make_away("killed")
    away.command("FLUSHALL", password="secret")
    wait_until(lambda: attempt(away.host, "t").word == "ENOLCK", "grace has begun")
    done = attempt(away.host, "busy")
    assert done.word == "busy" and "in grace" in done.line
