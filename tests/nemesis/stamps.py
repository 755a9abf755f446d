"""
When holders of locks really ran, and the checker of that.

Each worker has a file of records; a record is one lock call and what became of it (struct record in
tests/agents/holder.c). While it has the lock, the holder writes the time into its record as fast as it can: `first`
when it begins, `last` until it ends. A process that is stopped or dead writes nothing, so [first, last] begins and ends with an
instruction that was really run.

Overlap: another holder that is excluded ran between one's first and last instruction. So a holder may be frozen while
another one has the lock, if it never runs again; one instruction more, and its interval reaches over the other one's.

Lost update: each exclusive holder reads a number at its beginning and writes one more at its end. Each number must have
been written once. (A holder that was killed may have written what it intended to, or not.)
"""
import collections
import heapq
import mmap
import os
import struct
import time

LAYOUT = struct.Struct("<5q16s16s7q")
assert LAYOUT.size == 128
FIELDS = "state begun exclusive from_ to name how pid first last gap intends wrote torn"
AT = {"state": 0, "pid": 72, "first": 80, "last": 88, "gap": 96, "intends": 104, "wrote": 112, "torn": 120}
ASKED, RUNS, ENDED, FAILED = 1, 2, 3, 4
SLOTS = 1 << 18  # of one worker; the file is sparse

Record = collections.namedtuple("Record", "worker slot " + FIELDS)


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Writer:
    """The records of one worker, and what tests/agents/holder.c does, in Python."""

    def __init__(self, path):
        with open(path, "ab+") as f:
            f.truncate(SLOTS * LAYOUT.size)
            self.memory = mmap.mmap(f.fileno(), 0)
        self.path, self.slot = path, -1

    def ask(self, name, how, exclusive=True, from_=0, to=1):
        """A new record, about to ask for the lock. Its number."""
        self.slot += 1
        if self.slot >= SLOTS:
            raise RuntimeError("more records than a worker can have")
        LAYOUT.pack_into(self.memory, self.slot * LAYOUT.size, ASKED, now_ns(), exclusive, from_, to, name.encode(),
                         how.encode(), os.getpid(), 0, 0, 0, 0, 0, 0)
        return self.slot

    def put(self, field, value):
        struct.pack_into("<q", self.memory, self.slot * LAYOUT.size + AT[field], value)

    def get(self, field):
        return struct.unpack_from("<q", self.memory, self.slot * LAYOUT.size + AT[field])[0]

    def run(self, seconds):
        """Stamps until the time is over; may be called again."""
        now = last = now_ns()
        if self.get("state") == ASKED:
            self.put("first", now)
            self.put("last", now)
            self.put("state", RUNS)
        else:
            last = self.get("last")
        end, longest = now + int(seconds * 1e9), self.get("gap")
        at, pack = self.slot * LAYOUT.size + AT["last"], struct.pack_into
        while True:
            pack("<q", self.memory, at, now)
            if now - last > longest:
                longest = now - last
                self.put("gap", longest)
            if now >= end:
                break
            last, now = now, now_ns()

    def end(self, state=ENDED):
        self.put("state", state)


def _record(worker, slot, data):
    fields = list(LAYOUT.unpack(data))
    for i in (5, 6):
        fields[i] = fields[i].rstrip(b"\0").decode()
    return Record(worker, slot, *fields)


def read(folder):
    """All records of all workers so far."""
    records = []
    for worker in sorted(os.listdir(folder)):
        with open(os.path.join(folder, worker), "rb") as f:
            data, slot = f.read(LAYOUT.size), 0
            while len(data) == LAYOUT.size and data[0]:
                records.append(_record(worker, slot, data))
                data, slot = f.read(LAYOUT.size), slot + 1
    return records


def newest(path):
    """The last record of one worker; None if there is none yet."""
    try:
        with open(path, "rb") as f:
            low, high = 0, SLOTS  # records before low are there, from high on there are none
            while low < high:
                middle = (low + high) // 2
                f.seek(middle * LAYOUT.size)
                low, high = (middle + 1, high) if f.read(1) > b"\0" else (low, middle)
            f.seek((low - 1) * LAYOUT.size if low else 0)
            return _record(os.path.basename(path), low - 1, f.read(LAYOUT.size)) if low else None
    except FileNotFoundError:
        return None


def got(records):
    """The holders that ran."""
    return [r for r in records if r.first]


def clash(a, b):
    return (a.exclusive or b.exclusive) and a.from_ < b.to and b.from_ < a.to


def overlaps(records, limit=10):
    """Pairs of holders that had to exclude each other and did not; at most `limit`."""
    found, active = [], collections.defaultdict(list)  # name -> heap of (last, tie, record)
    for tie, r in enumerate(sorted(got(records), key=lambda r: r.first)):
        heap = active[r.name]
        while heap and heap[0][0] < r.first:
            heapq.heappop(heap)
        found += [(other, r) for _, _, other in heap if clash(other, r)]
        if len(found) >= limit:
            break
        heapq.heappush(heap, (r.last, tie, r))
    return found[:limit]


def lost_updates(records, finals, limit=10):
    """finals: {(name, from_): the number at the end}. Lines that say which numbers are wrong; at most `limit`."""
    found = [f"lost update: {describe(r)} saw the number change under its shared lock" for r in records if r.torn]
    for key, final in finals.items():
        mine = [r for r in records if r.exclusive and (r.name, r.from_) == key]
        written = collections.Counter(r.wrote for r in mine if r.wrote)
        perhaps = {r.intends for r in mine if r.intends and not r.wrote}
        found += [f"lost update: {key} became {n} {times} times" for n, times in written.items() if times > 1]
        found += [f"lost update: {key} ended as {final}, but became {n} before" for n in written if n > final]
        found += [f"lost update: nobody wrote {n} to {key}, which ended as {final}"
                  for n in range(1, final + 1) if n not in written and n not in perhaps]
    return found[:limit]


def describe(r):
    end = {RUNS: "still running or killed", ENDED: "ended"}.get(r.state, "failed")
    mode, ms = "exclusive" if r.exclusive else "shared", (r.last - r.first) / 1e6
    return (f"{r.worker} #{r.slot} pid {r.pid} {r.how} {mode} {r.name} [{r.from_}, {r.to}) ran from {r.first} to {r.last} "
            f"({ms:.1f} ms, longest gap {r.gap / 1e6:.1f} ms), {end}")


def check(records, finals):
    """Lines that say what was wrong; none if nothing was."""
    return [f"overlap of {(min(a.last, b.last) - b.first) / 1e6:.3f} ms: {describe(a)} and {describe(b)}"
            for a, b in overlaps(records)] + lost_updates(records, finals)
