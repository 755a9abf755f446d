"""Programs under `dflock run --net=on`, and their supervisors."""
import os
import subprocess

from .host import BUILD, CLI, Agent
from .processes import comm, stat, state
from .wait import wait_until

NET = os.path.join(BUILD, "tests/net")
STATIC = os.path.join(NET, "agent")


def netted(host, *words, start=subprocess.Popen, before=(), options=(), **more):
    """Starts these words under the net of this host."""
    env = {k: v for k, v in host.env().items() if k != "LD_PRELOAD"}
    return start([*host.inside, *before, CLI, "run", "--net=on", *options, "--", *words], env=env, **more)


def run(host, *words, **more):
    return netted(host, *words, start=subprocess.run, capture_output=True, text=True, timeout=60, **more)


class Netted(Agent):
    """An agent under the net, a static program unless words say otherwise."""

    def __init__(self, host, *words, **more):
        self.process = netted(host, *(words or [STATIC]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, **more)
        self.pid = self.process.pid
        host.agents.append(self)


def opened(host, *words, name="f", flags="rwc", **more):
    agent = Netted(host, *words, **more)
    assert agent.do(f"open 0 {host.path(name)} {flags}", 60) == "ok"
    return agent


def supervisors(host):
    """[first, second] of the nets of this host: the second is a child of the first."""
    found = {}
    for pid in host.program_pids():
        fields = stat(pid)
        if fields and comm(pid) == "dflock-net" and fields[0] != "Z":
            found[pid] = int(fields[1])
    return sorted(found, key=lambda pid: found[pid] in found)


def both(host, other_than=()):
    """When both are there and wait. One that was just forked and is traced does not wait so far."""
    def look():
        pids = supervisors(host)
        waiting = len(pids) == 2 and not set(pids) & set(other_than) and all(state(pid) == "S" for pid in pids)
        return pids if waiting else None
    return wait_until(look, "two supervisors")
