"""
Plays a sequence twice: the reference on one kernel without the shim, then with the shim on several hosts; and compares all that
can be seen.
"""
import itertools
import os
import signal
import time

from harness import Deadline
from rules import LAST, Inadmissible, Lock, State
from stage import SMALL

numbers = itertools.count()


class Difference(Exception):
    """The hosts did something else than one kernel does. at: the step's index."""

    def __init__(self, at, text):
        super().__init__(text)
        self.at = at


class AnotherOfTheCycle(Exception):
    """A call of the cycle had just come anew, and the keepers took it for the last one (docs/net.md). What follows would be another sequence."""


class Expected:
    """
    A step, and what the reference made of it. answers: what each process answered, those that had waited included. cycle: the
    processes of the one that the call closes.
    """

    def __init__(self, step, cycle=()):
        self.step, self.cycle = step, cycle
        self.answers = {}
        self.waits = False
        self.seen = None       # snapshot()
        self.possible = set()  # "get": what may be answered


class Cast:
    """One sequence on one stage: which player has which part, and their descriptors."""

    def __init__(self, stage, state, files, sizes):
        self.stage, self.state = stage, state
        self.run = next(numbers)
        self.files = files
        self.players = {name: stage.hire(p.host) for name, p in state.processes.items()}
        self.fds = {}  # (name, slot) -> descriptor
        self.observers = {}
        for file in files:
            stage.make_file(self.name_of(file), sizes[file])

    def name_of(self, file):
        return f"{file}{self.run}"

    def path(self, player, file):
        return player.place.path(self.name_of(file))

    def observer(self, host, file):
        if host not in self.observers:
            self.observers[host] = self.stage.hire(host)
            for i, name in enumerate(self.files):
                self.observers[host].do(f"open {i} {self.path(self.observers[host], name)} rw")
        return self.observers[host], self.files.index(file)

    # --- one step ---

    def start(self, step):
        """Begins a step. The answer, if it is the driver's own to give, else None."""
        name, call, *rest = step.split()
        if name == "-":
            for place in set(self.stage.places.values()):
                os.truncate(place.path(self.name_of(rest[0])), int(rest[1]))
            return "ok"
        player = self.players[name]
        if call == "kill":
            player.kill()
            del self.players[name]
            return "ok"
        if call == "fork":
            self.players[rest[0]] = self.stage.fork(player)
            self.fds.update({(rest[0], slot): fd for (n, slot), fd in self.fds.items() if n == name})
            return "ok"
        if call == "open":
            rest[1] = self.path(player, rest[1])
        if call != "interrupt":
            player.say(" ".join([call, *rest]))
        return None

    def finish(self, name, step, seconds):
        """Waits for the answer of a process to a step."""
        _, call, *rest = step.split()
        player = self.players[name]
        if call == "interrupt":
            end = time.monotonic() + seconds
            while not player.ready(0.01):
                os.kill(player.pid, signal.SIGUSR1)  # again: it may have been between two waits
                if time.monotonic() > end:
                    break
        answer = player.heard(seconds)
        if call in ("open", "dup") and answer.startswith("ok"):
            self.fds[name, int(rest[-1] if call == "dup" else rest[0])] = int(answer.split()[1])
            answer = "ok"
        return answer

    def await_wait(self, name, seconds):
        """Until the process waits. False: it has an answer instead."""
        end = time.monotonic() + seconds
        player = self.players[name]
        while not player.waits_in():
            if player.ready():
                return False
            if time.monotonic() > end:
                raise Deadline(f"{name} neither waits nor answers")
        return not player.ready()

    def settle(self, name, where, seconds):
        """Until the process, which waits, does so there: "kernel" or "keeper". A step may have had it look again."""
        end = time.monotonic() + seconds
        while self.players[name].waits_in() != where:
            if time.monotonic() > end:
                raise Deadline(f"{name} does not wait in the {where}")
            time.sleep(SMALL)

    # --- what can be seen ---

    def snapshot(self):
        """What all processes hold, as their fdinfo shows it: a set of Lock. To be called after state.done()."""
        where = {}
        for name, p in self.state.processes.items():
            for slot, (d, _) in p.slots.items():
                where[str(self.players[name].pid), str(self.fds[name, slot])] = name, d
        if not where:
            return set()
        pids = {}
        for pid, fd in where:
            pids.setdefault(pid, []).append(fd)
        lines = self.stage.looker.do("look " + " ".join(f"{pid}:{','.join(fds)}" for pid, fds in pids.items())).splitlines()[1:]
        found = set()
        for line in lines:
            pid, fd, kind, mode, first, last = line.split()
            name, d = where[pid, fd]
            found.add(Lock("flock" if kind == "FLOCK" else "record", d.file,
                           ("process", name) if kind == "POSIX" else ("description", d.number),
                           "sh" if mode == "READ" else "ex", int(first), LAST if last == "EOF" else int(last)))
        return found

    def end(self, clean):
        """clean: every process that is left has nothing open and waits for nothing."""
        for player in {*self.players.values(), *self.observers.values()}:
            if clean:
                if player in self.observers.values():
                    player.do("reset")
                self.stage.release(player)
            else:
                self.stage.dismiss(player)
        self.stage.all[:] = [p for p in self.stage.all if not p.gone]
        for file in self.files:
            self.stage.remove_file(self.name_of(file))


