"""
What the store's scripts cost the server when many ranges of one lock name are leased or waited for. The scripts are called
one by one on states made for it, and the time is the server's own (INFO commandstats).
"""
import os

from bench.lab import CannotMeasure
from tests.harness.host import ROOT

SIZES = (1, 10, 100, 1000)
LUA = os.path.join(ROOT, "store/lua")
STORE, HOSTS, LOCK = "dflock:{0}:store", "dflock:{0}:hosts", "dflock:{0}:lock:bench"
END = "9223372036854775807"
OWNERS = 10  # so many hosts share the ranges


def script(name):
    """As store/scripts.c puts it together: (text, how many keys)."""
    def read(part):
        with open(os.path.join(LUA, part + ".lua")) as f:
            return f.read()

    first, rest = read(name).split("\n", 1)
    on_lock = name not in ("beat", "leave", "hosts", "store")
    return "\n".join([first, read("common")]) + (read("clashes") + read("entries") if on_lock else "") + rest, 3 if on_lock else 2


def offset(n):
    return "%019d" % n


class Name:
    """A lock name of a private server, whose state is put back before every call."""

    def __init__(self, redis):
        self.redis = redis
        self.sha, self.keys = {}, {}
        for name in ("acquire", "release", "shrink", "confirm", "reclaim", "sweep", "beat", "dump", "store"):
            text, self.keys[name] = script(name)
            self.sha[name] = redis.command("SCRIPT", "LOAD", text)
        redis.command("FLUSHALL")
        self.incarnation = "-"
        self.incarnation = self.call("store", "init", 30000)[1]

    def call(self, name, *words):
        keys = (STORE, HOSTS, LOCK)[:self.keys[name]]
        answer = self.redis.command("EVALSHA", self.sha[name], len(keys), *keys, self.incarnation, *words)
        if answer[0] in ("INC", "GRACE", "TTL"):
            raise CannotMeasure("%s was answered %s" % (name, answer[0]))
        return answer

    def acquire(self, owner, number, first, length, mode="exclusive"):
        """(verdict, token)"""
        end = offset(first + length) if length else END
        token = "%032x" % number
        return self.call("acquire", "host-%d" % (owner % OWNERS), "1:1", token, "record", mode, offset(first), end, 0, 0, 0)

    def measured(self, name, words, verdict, rounds):
        """Microseconds of the server per call, on the state that there is now."""
        was = {key: self.redis.dump(key) for key in (STORE, HOSTS, LOCK)}
        used = []
        for _ in range(rounds):
            for key, value in was.items():
                self.redis.restore(key, value)
            self.redis.command("CONFIG", "RESETSTAT")
            answer = self.call(name, *words)
            if answer[0] != verdict:
                raise CannotMeasure("%s was answered %s instead of %s" % (name, answer[0], verdict))
            used.append(self.used())
        return used

    def used(self):
        for line in self.redis.command("INFO", "commandstats").splitlines():
            if line.startswith("cmdstat_evalsha:"):
                return float(line.split("usec=")[1].split(",")[0])
        raise CannotMeasure("the server has no commandstats of EVALSHA")
