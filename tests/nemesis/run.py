"""A fault run, and its report."""
import collections
import os
import time

import stamps
from harness import BUILD
from nemesis import Nemesis
from setting import HOSTS, KINDS, Server, Stage

FROZEN_NS = 300_000_000  # a holder that did not run for so long was stopped, by us or by the keeper's parent
LOOK_S = 1.0  # how often until() is asked


def run(folder, seed, seconds, until=None, on_lost="freeze", store=Server, **options):
    """
    Breaks things for so many seconds, and until every kind of fault was there, or until until(stage) is true; options are
    Nemesis'. Then mends all, waits until every worker has had a lock again, and returns (lines that say what was wrong, report).
    """
    with Stage(folder, seed, on_lost, store) as stage:
        nemesis = Nemesis(stage, seed, **options)
        begun = time.monotonic()
        killed, looked = 0, begun
        while time.monotonic() < begun + seconds or not (until or nemesis.all_kinds_were_there()):
            nemesis.step()
            killed += stage.tend()
            time.sleep(0.02)
            if until and time.monotonic() > looked + LOOK_S:
                if until(stage):
                    break
                looked = time.monotonic()
        nemesis.mend_all()
        healed = stamps.now_ns()
        stage.show("calm")
        if not until:
            stage.wait_until(lambda: stage.tend() >= 0 and not waiting(stage, healed),
                             "every worker has had a lock again", 90)
        stage.finish()
        wrong = stage.check()
        if wrong and not until:
            stage.keep_logs(os.path.join(BUILD, f"nemesis-{seed}"))
        return wrong, Report(stage, nemesis, seed, time.monotonic() - begun, healed, killed)


def since(stage, healed):
    """worker (host, kind) -> when it first ran under a lock that it got after that time."""
    first = {}
    for r in stamps.got(stage.records()):
        key = tuple(r.worker.split("-")[:2])
        if r.first > healed:
            first[key] = min(r.first, first.get(key, r.first))
    return first


def waiting(stage, healed):
    return {(h, k) for h in HOSTS for k in KINDS} - set(since(stage, healed))


class Report:
    def __init__(self, stage, nemesis, seed, seconds, healed, killed):
        records = stage.records()
        held = stamps.got(records)
        self.seed, self.seconds, self.killed_workers = seed, seconds, killed
        self.ttl_s, self.servers = stage.ttl_s, stage.kind.words
        self.on_lost, self.grace = stage.on_lost, nemesis.grace
        self.faults = dict(sorted(nemesis.done.items()))
        self.calls, self.acquisitions = len(records), len(held)
        self.by_kind = dict(collections.Counter(r.worker.split("-")[1] for r in held))
        self.by_host = dict(sorted(collections.Counter(r.worker[0] for r in held).items()))
        self.handovers = self.count_handovers(held)
        self.stopped_and_went_on = sum(r.gap > FROZEN_NS and r.state == stamps.ENDED for r in held)
        self.operators = dict(sorted(stage.operated.items()))
        self.never_ended = sum(r.state == stamps.RUNS for r in held)
        self.keepers_said = {w: stage.said(w) for w in ("are frozen", "go on", "it is killed", "lost its memory (")}
        self.longest_still_ms = self.longest_gap(healed, [r.first for r in held]) / 1e6
        self.longest_without_ms = max([t - healed for t in since(stage, healed).values()], default=0) / 1e6

    @staticmethod
    def longest_gap(begin, times):
        """The longest time after `begin` in which no worker got a lock."""
        times = [begin] + sorted(t for t in times if t > begin)
        return max([b - a for a, b in zip(times, times[1:])], default=0)

    @staticmethod
    def count_handovers(held):
        """How often a host had a lock that another one had had before."""
        last, count = {}, 0
        for r in sorted(held, key=lambda r: r.first):
            count += last.get((r.name, r.from_), r.worker[0]) != r.worker[0]
            last[r.name, r.from_] = r.worker[0]
        return count

    def text(self, wrong):
        faults = "\n".join(f"    {n:6} {name}" for name, n in self.faults.items())
        overlaps, lost = (sum(line.startswith(what) for line in wrong) for what in ("overlap", "lost update"))
        said = ", ".join(f"{n} x \"{words}\"" for words, n in self.keepers_said.items())
        return f"""\
fault run: {len(HOSTS)} hosts, {self.servers}, {self.seconds:.0f} s, ttl {self.ttl_s} s, on_lost = "{self.on_lost}"{'' if self.grace else ', without grace'}, \
seed {self.seed}
  {sum(self.faults.values())} faults:
{faults}
  {self.acquisitions} acquisitions of {self.calls} calls ({self.by_kind}, {self.by_host}), \
{self.handovers} hand-overs between hosts
  {self.stopped_and_went_on} holders were stopped for a while and went on, {self.never_ended} ended while they held a lock, \
{self.killed_workers} workers were replaced
  keepers said: {said}; `dflock break` ended with: {self.operators}
  after the last fault had healed: {self.longest_still_ms:.0f} ms was the longest time in which nobody got a lock, and \
{self.longest_without_ms:.0f} ms until each worker had had one
  overlaps: {overlaps}, lost updates: {lost}, other: {len(wrong) - overlaps - lost}
"""

    def write(self, name, wrong):
        """To standard output, and to a file."""
        text = self.text(wrong) + "".join(f"  {line}\n" for line in wrong)
        print(text)
        with open(os.path.join(BUILD, f"nemesis-{name}.txt"), "w") as f:
            f.write(text)