def as_answer(lock):
    return f"{lock.mode} {lock.first} {0 if lock.last == LAST else lock.last - lock.first + 1} 0"


class Sequence:
    """hosts: process -> host. files: file -> size."""

    def __init__(self, cast, files, steps):
        self.cast, self.files, self.steps = cast, files, steps

    def state(self):
        state = State(self.cast)
        state.sizes.update(self.files)
        return state

    def __str__(self):
        return "\n".join([" ".join(f"{p}@{h}" for p, h in self.cast.items()),
                          " ".join(f"{f}:{n}" for f, n in self.files.items()), *self.steps])

    @classmethod
    def read(cls, text):
        cast, files, *steps = [line.strip() for line in text.strip().splitlines()]
        return cls(dict(w.split("@") for w in cast.split()), {w.split(":")[0]: int(w.split(":")[1]) for w in files.split()}, steps)


# --- the reference ---

class Reference:
    """Plays steps on one kernel, one by one; keeps what happened in `played`."""

    def __init__(self, stage, sequence, seconds=20.0):
        self.state = sequence.state()
        self.cast = Cast(stage, self.state, list(sequence.files), sequence.files)
        self.played = []
        self.seconds = seconds

    def _get(self, e):
        """What F_GETLK may answer: the kernel does not say which lock of several it shows."""
        name, call, *rest = e.step.split()
        if call != "get":
            return
        if name == "o":
            lock = self._observed(rest)
        else:
            lock = self.state.wanted(name, [call, *rest])
            lock = lock and lock[0]
        if lock and lock.mode != "un":
            e.possible = {as_answer(held) for held in self.state.in_the_way(lock)}

    def _observed(self, rest):
        return Lock("record", rest[0], ("observer", ""), rest[1], int(rest[2]),
                    LAST if int(rest[3]) == 0 else int(rest[2]) + int(rest[3]) - 1)

    def play(self, step):
        """Raises Inadmissible before anything has happened."""
        state, cast = self.state, self.cast
        answer, locks = state.plan(step)
        for waiting in state.waiting():
            cast.settle(waiting, "kernel", self.seconds)
        name, call, *rest = step.split()
        e = Expected(step, state.cycle if answer == "EDEADLK" else ())
        if name == "o":
            player, slot = cast.observer(next(iter(cast.stage.places)), rest[0])
            e.answers["o"] = player.do(f"get {slot} " + " ".join(rest[1:]))
            self._get(e)
            assert not e.possible or e.answers["o"] in e.possible, (step, e.answers, e.possible)
            e.seen = state.locks
            self.played.append(e)
            return e
        self._get(e)
        own = cast.start(step)
        if answer is None:
            assert cast.await_wait(name, self.seconds), f"the rules are wrong: {step} does not wait"
            state.start_wait(name, [call, *rest])
            e.waits = True
        else:
            e.answers[name] = own or cast.finish(name, step, self.seconds)
            assert answer in (e.answers[name], "?"), f"the rules are wrong: {step} is answered {e.answers[name]}, not {answer}"
            state.done(step, e.answers[name])
        state.locks = cast.snapshot()
        if not state.granted_by_now():
            assert state.locks == locks, f"the rules are wrong: {step} gives {state.locks}, not {locks}"
        self._grant(e)
        e.seen = state.locks
        self.played.append(e)
        return e

    def _grant(self, e):
        """The calls that wait for nothing any more answer."""
        while names := self.state.granted_by_now():
            for name in names:
                e.answers[name] = self.cast.players[name].heard(self.seconds)
                self.state.processes[name].wait = None
            self.state.locks = self.cast.snapshot()

    def wind_up(self):
        """Closes everything; a call that this does not free is interrupted."""
        while left := {n: p for n, p in self.state.processes.items() if p.slots}:
            for name, p in sorted(left.items(), key=lambda item: item[1].wait is not None):
                try:
                    self.play(f"{name} {'interrupt' if p.wait else 'reset'}")
                    break
                except Inadmissible:
                    pass


def play_reference(stage, sequence):
    """[Expected]; steps that may not be played are left out. The end is added."""
    reference = Reference(stage, sequence)
    clean = False
    try:
        for step in sequence.steps:
            try:
                reference.play(step)
            except Inadmissible:
                pass
        reference.wind_up()
        clean = True
    finally:
        reference.cast.end(clean)
    return reference.played


# --- with the shim ---

