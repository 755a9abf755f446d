"""Writes random sequences: each step is drawn, and played on the reference at once, so that the next one knows the state."""
import random

from play import Reference, Sequence
from rules import LAST, Inadmissible

SLOTS = 3
MAX_PROCESSES = 6

# What a sequence is mostly about: weights of calls, how often a call waits, how many bytes there are to lock.
BASE = {"posix": 6, "ofd": 3, "flock": 2, "lockf": 1, "get": 2, "unlock": 4, "open": 1, "dup": 0.5, "close": 0.7, "fork": 0.4,
        "exec": 0.4, "seek": 0.4, "size": 0.2, "kill": 0.2, "interrupt": 0.7, "bad": 0.2}
SUBJECTS = [
    dict(BASE, wait=0.3, bytes=16),
    dict(BASE, wait=0.3, bytes=6),
    dict(BASE, flock=0, ofd=0, posix=10, wait=0.2, bytes=12),
    dict(BASE, flock=0, posix=0.5, lockf=0, ofd=10, fork=1, dup=1, wait=0.3, bytes=12),
    dict(BASE, flock=10, posix=0.5, lockf=0, ofd=0.5, fork=1.5, dup=1, wait=0.4, bytes=4),
    # Cycles: few bytes, every process waits.
    dict(BASE, flock=0, ofd=0, posix=12, fork=0, kill=0.1, wait=0.75, bytes=4),
]


