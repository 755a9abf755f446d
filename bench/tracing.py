"""
What the kernel's trace points say of a few processes: when each ran, which system calls it made, and which process woke which.

Uses an instance of tracefs of its own, so nothing else that is traced on the machine is disturbed; it needs root.
"""
import contextlib
import os
import re

from bench.lab import CannotMeasure

FOLDERS = "/sys/kernel/tracing", "/sys/kernel/debug/tracing"
EVENTS = "sched/sched_switch", "sched/sched_waking", "sched/sched_process_fork", "raw_syscalls/sys_enter", "raw_syscalls/sys_exit"
BUFFER_KB = 8192  # of each processor
MARK = {"x86_64": 110, "aarch64": 173}.get(os.uname().machine)  # getppid(): bench_mark()

LINE = re.compile(r"^.{16}-(\d+) +\[\d+\] \S+ +(\d+)\.(\d{6}): (\w+): (.*)$")
ENTER = re.compile(r"NR (-?\d+)")
SWITCH = re.compile(r"prev_pid=(\d+) .*==> .*next_pid=(\d+)")
WAKING = re.compile(r"\bpid=(\d+)")
FORK = re.compile(r"child_pid=(\d+)")


def folder():
    for path in FOLDERS:
        if os.path.isdir(path + "/instances"):
            return path
    raise CannotMeasure("the kernel's trace points cannot be read here: mount them as root (mount -t tracefs nodev %s), or take a "
                        "kernel that has tracefs" % FOLDERS[0])


class Trace:
    """Of the processes of `actors`: name -> pids, their threads, and those that they start. What this process starts meanwhile is traced,
    too: add() says which actor it is. Times are in ns of CLOCK_MONOTONIC."""

    def __init__(self, actors):
        if MARK is None:
            raise CannotMeasure("bench/tracing.py does not know the number of getppid() on this machine (%s)" % os.uname().machine)
        self.of = {}
        for name, pids in actors.items():
            for pid in pids:
                self.of.update((int(tid), name) for tid in os.listdir("/proc/%d/task" % pid))
        self.events = []  # (ns, tid, kind, data)

    def add(self, name, pid):
        self.of[pid] = name

    def write(self, name, text):
        with open(os.path.join(self.path, name), "w") as f:
            f.write(text)

    @contextlib.contextmanager
    def running(self):
        """Traces meanwhile; afterwards `events` has it all."""
        self.path = os.path.join(folder(), "instances", "dflock-bench-%d" % os.getpid())
        try:
            os.mkdir(self.path)
        except OSError as why:
            raise CannotMeasure("%s: %s" % (self.path, why.strerror)) from None
        try:
            self.write("tracing_on", "0")
            self.write("trace_clock", "mono")
            self.write("buffer_size_kb", str(BUFFER_KB))
            self.write("options/event-fork", "1")
            self.write("set_event_pid", " ".join(map(str, [os.getpid(), *self.of])))
            for event in EVENTS:
                self.write("events/%s/enable" % event, "1")
            self.write("tracing_on", "1")
            yield self
            self.write("tracing_on", "0")
            with open(os.path.join(self.path, "trace"), errors="replace") as f:
                self.read(f)
        finally:
            os.rmdir(self.path)

    def read(self, lines):
        for line in lines:
            match = LINE.match(line)
            if not match:
                if "LOST" in line:
                    raise CannotMeasure("the kernel lost events: " + line.strip())
                continue
            tid, ns, kind, rest = int(match[1]), int(match[2]) * 10**9 + int(match[3]) * 1000, match[4], match[5]
            if kind == "sys_enter":
                data = int(ENTER.search(rest)[1])
            elif kind == "sched_switch":
                data = tuple(map(int, SWITCH.search(rest).groups()))
            elif kind == "sched_waking":
                data = int(WAKING.search(rest)[1])
            elif kind == "sched_process_fork":
                if tid in self.of:
                    self.of.setdefault(int(FORK.search(rest)[1]), self.of[tid])
                continue
            else:
                data = None
            self.events.append((ns, tid, kind, data))

    def between_marks(self):
        """What is between the marks of the programs, each of whose names begins with "program": [(begin, end, events, the actor that
        made the first mark)]."""
        marks = [i for i, (_, tid, kind, data) in enumerate(self.events)
                 if kind == "sys_enter" and data == MARK and self.of.get(tid, "").startswith("program")]
        return [(self.events[a][0], self.events[b][0], self.events[a + 1:b], self.of[self.events[a][1]])
                for a, b in zip(marks[::2], marks[1::2])]

    def counted(self, events):
        """(system calls by actor, wake-ups of an actor, switches to an actor)"""
        calls, wakings, switches = {}, 0, 0
        for _, tid, kind, data in events:
            if kind == "sys_enter" and tid in self.of and data != MARK:
                calls[self.of[tid]] = calls.get(self.of[tid], 0) + 1
            wakings += kind == "sched_waking" and data in self.of
            switches += kind == "sched_switch" and data[1] in self.of
        return calls, wakings, switches

    def drawn(self, begin, end, events):
        """What a picture needs, in ns after `begin`: when each actor had a processor, its system calls, and which actor woke which."""
        running, inside, spans, calls, wakes = {}, {}, [], [], []
        for ns, tid, kind, data in events:
            at, name = ns - begin, self.of.get(tid)
            if kind == "sched_switch":
                before, after = data
                if before in self.of:
                    spans.append((self.of[before], before, running.pop(before, 0), at))
                if after in self.of:
                    running[after] = at
            elif kind == "sched_waking" and data in self.of:
                wakes.append((name, tid, self.of[data], data, at))
            elif kind == "sys_enter" and name:
                running.setdefault(tid, 0)
                inside[tid] = (at, data)
            elif kind == "sys_exit" and tid in inside:
                since, number = inside.pop(tid)
                calls.append((name, tid, since, at, number))
        for tid, since in running.items():
            spans.append((self.of[tid], tid, since, end - begin))
        return {"ns": end - begin, "spans": spans, "calls": calls, "wakes": wakes}