class Performance:
    def __init__(self, stage, sequence, seconds, net):
        self.state, self.net = sequence.state(), net
        self.cast = Cast(stage, self.state, list(sequence.files), sequence.files)
        self.seconds = seconds
        self.at = 0

    def differs(self, text):
        raise Difference(self.at, text)

    def _heard(self, name, step):
        try:
            return self.cast.finish(name, step, self.seconds)
        except Deadline:
            return "nothing"

    def _await_end_of_cycle(self, e, name):
        end = time.monotonic() + self.seconds
        while not (ready := [n for n in e.cycle if self.cast.players[n].ready(SMALL)]) and time.monotonic() < end:
            pass
        if ready and name not in ready and self._heard(ready[0], "- -") == "EDEADLK":
            raise AnotherOfTheCycle

    def _compare(self, e, name, answer, whom=""):
        want = e.answers[name]
        if answer != want and answer not in e.possible:
            self.differs(f"{e.step}: {whom or name} got {answer}, and on one kernel {want}"
                         + (f" (or {' / '.join(sorted(e.possible - {want}))})" if len(e.possible) > 1 else ""))

    def _observe(self, e):
        _, _, file, *rest = e.step.split()
        for host in sorted(set(self.cast.stage.places)):
            player, slot = self.cast.observer(host, file)
            self._compare(e, "o", player.do(f"get {slot} " + " ".join(rest)), f"an observer on {host}")

    def _snapshot(self, want):
        """A process that waits may have taken something for a moment."""
        end = time.monotonic() + self.seconds
        while (seen := self.cast.snapshot()) != want:
            if time.monotonic() > end or not self.state.waiting():
                break
        return seen

    def _settle(self):
        """
        Until all calls that wait for a record do so where it is held: a call may first have to wait for a lease that another host
        still has, though no process there uses it. Meanwhile it waits for none of the processes in its way, and a call that
        waits for it closes no cycle yet.
        """
        for name, wait in self.state.waiting().items():
            hosts = self.state.hosts_in_the_way(wait.lock)
            if wait.lock.space == "record" and len(hosts) == 1:
                self.cast.settle(name, "kernel" if hosts == {self.state.processes[name].host} else "keeper", self.seconds)

    def play(self, e):
        state, cast, step = self.state, self.cast, e.step
        self._settle()
        name, call, *rest = step.split()
        if name == "o":
            self._observe(e)
            return
        answer = cast.start(step)
        if e.waits:
            if not cast.await_wait(name, self.seconds):
                self.differs(f"{step}: {name} got {cast.finish(name, step, self.seconds)}, and on one kernel it waits")
            state.start_wait(name, [call, *rest])
        else:
            if self.net and e.cycle:
                self._await_end_of_cycle(e, name)
            self._compare(e, name, answer or self._heard(name, step))
            state.done(step, e.answers[name])
        for other in e.answers:
            if other != name:
                self._compare(e, other, self._heard(other, "- -"), f"{other}, which waited,")
                state.processes[other].wait = None
        for other in state.waiting():
            if cast.players[other].ready():
                self.differs(f"{step}: {other} got {cast.players[other].heard()}, and on one kernel it waits on")
        seen = self._snapshot(e.seen)
        if seen != e.seen:
            self.differs(f"{step}: more is held: {sorted(seen - e.seen)}, less is held: {sorted(e.seen - seen)}")
        state.locks = seen


def play_hosts(stage, sequence, expected, seconds=20.0, net=False):
    """True: all of it was compared. False: AnotherOfTheCycle, with the net. Raises Difference."""
    performance = Performance(stage, sequence, seconds, net)
    clean = False
    try:
        for performance.at, e in enumerate(expected):
            performance.play(e)
        clean = True
    except AnotherOfTheCycle:
        pass
    except Deadline as problem:
        performance.differs(f"{e.step}: {problem}")
    finally:
        performance.cast.end(clean)
    return clean


def compare(one, hosts, sequence, seconds=20.0, net=False):
    """Plays a sequence on both stages, as play_hosts()."""
    return play_hosts(hosts, sequence, play_reference(one, sequence), seconds, net)


def shorten(one, hosts, sequence, at, net, seconds=3.0, budget=60.0):
    """(the sequence without steps that do not matter, its difference)"""
    end, found = time.monotonic() + budget, None
    best, size = Sequence(sequence.cast, sequence.files, sequence.steps[:at + 1]), max(1, at // 2)
    while size and time.monotonic() < end:
        shorter = False
        for begin in range(max(0, len(best.steps) - size), -1, -size):
            trial = Sequence(best.cast, best.files, best.steps[:begin] + best.steps[begin + size:])
            try:
                compare(one, hosts, trial, seconds, net)
            except Difference as difference:
                best, shorter, found = trial, True, difference
            if time.monotonic() > end:
                break
        size = size if shorter and size == 1 else size // 2
    return best, found
