"""
What goes through the store: the first lock of a file, and the hand-over between two hosts, beside what one command to the store
takes. Both are some microseconds of work and else waiting for somebody who runs elsewhere.

On one machine it matters most where they run. A client and a server that share a processor take turns on it, and
wake nobody; on two, each message wakes a processor that sleeps, as on two machines, only without the network. The system
chooses, and not the same for one client as for programs with their keepers. So it is measured with places of our choice, the
reference in the same, and as the system chooses, too.
"""
import contextlib
import os

from bench.lab import CannotMeasure
from bench.measurements import REST_US, in_turns, measurement
from bench.report import Series, Times

DISTANCES_MS = (1, 10)  # of the network: there and back
FIRST_X, HANDOVER_X = 2.5, 8


def places():
    """name -> (the processors of the store, those of programs, keepers and the reference's client)"""
    all_ = os.sched_getaffinity(0)
    one, other = min(all_), max(all_)
    apart = {"store on another processor": ({other}, {one})} if one != other else {}
    return {**apart, "all on one processor": ({one}, {one}), "where the system likes": (all_, all_)}


def move(pid, processors):
    for task in os.listdir("/proc/%d/task" % pid):
        with contextlib.suppress(ProcessLookupError):  # a probe's thread
            os.sched_setaffinity(int(task), processors)


@contextlib.contextmanager
def placed(lab, hosts, processors):
    """The programs that are started meanwhile are with the hosts."""
    before = os.sched_getaffinity(0)

    def place(store, rest):
        move(lab.redis().process.pid, store)
        for host in hosts:
            for pid in host.keeper_pids():
                move(pid, rest)
        os.sched_setaffinity(0, rest)

    place(*processors)
    try:
        yield
    finally:
        place(before, before)


def first_locks(lab, host, address, rounds, evals, locks, rest_us=0):
    return in_turns(rounds, lambda: lab.run(lab.plain(), "roundtrip", address, "eval", evals, rest_us),
                    lambda: lab.run(host, "first", lab.new_prefix(host), locks, rest_us))


@measurement("first")
def first(lab):
    """The first lock of a file on a host: the lease must come from the store."""
    host, rows = lab.host("a"), []
    for where, processors in places().items():
        lab.settle()
        with placed(lab, [host], processors):
            evals, firsts = first_locks(lab, host, lab.redis().socket, 25, 70, 15)
            cold_evals, cold_firsts = first_locks(lab, host, lab.redis().socket, 10, 15, 15, REST_US)
            lab.protected()
        rows += [Times(Series("first lock of a file", firsts), Series("EVAL, hiredis", evals), x=FIRST_X, note=where),
                 Times(Series("first lock after %g ms of rest" % (REST_US / 1000), cold_firsts),
                       Series("EVAL after such a rest", cold_evals), x=FIRST_X, note=where)]
    return rows


@measurement("handover")
def handover(lab):
    """From one host's LOCK_UN to the return of flock() on another host that waits for it."""
    hosts, server, rows = (lab.host("a"), lab.host("b")), lab.redis().socket, []
    for where, processors in places().items():
        with placed(lab, hosts, processors):
            pings, rested, turns = in_turns(
                12, lambda: lab.run(lab.plain(), "roundtrip", server, "ping", 100, 0),
                lambda: lab.run(lab.plain(), "roundtrip", server, "ping", 10, REST_US),
                lambda: lab.turns(12, REST_US))
        turns = Series("hand-over between two hosts", turns)
        rows += [Times(turns, Series("PING, hiredis", pings), x=HANDOVER_X, note=where),
                 Times(turns, Series("PING after %g ms of rest" % (REST_US / 1000), rested),
                       note="the same; a hand-over comes after such a rest")]
    return rows


@contextlib.contextmanager
def distant(lab, ms):
    """The address of the store as seen from ms away (0: the store itself)."""
    socket = lab.redis().socket
    if not ms:
        yield socket
        return
    path = lab.open_file("delay-%d.sock" % ms)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with lab.popen(lab.plain(), "delay", path, socket, ms * 1000 // 2) as p:
        if p.stdout.readline() != "ready\n":
            raise CannotMeasure("delay: " + p.stderr.read().strip())
        yield path


@measurement("distance")
def distance(lab):
    """Both over a network: what it needs should be most of it."""
    rows = []
    for ms in DISTANCES_MS:
        with distant(lab, ms) as path, lab.some_hosts(2, path) as hosts:
            evals, firsts = first_locks(lab, hosts[0], path, 3, 30, 20)
            pings, turns = in_turns(3, lambda: lab.run(lab.plain(), "roundtrip", path, "ping", 30, 0),
                                    lambda: lab.turns(15, REST_US + 4000 * ms, hosts))
        far = ", store %d ms away" % ms
        rows += [Times(Series("first lock of a file" + far, firsts), Series("EVAL, hiredis", evals), x=FIRST_X),
                 Times(Series("hand-over between two hosts" + far, turns), Series("PING, hiredis", pings), x=HANDOVER_X)]
    return rows