class Author:
    def __init__(self, seed, net=False):
        """net: without what is different there (docs/net.md). A lock that counts from the end of the file reaches up to the end of all files,
        and a call that waits counts from the offset that its description has when it gets through."""
        self.net = net
        self.whences = [8, 1, 0 if net else 1]
        self.rng = random.Random(seed)
        rng = self.rng
        self.subject = rng.choice(SUBJECTS)
        hosts = "ab" if rng.random() < 0.5 else "abc"
        names = [f"p{i}" for i in range(rng.randint(len(hosts), 4))]
        # Every process gets a host, and every host a process.
        places = list(hosts) + [rng.choice(hosts) for _ in range(len(names) - len(hosts))]
        rng.shuffle(places)
        files = {f: rng.choice([0, 5, 10]) for f in ("fg" if rng.random() < 0.3 else "f")}
        self.sequence = Sequence(dict(zip(names, places)), files, [])
        self.length = rng.randint(8, 24)
        self.watched = rng.random() < 0.25
        self.children = 0

    # --- parts of a step ---

    def _some(self, weights):
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def _file(self):
        return self.rng.choice(list(self.sequence.files))

    def _range(self):
        """FROM LEN [cur|end]"""
        rng, most = self.rng, self.subject["bytes"]
        if rng.random() < 0.03:
            return f"{LAST - rng.randint(10, 40)} {rng.choice([0, 1, 2, 5, 5, 30])}"
        whence = rng.choices(["", " cur", " end"], self.whences)[0]
        start = rng.randrange(most) - (most // 2 if whence else 0)
        length = rng.choices([rng.randint(1, max(1, most // 2)), 0, -rng.randint(1, 4), 1], [10, 2, 1, 3])[0]
        return f"{start} {length}{whence}"

    def _length(self):
        return self.rng.choice([0, 1, 2, 3, 5, 8, -1, -3])

    def _mode(self):
        return "ex" if self.rng.random() < 0.55 else "sh"

    def _wait(self, word):
        return word if self.rng.random() < self.subject["wait"] else ""

    def _slot(self, p):
        rng = self.rng
        return rng.choice(list(p.slots)) if p.slots and rng.random() < 0.98 else rng.randrange(SLOTS)

    # --- a step ---

    def _step(self, state):
        rng = self.rng
        free = [n for n, p in state.processes.items() if not p.wait]
        waiting = [n for n, p in state.processes.items() if p.wait]
        kind = self._some({k: v for k, v in self.subject.items() if k in BASE})
        if kind == "interrupt":
            return f"{rng.choice(waiting)} interrupt" if waiting else None
        if kind == "kill":
            return f"{rng.choice(free + waiting)} kill" if len(free + waiting) > 2 else None
        if kind == "size":
            return f"- size {self._file()} {rng.randrange(12)}"
        if not free:
            return f"{rng.choice(waiting)} interrupt"
        name = rng.choice(free)
        return f"{name} " + getattr(self, "_" + kind)(state, state.processes[name])

    def _posix(self, state, p):
        return f"set {self._slot(p)} {self._mode()} {self._range()}{self._wait(' w')}"

    def _ofd(self, state, p):
        return f"set {self._slot(p)} {self._mode()} {self._range()} ofd{self._wait(' w')}"

    def _flock(self, state, p):
        return f"flock {self._slot(p)} {self._mode()}{self._wait(' ') or ' nb'}".rstrip()

    def _lockf(self, state, p):
        return f"lockf {self._slot(p)} {self._wait('lock') or self.rng.choice(['tlock', 'tlock', 'test'])} {self._length()}"

    def _get(self, state, p):
        kind = self.rng.choice(["", "", " ofd"])
        mode = "un" if self.rng.random() < 0.1 else self._mode()
        return f"get {self._slot(p)} {mode} {self._range()}{kind}"

    def _unlock(self, state, p):
        kind = self._some({"posix": self.subject["posix"], "ofd": self.subject["ofd"], "flock": self.subject["flock"],
                           "lockf": self.subject["lockf"]})
        slot = self._slot(p)
        if kind == "flock":
            return f"flock {slot} un"
        if kind == "lockf":
            return f"lockf {slot} ulock {self._length()}"
        all_of_it = self.rng.random() < 0.25
        return f"set {slot} un {'0 0' if all_of_it else self._range()}" + (" ofd" if kind == "ofd" else "")

    def _open(self, state, p):
        flags = self.rng.choices(["rw", "r", "w", "rwe"], [6, 1, 1, 1])[0]
        return f"open {self.rng.randrange(SLOTS)} {self._file()} {flags}"

    def _dup(self, state, p):
        return f"dup {self._slot(p)} {self.rng.randrange(SLOTS)}"

    def _close(self, state, p):
        return f"close {self._slot(p)}"

    def _fork(self, state, p):
        self.children += 1
        return f"fork c{self.children}" if len(state.processes) < MAX_PROCESSES else self._get(state, p)

    def _exec(self, state, p):
        return "exec"

    def _seek(self, state, p):
        slot = self._slot(p)
        used = p.slots[slot][0].number if slot in p.slots else None
        if self.net and any(wait.description.number == used for wait in state.waiting().values()):
            return self._get(state, p)
        return f"seek {slot} {self.rng.randrange(12)}"

    def _bad(self, state, p):
        """What the kernel refuses."""
        return f"set {self._slot(p)} {self._mode()} " + self.rng.choice(["-1 5", f"5 {-7}", f"{LAST} 2", f"{LAST - 3} 9 cur"])

    # --- the sequence ---

    def _observation(self):
        kind = self.rng.choice(["", " ofd"])
        return f"o get {self._file()} {self._mode()} {self.rng.randrange(self.subject['bytes'])} {self.rng.choice([0, 1, 1, 3])}{kind}"

    def write(self, stage):
        """(Sequence, [Expected])"""
        reference = Reference(stage, self.sequence)
        reference.state.net = self.net
        clean = False
        try:
            for name in self.sequence.cast:
                self._play(reference, f"{name} open 0 f rw")
            for _ in range(self.length):
                for _ in range(20):
                    step = self._step(reference.state)
                    if step and self._play(reference, step):
                        break
                if self.watched or self.rng.random() < 0.05:
                    self._play(reference, self._observation())
            reference.wind_up()
            clean = True
        finally:
            self.sequence.steps[:] = [e.step for e in reference.played]
            reference.cast.end(clean)
        return self.sequence, reference.played

    @staticmethod
    def _play(reference, step):
        try:
            reference.play(step)
            return True
        except Inadmissible:
            return False
