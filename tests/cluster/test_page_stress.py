"""
Workers on two hosts lock and unlock as fast as they can, most of it from the page, while the other host recalls what they
have, keepers are killed, the store stops for longer than leases last, and configurations are read again. No worker may be at work
in a zone that another one has: tests/agents/stress.c says how that is seen.

The choices come from a seed, which is printed: DFLOCK_STRESS_SEED=N makes them again (when they meet is up to the machine).
DFLOCK_STRESS_SECONDS=N and DFLOCK_STRESS_CALLS=N: the test ends after so long, or so many calls. `make stress` is the long form.
"""
import mmap
import os
import random
import signal
import struct
import subprocess
import time
import typing

import harness.host
import pytest
from harness import Deadline, wait_until
from harness.mistakes import PAGE
from harness.mutants import mutant
from harness.processes import state
from keepers import kill_keeper

SECONDS = float(os.environ.get("DFLOCK_STRESS_SECONDS", "30"))
CALLS = int(os.environ.get("DFLOCK_STRESS_CALLS", "5000000"))
SEED = int(os.environ.get("DFLOCK_STRESS_SEED", str(random.SystemRandom().randrange(1 << 32))))
LEASE = "ttl_ms = 3000; freeze_margin_ms = 600; linger_ms = 20; store_wait_ms = 20000;"

WORKERS, WORKER, ARENA_BYTES = 16, 64, 8192


class Manner(typing.NamedTuple):
    """How many workers a host has, how long they pause, and how many calls come before the next trouble."""
    per_host: int
    pause_us: int
    calls: list
    least: int  # that the test was one at all


# Workers of one host are in each other's way, and so often ask; a single one hardly asks if no other host wants the lock.
MANNERS = {"in each other's way": Manner(3, 300000, [1000, 10000, 50000], 20000),
           "one on a host": Manner(1, 0, [10000, 100000, 500000], 1000000)}


class Arena:
    """struct arena of stress.c, and the workers in it."""

    def __init__(self, folder, hosts, seed, manner):
        self.path = os.path.join(folder, "arena")
        with open(self.path, "wb") as f:
            f.truncate(ARENA_BYTES)
        with open(self.path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), ARENA_BYTES)
        self.hosts, self.dice, self.log = hosts, random.Random(seed), os.path.join(folder, "stress.log")
        self.manner = manner
        self.killed = 0
        self.workers = {}
        for number in range(manner.per_host * len(hosts)):
            self.start(number)

    def start(self, number):
        host = self.hosts[number % len(self.hosts)]
        with open(self.log, "ab") as log:
            self.workers[number] = subprocess.Popen(
                [os.path.join(harness.host.BUILD, "tests/agents/stress"), host.path("f"), self.path, str(number),
                 str(self.dice.randrange(1 << 31)), str(self.manner.pause_us)], env=host.env(), stdout=log, stderr=log)

    def word(self, at):
        return struct.unpack_from("<Q", self.map, at)[0]

    def counts(self):
        """Calls, locks had, refusals."""
        return [sum(self.word(64 + WORKER * w + 8 * i) for w in self.workers) for i in range(3)]

    def look(self):
        """Starts those workers anew that were killed for a lost lease. A worker that ended in another way has found a violation."""
        for number, process in self.workers.items():
            status = process.poll()
            if status is None:
                continue
            if status != -signal.SIGKILL:
                return False
            self.killed += 1
            self.start(number)
        return self.word(8) == 0

    def said(self):
        with open(self.log, errors="replace") as f:
            return [line.strip() for line in f if line.startswith("worker ")]

    def found(self):
        """The workers that ended otherwise than they should, and how."""
        return [p.returncode for p in self.workers.values() if p.poll() not in (None, 0, -signal.SIGKILL)]

    def frozen(self):
        """Is a worker stopped by a keeper's parent?"""
        return any(state(process.pid) in "tT" for process in self.workers.values())

    def more(self, calls=1000):
        """Until so many more calls were made, or something was found."""
        goal = self.counts()[0] + calls
        wait_until(lambda: not self.look() or self.counts()[0] > goal, "the workers go on", 120)

    def end(self):
        struct.pack_into("<Q", self.map, 0, 1)

        def ended():
            return all(process.poll() is not None for process in self.workers.values())
        try:
            wait_until(ended, "the workers have ended", 60)
        finally:
            for process in self.workers.values():
                if process.poll() is None:
                    process.kill()
                process.wait()


