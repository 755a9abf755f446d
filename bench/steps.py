"""
Steps instead of times, which no machine changes: system calls, wake-ups and page faults of a first lock, over program, keeper and
store. A run with twice as many locks less a run with so many: what starting, ending and idling cost is in both.

System calls and faults are counted by perf (Debian's linux-perf; as root), which hardly slows anything down; wake-ups are the times at
which a process went to sleep.
"""
import contextlib
import os
import shutil
import statistics
import subprocess

from bench.lab import BUILD, CannotMeasure
from bench.measurements import measurement
from bench.report import Steps

LOCKS = 100
ROUNDS = 5  # their median: on a busy machine leases are given back meanwhile
FIRST_CALLS, FIRST_WAKEUPS = 34, 4
OWN_CALLS = 4  # first.c opens and closes each file, and marks begin and end of its lock


def sleeps(pid):
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open("/proc/%d/task/%s/status" % (pid, task)) as f:
            total += next(int(line.split()[1]) for line in f if line.startswith("voluntary_ctxt_switches"))
    return total


def counting(lab, name, pid, command):
    """The command that runs `command` and counts what the process, or else the command, does meanwhile."""
    out = lab.open_file("perf-" + name)
    return ["perf", "stat", "-x", ",", "-o", out, "-e", "raw_syscalls:sys_enter,page-faults", *(["-p", str(pid)] if pid else []), "--",
            *command]


def counted(lab, name):
    with open(lab.open_file("perf-" + name)) as f:
        return [int(line.split(",")[0]) for line in f if line.strip() and not line.startswith("#")]


def run(lab, host, program, *words):
    """process -> (system calls, page faults, wake-ups)"""
    pids = {"keeper": host.keeper_pids()[-1], "store": lab.redis().process.pid}
    environment = ["%s=%s" % (k, v) for k, v in host.env().items() if k.startswith(("DFLOCK_", "LD_PRELOAD"))]
    command = counting(lab, "program", None, ["env", *environment, os.path.join(BUILD, "bench", program), *map(str, words)])
    for name, pid in pids.items():
        command = counting(lab, name, pid, command)
    before = {name: sleeps(pid) for name, pid in pids.items()}
    with subprocess.Popen(command, env=lab.plain(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as p:
        said = p.stderr.read()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode or said:
        raise CannotMeasure("perf: " + (said.strip().split("\n")[0] or "exit status %d" % p.returncode))
    after = {name: sleeps(pid) - before[name] for name, pid in pids.items()}
    return {name: (*counted(lab, name), after.get(name, usage.ru_nvcsw)) for name in ("program", *pids)}


def more(one, other, count):
    return {name: [(b - a) / count for a, b in zip(one[name], other[name])] for name in one}


def round_of(lab, host):
    once = run(lab, host, "first", lab.new_prefix(host), LOCKS)
    twice = run(lab, host, "first", lab.new_prefix(host), 2 * LOCKS)
    per = more(once, twice, LOCKS)
    per["program"][0] -= OWN_CALLS
    return per


@measurement("steps")
def steps(lab):
    """A first lock step by step."""
    if not shutil.which("perf"):
        raise CannotMeasure("perf is missing: install linux-perf")
    host = lab.host("a")
    lab.settle()
    run(lab, host, "first", lab.new_prefix(host), LOCKS)  # the keeper's memory has grown
    rounds = [round_of(lab, host) for _ in range(ROUNDS)]
    lab.protected()
    per = {name: [statistics.median(r[name][i] for r in rounds) for i in range(3)] for name in rounds[0]}
    return [Steps("first lock of a file", per, calls=FIRST_CALLS, wakeups=FIRST_WAKEUPS)]
