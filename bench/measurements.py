"""
The measurements. Each is a function of the Lab that returns rows (report.py); run.py runs them in this order. A
measurement and its reference are taken in turns (A B A B): the machine may be doing other things by and by.
"""
import contextlib
import os
import statistics
import time

from bench import ranges
from bench.lab import BUILD, CannotMeasure
from bench.monitor import Monitor
from bench.report import Counts, Growth, Series, Times

ALL = {}
BLOCK_US = 200
DEFAULT_TTL_MS = 30000
REST_US = 10000  # between the turns of a hand-over


def measurement(name):
    def add(function):
        ALL[name] = function
        return function
    return add


DISTURBED = 1.3  # a round whose reference is so many times its own tenth percentile
again = {"rounds": 0, "kept": 0}  # rounds that were made again; those that stayed disturbed all the same


def calm_bound(references):
    """What the median of a calm round's reference does not exceed."""
    return sorted(references)[(len(references) - 1) // 10] * DISTURBED


def in_turns(rounds, reference, *functions):
    """For each function a list of what it returned, round by round. A round in which the reference shows that the machine had
    something else to do is made again, each at most once on average."""
    def one():
        return [reference(), *(f() for f in functions)]

    results = [one() for _ in range(rounds)]
    for _ in range(rounds):
        references = [statistics.median(r[0]) for r in results]
        worst = max(range(rounds), key=references.__getitem__)
        if references[worst] <= calm_bound(references):
            break
        results[worst] = one()
        again["rounds"] += 1
    references = [statistics.median(r[0]) for r in results]
    again["kept"] += sum(r > calm_bound(references) for r in references)
    return [list(column) for column in zip(*results)]


@measurement("getfl")
def getfl(lab):
    """A call of an intercepted function that is no lock call: goes straight through."""
    host, path = lab.host("a"), lab.open_file("getfl")
    plain, preloaded, again = in_turns(40, lambda: lab.run(lab.plain(), "calls", "getfl", path, 20, BLOCK_US),
                                       lambda: lab.run(host, "calls", "getfl", path, 20, BLOCK_US),
                                       lambda: lab.run(lab.plain(), "calls", "getfl", path, 20, BLOCK_US))
    reference = Series("plain", [one + other for one, other in zip(plain, again)])
    noise = Series("", plain).minus(Series("", again))
    return [Times(Series("fcntl(F_GETFL)", preloaded), reference, ns=5, note="plain against itself: %+.1f ns" % noise)]


def three_ways(lab, call, file):
    """A call of `calls`: plain, on a file that is not protected, and on one whose lease the host has."""
    host = lab.host("a")
    path, protected = lab.open_file(file), host.path(file)
    return in_turns(30, lambda: lab.run(lab.plain(), "calls", call, path, 15, BLOCK_US),
                    lambda: lab.run(host, "calls", call, path, 15, BLOCK_US),
                    lambda: lab.run(host, "calls", call, protected, 15, BLOCK_US))


@measurement("flock")
def flock_pairs(lab):
    """LOCK_EX and LOCK_UN: on a file that is not protected, and on one whose lease the host has."""
    plain, unprotected, cached = three_ways(lab, "flock-pair", "flock")
    lab.protected()
    reference = Series("plain", plain)
    return [Times(Series("flock pair, file not protected", unprotected), reference, x=1.5),
            Times(Series("flock pair, protected, lease cached", cached), reference, x=2)]


@measurement("fcntl")
def fcntl_pairs(lab):
    """F_SETLK of one byte, exclusive and unlocked: as for flock()."""
    plain, unprotected, cached = three_ways(lab, "fcntl-pair", "fcntl")
    lab.protected()
    reference = Series("plain", plain)
    return [Times(Series("fcntl pair, file not protected", unprotected), reference, x=1.5),
            Times(Series("fcntl pair, protected, lease cached", cached), reference, x=2)]


@measurement("getlk")
def getlk(lab):
    """F_GETLK of one byte: a host that has no lease asks the others; where one of them has a lock, that is found out from it."""
    a, b = lab.host("a"), lab.host("b")
    plain, unprotected, cached = three_ways(lab, "getlk", "getlk")
    lab.protected()
    with holding(lab, b, b.path("seen"), 1, "record"):
        seen = [lab.run(a, "calls", "getlk", a.path("seen0"), 20, 0) for _ in range(5)]
    reference = Series("plain", plain)
    return [Times(Series("F_GETLK, file not protected", unprotected), reference, x=2.5),
            Times(Series("F_GETLK, protected, lease cached", cached), reference, x=2.5),
            Times(Series("F_GETLK, protected, held on another host", seen), reference)]


@measurement("sqlite")
def sqlite(lab):
    """Transactions with a rollback journal, one writer on one host. Each takes six record locks."""
    host, count = lab.host("a"), 100
    os.makedirs(lab.open_file("files-o"))  # as deep as the protected one: every path that SQLite names is looked up
    rows = in_turns(12, lambda: lab.run(lab.plain(), "transactions.py", lab.open_file("files-o/db"), count),
                    lambda: lab.run(host, "transactions.py", lab.open_file("files-o/db"), count),
                    lambda: lab.run(host, "transactions.py", host.path("db"), count))
    lab.protected()
    plain, unprotected, cached = [Series(title, rounds) for title, rounds in
                                  zip(("plain", "SQLite transaction, not protected", "SQLite transaction, protected"), rows)]

    def rates(series):
        return "%d/s, plain %d/s" % tuple(len(s.samples) * 1e9 / sum(s.samples) for s in (series, plain))

    return [Times(unprotected, plain, x=1.4, note=rates(unprotected)), Times(cached, plain, x=1.4, note=rates(cached))]


@measurement("relock")
def relock(lab):
    """A host that locks and unlocks one file again and again, pair by pair."""
    host = lab.host("a")
    path, protected = lab.open_file("relock"), host.path("relock")
    plain, pairs = in_turns(12, lambda: lab.run(lab.plain(), "calls", "flock-pair", path, 1000, 0),
                            lambda: lab.run(host, "calls", "flock-pair", protected, 1000, 0))
    lab.protected()
    count, seconds = sum(map(len, pairs)), sum(map(sum, pairs)) / 1e9
    return [Times(Series("lock and unlock again, single pairs", pairs), Series("plain", plain),
                  note="%d pairs/s" % (count / seconds))]


@contextlib.contextmanager
def holding(lab, host, prefix, count, space="flock"):
    with lab.popen(host, "hold", prefix, count, space) as p:
        if p.stdout.readline() != "held\n":
            raise CannotMeasure("hold: " + p.stderr.read().strip())
        yield


@measurement("refused")
def refused(lab):
    """LOCK_NB while a process on another host has the lock."""
    a, b = lab.host("a"), lab.host("b")
    with holding(lab, a, a.path("refused"), 1):
        rounds = [lab.run(b, "refused", b.path("refused0"), 20) for _ in range(5)]
    return [Times(Series("LOCK_NB refused, held on another host", rounds))]


@measurement("start")
def start(lab):
    """What the preload costs a program that does nothing."""
    host, program = lab.host("a"), os.path.join(BUILD, "bench/nothing")
    plain, preloaded = in_turns(30, lambda: lab.run(lab.plain(), "start", 7, program),
                                lambda: lab.run(host, "start", 7, program))
    return [Times(Series("process start to end, preloaded", preloaded), Series("plain", plain), ns=100000)]


@measurement("commands")
def commands(lab):
    """What each operation costs the store, the beats of the two hosts meanwhile included."""
    a, b = lab.host("a"), lab.host("b")
    with Monitor(lab.redis()) as monitor:
        def counted(title, count, per, function, note=""):
            monitor.count()
            function()
            sent, inside = monitor.count()
            return Counts(title, sent / count, inside / count, per, note)

        rows = [counted("first lock", 100, "lock", lambda: lab.run(a, "first", lab.new_prefix(a), 100))]
        rows.append(given_back(lab, monitor, 100))
        lab.run(a, "calls", "flock-pair", a.path("relock"), 1, 0)
        rows.append(counted("lock and unlock again, lease cached", 1000, "pair",
                            lambda: lab.run(a, "calls", "flock-pair", a.path("relock"), 1000, 0)))
        rows.append(counted("hand-over between two hosts", 60, "hand-over", lambda: lab.turns(30, REST_US),
                            "the waiter's question included"))
        with holding(lab, a, a.path("refused"), 1):
            rows.append(counted("LOCK_NB refused, held on another host", 20, "call",
                                lambda: lab.run(b, "refused", b.path("refused0"), 20)))
    return rows


def given_back(lab, monitor, count):
    """The other end of `count` first locks, without the KEYS with which settle() looks for it."""
    monitor.count()
    lab.settle()
    seen = [c for c in monitor.commands() if not c[2].startswith('"KEYS"')]
    inside = sum(c[1] for c in seen)
    return Counts("lease given back, after linger_ms", (len(seen) - inside) / count, inside / count, "lock")


@measurement("idle")
def idle(lab):
    """What locks cost that are just held. The keeper renews in steps of its ttl, so a short one is measured and
    scaled; from one command to a later one, so that there are no halves of a step."""
    locks, ttl_ms, seconds = 100, 3000, 6
    host = lab.host("idle", store="idle", lease="ttl_ms = %d;" % ttl_ms)
    with holding(lab, host, host.path("idle"), locks), Monitor(lab.redis("idle")) as monitor:
        time.sleep(2)  # what locking sets off ends with linger_ms
        monitor.commands()
        time.sleep(seconds)
        seen = monitor.commands()
    if not seen:
        raise CannotMeasure("the keeper sent nothing for %d s: it does not renew" % seconds)
    begin, end = seen[0][0], seen[-1][0]
    if end - begin < seconds / 2:
        raise CannotMeasure("the keeper sent something only once in %d s" % seconds)
    steady = [c for c in seen if c[0] > begin]
    inside = sum(c[1] for c in steady)
    scale = ttl_ms / DEFAULT_TTL_MS / (end - begin)
    sent, inside = (len(steady) - inside) * scale, inside * scale
    note = "scaled from ttl_ms = %d to %d" % (ttl_ms, DEFAULT_TTL_MS)
    return [Counts("idle host with %d held locks" % locks, sent, inside, "second", note),
            Counts("one of its locks", sent / locks, inside / locks, "second")]


@measurement("ranges")
def ranges_of_a_name(lab):
    """What each script costs the server by how many ranges the name has: in proportion to them, and no faster. A hundred times
    the ranges may cost two hundred times as much: what is sorted takes n log n, and a square would be ten thousand."""
    rows = ranges.measure(lab.redis("ranges"))
    return [Growth(", ".join(filter(None, (script, when))), used, (10, 1000), x=200) for script, when, used in rows]
