"""
How dflock behaves as things grow: the hosts that fight for a file, those that wait, the leases that are held. Each function
returns rows (report.py), most of them curves.
"""
import contextlib
import os
import shutil
import subprocess
import tempfile
import time

from bench.lab import BUILD, CannotMeasure
from bench.latency import DISTANCES_MS, distant
from bench.measurements import DEFAULT_TTL_MS, holding, in_turns, measurement
from bench.report import Curve, Series, Times
from tests.harness import Cluster, Redis

HOLDS_MS = (0, 1, 2, 5, 10, 20, 50)
HOT_HOSTS = (1, 2, 4, 8)
WAITING_HOSTS = (2, 4, 8, 16, 32, 64)
HELD = (1, 10, 100, 1000, 10000)
STORE_HOSTS = (1, 10, 100, 1000, 5000)
BUSY_HOSTS = 32  # that lock and unlock all the time
CROWDS = (1, 3, 10, 30, 100)  # programs of one host on one file
OWN = (10, 100, 1000)  # programs of one host that start, and lock a file each
CROWD_X = 2
FROZEN = (1000, 20000, 60000)
FROZEN_CHILDREN = (1000, 10000)


def fight(lab, hosts, ms=1000):
    """All of them lock one file in tight loops: (pairs per second of all, longest wait in ms, fewest pairs of one)."""
    with contextlib.ExitStack() as stack:
        loops = [stack.enter_context(lab.popen(h, "hot", h.path("hot"), ms)) for h in hosts]
        lab.start_together(loops)
        results = [lab.samples(p) for p in loops]
    return sum(r[0] for r in results) * 1000 / ms, max(r[1] for r in results) / 1e6, min(r[0] for r in results)


@measurement("hot")
def hot(lab):
    """A file for which hosts fight: throughput of all, and the longest wait of one, by hosts, by distance, and by min_hold_ms."""
    hosts = Curve("hot lock, by hosts", "hosts")
    holds = Curve("hot lock of two hosts, by min_hold_ms", "min_hold_ms")
    for ms in (0, *DISTANCES_MS):
        far = " at %d ms" % ms if ms else ""
        with distant(lab, ms) as path:
            for n in HOT_HOSTS:
                with lab.some_hosts(n, path) as some:
                    rate, longest, _ = fight(lab, some)
                hosts.add(n, {"pairs/s" + far: rate, "longest wait, ms" + far: longest})
            for hold in HOLDS_MS:
                with lab.some_hosts(2, path, "min_hold_ms = %d;" % hold) as some:
                    rate, longest, _ = fight(lab, some)
                holds.add(hold, {"pairs/s" + far: rate, "longest wait, ms" + far: longest})
    return [hosts, holds]


@measurement("queue")
def queue(lab):
    """Hand-over by how many hosts wait, each of which keeps the lock for a millisecond."""
    curve = Curve("hand-over, by hosts that wait", "hosts")
    for ms in (0, *DISTANCES_MS):
        with distant(lab, ms) as path:
            for n in WAITING_HOSTS:
                with lab.some_hosts(n, path) as hosts:
                    shared = lab.open_file("queue")
                    with open(shared, "wb") as f:
                        f.write(bytes(64))
                    with contextlib.ExitStack() as stack:
                        players = [stack.enter_context(lab.popen(h, "queue", h.path("queue"), shared, 4, 1000)) for h in hosts]
                        lab.start_together(players)
                        samples = Series("", [lab.samples(p) for p in players])
                far = " at %d ms" % ms if ms else ""
                curve.add(n, {"median, us" + far: samples.median / 1e3, "p99, us" + far: samples.p99 / 1e3})
    return [curve]


def crowd_on_one(lab, host, curve):
    """All are there, and lock the same file 20 times each."""
    def run(env, n, path):
        return lab.run(env, "crowd", n, "one", path, 20, 0)

    for n in CROWDS:
        plain, ours = in_turns(12, lambda: run(lab.plain(), n, lab.open_file("crowd")), lambda: run(host, n, host.path("crowd")))
        row = Times(Series("%d programs on one file, one lock" % n, ours), Series("plain", plain), x=CROWD_X)
        curve.add(n, {"dflock, us": row.series.median / 1e3, "plain, us": row.reference.median / 1e3})
    return [row]


