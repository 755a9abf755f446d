"""
What happens in a first lock and in a hand-over, step by step: from the kernel's trace points (tracing.py). The counts are those of the
machine-independent kind: system calls, wake-ups, switches. `make plot` draws the one that took the median time.
"""
import contextlib
import socket
import statistics

from bench.latency import placed, places
from bench.measurements import REST_US, measurement
from bench.report import Timeline
from bench.tracing import Trace

COUNT = 40
COLD = 3  # the first ones are not counted: a program's first lock maps the page


def taken(trace, title, actors, swapped=None):
    """The row of what was traced. `swapped`: actor -> its name where the last of the programs begins."""
    parts = trace.between_marks()[COLD:]
    middle = sorted(parts, key=lambda part: part[1] - part[0])[len(parts) // 2]

    def named(begins, name):
        return swapped.get(name, name) if swapped and begins == list(actors)[-1] else name

    counts = []
    for _, _, events, begins in parts:
        calls, wakings, switches = trace.counted(events)
        counts.append(({named(begins, name): n for name, n in calls.items()}, wakings, switches))
    median = statistics.median
    calls = {name: median(c.get(name, 0) for c, _, _ in counts) for name in actors}
    begin, end, events, begins = middle
    drawn = trace.drawn(begin, end, events)
    drawn["spans"] = [(named(begins, name), *rest) for name, *rest in drawn["spans"]]
    drawn["calls"] = [(named(begins, name), *rest) for name, *rest in drawn["calls"]]
    drawn["wakes"] = [(named(begins, a), tid, named(begins, b), *rest) for a, tid, b, *rest in drawn["wakes"]]
    return [Timeline(title, calls, median(c[1] for c in counts), median(c[2] for c in counts), len(parts), drawn)]


def first_lock(lab):
    host = lab.host("a")
    actors = {"program": [], "keeper": host.keeper_pids(), "store": [lab.redis().process.pid]}
    trace = Trace(actors)
    with trace.running(), lab.popen(host, "first", lab.new_prefix(host), COUNT, REST_US) as p:
        trace.add("program", p.pid)
        lab.samples(p)
    return taken(trace, "first lock of a file", actors)


def hand_over(lab):
    hosts, ends = (lab.host("a"), lab.host("b")), socket.socketpair()
    actors = {"program A": [], "keeper A": hosts[0].keeper_pids(), "store": [lab.redis().process.pid],
              "keeper B": hosts[1].keeper_pids(), "program B": []}
    trace = Trace(actors)
    with trace.running(), contextlib.ExitStack() as stack:
        players = []
        for host, end, role in zip(hosts, ends, ("first", "second")):
            words = host.path("turns"), end.fileno(), role, COUNT // 2, REST_US
            players.append(stack.enter_context(lab.popen(host, "turns", *words, pass_fds=[end.fileno()])))
            trace.add("program " + "AB"[len(players) - 1], players[-1].pid)
        for end in ends:
            end.close()
        for p in players:
            lab.samples(p)
    # Every other one goes from B to A.
    return taken(trace, "hand-over between two hosts", actors,
                 {one + a: one + b for one in ("program ", "keeper ") for a, b in ("AB", "BA")})


@measurement("timeline")
def timeline(lab):
    """System calls, wake-ups and switches of a first lock and of a hand-over, until the caller has its lock; and a picture of each."""
    hosts = lab.host("a"), lab.host("b")
    where, processors = next(iter(places().items()))
    with placed(lab, hosts, processors):
        lab.settle()
        rows = first_lock(lab)
        lab.settle()
        rows += hand_over(lab)
    return rows
