"""
What grows with the hosts and with the lock names of a store: its scripts where there are so many, by the server's own time. The
hosts have no connections, and the names are copies of one, so that all of it fits into any machine.
"""
import tempfile

from bench.lab import CannotMeasure
from bench.measurements import measurement
from bench.report import Curve
from tests.harness import Redis
from tests.harness.scripts import HOSTS, LOCK, RESTS, STORE, Scripts

SOME_HOSTS = (1000, 10000, 100000)
SOME_NAMES = (10000, 100000, 1000000)
CALLS = 200
AT_ONCE = 10000
FILL_HOSTS = "for i = ARGV[1], ARGV[2] do redis.call('HSET', KEYS[1], string.format('host-%016d', i), ARGV[3]) end"
FILL_NAMES = """
local value, inc = redis.call('GET', KEYS[2]), redis.call('HGET', KEYS[1], 'inc')
for i = ARGV[1], ARGV[2] do
	local key = 'dflock:{0}:lock:/var/lock/job-' .. i .. '.lock'
	redis.call('SET', key, value)
	redis.call('HSET', KEYS[1], key, inc)
end"""


class Store(Scripts):
    def fill(self, script, keys, count, *words):
        for first in range(1, count + 1, AT_ONCE):
            self.redis.command("EVAL", script, len(keys), *keys, first, min(first + AT_ONCE - 1, count), *words)

    def cost(self, command, call, times=CALLS):
        """The server's microseconds for one of these calls."""
        self.redis.command("CONFIG", "RESETSTAT")
        for i in range(times):
            call(i)
        for line in self.redis.command("INFO", "commandstats").splitlines():
            if line.startswith(f"cmdstat_{command}:"):
                return float(line.split("usec=")[1].split(",")[0]) / times
        raise CannotMeasure("the server keeps no commandstats")

    def memory(self):
        info = self.redis.command("INFO", "memory")
        return int(next(line.split(":")[1] for line in info.splitlines() if line.startswith("used_memory:")))

    def named(self, name):
        self.lock, self.rests = LOCK % name, [rest % name for rest in RESTS]
        return self

    def locked(self, i):
        self.named(f"/var/lock/new-{i}.lock")
        assert self.acquire("a", "%032x" % i, 0, None, space="flock")[0] == "OK"

    def pages(self):
        """As a walk over all names: how many pages it takes."""
        cursor, count = "0", 0
        while cursor != "0" or not count:
            cursor = self.redis.command("SCAN", cursor, "MATCH", "dflock:{0}:lock:*", "COUNT", 500)[0]
            count += 1
        return count


def by_hosts(store, curve):
    for n in SOME_HOSTS:
        store.fill(FILL_HOSTS, [HOSTS], n, 10 ** 13)
        curve.add(n, {"beat, us": store.cost("evalsha", lambda i: store.call("beat", "host-%016d" % (i + 1))),
                      "first lock, us": store.cost("evalsha", store.locked),
                      "list of hosts, ms": store.cost("evalsha", lambda i: store.call("hosts"), 5) / 1e3})
        store.redis.command("DEL", HOSTS)


def by_names(store, curve):
    store.locked(0)
    empty = store.memory()
    for n in SOME_NAMES:
        store.fill(FILL_NAMES, [STORE, store.named("/var/lock/new-0.lock").lock], n)
        pages = []
        scan = store.cost("scan", lambda i: pages.append(store.pages()), 1)
        dump = store.cost("evalsha", lambda i: store.named(f"/var/lock/job-{i + 1}.lock").call("dump"))
        sweep = store.cost("evalsha", lambda i: store.named(f"/var/lock/job-{i + 1}.lock").call("sweep", "gone", 0))
        curve.add(n, {"first lock, us": store.cost("evalsha", lambda i: store.locked(n + i)),
                      "all names (status), s": (scan + dump * n) / 1e6, "all names for one host that is gone (sweep), s": (scan + sweep * n) / 1e6,
                      "memory for a name, bytes": (store.memory() - empty) / n})


@measurement("limits")
def limits(lab):
    """What the scripts cost where there are 100,000 hosts, or a million names."""
    hosts, names = Curve("one store, by the hosts that it knows", "hosts"), Curve("one store, by the names that are locked", "names")
    for by, curve in ((by_hosts, hosts), (by_names, names)):
        server = Redis(tempfile.mkdtemp(dir=lab.folder))
        try:
            by(Store(server), curve)
        finally:
            server.stop()
    return [hosts, names]
