"""A program that locks in Redis with a library (locker.py, locker.js), as other services do. It knows nothing of dflock."""
import os
import subprocess

import pytest
from harness import Agent
from harness.host import ROOT

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = os.path.join(ROOT, "build-clients")
OF_NODE = ("redlock", "redis-semaphore", "node-redisson")
OF_PYTHON = ("redis-py",)
STRING = ("redis-py", "redlock", "redis-semaphore", "recipe")
REDISSON = ("node-redisson", "redisson", "redisson-3.12")


def format_of(kind):
    """redis_key_format"""
    return "redisson" if kind in REDISSON else "string"


def key_of(kind):
    """redis_key, for the lock that the library calls jobs:nightly."""
    return "mutex:jobs:nightly" if kind == "redis-semaphore" else "jobs:nightly"


def need(kind):
    """Skips the test where the library is missing."""
    if kind in OF_NODE and not os.path.exists(os.path.join(MODULES, "installed")):
        why = f"{kind} is not there: run scripts/install-clients.sh"
    elif kind in OF_PYTHON and subprocess.run(["/usr/bin/python3", "-c", "import redis"], capture_output=True).returncode:
        why = f"{kind} is not there: apt-get install python3-redis"
    else:
        return
    pytest.skip(why)


class Program(Agent):
    """A client that reads commands, a line each, and answers each with a line (locker.py)."""

    def __init__(self, words, env):
        self.process = subprocess.Popen(words, env=env, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        assert self.heard(60) == "ready"

    def say(self, *words):
        return super().say(" ".join(map(str, words)))

    def heard(self, seconds=30.0):
        return self.line(seconds)

    def do(self, *words, seconds=30.0):
        return self.say(*words).heard(seconds)


class Client(Program):
    def __init__(self, kind, redis, key, ttl_ms=20000, pause=0.01):
        """pause: seconds between two tries; None: the library's default."""
        need(kind)
        program = ["node", os.path.join(HERE, "locker.js")] if kind in OF_NODE else ["/usr/bin/python3", os.path.join(HERE, "locker.py")]
        words = [kind, redis.socket, key, str(ttl_ms)] + ([] if pause is None else [str(pause)])
        env = {k: v for k, v in os.environ.items() if not k.startswith(("DFLOCK_", "LD_PRELOAD"))}
        super().__init__(program + words, {**env, "NODE_PATH": os.path.join(MODULES, "node_modules")})


class Flocker(Program):
    """flock() on the host's file, under its shim. Ends with the host."""

    def __init__(self, host, name="f"):
        super().__init__(["/usr/bin/python3", os.path.join(HERE, "flocker.py"), host.path(name)], host.env())
        host.agents.append(self)
