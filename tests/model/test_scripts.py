"""
The store's scripts against what they are meant to do, written down without any care for speed: random requests for the ranges of
one name, more of them than the scripts look at one by one (FEW in store/lua/clashes.lua).

DFLOCK_MODEL_SEED repeats a run.
"""
import os
import random
import socket

import pytest
from harness.scripts import Scripts, text_of

SEED = os.environ.get("DFLOCK_MODEL_SEED") or "1"
STEPS = 1000
HOSTS = "ABCDEFG"


class Entry:
    def __init__(self, token, host, file, space, mode, first, to):
        self.token, self.host, self.file, self.space, self.mode, self.first, self.to = token, host, file, space, mode, first, to
        self.ask = self.passes = False

    def clashes(self, other):
        return (self.space == other.space and (self.host, self.file) != (other.host, other.file)
                and "exclusive" in (self.mode, other.mode) and self.first < other.to and other.first < self.to)


class Plain:
    """What the scripts do. said: the messages of the last step, {(host, what, token of the lease, token of the waiter)}"""

    def __init__(self):
        self.leases, self.waiters, self.said = [], [], set()
        self.arrivals = 0

    def _recall(self, waiter, lease):
        self.said.add((lease.host, "recall", lease.token, waiter.token))

    def _grant(self, entry, told=True):
        self.waiters.remove(entry)
        self.leases.append(entry)
        entry.ask = False
        if told:
            self.said.add((entry.host, "granted", entry.token, None))

    def _hand_over(self):
        granted = []
        for w in list(self.waiters):
            ahead = self.waiters[:self.waiters.index(w)]
            if not any(w.clashes(e) for e in self.leases) and (w.passes or not any(w.clashes(e) for e in ahead)):
                self._grant(w)
                granted.append(w)
        return granted

    def _recall_new(self, granted):
        for e in granted:
            waiting = [w for w in self.waiters if w.clashes(e)]
            for mode in ("exclusive", "shared"):
                for w in [w for w in waiting if w.mode == mode and not w.ask][:1]:
                    self._recall(w, e)
            for w in [w for w in waiting if w.ask]:
                self._recall(w, e)

    def gone(self):
        self._recall_new(self._hand_over())

    def find(self, token):
        return next((e for e in self.leases + self.waiters if e.token == token), None)

    def acquire(self, entry, ask, passes, dead):
        mine = self.find(entry.token) or entry
        if mine in self.leases:
            return "OK"
        before = len(self.leases) + len(self.waiters)
        queued = mine in self.waiters
        self.leases = [e for e in self.leases if e.host not in dead]
        self.waiters = [e for e in self.waiters if e.host not in dead]
        if not queued:
            self.waiters.append(mine)
        granted = self._hand_over() if before > len(self.leases) + len(self.waiters) - (not queued) else []
        if mine in self.leases:  # the answer says it
            self.said.discard((mine.host, "granted", mine.token, None))
            self._recall_new(granted)
            return "OK"
        holders = [e for e in self.leases if mine.clashes(e)]
        ahead = [e for e in self.waiters[:self.waiters.index(mine)] if mine.clashes(e)]
        if not holders and (passes or not ahead):
            self._grant(mine, told=False)
            self._recall_new([*granted, mine])
            return "OK"
        if ask and holders and (mine.space, mine.mode) == ("flock", "exclusive") and any(not w.ask for w in ahead):
            self.waiters.remove(mine)
            if queued:
                granted += self._hand_over()
            self._recall_new(granted)
            return "BUSY"
        mine.ask, mine.passes = ask, passes
        self._recall_new(granted)
        self.arrivals += 1
        for e in holders:
            self._recall(mine, e)
        if not holders:  # for one of those in front, each in its turn
            w = self.waiters[self.arrivals % self.waiters.index(mine)]
            for e in [e for e in self.leases if w.clashes(e)]:
                self._recall(w, e)
        return "WAIT"

    def release(self, token):
        entry = self.find(token)
        if entry in self.leases:
            self.leases.remove(entry)
        elif entry:
            self.waiters.remove(entry)
        if entry:
            self.gone()
        return "OK"

    def shrink(self, token):
        entry = self.find(token)
        if entry not in self.leases:
            return "GONE"
        if entry.mode == "exclusive":
            entry.mode = "shared"
            self.gone()
        return "OK"

    def sweep(self, host):
        kept = [[e for e in part if e.host != host] for part in (self.leases, self.waiters)]
        if kept != [self.leases, self.waiters]:
            self.leases, self.waiters = kept
            self.gone()
        return "OK"