def crowd_on_own(lab, host, curve):
    """Each is started, locks a file of its own, and ends."""
    def run(env, n, prefix):
        return lab.run(env, "crowd", n, "own", prefix, 1, 0)

    for n in OWN:
        plain, unprotected, ours = in_turns(
            4 if n > 100 else 8, lambda: run(lab.plain(), n, lab.open_file("own")), lambda: run(host, n, lab.open_file("own")),
            lambda: run(host, n, lab.new_prefix(host)))
        lab.settle()
        reference = Series("plain", plain)
        rows = [Times(Series("%d programs, a file each, from start to end%s" % (n, what), taken), reference, x=CROWD_X)
                for what, taken in ((", not protected", unprotected), ("", ours))]
        curve.add(n, {"dflock, us": rows[1].series.median / 1e3, "not protected, us": rows[0].series.median / 1e3,
                      "plain, us": reference.median / 1e3})
    return rows


def in_line(lab, envs, path):
    """Programs that lock a file four times each and keep it for a millisecond: ns for one lock."""
    shared = lab.open_file("line")
    with open(shared, "wb") as f:
        f.write(bytes(64))
    with contextlib.ExitStack() as stack:
        players = [stack.enter_context(lab.popen(env, "queue", path(env), shared, 4, 1000)) for env in envs]
        lab.start_together(players)
        begin = time.monotonic_ns()
        for p in players:
            lab.samples(p)
        return [(time.monotonic_ns() - begin) / len(players) / 4]


@measurement("crowd")
def crowd(lab):
    """Many programs of one host, beside the same without dflock; and as many hosts as programs, on one name."""
    host = lab.host("a")
    one, own = Curve("crowd on one file, by programs", "programs"), Curve("crowd on a file each, by programs", "programs")
    hosts = Curve("crowd of hosts on one name, by hosts", "hosts")
    rows = crowd_on_one(lab, host, one) + crowd_on_own(lab, host, own)
    for n in WAITING_HOSTS:
        with lab.some_hosts(n, lab.redis().socket) as some:
            plain, ours = in_turns(3, lambda: in_line(lab, [lab.plain()] * n, lambda _: lab.open_file("turn")),
                                   lambda: in_line(lab, some, lambda h: h.path("turn")))
        row = Times(Series("%d hosts in line for one name, one lock of 1 ms" % n, ours), Series("plain, one host", plain))
        hosts.add(n, {"dflock, us": row.series.median / 1e3, "plain, us": row.reference.median / 1e3})
    return [*rows, row, one, own, hosts]


