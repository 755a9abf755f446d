"""
The store's scripts against what they are meant to do, written down without any care for speed: random requests for the ranges of
one name, more of them than the scripts look at one by one (FEW in store/rules/clashes.lua).

DFLOCK_MODEL_SEED repeats a run.
"""
import os
import random
import socket
from collections import Counter

import pytest
from harness.redis import read
from harness.scripts import RESTED, Scripts, text_of

SEED = os.environ.get("DFLOCK_MODEL_SEED") or "1"
STEPS = 1000
HOSTS = "ABCDEFG"


class Entry:
    def __init__(self, token, host, file, space, mode, first, to, rest=0):
        self.token, self.host, self.file, self.space, self.mode, self.first, self.to = token, host, file, space, mode, first, to
        self.ask = self.passes = False
        self.rest = rest

    def is_same_owner(self, other):
        if self.rest or other.rest:
            return self.token == other.token
        return (self.host, self.file) == (other.host, other.file)

    def clashes(self, other):
        return (self.space == other.space and not self.is_same_owner(other)
                and "exclusive" in (self.mode, other.mode) and self.first < other.to and other.first < self.to)


class Plain:
    """What the scripts do. said: the messages of the last step, {(host, what, token of the lease, token of the waiter)}"""

    def __init__(self):
        self.leases, self.waiters, self.said = [], [], set()
        self.arrival = 0  # as the scripts number a waiter: by the time
        self.rests = {}  # space: the token of the lease that began it

    def _recall(self, waiter, lease):
        self.said.add((lease.host, "recall", lease.token, waiter.token))

    def _grant(self, entry, told=True):
        self.waiters.remove(entry)
        self.leases.append(entry)
        entry.ask = False
        if entry.rest:
            self.rests[entry.space] = entry.token
        if told:
            self.said.add((entry.host, "granted", entry.token, None))

    def _hand_over(self, gone):
        """To those who waited for one of these; after a rest, a waiter may wait for nothing."""
        granted = []
        for w in [w for w in self.waiters if any(w.clashes(e) for e in gone)]:
            ahead = self.waiters[:self.waiters.index(w)]
            if w.space not in self.rests and not any(w.clashes(e) for e in self.leases) and (w.passes or not any(w.clashes(e) for e in ahead)):
                self._grant(w)
                granted.append(w)
        return granted

    def _recall_new(self, granted):
        for mode in ("exclusive", "shared"):
            for e in granted:
                for w in [w for w in self.waiters if w.mode == mode and not w.ask and w.clashes(e)][:1]:
                    self._recall(w, e)
            for w in [w for w in self.waiters if w.ask]:
                for e in [e for e in granted if e.mode == mode and e.clashes(w)][:1]:
                    self._recall(w, e)

    def gone(self, gone):
        self._recall_new(self._hand_over(gone))

    def find(self, token):
        return next((e for e in self.leases + self.waiters if e.token == token), None)

    def _holders(self, mine):
        return [e for e in self.leases if mine.clashes(e)]

    def _ahead(self, mine):
        return [e for e in self.waiters[:self.waiters.index(mine)] if mine.clashes(e)]

    def acquire(self, entry, ask, passes, dead):
        mine = self.find(entry.token) or entry
        if mine in self.leases:
            return "OK"
        queued = mine in self.waiters
        dropped = [e for e in self.leases + self.waiters if e.host in dead]
        self.leases = [e for e in self.leases if e.host not in dead]
        self.waiters = [e for e in self.waiters if e.host not in dead]
        if not queued:
            self.waiters.append(mine)
        granted = self._hand_over(dropped)
        if mine in self.waiters and not passes and not self._holders(mine) and self._ahead(mine):
            granted += self._hand_over(list(self.waiters))  # those in front may wait for nothing
        if mine in self.leases:  # the answer says it
            self.said.discard((mine.host, "granted", mine.token, None))
            self._recall_new(granted)
            return "OK"
        holders, ahead = self._holders(mine), self._ahead(mine)
        rests = mine.space in self.rests
        if not holders and not rests and (passes or not ahead):
            self._grant(mine, told=False)
            self._recall_new([*granted, mine])
            return "OK"
        if rests and ask:
            self.waiters.remove(mine)
            self._recall_new(granted)
            return "REST"
        if ask and holders and (mine.space, mine.mode) == ("flock", "exclusive") and any(not w.ask for w in ahead):
            self.waiters.remove(mine)
            if queued:
                granted += self._hand_over([mine])
            self._recall_new(granted)
            return "BUSY"
        mine.ask, mine.passes = ask, passes
        self._recall_new(granted)
        if rests:
            return "REST"
        for e in holders:
            self._recall(mine, e)
        if not holders:  # for one of those in front, each in its turn
            w = self.waiters[self.arrival % self.waiters.index(mine)]
            for e in [e for e in self.leases if w.clashes(e)]:
                self._recall(w, e)
        return "WAIT"

    def release(self, token, unused=0):
        entry = self.find(token)
        if entry in self.leases:
            self.leases.remove(entry)
            if unused and self.rests.get(entry.space) == token:
                del self.rests[entry.space]
        elif entry:
            self.waiters.remove(entry)
        if entry:
            self.gone([entry])
        return "OK"

    def shrink(self, token):
        entry = self.find(token)
        if entry not in self.leases:
            return "GONE"
        if entry.mode == "exclusive":
            was = Entry(None, entry.host, entry.file, entry.space, "exclusive", entry.first, entry.to)
            entry.mode = "shared"
            self.gone([was])
        return "OK"

    def sweep(self, host):
        dropped = [e for e in self.leases + self.waiters if e.host == host]
        self.leases, self.waiters = [[e for e in part if e.host != host] for part in (self.leases, self.waiters)]
        if dropped:
            self.gone(dropped)
        return "OK"

    def over(self, space):
        return self.rests.pop(space, None) is not None


