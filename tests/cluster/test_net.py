"""`dflock run --net=on`: programs that no preload reaches, on two hosts."""
import os
import subprocess

from harness import wait_until
from harness.host import BUILD, CLI, Agent

from keepers import held

STATIC = os.path.join(BUILD, "tests/net/agent")


class Netted(Agent):
    """A static agent under the net."""

    def __init__(self, host, *words, **more):
        env = {k: v for k, v in host.env().items() if k != "LD_PRELOAD"}
        self.process = subprocess.Popen([*host.inside, CLI, "run", "--net=on", "--", *words, STATIC], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, bufsize=0, **more)
        self.pid = self.process.pid
        host.agents.append(self)


def opened(host, name="f", flags="rwc"):
    agent = Netted(host)
    assert agent.do(f"open 0 {host.path(name)} {flags}") == "ok"
    return agent


def wanted_elsewhere(host):
    wait_until(lambda: held(host, note="wanted by another host"), "the lease of %s is recalled" % host.name)


def test_flock(two):
    a, b = opened(two[0]), opened(two[1])
    assert a.do("flock 0 ex") == "ok"
    assert b.do("flock 0 ex nb") == "EAGAIN"
    b.say("flock 0 ex")
    wanted_elsewhere(two[0])
    assert b.silent(0.05)
    assert a.do("flock 0 un") == "ok"
    assert b.heard()[0] == "ok"
    assert a.do("flock 0 sh nb") == "EAGAIN"


def test_record(two):
    a, b = opened(two[0]), opened(two[1])
    assert a.do("setlk 0 ex 0 10") == "ok"
    assert b.do("setlk 0 ex 5 10") == "EAGAIN"
    assert b.do("setlk 0 ex 10 10") == "ok"
    b.say("setlk 0 ex 0 1 w")
    wanted_elsewhere(two[0])
    assert a.do("setlk 0 un 0 10") == "ok"
    assert b.heard()[0] == "ok"
