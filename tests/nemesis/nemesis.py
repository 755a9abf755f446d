"""
Makes faults: in networks, keepers, holders and the store, at random, three at a time, within what is promised
(docs/guarantees.md): a keeper and its parent are never killed at once, and a parent is stopped for a moment only.

A fault is a generator: it breaks something, yields how many seconds it is to stay so, and mends it; None: there was
nothing to break. No other fault may break at the same time what it needs.
"""
import collections
import os
import random
import signal
import time

import stamps
from harness import wait_until
from setting import HOSTS, LOCKS

AT_ONCE = 3
QUIET_TTLS = 3  # for which the store does not lose its memory once more: else no host would make progress
MOMENT_S = 0.2  # for which a keeper's parent may be stopped: less than the margin in which it has to act


class Nemesis:
    def __init__(self, stage, seed, grace=True, often=()):
        """
        grace=False: an operator says `dflock init --force` whenever the store has lost its memory, which the manual forbids.
        often: kinds of faults of which every other one shall be.
        """
        self.stage, self.grace, self.often = stage, grace, often
        self.quiet_s = QUIET_TTLS * stage.ttl_s if grace else 0
        self.dice = random.Random(seed)
        self.done = collections.Counter()
        self.active = []  # [(until, needs, generator)]
        self.next = time.monotonic() + 1
        self.forgot_at = -self.quiet_s
        self.deck = []

    # --- faults ---

    def spell(self):
        """Some are over before a keeper notices, most last longer than a lease."""
        return self.dice.uniform(0.05, 1) if self.dice.random() < 0.4 else self.dice.uniform(1.2, 2.2) * self.stage.ttl_s

    def cut(self, name):
        self.stage.network.cut(name)
        yield self.spell()
        self.stage.network.mend(name)

    def between(self, lose, mend, ways):
        """lose(to, from) and mend() for each of these ways."""
        for way in ways:
            lose(*way)
        yield self.spell()
        for way in ways:
            mend(*way)

    def deaf(self, name):
        """Nothing comes from the store, but to it."""
        net = self.stage.network
        return self.between(net.deafen, net.undeafen, [(name, machine) for machine in self.stage.machines])

    def mute(self, name):
        net = self.stage.network
        return self.between(net.deafen, net.undeafen, [(machine, name) for machine in self.stage.machines])

    def no_route(self, name):
        net = self.stage.network
        return self.between(net.unroute, net.reroute, [(machine, name) for machine in self.stage.machines])

    @staticmethod
    def stopped(send, seconds):
        send(signal.SIGSTOP)
        yield seconds
        send(signal.SIGCONT)

    def keeper_pids(self, name, other=()):
        """(parent, keeper), both alive, and not of `other`. One that was just started may have its parent's name still."""
        def pids():
            found = self.stage.host(name).keeper_pids()
            return len(found) == 2 and not set(found) & set(other) and found
        return wait_until(pids, f"host {name} has a keeper and its parent", 30)

    def keeper_killed(self, name):
        _, keeper = self.keeper_pids(name)
        self.stage.signal(keeper, signal.SIGKILL)
        yield self.dice.uniform(0, 0.5)

    def keeper_stopped(self, name):
        """For longer than its parent tolerates, or not."""
        _, keeper = self.keeper_pids(name)
        yield from self.stopped(lambda number: self.stage.signal(keeper, number), self.spell())

    def parent_stopped(self, name):
        parent, _ = self.keeper_pids(name)
        yield from self.stopped(lambda number: self.stage.signal(parent, number), self.dice.uniform(0, MOMENT_S))

    def parent_killed(self, name, both=False):
        """The keeper starts another pair. both: of that, the keeper or the parent is killed as soon as it serves."""
        parent, keeper = self.keeper_pids(name)
        self.stage.signal(parent, signal.SIGKILL)
        yield self.dice.uniform(0, 0.5)
        if both:
            pids = self.keeper_pids(name, other=(parent, keeper))
            wait_until(self.stage.host(name).serves, f"host {name} serves again", 30)
            self.stage.signal(self.dice.choice(pids), signal.SIGKILL)

    def holder(self, name):
        """A holder of this host, or else of another one; None: no process holds anything."""
        running = self.stage.running()
        here = [r.pid for r in running if r.worker.startswith(name)]
        return self.dice.choice(here or [r.pid for r in running] or [None])

    def holder_killed(self, name):
        pid = self.holder(name)
        if pid:
            self.stage.signal(pid, signal.SIGKILL)
        yield 0 if pid else None

    def holder_stopped(self, name):
        pid = self.holder(name)
        if pid:
            self.stage.signal(pid, signal.SIGSTOP)
        yield self.spell() if pid else None
        if self.stage.is_holder(pid):
            self.stage.signal(pid, signal.SIGCONT)

    # --- operators ---

    def broken(self):
        """The holders are ended, on all hosts that the operator's host reaches."""
        held = [LOCKS[r.name] for r in self.stage.running()]
        operator = self.stage.operate(self.dice.choice(HOSTS), 0, "--yes", self.dice.choice(held or list(LOCKS.values())))
        yield self.spell()
        self.stage.end_operator(operator)

    def given_up(self, name):
        """A host that is cut off, and lives: it has stopped its holders before another host can have what they held."""
        silent_s = self.dice.uniform(1, 1.3) * self.stage.ttl_s
        self.stage.network.cut(name)
        other = self.dice.choice([host for host in HOSTS if host != name])
        operator = self.stage.operate(other, silent_s, "--yes", "--host", name)
        yield silent_s + self.dice.uniform(0.5, 1.5) * self.stage.ttl_s
        self.stage.network.mend(name)
        self.stage.end_operator(operator)

    # --- one server ---

    def store_stopped(self):
        yield from self.stopped(self.stage.store.signal, self.spell())

    def store_killed(self, what):
        self.stage.store.stop()
        yield self.spell()
        self.stage.store.start_as(what)
        self.forget()

    def flushed(self):
        self.stage.store.command("FLUSHALL")
        self.forget()
        yield 0

    def remembered(self):
        self.stage.store.remember()
        yield 0

    def forget(self):
        self.forgot_at = time.monotonic()
        if not self.grace:
            wait_until(lambda: any(h.cli("init", "--force", check=False).returncode == 0 for h in self.stage.hosts),
                       "somebody opens the store")

    # --- the same with three servers, of which one at a time fails, and those that elect their master ---

    def server(self):
        """The number of one, most often of the master."""
        servers = self.stage.store
        master = servers.master() if self.dice.random() < 0.7 else None
        return servers.all.index(master) if master else self.dice.randrange(3)

    def server_cut(self):
        yield from self.cut(self.stage.machines[self.server()])

    def server_deaf(self):
        """It hears nothing of the other servers, but of the hosts."""
        net, name = self.stage.network, self.stage.machines[self.server()]
        yield from self.between(net.deafen, net.undeafen, [(name, machine) for machine in self.stage.machines if machine != name])

    def server_stopped(self, servers):
        yield from self.stopped(servers[self.server() % len(servers)].signal, self.spell())

    def server_killed(self):
        node = self.stage.store.all[self.server()]
        self.stage.store.stop_one(node)
        yield self.spell()
        node.start()

    def failover(self):
        """An operator asks for one: the old master lives."""
        try:
            self.stage.store.fail_over(self.dice)
        except RuntimeError:  # there is one just now, or no good replica
            yield None
        yield self.spell()

    def servers_flushed(self):
        master = self.stage.store.master()
        try:
            flushed = master and master.command("FLUSHALL")
        except RuntimeError:  # a failover was under way, and it is a replica now
            flushed = None
        if flushed:
            self.forget()
        yield 0 if flushed else None

    def servers_cards(self):
        return 2 * [
            ("server's machine cut", {"server"}, self.server_cut()),
            ("server deaf for the others", {"server"}, self.server_deaf()),
            ("server stopped", {"server"}, self.server_stopped(self.stage.store.all)),
            ("server killed, and empty again", {"server"}, self.server_killed()),
            ("failover on request", {"server"}, self.failover()),
        ] + [
            ("one that elects stopped", {"server"}, self.server_stopped(self.stage.store.sentinels)),
            ("server flushed", {"server", "memory"}, self.servers_flushed()),
        ]

    def victim(self):
        """A host, most often one that has something to lose."""
        holders = [r.worker[0] for r in self.stage.running()] if self.dice.random() < 0.7 else []
        return self.dice.choice(holders or HOSTS)

    def cards(self):
        """The deck: each kind of fault, what it needs, and how to begin it; those against one host twice."""
        a, b = self.victim(), self.victim()
        hosts = [card for name in (a, b) for card in (
            ("host cut", {"net " + name}, self.cut(name)),
            ("host cut, from the store", {"net " + name}, self.deaf(name)),
            ("host cut, to the store", {"net " + name}, self.mute(name)),
            ("host without a route", {"net " + name}, self.no_route(name)),
            ("keeper killed", {"keeper " + name}, self.keeper_killed(name)),
            ("keeper stopped", {"keeper " + name}, self.keeper_stopped(name)),
            ("holder killed", set(), self.holder_killed(name)),
            ("holder stopped", {"holder"}, self.holder_stopped(name)))]
        return hosts + [
            ("parent stopped for a moment", {"keeper " + a}, self.parent_stopped(a)),
            ("parent killed", {"keeper " + a}, self.parent_killed(a)),
            ("parent killed, and one of the next two", {"keeper " + a}, self.parent_killed(a, both=True)),
            *(("lock broken", set(), self.broken()) for _ in range(4)),
            ("host cut, and given up", {"net " + a, "operator"}, self.given_up(a)),
        ] + (self.store_cards() if len(self.stage.machines) == 1 else self.servers_cards())

    def store_cards(self):
        return [
            ("store cut", {"net store"}, self.cut("store")),
            ("store stopped", {"store"}, self.store_stopped()),
            ("store killed, as it was", {"store", "memory", "net store"}, self.store_killed("same")),
            ("store killed, empty", {"store", "memory", "net store"}, self.store_killed("empty")),
            ("store killed, as it was before", {"store", "memory", "net store"}, self.store_killed("old")),
            ("store flushed", {"store", "memory", "net store"}, self.flushed()),
            (None, {"store"}, self.remembered()),
        ]

    # --- when ---

    def draw(self):
        """As from a deck of cards: each kind comes before one comes again. Those that must be apart begin as early as they may."""
        cards = self.cards()
        if not self.deck:
            self.deck = list(range(len(cards)))
            self.dice.shuffle(self.deck)
            names = [cards[card][0] for card in self.deck]
            before = {card: names[:i].count(names[i]) for i, card in enumerate(self.deck)}  # how many of its kind
            self.deck.sort(key=lambda card: (before[card], "memory" not in cards[card][1]))
        busy = set().union(*(needs for _, needs, _, _ in self.active))
        if time.monotonic() < self.forgot_at + self.quiet_s:
            busy.add("memory")
        if self.often and self.dice.random() < 0.5:
            return next((card for card in cards if card[0] in self.often and not card[1] & busy), None)
        for i, card in enumerate(self.deck):
            if not cards[card][1] & busy:
                del self.deck[i]
                return cards[card]
        return None

    def step(self):
        """Mends what is due, and breaks something new when its time has come."""
        now = time.monotonic()
        for fault in [f for f in self.active if f[0] <= now]:
            self.mend(fault)
        if now < self.next or len(self.active) >= AT_ONCE:
            return
        fault = self.draw()
        if fault:
            self.begin(*fault)
        self.next = time.monotonic() + self.dice.uniform(0.1, 1.5)

    def all_kinds_were_there(self):
        return {name for name, _, _ in self.cards()} - {None} <= set(self.done)

    def begin(self, name, needs, steps):
        self.note("begins", name, needs)
        seconds = next(steps)
        self.note("stands" if seconds else "is over", name, needs)
        if seconds is None:
            return
        self.active.append((time.monotonic() + seconds, needs, steps, name))
        if name:
            self.done[name] += 1

    def mend(self, fault):
        _, needs, steps, name = fault
        self.active.remove(fault)
        self.note("mends", name, needs)
        next(steps, None)
        self.note("has mended", name, needs)

    def note(self, what, name, needs):
        """For finding out what happened."""
        with open(os.path.join(self.stage.logs, "faults"), "a") as f:
            f.write(f"{stamps.now_ns()} {what}: {name} {sorted(needs)}\n")

    def mend_all(self):
        while self.active:
            self.mend(self.active[0])
