"""
What `dflock run --net=on` costs: calls that its filter passes or catches, in turns with the same program plain, and the start of a job.
"""
import os
import shutil
import subprocess
import sys

from bench.lab import BUILD, HERE, CannotMeasure
from bench.measurements import BLOCK_US, in_turns, measurement
from bench.report import Series, Times
from tests.harness.host import CLI

ROUNDS, BLOCKS = 20, 15
KEYED_X = 3  # calls that the preload decides carry a key, and pass the filter
NETTED = (CLI, "run", "--net=on", "--")
PAIRS = (("flock-pair", "flock pair"), ("fcntl-pair", "fcntl pair"))


def row(title, ours, reference, x=None):
    least = ours.samples[0] / reference.samples[0]
    ours.title = title
    return Times(ours, reference, x=x, note="of the least: %.2f x" % least)


def outside(host):
    """The environment in which a user starts a job: `dflock run` adds the preload."""
    return {k: v for k, v in host.env().items() if k != "LD_PRELOAD"}


def calls(lab, program, call, title, name, x=None, preload=False):
    """A call of a program under the net, and by the preload alone, beside the program plain. On the protected file of this name, or on
    one that is not protected."""
    host, plain_path = lab.host("a"), lab.open_file("net")
    path = host.path(name) if name else plain_path
    words = call, path, BLOCKS, BLOCK_US
    ways = [lambda: lab.run(lab.plain(), program, call, plain_path, BLOCKS, BLOCK_US), lambda: lab.run(outside(host), *NETTED, program, *words)]
    if preload:
        ways.append(lambda: lab.run(host, program, *words))
    plain, *ours = [Series("plain", rounds) for rounds in in_turns(ROUNDS, *ways)]
    if name:
        lab.protected()
    kinds = ("preload and net", "preload alone") if preload else ("net",)
    return [row("%s, %s" % (title, kind), series, plain, limit) for kind, series, limit in zip(kinds, ours, (x, None))]


def go_calls(lab):
    """calls.go as a program, or None with a line."""
    if not shutil.which("go"):
        print("bench: net: there is no go: its calls are left out", file=sys.stderr)
        return None
    out = lab.open_file("calls-go")
    made = subprocess.run(["go", "build", "-o", out, os.path.join(HERE, "calls.go")], capture_output=True, text=True,
                          env=dict(os.environ, GO111MODULE="off", GOCACHE=os.path.join(BUILD, "bench/go-cache")))
    if made.returncode:
        raise CannotMeasure("go build: " + made.stderr.strip())
    return out


def job_start(lab):
    """`true` as a job: plain, by `dflock run`, and under the net."""
    true, env = shutil.which("true"), outside(lab.host("a"))
    plain, run, net = [Series(title, rounds) for title, rounds in
                       zip(("true, plain", "the same without the net", ""),
                           in_turns(ROUNDS, lambda: lab.run(env, "start", 5, true), lambda: lab.run(env, "start", 5, CLI, "run", "--", true),
                                    lambda: lab.run(env, "start", 5, *NETTED, true)))]
    return [row("start to end of dflock run -- true, net", net, run), row("the same without the net", run, plain)]


@measurement("net")
def net(lab):
    if not os.path.exists(os.path.join(BUILD, "dflock-net")):
        raise CannotMeasure("there is no dflock-net for this machine")
    dynamic, static, go = (os.path.join(BUILD, "bench", "calls"), os.path.join(BUILD, "bench", "calls-static"), go_calls(lab))
    rows = calls(lab, dynamic, "getppid", "getppid()", "")
    rows += calls(lab, dynamic, "getfl", "fcntl(F_GETFL)", "", preload=True)
    for call, title in PAIRS:
        rows += calls(lab, dynamic, call, title + ", lease cached", "net-" + call, x=KEYED_X, preload=True)
    rows += calls(lab, static, "flock-pair", "flock pair, file not protected, static program", "")
    for program, kind in ((static, "static"), (go, "Go")):
        for call, title in PAIRS if program else ():
            rows += calls(lab, program, call, "%s, lease cached, %s program" % (title, kind), "net-" + call)
    return rows + job_start(lab)