@measurement("onestore")
def one_store(lab):
    """What so many hosts cost one server, and how many names they lock in a second; each is two connections, as of a keeper."""
    curve = Curve("one store, by hosts", "hosts")
    for n in STORE_HOSTS:
        folder = tempfile.mkdtemp(dir=lab.folder)
        server = Redis(folder, "--maxclients", str(2 * max(STORE_HOSTS) + 1000))
        try:
            done = subprocess.run([os.path.join(BUILD, "bench/onestore"), server.socket, str(server.process.pid), str(n), str(BUSY_HOSTS),
                                   "5"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=400)
        finally:
            server.stop()
        if done.returncode:
            raise CannotMeasure("onestore: " + done.stderr.strip())
        _, connected, memory, beats, rate, cost, lease = map(float, done.stdout.split())
        curve.add(n, {"connected after, s": connected, "memory, MB": memory / 1e6, "beats, % of a processor": beats / 10,
                      "names locked per second": rate, "processor for one, us": cost, "memory for a lease, bytes": lease})
    return [curve]


@measurement("shards")
def shards(lab):
    """What one lock costs the masters of a Redis Cluster, and how they share it, by their number. The clients are the limit where processors are few."""
    curve = Curve("16 shards, by masters", "masters")
    for n in (1, 2, 3):
        folder = tempfile.mkdtemp(dir=lab.folder)
        cluster = Cluster(folder, masters=n)
        try:
            done = subprocess.run([os.path.join(BUILD, "bench/onestore"), cluster.all[0].socket,
                                   ",".join(str(node.process.pid) for node in cluster.all), str(BUSY_HOSTS), str(BUSY_HOSTS), "5",
                                   str(cluster.all[0].port), "16"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
        finally:
            cluster.stop()
        if done.returncode:
            raise CannotMeasure("onestore: " + done.stderr.strip())
        _, rate, cost, share = map(float, done.stdout.split())
        curve.add(n, {"names locked per second": rate, "processor of all masters for one, us": cost, "share of the busiest, %": share * 100,
                      "names per second that the busiest has room for": 1e6 / (cost * share)})
    return [curve]


def processor_seconds(pids):
    total = 0.0
    for pid in pids:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/schedstat" % (pid, task)) as f:
                total += int(f.read().split()[0]) / 1e9
    return total


@measurement("held")
def held(lab):
    """What leases cost that are just held, with default settings: of a processor, on either side."""
    curve = Curve("load while leases are held", "leases")
    seconds = 10
    for count in HELD:
        with lab.some_hosts(1, lab.redis().socket) as (host,), holding(lab, host, host.path("held"), count, "flock"):
            sides = {"keeper": host.keeper_pids(), "Redis": [lab.redis().process.pid]}
            time.sleep(2)  # what locking sets off
            before = {side: processor_seconds(pids) for side, pids in sides.items()}
            time.sleep(seconds)
            curve.add(count, {side + ", % of a core": (processor_seconds(pids) - before[side]) * 100 / seconds
                              for side, pids in sides.items()})
    return [curve]


def system_calls(lab, words):
    """How many the program makes, less what its children do; 0 if there is no strace."""
    if not shutil.which("strace"):
        return 0
    counts = os.path.join(tempfile.mkdtemp(dir=lab.folder), "counts")
    subprocess.run(["strace", "-c", "-U", "calls,name", "-o", counts, os.path.join(BUILD, "bench/freeze"), *map(str, words)], check=True,
                   env=lab.plain(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(counts) as f:
        return sum(int(line.split()[0]) for line in f if line.split()[0].isdigit() and not line.rstrip().endswith("total"))


def frozen(lab, words):
    program = subprocess.run([os.path.join(BUILD, "bench/freeze"), *map(str, words)], env=lab.plain(), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    if program.returncode:
        raise CannotMeasure("freeze: " + program.stderr.strip())
    return map(float, program.stdout.split())


@measurement("freeze")
def freeze(lab):
    """How long the holders of many leases run on when these cannot be renewed any more: as a share of the default margin. And how long it
    takes to stop all that one holder has started."""
    margin_ns = DEFAULT_TTL_MS / 6 * 1e6
    family = Curve("stopping a holder that has started many processes", "processes")
    curve = Curve("stopping the holders of leases that cannot be renewed, in 4 processes", "leases")
    for count in FROZEN:
        words = [tempfile.mkdtemp(dir=lab.folder), count, 0, 4, 0, int(margin_ns / 1e9)]
        stopped, done, spent = frozen(lab, words)
        curve.add(count, {"last holder stopped, ms": stopped / 1e6, "% of the margin (limit 10)": stopped * 100 / margin_ns,
                          "all looked for, ms": done / 1e6, "processor, ms": spent / 1e6,
                          "system calls per lease": system_calls(lab, words[:-1] + [600]) / count})
        shutil.rmtree(words[0])
    for count in FROZEN_CHILDREN:
        words = [tempfile.mkdtemp(dir=lab.folder), 1, 0, 1, count, int(margin_ns / 1e9)]
        _, done, spent = frozen(lab, words)
        family.add(count, {"all stopped, and looked for, ms": done / 1e6, "% of the margin (limit 100)": done * 100 / margin_ns,
                           "processor, ms": spent / 1e6})
        shutil.rmtree(words[0])
    return [curve, family]