class Listener:
    """What is published to hosts."""

    def __init__(self, redis):
        self.redis = redis
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(redis.socket)
        self.file = self.socket.makefile("rb")
        self.socket.sendall(b"PSUBSCRIBE dflock:{0}:host:*\r\n")
        read(self.file)

    def heard(self):
        self.redis.command("PUBLISH", "dflock:{0}:host:end", "end")
        said = set()
        while (message := read(self.file))[3] != "end":
            words = message[3].split(" ")
            host = message[2].rpartition(":")[2]
            said.add((host, words[0], words[1], words[3] if words[0] == "recall" else None))
        return said

    def close(self):
        self.file.close()
        self.socket.close()


def play(scripts, plain, rng, number, wide, resting, releases=4):
    """One random step on both: (what, verdict, verdict). releases: how many for eight acquires"""
    known = plain.leases + plain.waiters
    some = rng.choice(known) if known else None
    what = rng.choices(["acquire", "again", "release", "shrink", "sweep", "dead", "over"],
                       [8, 2, 8 if resting else releases, 1, 0.05, 0.05, 0.5 if resting else 0])[0]
    if what == "over":
        space = rng.choice(["flock", "record"])
        return f"over {space}", scripts.redis.command("HDEL", RESTED, scripts.rests[space == "record"]) == 1, plain.over(space)
    if what in ("acquire", "again", "dead"):
        first = rng.randrange(400)
        # Now and then one that many others wait for.
        to = first + rng.randint(1, 12) if rng.random() > wide else 500
        entry = Entry("%032x" % number, rng.choice(HOSTS), rng.choice(["1:1", "1:1", "1:2"]), rng.choice(["record"] * 9 + ["flock"]),
                      rng.choice(["exclusive", "exclusive", "shared"]), first if to < 500 else 0, to)
        if rng.random() < resting:
            entry.rest, entry.mode, entry.first, entry.to = 3600000, "exclusive", 0, 500
        if what == "again" and some:
            entry = some
        ask = rng.random() < 0.2
        passes = ask or rng.random() < 0.1
        dead = [h for h in HOSTS if h != entry.host][:1] if what == "dead" else []
        answer = scripts.acquire(entry.host, entry.token, entry.first, entry.to, entry.mode, entry.space, entry.file, ask, passes,
                                 [w for h in dead for w in (h, scripts.beat(h))], entry.rest)
        plain.arrival = int(answer[1]) if answer[0] == "WAIT" else 0
        return f"{what} {vars(entry)}", answer[0], plain.acquire(entry, ask, passes, dead)
    if what == "sweep":
        host = rng.choice(HOSTS)
        return f"sweep {host}", scripts.call("sweep", host, scripts.beat(host))[0], plain.sweep(host)
    token = some.token if some else "0" * 32
    if what == "release":
        unused = int(rng.random() < resting)
        return f"release {token} {unused}", scripts.call(what, token, unused, some.host if some else HOSTS[0])[0], plain.release(token, unused)
    return f"{what} {token}", scripts.call(what, token)[0], getattr(plain, what)(token)


