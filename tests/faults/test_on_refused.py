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
        self.host = host_of(redis, rules=RULES, lease=LEASE, store=f'password_file = "{self.password}"; connect_ms = 2000;').init()

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


# Ends its own wait, and shows what its runtime makes of "busy".
PYTHON = """
import fcntl, signal, sys
def stop(*_): raise TimeoutError
signal.signal(signal.SIGALRM, stop); signal.alarm(2)
try: fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX)
except TimeoutError: print('in time')
signal.alarm(0)
try: fcntl.flock(open(sys.argv[2], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: print('busy')
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ["stopped", "killed", "NOAUTH", "no keeper"])
def test_calls_while_it_is_away(make_away, how):
    away = make_away(how)
    host = away.host
    agents = {name: opened(host, name) for name in ("busy", "wait", "t")}
    waiting = {(name, kind): opened(host, name + kind) for name in ("busy", "wait", "t") for kind in CALLS}
    signalled = {kind: opened(host, "wait-signals" + kind) for kind in CALLS}
    for agent in agents.values():  # it has seen the rules
        assert agent.do("flock 0 ex nb") == "ok" and agent.do("flock 0 un") == "ok"
    wait_until(lambda: not host.status()["leases"], "all leases have gone back: what the page shows needs no keeper")
    away.take()
    # A program that starts meanwhile knows the rules from the page that the keeper has left.
    done = attempt(host, "busy")
    assert done.word == "busy" and (": store " in done.line or ": lock refused: no keeper runs" in done.line), done
    for name in "t", "wait":
        refused(attempt(host, name), "store|no keeper runs")
    # Calls that do not wait, and tests, which must name a lock that there is, or none: they fail under each rule.
    for kind in CALLS:
        assert {name: agent.do(call(kind, False)) for name, agent in agents.items()} == {"busy": "EAGAIN", "wait": "ENOLCK", "t": "ENOLCK"}
    for agent in agents.values():
        assert agent.do("getlk 0 ex 0 0") == agent.do("getlk 0 ex 0 0 ofd") == agent.do("lockf 0 test 0") == "ENOLCK"
    # Signals end a wait as they end the kernel's, also those of flock -w and of Python.
    for agent in signalled.values():
        assert agent.do("alarm 1500") == "ok"
    for kind, agent in signalled.items():
        agent.say(call(kind, True))
    assert [agent.heard()[0] for agent in signalled.values()] == ["EINTR"] * len(CALLS)
    for kind, agent in signalled.items():
        assert agent.do("restart 700") == "ok"
        agent.say(call(kind, True))
    done = host.run("flock", "-E", "99", "-w", "2", host.path("wait"), "true")
    assert done.returncode == 99 and done.stderr.count(": waiting: ") == 1, done
    done = host.run(sys.executable, "-c", PYTHON, host.path("wait"), host.path("busy"))
    assert done.stdout == "in time\nbusy\n", done
    for agent in signalled.values():
        assert agent.silent(0)
        agent.process.send_signal(signal.SIGSTOP)
        agent.process.send_signal(signal.SIGCONT)
    # Calls that wait say so once, and for what.
    says = host.popen("flock", host.path("wait"), "true")
    line = says.stderr.readline()
    assert line.startswith("dflock: " + host.path("wait") + ": waiting: "), line
    assert ("no keeper runs" in line or "the configuration is invalid" in line) if how == "no keeper" else "store " in line, line
    for (name, kind), agent in waiting.items():
        agent.say(call(kind, True))
    # So store_wait_ms is over for all.
    assert {agent.heard()[0] for (name, _), agent in waiting.items() if name != "wait"} == {"ENOLCK"}
    wait_until(lambda: attempt(host, "t", wait=True).word == "ENOLCK", "also for a program that begins")
    patient = [agent for (name, _), agent in waiting.items() if name == "wait"] + list(signalled.values())
    assert patient[0].silent() and all(agent.silent(0) for agent in patient)
    away.end()
    assert [agent.heard(60)[0] for agent in patient] == ["ok"] * len(patient)
    assert says.wait(60) == 0 and says.stderr.read() == ""
    works(host, "busy")
    for kind in CALLS:  # a store that answers late is away for a call that does not wait
        agent = opened(host, "busy" + kind)
        wait_until(lambda: agent.do(call(kind, False)) == "ok", "it is served")


def test_a_failed_conversion_loses_the_lock_as_in_the_kernel(make_away):
    """With "busy" only: a refusal changes nothing. What waiting never mends, a part of a file that has at_least_ms, is refused at once."""
    away = make_away("killed")
    once = opened(away.host, "once")
    assert once.do("setlk 0 ex 0 1 w") == "ENOLCK"
    assert once.do("setlk 0 ex 0 0 w") == "ok"
    agents = {name: opened(away.host, name) for name in ("busy", "t")}
    for agent in agents.values():
        assert agent.do("flock 0 sh") == "ok"
    away.take()
    assert agents["busy"].do("flock 0 ex nb") == "EAGAIN"
    assert agents["t"].do("flock 0 ex nb") == "ENOLCK"
    free = [subprocess.run(["flock", "-n", away.host.path(name), "true"], env=away.host.plain_env(), timeout=20).returncode == 0
            for name in agents]
    assert free == [True, False]


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
    """A caller that waits waits for its end, whatever the rule says (test_grace.py); one that does not wait is refused."""
    away = make_away("killed")
    away.command("FLUSHALL", password="secret")
    wait_until(lambda: attempt(away.host, "t").word == "ENOLCK", "grace has begun")
    done = attempt(away.host, "busy")
    assert done.word == "busy" and "in grace" in done.line
