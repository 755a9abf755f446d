"""
Workers on three hosts take locks at random, are killed at random, and so are keepers: what they wrote down is checked.

The random choices come from a seed, which is printed: DFLOCK_HISTORY_SEED=N makes the same choices again (when they
meet is up to the machine). DFLOCK_HISTORY_SECONDS=N is how long the workers run (default 10).
"""
import os
import random
import shutil
import signal
import subprocess
import time

import harness.host
import pytest
from harness import Deadline, history, wait_until

SECONDS = float(os.environ.get("DFLOCK_HISTORY_SECONDS", "10"))
SEED = int(os.environ.get("DFLOCK_HISTORY_SEED", str(random.SystemRandom().randrange(1 << 32))))
FILES = ("f", "g")
WORKERS = {"a": 30, "b": 10, "c": 0}  # host -> how many of its 100 calls are LOCK_NB
WORKERS_PER_HOST = 3
# Long: no host shall seem dead because this machine was busy.
LEASE = "ttl_ms = 10000; linger_ms = 20;"


class Crowd:
    """The workers of some hosts, and the history that they and we write."""

    def __init__(self, hosts, folder, seed):
        self.hosts = hosts
        self.random = random.Random(seed)
        self.path = os.path.join(folder, "history")
        self.recorder = history.Recorder(self.path)
        self.workers = []  # (host, number, process)
        self.numbers = seed * 1000
        self.samples = []
        print(f"DFLOCK_HISTORY_SEED={seed} repeats this")

    def start_worker(self, host):
        self.numbers += 1
        process = subprocess.Popen(
            [os.path.join(harness.host.BUILD, "tests/agents/worker"), host.name, str(self.numbers),
             str(WORKERS[host.name]), self.path, *(host.path(f) for f in FILES)], env=host.env(), stdin=subprocess.PIPE)
        self.workers.append((host, self.numbers, process))

    def start(self):
        for host in self.hosts:
            for _ in range(WORKERS_PER_HOST):
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

    def kill_a_keeper(self, parent_too):
        host = self.random.choice(self.hosts)
        pids = host.keeper_pids()
        self.recorder.note("keeper", host.name)
        for pid in pids if parent_too else pids[1:]:
            os.kill(pid, signal.SIGKILL)

    def disturb(self):
        dice = self.random.random()
        if dice < 0.85:
            self.kill_a_worker()
        else:
            self.kill_a_keeper(parent_too=dice > 0.97)

    def run(self, seconds, redis=None, disturb=True):
        """Samples the store all the time, if there is one, and disturbs now and then."""
        now = time.monotonic()
        end, next_disturbance = now + seconds, now + 0.3
        while now < end:
            if redis:
                self.samples += history.sample(redis, FILES)
            if disturb and now >= next_disturbance:
                self.disturb()
                next_disturbance = now + self.random.uniform(0.05, 0.4)
            time.sleep(0.002)
            now = time.monotonic()

    def stop(self):
        """Every call must come to its end: nobody hangs when the others have gone."""
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


@pytest.fixture
def make_crowd(make_host, folder):
    crowds = []

    def make(seed=SEED, **options):
        crowd = Crowd([make_host(n, lease=LEASE, **options) for n in WORKERS], folder, seed)
        crowds.append(crowd)
        return crowd.start()

    yield make
    for crowd in crowds:
        crowd.abandon()
        crowd.recorder.close()


def test_random_runs(make_crowd, redis):
    crowd = make_crowd()
    crowd.run(SECONDS, redis)
    crowd.stop()
    h = crowd.history()
    orders = sum(1 for _ in history.first_comers(h, crowd.samples))
    print(f"{h.summary()}; order watched for {orders} waiters in {len(crowd.samples)} samples")
    assert crowd.wrong() == []
    assert not set(h.failures) - {"EAGAIN", "EINTR"}, h.failures
    # It was a test at all.
    assert {c.host for c in h.calls} == set(WORKERS)
    assert h.handovers() > 5 * SECONDS and h.kills > SECONDS / 2 and orders > SECONDS


def until_wrong(crowd, what, redis=None):
    """A crowd that must be found out, soon."""
    def found():
        crowd.run(0.3, redis, disturb=False)
        return [line for line in crowd.wrong() if line.startswith(what)]
    return wait_until(found, f"the checker reports an {what}", 30)


def test_without_shim_it_overlaps(make_crowd):
    """The control: the same run with the kernel alone, for which the hosts' files are different ones."""
    assert until_wrong(make_crowd(shim=False), "overlap")