@pytest.fixture
def make_arena(folder):
    arenas = []

    def make(hosts, seed, manner="in each other's way"):
        print(f"DFLOCK_STRESS_SEED={seed} repeats this")
        arenas.append(Arena(folder, hosts, seed, MANNERS[manner]))
        return arenas[-1]

    yield make
    for arena in arenas:
        if any(process.poll() is None for process in arena.workers.values()):
            arena.end()


# --- what is done to them ---

LEASES_AT, SLOT, OPEN = 1053696 + 128, 64, 56  # in struct page


def shows_a_lease(host):
    with open(os.path.join(host.runtime, "page"), "rb") as f:
        f.seek(LEASES_AT)
        return any(f.read(1024 * 8 * SLOT)[OPEN::SLOT])


def kill(arena, redis):
    """While it shows a lease, if possible."""
    host = arena.dice.choice(arena.hosts)
    try:
        wait_until(lambda: shows_a_lease(host), "a lease is shown", 2)
    except Deadline:
        pass
    kill_keeper(host)


def reload(arena, redis):
    host = arena.dice.choice(arena.hosts)
    with open(host.config, "a") as f:
        f.write("// again\n")
    host.cli("reload")


def outage(arena, redis):
    """Until holders are stopped; then the store answers again."""
    redis.signal(signal.SIGSTOP)
    try:
        wait_until(arena.frozen, "somebody is stopped", 6)
    except Deadline:
        pass  # nobody had a lock just then
    finally:
        redis.signal(signal.SIGCONT)


def nothing(arena, redis):
    arena.more(arena.dice.choice(arena.manner.calls))


def play(arena, redis, seconds, calls, disturbances):
    """Until something is found, or it was enough: for so long, or so many calls; on a busy machine longer, until it was a test."""
    begin = time.monotonic()
    done = dict.fromkeys(disturbances, 0)

    def enough():
        took, made = time.monotonic() - begin, arena.counts()[0]
        return made >= calls or took > seconds and (made > arena.manner.least or took > 4 * seconds)

    while arena.look() and not enough():
        disturb = arena.dice.choice(disturbances)
        disturb(arena, redis)
        done[disturb] += 1
        if disturb is not nothing:
            arena.more()
    return {disturb.__name__: n for disturb, n in done.items()}


@pytest.mark.long
@pytest.mark.parametrize("manner", MANNERS)
def test_no_two_holders_meet(manner, make_host, make_arena, redis):
    hosts = [make_host(name, lease=LEASE) for name in "ab"]
    arena = make_arena(hosts, SEED, manner)
    done = play(arena, redis, SECONDS, CALLS, 6 * [nothing] + [kill, kill, reload, outage])
    arena.end()
    calls, locks, refused = arena.counts()
    asked = redis.commands_processed()
    print(f"{calls} calls, {locks} locks, {refused} refused or busy; {done}, {arena.killed} killed; {asked} commands to the store")
    assert arena.said() == [] and arena.found() == []
    # It was a test at all: leases changed hands, and most calls did not ask for one.
    assert calls > arena.manner.least and asked > 200 and locks > 5 * asked


# --- it finds what it is for ---

@pytest.mark.parametrize("name", PAGE)
def test_mutants(name, make_host, make_arena, redis, monkeypatch):
    """A keeper or shim with a mistake."""
    with mutant(PAGE[name], harness.host.BUILD, "dflockd", "libdflock.so") as made:
        monkeypatch.setattr(harness.host, "SHIM", os.path.join(made, "libdflock.so"))
        monkeypatch.setattr(harness.host, "KEEPER", os.path.join(made, "dflockd"))
        hosts = [make_host(host, lease=LEASE) for host in "ab"]
        arena = make_arena(hosts, SEED)
        done = play(arena, redis, 60, 1 << 60, [nothing, kill] if name.endswith("kill") else [nothing])
        assert [line for line in arena.said() if "at work" in line], f"not found in {arena.counts()[0]} calls, {done}: {arena.said()}, {arena.found()}"
