"""The workers of some hosts (tests/agents/worker.c), some of which are killed at random, and the history that they and the harness
write."""
import contextlib
import os
import random
import signal
import subprocess
import time

from . import history
from .host import BUILD
from .wait import Deadline, wait_until

FILES = ("f", "g")


class Crowd:
    def __init__(self, hosts, folder, seed, nonblocking, per_host=3, hold_us=(1000, 3000, 30000), kind="flock"):
        """nonblocking: host name -> how many of 100 calls are LOCK_NB. hold_us: at most, one of these for each worker.
        kind: flock, record."""
        self.hosts = hosts
        self.nonblocking = nonblocking
        self.per_host = per_host
        self.hold_us = hold_us
        self.kind = kind
        self.random = random.Random(seed)
        self.path = os.path.join(folder, "history")
        self.recorder = history.Recorder(self.path)
        self.workers = []  # (host, number, process)
        self.numbers = seed * 1000
        self.samples = []
        self.next_disturbance = 0
        print(f"DFLOCK_HISTORY_SEED={seed} repeats this")

    def start_worker(self, host):
        self.numbers += 1
        process = subprocess.Popen(
            [os.path.join(BUILD, "tests/agents/worker"), self.kind, host.name, str(self.numbers), str(self.nonblocking[host.name]),
             str(self.random.choice(self.hold_us)), self.path, *(host.path(f) for f in FILES)],
            env=host.env(), stdin=subprocess.PIPE)
        self.workers.append((host, self.numbers, process))

    def start(self):
        for host in self.hosts:
            for _ in range(self.per_host):
                self.start_worker(host)
        return self

    def kill_a_worker(self):
        host, number, process = worker = self.random.choice(self.workers)
        self.recorder.note("kill", host.name, number)
        process.kill()
        process.wait()
        process.stdin.close()
        self.workers.remove(worker)
        self.start_worker(host)

    def kill_a_keeper(self):
        """
        One that has a lease, if there is one: the next keeper must take it up. Without its parent: that starts the next
        one, after a pause that grows. With it: the next call does, at once.
        """
        holding = {e.host for s in self.samples[-len(FILES):] for e in s.leases}
        host = self.random.choice([h for h in self.hosts if h.name in holding] or self.hosts)
        pids = host.keeper_pids()
        self.recorder.note("keeper", host.name)
        for pid in pids[self.random.randrange(2):]:
            with contextlib.suppress(ProcessLookupError):  # the one before has not been replaced yet
                os.kill(pid, signal.SIGKILL)

    def kill_someone(self):
        if self.random.random() < 0.8:
            self.kill_a_worker()
        else:
            self.kill_a_keeper()

    def run(self, seconds, redis, disturb=None):
        """Samples the store all the time, and disturbs now and then: disturb(), else kill_someone()."""
        now = time.monotonic()
        end = now + seconds
        while now < end:
            self.samples += history.sample(redis, FILES)
            if now >= self.next_disturbance:
                (disturb or self.kill_someone)()
                self.next_disturbance = now + self.random.uniform(0.05, 0.4)
            time.sleep(0.002)
            now = time.monotonic()

    def stop(self):
        """Every call must come to its end: no worker hangs when the others have gone."""
        for _, _, process in self.workers:
            process.stdin.close()
        left = [p for _, _, p in self.workers]
        try:
            wait_until(lambda: all(p.poll() is not None for p in left), "every worker's last call ends", 30)
        except Deadline:
            for host in self.hosts:
                print(host.cli("status", "--json", check=False).stdout, host.log())
            raise
        finally:
            for p in left:
                p.kill()
                p.wait()
        assert [p.returncode for p in left] == [0] * len(left)

    def abandon(self):
        for _, _, process in self.workers:
            process.kill()
            process.wait()
            process.stdin.close()

    def history(self):
        return history.History.read(self.path)

    def wrong(self):
        return history.check(self.history(), self.samples)
