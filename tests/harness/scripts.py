"""The store's scripts, called one by one as a keeper does, on a server of one's own."""
import os

from .host import ROOT

LUA = os.path.join(ROOT, "store/rules")
STORE, HOSTS, LOCK = "dflock:{0}:store", "dflock:{0}:hosts", "dflock:{0}:lock:%s"
RESTED, RESTS = "dflock:{0}:rests", ("dflock:{0}:rest:flock:%s", "dflock:{0}:rest:record:%s")
END = "9223372036854775807"
OF_ALL = ("beat", "leave", "hosts", "store", "post", "rules")  # they take no lock

SIMPLE = {"acquire": ("take",), "release": ("give",)}  # in front of what takes long to define


def text_of(name):
    """As store/scripts.c puts it together for Redis 7."""
    def read(part):
        with open(os.path.join(LUA, part + ".lua")) as f:
            return f.read()

    first, rest = read(name).split("\n", 1)
    renews = () if name in OF_ALL and name != "beat" else ("renew",)
    more = () if name in OF_ALL else ("clashes", "key", "entries")
    return "\n".join([first, *map(read, ("common", *renews, *SIMPLE.get(name, ()), *more)), rest])


def offset(n):
    return "%019d" % n


class Scripts:
    """Opens the store of a server; all calls are about one lock name."""

    def __init__(self, redis, name="n"):
        self.redis = redis
        self.lock = LOCK % name
        self.rests = [rest % name for rest in RESTS]
        self.sha = {}
        self.incarnation = "-"
        self.incarnation = self.call("store", "init", 30000)[1]

    def call(self, name, *words):
        """The script's answer: a list, its first word the verdict."""
        if name not in self.sha:
            self.sha[name] = self.redis.command("SCRIPT", "LOAD", text_of(name))
        keys = (STORE, HOSTS) if name in OF_ALL else (STORE, HOSTS, self.lock, *self.rests)
        return self.redis.command("EVALSHA", self.sha[name], len(keys), *keys, self.incarnation, *words)

    def acquire(self, host, token, first, to, mode="exclusive", space="record", file="1:1", ask=False, passes=False, dead=(),
                rest=0):
        """to: None is the end of all offsets. dead: host and beat of each."""
        return self.call("acquire", host, file, token, space, mode, offset(first), END if to is None else offset(to), int(ask),
                         int(passes), 0, 0, rest, "", "", *dead)