class Listener:
    """What is published to hosts."""

    def __init__(self, redis):
        self.redis = redis
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(redis.socket)
        self.file = self.socket.makefile("r", newline="\r\n")
        self.socket.sendall(b"PSUBSCRIBE dflock:{0}:host:*\r\n")
        self._value()

    def _value(self):
        line = self.file.readline().rstrip("\r\n")
        if line[0] == "*":
            return [self._value() for _ in range(int(line[1:]))]
        return self.file.readline().rstrip("\r\n") if line[0] == "$" else line[1:]

    def heard(self):
        self.redis.command("PUBLISH", "dflock:{0}:host:end", "end")
        said = set()
        while (message := self._value())[3] != "end":
            words = message[3].split(" ")
            host = message[2].rpartition(":")[2]
            said.add((host, words[0], words[1], words[3] if words[0] == "recall" else None))
        return said

    def close(self):
        self.file.close()
        self.socket.close()


def play(scripts, plain, rng, number, wide):
    """One random step on both: (what, verdict, verdict)"""
    known = plain.leases + plain.waiters
    some = rng.choice(known) if known else None
    what = rng.choices(["acquire", "again", "release", "shrink", "sweep", "dead"], [8, 2, 4, 1, 0.05, 0.05])[0]
    if what in ("acquire", "again", "dead"):
        first = rng.randrange(400)
        # Now and then one that many others wait for.
        to = first + rng.randint(1, 12) if rng.random() > wide else 500
        entry = Entry("%032x" % number, rng.choice(HOSTS), rng.choice(["1:1", "1:1", "1:2"]), rng.choice(["record"] * 9 + ["flock"]),
                      rng.choice(["exclusive", "exclusive", "shared"]), first if to < 500 else 0, to)
        if what == "again" and some:
            entry = some
        # Few ask at a time: a script puts no more than MAX_ASKERS questions to one host.
        ask = rng.random() < 0.2 and sum(e.ask for e in plain.waiters) < 8
        passes = ask or rng.random() < 0.1
        dead = [h for h in HOSTS if h != entry.host][:1] if what == "dead" else []
        answer = scripts.acquire(entry.host, entry.token, entry.first, entry.to, entry.mode, entry.space, entry.file, ask, passes,
                                 [w for h in dead for w in (h, scripts.beat(h))])
        return f"{what} {vars(entry)}", answer[0], plain.acquire(entry, ask, passes, dead)
    if what == "sweep":
        host = rng.choice(HOSTS)
        return f"sweep {host}", scripts.call("sweep", host, scripts.beat(host))[0], plain.sweep(host)
    token = some.token if some else "0" * 32
    return f"{what} {token}", scripts.call(what, token)[0], getattr(plain, what)(token)


class BeatingScripts(Scripts):
    def beat(self, host):
        return self.redis.command("HGET", "dflock:{0}:hosts", host)


@pytest.mark.parametrize("few", [0, 32])
@pytest.mark.parametrize("wide", [0.02, 0.3])
def test_they_do_what_is_written_here(redis, monkeypatch, wide, few):
    """few: from how many on they use a tree; 0: always."""
    texts = {name: text_of(name) for name in ("acquire", "release", "shrink", "sweep")}
    assert all("local FEW = 32 " in text for text in texts.values())
    monkeypatch.setattr("harness.scripts.text_of",
                        lambda name: texts[name].replace("FEW = 32", f"FEW = {few}") if name in texts else text_of(name))
    scripts, plain, rng = BeatingScripts(redis), Plain(), random.Random(f"{SEED} {wide}")
    listener, most = Listener(redis), 0
    for host in HOSTS:
        scripts.call("beat", host)
    for number in range(STEPS):
        plain.said = set()
        what, got, wanted = play(scripts, plain, rng, number, wide)
        where = f"seed {SEED}, step {number}: {what}"
        assert got == wanted, where
        assert listener.heard() == plain.said, where
        _, leases, waiters = scripts.call("dump")
        assert [(e[2], e[4]) for e in leases] == [(e.token, e.mode) for e in plain.leases], where
        assert [e[2] for e in waiters] == [e.token for e in plain.waiters], where
        most = max(most, len(waiters))
    listener.close()
    assert most > 64, "too few waited: the tree was not tried"