class BeatingScripts(Scripts):
    def beat(self, host):
        return self.redis.command("HGET", "dflock:{0}:hosts", host)


def step(scripts, plain, listener, rng, number, *how):
    """One step, after which both must have said and must have the same. Returns the verdict."""
    plain.said = set()
    what, got, wanted = play(scripts, plain, rng, number, *how)
    where = f"seed {SEED}, step {number}: {what}"
    assert got == wanted, where
    assert listener.heard() == plain.said, where
    _, leases, waiters, rests, *_ = scripts.call("dump")
    assert [left != "0" for left in rests] == [space in plain.rests for space in ("flock", "record")], where
    assert [(e[2], e[4]) for e in leases] == [(e.token, e.mode) for e in plain.leases], where
    assert [e[2] for e in waiters] == [e.token for e in plain.waiters], where
    return got


@pytest.mark.parametrize("wide,resting,few", [(0.02, 0, 0), (0.02, 0, 32), (0.3, 0, 0), (0.3, 0.2, 32), (0.3, 0.6, 0)])
def test_they_do_what_is_written_here(redis, monkeypatch, wide, resting, few):
    """few: from how many on they use a tree; 0: always. resting: how many begin a rest."""
    texts = {name: text_of(name) for name in ("acquire", "release", "shrink", "sweep")}
    assert all("local FEW = 32 " in text for text in texts.values())
    monkeypatch.setattr("harness.scripts.text_of",
                        lambda name: texts[name].replace("FEW = 32", f"FEW = {few}") if name in texts else text_of(name))
    scripts, plain, rng = BeatingScripts(redis), Plain(), random.Random(f"{SEED} {wide}")
    listener, most, rested = Listener(redis), 0, 0
    for host in HOSTS:
        scripts.call("beat", host, "", 0)
    for number in range(STEPS):
        got = step(scripts, plain, listener, rng, number, wide, resting)
        rested += got == "REST"
        most = max(most, len(plain.waiters))
    listener.close()
    assert resting or most > 64, "too few waited: the tree was not tried"
    assert not resting or rested > 20, "too little rested"


@pytest.mark.parametrize("resting", [0, 0.1])
def test_one_or_two_entries(redis, resting):
    """Mostly none, one or two entries, which take.lua and give.lua look at."""
    scripts, plain, rng = BeatingScripts(redis), Plain(), random.Random(f"{SEED} few")
    listener, seen = Listener(redis), Counter()
    for host in HOSTS:
        scripts.call("beat", host, "", 0)
    for number in range(3 * STEPS):
        seen[len(plain.leases), len(plain.waiters)] += 1
        step(scripts, plain, listener, rng, number, 0.8, resting, 12)
    listener.close()
    assert all(seen[few] > 100 for few in [(0, 0), (1, 0), (1, 1)]), seen
