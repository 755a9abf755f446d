"""
What redis_key costs: a lease that is also the lock of a Redis key, beside one that is not, on the same hosts in turns. Such a lease is never in
the page and goes back at the unlock, so each lock asks the store; a beat renews each key.
"""
import contextlib
import os
import time

from bench.lab import CannotMeasure
from bench.latency import REST_US
from bench.measurements import holding, in_turns, measurement
from bench.report import Curve, Series, Times
from tests.harness import Host, Redis

FIRST, ROUNDS = 30, 10
HELD = (10, 100, 1000)
BEATS_TTL_MS, BEATS_S = 3000, 6
FORMATS = ("string", "redisson")


def keyed(names, format_):
    return ", ".join('{ path = "%%s/%s"; name = "k/%s"; redis_key = "bench:%s"; redis_key_format = "%s"; }' % (n, n, n, format_)
                     for n in names)


@contextlib.contextmanager
def hosts_with(lab, format_, names, count=1, lease=""):
    """Hosts of a server of their own, whose files of these names are also keys, and others are not."""
    folder = os.path.join(lab.folder, "rediskey-%d" % time.monotonic_ns())
    os.mkdir(folder)
    server, hosts = Redis(folder), []
    rules = ", ".join(filter(None, (keyed(names, format_), '{ tree = "%s"; name = "k"; }')))
    try:
        for name in "ab"[:count]:
            hosts.append(Host(server, name, folder, lease=lease, rules=rules, foreground=False))
            hosts[-1].start()
        hosts[0].init()
        for host in hosts:
            host.wait_up()
        yield server, hosts
    finally:
        for host in hosts:
            host.stop()
        server.stop()


def first_locks(lab):
    rows = []
    for format_ in FORMATS:
        most = 2 * ROUNDS  # in_turns() makes each again at most once
        names = ["f%d-%d" % (r, i) for r in range(most) for i in range(FIRST)]
        with hosts_with(lab, format_, names) as (_, (host,)):
            rounds = iter(range(most))
            plain, ours = in_turns(ROUNDS, lambda: lab.run(host, "first", lab.new_prefix(host) + "plain", FIRST),
                                   lambda: lab.run(host, "first", host.path("f%d-" % next(rounds)), FIRST))
        rows.append(Times(Series("first lock of a file, redis_key, " + format_, ours), Series("the same, without it", plain)))
    return rows


def hand_overs(lab):
    rows = []
    for format_ in FORMATS:
        with hosts_with(lab, format_, ["turns"], 2) as (_, ours), hosts_with(lab, format_, [], 2) as (_, others):
            plain, key = in_turns(6, lambda: lab.turns(20, REST_US, others), lambda: lab.turns(20, REST_US, ours))
        rows.append(Times(Series("hand-over between two hosts, redis_key, " + format_, key), Series("the same, without it", plain),
                          note="once a second the key is left free for clients, for 200 ms"))
    return rows


def pairs(lab):
    """One host, lock and unlock again and again."""
    with hosts_with(lab, "string", ["pairs"]) as (_, (host,)):
        plain, ours = in_turns(5, lambda: lab.run(host, "calls", "flock-pair", host.path("plain"), 200, 0),
                               lambda: lab.run(host, "calls", "flock-pair", host.path("pairs"), 200, 0))
    return [Times(Series("lock and unlock again, redis_key, string", ours), Series("the same, without it", plain))]


def beat_us(server):
    """Of the server's processor, for one beat: nothing else asks it for anything meanwhile."""
    server.command("CONFIG", "RESETSTAT")
    time.sleep(BEATS_S)
    line = next((l for l in server.command("INFO", "commandstats").splitlines() if l.startswith("cmdstat_evalsha:")), None)
    if not line:
        raise CannotMeasure("there was no beat in %d s" % BEATS_S)
    return float(dict(word.split("=") for word in line.split(":")[1].split(","))["usec_per_call"])


def beats(lab):
    curve = Curve("a beat, us of the server", "leases")
    for count in HELD:
        names = ["held%d" % i for i in range(count)]
        for title, format_, some in (("without redis_key", "string", []), *((f, f, names) for f in FORMATS)):
            lease = "ttl_ms = %d;" % BEATS_TTL_MS
            with hosts_with(lab, format_, some, lease=lease) as (server, (host,)), holding(lab, host, host.path("held"), count, "flock"):
                time.sleep(2)  # what locking sets off
                curve.add(count, {title: beat_us(server)})
    return [curve]


@measurement("rediskey")
def redis_key(lab):
    return [*first_locks(lab), *hand_overs(lab), *pairs(lab), *beats(lab)]
