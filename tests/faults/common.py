"""What the tests here share: a lock call as a program makes it, and what it said."""
import collections
import os
import re
import signal
import subprocess
import time

from harness import wait_until

Outcome = collections.namedtuple("Outcome", "word line seconds")
# How flock(1) ends: got it, somebody has it, ENOLCK (it had no other errno to show here).
WORDS = {0: "ok", 1: "busy", 71: "ENOLCK"}


def outcome(status, said, begun):
    """line: what the shim said, if anything: one line at the most."""
    lines = [l for l in said.splitlines() if l.startswith("dflock:")]
    assert len(lines) <= 1, lines
    return Outcome(WORDS[status], "".join(lines), time.monotonic() - begun)


def attempt(host, name="f", wait=False, seconds=40, before=(), **environment):
    """flock(1) under the shim takes the lock and leaves it."""
    begun = time.monotonic()
    words = ["flock", host.path(name), "true"] if wait else ["flock", "-n", host.path(name), "true"]
    p = subprocess.run([*before, *words], env={**host.env(), **environment}, capture_output=True, text=True, timeout=seconds)
    return outcome(p.returncode, p.stderr, begun)


class Waiting:
    """The same in the background, for calls that wait."""

    def __init__(self, host, name="f"):
        self.begun = time.monotonic()
        self.process = host.popen("flock", host.path(name), "true")

    def waits(self):
        return self.process.poll() is None

    def outcome(self, seconds=40):
        _, err = self.process.communicate(timeout=seconds)
        return outcome(self.process.returncode, err, self.begun)


def refused(outcome, pattern):
    """ENOLCK with one line in which the pattern occurs."""
    assert outcome.word == "ENOLCK", outcome
    assert re.search(pattern, outcome.line), outcome.line
    return outcome


def works(host, name="f", seconds=20):
    """Soon the lock can be had here, without waiting."""
    return wait_until(lambda: attempt(host, name).word == "ok", "a lock on %s works" % host.name, seconds)


def is_busy(host, name="f"):
    """Another program has it. ENOLCK may come before: the keeper notices a dead connection after connect_ms."""
    def busy():
        word = attempt(host, name).word
        assert word != "ok"
        return word == "busy"
    wait_until(busy, f"the lock is busy for {host.name}")


def agent_with(host, command="flock 0 ex nb", name="f"):
    """An agent that has the file open and has been told that; its answer must be ok."""
    agent = opened(host, name)
    assert agent.do(command) == "ok"
    return agent


def opened(host, name="f"):
    return host.opened(name)


def lock_key(name="f"):
    return "dflock:{0}:lock:t/" + name


def gone(redis, name="f"):
    """No host has or wants the lock any more, as far as the store knows."""
    wait_until(lambda: redis.command("EXISTS", lock_key(name)) == 0, "the store has nothing about " + name)


def leases(host, **want):
    return [l for l in host.status()["leases"] if all(l[k] == v for k, v in want.items())]


def kill_keeper(host, seconds=20):
    """kill -9 of the keeper, not of its parent; until the next one serves."""
    keeper = host.keeper_pids()[1]
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: host.keeper_pids()[1:] not in ([], [keeper]) and host.serves(), "the next keeper serves", seconds)


class Alive:
    """with Alive(host): at the end the keeper is still the same process."""

    def __init__(self, *hosts):
        self.hosts = hosts

    def __enter__(self):
        self.before = [h.keeper_pids() for h in self.hosts]

    def __exit__(self, kind, *_):
        if kind is None:
            assert [h.keeper_pids() for h in self.hosts] == self.before, "the keeper died: " + self.hosts[0].log()
