"""
A system keeper for tests, file systems that can be made to hang, and clients that it must not trust. Fixture: import ground.
"""
import ast
import os
import select
import subprocess
import sys
import time
import types

import pytest
from common import attempt
from harness import Agent, Deadline
from harness.system import SYSTEM_DIR, Hanging

HOSTILE, OTHER = 12345, 12346
GRANTED, REFUSED, NOT_PROTECTED = 1, 4, 6
SOON = 4.5  # a keeper that hangs is killed, and a caller whose file system hangs is refused, after 5 s
PUPPET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "puppet.py")


class Puppet:
    def __init__(self, host, uid=HOSTILE, inside=()):
        self.host = host
        self.process = subprocess.Popen([*host.inside, *host.as_user(uid, *inside, sys.executable, "-B", PUPPET)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env={**host.env(), "LD_PRELOAD": ""}, start_new_session=True)
        self.question = f"question({host.config!r})"

    def do(self, expression):
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], 40)[0]:
            raise Deadline(f"{expression} has not ended")
        said = self.process.stdout.readline()
        assert "Error" not in said, said
        return ast.literal_eval(said)

    def open(self, path):
        return self.do(f"keep(os.open({path!r}, os.O_RDWR | os.O_CREAT))")

    def connect(self):
        return self.do(f"connect({SYSTEM_DIR!r})")

    def send(self, question, *fds):
        """Sends on a connection of its own, and returns the connection's number."""
        number = self.connect()
        self.do(f"send({number}, {question}, *{list(fds)!r})")
        return number

    def answer(self, number):
        return self.do(f"answer({number})")

    def kill(self):
        self.process.kill()  # may stay in D until the mounts are gone

    def end(self):
        self.process.wait(20)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def ground(make_system, place):
    """(host, mount(), puppet(uid)): a system keeper, file systems that can be made to hang, and clients of it."""
    host = make_system(lease="ttl_ms = 3000; probe_ms = 200;", rules='{ tree = "%s"; name = "t"; }, { tree = "/run/fuse"; name = "fuse"; }')
    puppets, mounts = [], []

    def mount(name="m"):
        mounts.append(Hanging(place, name))
        return mounts[-1]

    def puppet(*args, **more):
        puppets.append(Puppet(host, *args, **more))
        return puppets[-1]

    yield host, mount, puppet
    for each in puppets:
        each.kill()
    for each in mounts:
        each.end()
    for each in puppets:
        each.end()


def prepare(host, name, uid):
    path = host.path(name)
    with open(path, "a"):
        os.chown(path, uid, uid)
    return path


def served(host, uid=0, seconds=SOON, name=None):
    """A new lock of this user, soon."""
    name = name or "u%d-%d" % (uid, time.monotonic_ns())
    begun = time.monotonic()
    prepare(host, name, uid)
    words = host.as_user(uid) if uid else ()
    got = attempt(host, name, before=[*host.inside, *words])
    assert got.word == "ok", got
    assert time.monotonic() - begun < seconds
    return got


def turns(host):
    """The loop answers, and no process is frozen."""
    begun = time.monotonic()
    status = host.status()
    assert time.monotonic() - begun < SOON, status
    return status


def fronts(host):
    return host.inhabitants("dflock-front")


def agent_of(host, uid):
    agent = Agent(types.SimpleNamespace(inside=[*host.inside, *host.as_user(uid)], env=host.env))
    host.agents.append(agent)
    return agent


def open_in(pid, what):
    links = (os.path.join(f"/proc/{pid}/fd", fd) for fd in os.listdir(f"/proc/{pid}/fd"))
    return sum(os.path.lexists(link) and os.readlink(link).startswith(what) for link in links)
