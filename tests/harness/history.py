"""
The checker: reads what workers wrote (tests/agents/worker.c) and samples of the store, and says what was wrong.

Overlap. A lock is certain from `got`, written after the call returned, to `end` or `kill`, written before it was
left or its worker killed. Two certain locks on one file at one moment, one of them exclusive, are a violation; what is
uncertain is never counted, so every violation is a real one.

Order. If the store had an exclusive waiter of host A, which had no lease on this file, while host B had nothing at all,
then no call of B that began after that may get the lock exclusively while A's waiter is still in the queue. (Counted only
until A makes a LOCK_NB call on the file: that may leave the queue and come back as the same waiter.)

The harness adds lines of its own to the history: "kill NS HOST WORKER" before it kills a worker, "keeper NS HOST" before it
kills a keeper.
"""
import collections
import heapq
import os
import time

FOR_EVER = 1 << 62

Call = collections.namedtuple("Call", "host worker number file mode begun got end")
Entry = collections.namedtuple("Entry", "host token mode")
Sample = collections.namedtuple("Sample", "file begun ended leases waiters")


class Recorder:
    """Appends the harness's own lines."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def note(self, event, *words):
        line = " ".join([event, str(time.monotonic_ns()), *map(str, words)]) + "\n"
        os.write(self.fd, line.encode())

    def close(self):
        os.close(self.fd)


class History:
    """calls: the successful ones, in the order in which they were got. failures: how many of each errno.
    nonblocking: (host, file) -> [(begun, finished)] of all LOCK_NB calls."""

    def __init__(self, lines):
        self.failures = collections.Counter()
        self.kills = self.keeper_kills = 0
        begun, got, finished, ends, killed = {}, {}, {}, {}, {}
        for line in lines:
            event, ns, host, *rest = line.split()
            ns, key = int(ns), tuple(rest[:2])
            if event == "call":
                begun[key] = (ns, host, *rest[2:])
            elif event == "got":
                got[key] = finished[key] = ns
            elif event == "failed":
                finished[key] = ns
                self.failures[rest[3]] += 1
            elif event == "end":
                ends[key] = ns
            elif event == "kill":
                self.kills += 1
                killed[rest[0]] = ns
            elif event == "keeper":
                self.keeper_kills += 1
            else:
                raise ValueError("not a line of a history: " + line)
        self.begun = len(begun)
        self.calls, self.nonblocking = [], collections.defaultdict(list)
        for key, (ns, host, file, mode, flag) in begun.items():
            if flag == "nb":
                self.nonblocking[host, file].append((ns, finished.get(key, FOR_EVER)))
            if key in got:
                end = min(ends.get(key, FOR_EVER), killed.get(key[0], FOR_EVER))
                self.calls.append(Call(host, int(key[0]), int(key[1]), file, mode, ns, got[key], end))
        self.calls.sort(key=lambda c: c.got)

    @classmethod
    def read(cls, path):
        """Does not count a last line that a worker is still writing."""
        with open(path) as f:
            return cls(line for line in f if line.endswith("\n"))

    def handovers(self):
        """How often a host got the exclusive lock on a file that another one had had before."""
        last, count = {}, 0
        for c in self.calls:
            if c.mode == "exclusive":
                count += last.get(c.file, c.host) != c.host
                last[c.file] = c.host
        return count

    def summary(self):
        hosts = collections.Counter(c.host for c in self.calls)
        modes = collections.Counter(c.mode for c in self.calls)
        return (f"{len(self.calls)} acquisitions of {self.begun} calls ({dict(sorted(hosts.items()))}, "
                f"{dict(sorted(modes.items()))}), {self.handovers()} hand-overs, {self.kills} workers and "
                f"{self.keeper_kills} keepers killed, failed calls: {dict(self.failures)}")


def describe(c):
    end = "its end" if c.end == FOR_EVER else c.end
    return f"{c.host} worker {c.worker} #{c.number} {c.mode} {c.file} [{c.got}, {end}]"


def overlaps(calls, limit=10):
    """Pairs of certain locks that exclude each other; at most `limit`."""
    found = []
    active = collections.defaultdict(list)  # file -> heap of (end, tie, call)
    for tie, c in enumerate(calls):
        if c.end <= c.got:
            continue
        heap = active[c.file]
        while heap and heap[0][0] <= c.got:
            heapq.heappop(heap)
        found += [(other, c) for _, _, other in heap if "exclusive" in (c.mode, other.mode)]
        if len(found) >= limit:
            return found[:limit]
        heapq.heappush(heap, (c.end, tie, c))
    return found


def _hosts(entries):
    return {e.host for e in entries}


def first_comers(history, samples):
    """(file, waiter, sample, until): from the sample on and until then no process that came later may overtake the waiter."""
    last, seen = {}, set()
    for s in samples:
        for w in s.waiters:
            last[s.file, w.token] = s.begun
    for s in samples:
        for w in s.waiters:
            # The first look at each waiter allows the most.
            if w.mode != "exclusive" or (s.file, w.token) in seen or w.host in _hosts(s.leases):
                continue
            seen.add((s.file, w.token))
            until = min([last[s.file, w.token]] + [begun for begun, finished in history.nonblocking[w.host, s.file]
                                                   if finished > s.begun])
            if until > s.ended:
                yield s.file, w, s, until


def overtakings(history, samples, limit=10):
    """(waiter, sample, call): the call got the lock while the waiter, which was certainly first, went on waiting."""
    found = []
    exclusive = collections.defaultdict(list)
    for c in history.calls:
        if c.mode == "exclusive":
            exclusive[c.file].append(c)
    for file, w, s, until in first_comers(history, samples):
        present = _hosts(s.leases) | _hosts(s.waiters)
        found += [(w, s, c) for c in exclusive[file] if s.ended < c.begun and c.got < until and c.host not in present]
        if len(found) >= limit:
            break
    return found[:limit]


def check(history, samples=()):
    """Lines that say what was wrong; none if nothing was."""
    lines = [f"overlap: {describe(a)} and {describe(b)}" for a, b in overlaps(history.calls)]
    lines += [f"overtaken: {w.host} waited ({w.token}, seen until {s.ended}), and then came {describe(c)}, begun {c.begun}"
              for w, s, c in overtakings(history, samples)]
    return lines


# What is in the store for some locks: leases and waiters in order of arrival.
_SAMPLE = """
local out = {}
for i, key in ipairs(KEYS) do
    local packed = redis.call('GET', key)
    local lock = packed and cmsgpack.unpack(packed) or {l = {}, q = {}}
    for _, which in ipairs({'l', 'q'}) do
        for _, e in ipairs(lock[which]) do
            out[#out + 1] = {i, which, e.host, e.token, e.mode}
        end
    end
end
return out
"""


def sample(redis, files, prefix="t/"):
    """One Sample of each file's lock. A host's name is what stands before the last "-" of its id in the store."""
    begun = time.monotonic_ns()
    rows = redis.command("EVAL", _SAMPLE, len(files), *("dflock:{0}:lock:" + prefix + f for f in files))
    ended = time.monotonic_ns()
    samples = [Sample(f, begun, ended, [], []) for f in files]
    for which_file, which_list, host, token, mode in rows:
        s = samples[which_file - 1]
        (s.leases if which_list == "l" else s.waiters).append(Entry(host.rpartition("-")[0], token, mode))
    return samples
