"""
What the store's scripts cost the server when a lock name has many ranges, leased or waited for. Each script is called on states
that were made for it, and the time is the server's own (INFO commandstats).
"""
from bench.lab import CannotMeasure
from tests.harness.scripts import STORE, Scripts

SIZES = (1, 10, 100, 1000)
ROUNDS = 9
WIDTH = 10  # of a range
OWNERS = 10  # so many hosts share the ranges; no two neighbours are of one


def host(i):
    return "host-%d" % (i % OWNERS)


def token(i):
    return "%032x" % i


class Name(Scripts):
    """A lock name whose state is put back before every call. Range i is that of lease i, and of waiter i."""

    def want(self, i, waits=False, whole=False, **more):
        return self.acquire(host(i + waits), token(i + 5000 * waits), 0 if whole else i * WIDTH, None if whole else (i + 1) * WIDTH,
                            **more)

    def empty(self):
        self.redis.command("HDEL", STORE, self.lock)  # else it would look as if it had been evicted
        self.redis.command("DEL", self.lock)

    def apart(self, count):
        """Leases side by side."""
        for i in range(count):
            self.want(i)

    def each_waited_for(self, count):
        """Half of it leases side by side, and one that waits for each."""
        self.apart(count // 2)
        for i in range(count // 2):
            self.want(i, waits=True)

    def all_behind_one(self, count, mode="exclusive"):
        """One lease of everything; all others wait for ranges side by side."""
        self.acquire("other", token(0), 0, None)
        for i in range(1, count):
            self.want(i, waits=True, mode=mode)

    def all_for_the_same(self, count):
        for i in range(count):
            self.acquire(host(i), token(i), 0, WIDTH)

    def put_back(self, state, n):
        """A state of n ranges; it is kept, since making it is the longest part."""
        saved = "saved:%s:%d" % (state, n)
        if not self.redis.command("EXISTS", saved):
            self.empty()
            STATES[state](self, n)
            self.redis.command("COPY", self.lock, saved)
        self.empty()
        self.redis.command("COPY", saved, self.lock)

    def measured(self, state, n, verdict, call):
        """Microseconds of the server for one call: the least, since whatever else the machine does can only add to it."""
        used = []
        for _ in range(ROUNDS):
            self.put_back(state, n)
            self.redis.command("CONFIG", "RESETSTAT")
            answer = call(self, n)
            if answer[0] != verdict:
                raise CannotMeasure("a script answered %s and not %s" % (answer[0], verdict))
            used.append(self._used())
        return min(used)

    def _used(self):
        for line in self.redis.command("INFO", "commandstats").splitlines():
            if line.startswith("cmdstat_evalsha:"):
                return float(line.split("usec=")[1].split(",")[0])
        raise CannotMeasure("the server keeps no commandstats")

    def reclaim_one(self):
        self.redis.command("HSET", "dflock:{0}:store", "open", 0)
        try:
            return self.call("reclaim", host(9), token(9999), 1, "1:1", "record", "exclusive", "%019d" % 10**6, "%019d" % (10**6 + 1))
        finally:
            self.redis.command("HSET", "dflock:{0}:store", "open", 1)

    def sweep_one(self, which):
        return self.call("sweep", which, self.redis.command("HGET", "dflock:{0}:hosts", which) or 0)


STATES = {
    "apart": Name.apart,
    "apart, and room": lambda s, n: s.apart(n - 1),
    "each waited for": Name.each_waited_for,
    "all behind one": Name.all_behind_one,
    "all readers behind one": lambda s, n: s.all_behind_one(n, "shared"),
    "all for the same": Name.all_for_the_same,
}

# Script, in which situation, the least number of ranges that it takes, the state (the call's own range is one of them), the
# verdict, the call.
ROWS = [
    ("acquire", "granted", 1, "apart, and room", "OK", lambda s, n: s.want(n)),
    ("acquire", "asked again", 1, "apart", "OK", lambda s, n: s.want(n // 2)),
    ("acquire", "queued behind one", 10, "apart, and room", "WAIT", lambda s, n: s.want(n // 2, waits=True)),
    ("acquire", "queued behind all, who are told", 10, "apart, and room", "WAIT", lambda s, n: s.acquire("other", token(9999), 0, None)),
    ("release", "nobody waits", 1, "apart", "OK", lambda s, n: s.call("release", token(n // 2))),
    ("release", "one of many waits for it", 10, "each waited for", "OK", lambda s, n: s.call("release", token(n // 4))),
    ("release", "all others wait for the same", 10, "all for the same", "OK", lambda s, n: s.call("release", token(0))),
    ("release", "handed over to all others", 10, "all behind one", "OK", lambda s, n: s.call("release", token(0))),
    ("shrink", "nobody waits", 1, "apart", "OK", lambda s, n: s.call("shrink", token(n // 2))),
    ("shrink", "handed over to all others", 10, "all readers behind one", "OK", lambda s, n: s.call("shrink", token(0))),
    ("confirm", "", 1, "apart", "GONE", lambda s, n: s.call("confirm", host(n // 2), token(n // 2), 1)),
    ("reclaim", "", 1, "apart, and room", "OK", lambda s, n: s.reclaim_one()),
    ("sweep", "one waits for each", 10, "each waited for", "OK", lambda s, n: s.sweep_one(host(0))),
    ("sweep", "all others wait", 10, "all behind one", "OK", lambda s, n: s.sweep_one("other")),
    ("dump", "", 1, "apart", "OK", lambda s, n: s.call("dump")),
    ("beat", "", 1, "apart", "OK", lambda s, n: s.call("beat", host(0))),
]


def measure(redis):
    """[(script, situation, {n: microseconds})]"""
    name = Name(redis, "bench")
    return [(script, when, {n: name.measured(state, n, verdict, call) for n in SIZES if n >= least})
            for script, when, least, state, verdict, call in ROWS]
