"""What was measured: a row beside its reference, a table for people, JSON for programs. Times are in nanoseconds."""
import json
import math
import statistics


class Series:
    """Samples of one thing; `rounds` is a list of lists, one for each run of the program that took them."""

    def __init__(self, title, rounds):
        self.title = title
        self.rounds = rounds
        self.samples = sorted(s for r in rounds for s in r)
        self.median = statistics.median(self.samples)
        self.p99 = self.samples[math.ceil(len(self.samples) * 0.99) - 1]

    def minus(self, other):
        """The difference from a series that was taken in turns with this one: the median of the rounds' differences,
        since the machine may change its pace between rounds by more than what is looked for."""
        return statistics.median(a - b for a, b in zip(self.round_medians(), other.round_medians()))

    def round_medians(self):
        return [statistics.median(r) for r in self.rounds]

    def json(self):
        return {"title": self.title, "count": len(self.samples), "min_ns": self.samples[0],
                "median_ns": round(self.median, 1), "p99_ns": self.p99,
                "round_medians_ns": [round(m, 1) for m in self.round_medians()]}


class Times:
    """How long something takes. The limit is a factor ("x") or a number of nanoseconds ("ns") against the reference's
    median; None if there is no reference or no limit yet."""

    def __init__(self, series, reference=None, x=None, ns=None, note=""):
        self.series = series
        self.reference = reference
        self.x = x
        self.ns = ns
        self.note = note

    @property
    def ratio(self):
        return self.series.median / self.reference.median

    @property
    def difference(self):
        return self.series.minus(self.reference)

    @property
    def met(self):
        if self.x is not None:
            return self.ratio <= self.x
        if self.ns is not None:
            return self.difference <= self.ns
        return None

    def cells(self):
        cells = [self.series.title, duration(self.series.median), duration(self.series.p99)]
        if not self.reference:
            return cells + ["", "", "", "", "", "", self.note]
        if self.ns is not None:
            against, limit = "%+.1f ns" % self.difference, "+%g ns" % self.ns
        else:
            against, limit = "%.2f x" % self.ratio, "" if self.x is None else "%g x" % self.x
        met = {None: "", True: "met", False: "MISSED"}[self.met]
        return cells + [self.reference.title, duration(self.reference.median), duration(self.reference.p99),
                        against, limit, met, self.note]

    def json(self):
        out = {**self.series.json(), "note": self.note}
        if self.reference:
            limit = None if self.met is None else {"ratio": self.x} if self.x else {"difference_ns": self.ns}
            out.update(reference=self.reference.json(), ratio=round(self.ratio, 3),
                       difference_ns=round(self.difference, 1), limit=limit, met=self.met)
        return out


class Counts:
    """How many Redis commands something takes: those that a client sends, and those that scripts run."""

    def __init__(self, title, sent, inside, per, note=""):
        self.title, self.sent, self.inside, self.per, self.note = title, sent, inside, per, note

    def cells(self):
        return [self.title, amount(self.sent), amount(self.inside), self.per, self.note]

    def json(self):
        return {"title": self.title, "sent": self.sent, "inside_scripts": self.inside, "per": self.per,
                "note": self.note}


class Growth:
    """What something costs by a number: `us`, number -> microseconds. The limit is on the growth between two of them, as a factor."""

    def __init__(self, title, us, between, x):
        self.title, self.us, self.between, self.x = title, us, between, x
        self.ratio = us[between[1]] / us[between[0]]

    @property
    def met(self):
        return self.ratio <= self.x

    def cells(self, sizes):
        return [self.title, *("%.0f" % self.us[n] if n in self.us else "" for n in sizes), "%.0f x" % self.ratio, "%g x" % self.x,
                "met" if self.met else "MISSED"]

    def json(self):
        return {"title": self.title, "us": self.us, "between": self.between, "ratio": round(self.ratio, 2), "limit": {"ratio": self.x},
                "met": self.met}


class Steps:
    """What something takes of each process: name -> system calls, page faults, wake-ups. Limits on the sums."""

    def __init__(self, title, per, calls, wakeups):
        self.title, self.per, self.limits = title, per, {"calls": calls, "wakeups": wakeups}
        self.calls, self.faults, self.wakeups = (sum(p[i] for p in per.values()) for i in range(3))

    @property
    def met(self):
        return self.calls < self.limits["calls"] + 0.5 and self.wakeups < self.limits["wakeups"] + 0.5

    def cells(self):
        rows = [[self.title, name, *map(figure, values), "", ""] for name, values in self.per.items()]
        limit = "%(calls)d, %(wakeups)d" % self.limits
        return rows + [["", "all", figure(self.calls), figure(self.faults), figure(self.wakeups), limit, "met" if self.met else "MISSED"]]

    def json(self):
        return {"title": self.title, "per_process": {name: dict(zip(("calls", "faults", "wakeups"), values)) for name, values in self.per.items()},
                "calls": self.calls, "faults": self.faults, "wakeups": self.wakeups, "limit": self.limits, "met": self.met}


class Curve:
    """Some values by a number."""

    def __init__(self, title, of):
        self.title, self.of, self.points = title, of, {}

    def add(self, at, values):
        self.points.setdefault(at, {}).update(values)

    def text(self):
        columns = list(dict.fromkeys(c for values in self.points.values() for c in values))
        rows = [[str(at), *(figure(values[c]) if c in values else "" for c in columns)] for at, values in self.points.items()]
        return self.title + "\n" + table([self.of, *columns], rows, (0,))

    def json(self):
        return {"title": self.title, "of": self.of, "points": self.points}


class Timeline:
    """What an operation does until the caller has its lock: system calls by actor, wake-ups of actors, switches to actors, each the median
    of `count`; and all of one, as tracing.Trace.drawn() says, for the picture."""

    def __init__(self, title, calls, wakings, switches, count, drawn):
        self.title, self.calls, self.wakings, self.switches, self.count, self.drawn = title, calls, wakings, switches, count, drawn

    def cells(self):
        return [self.title, "%g" % sum(self.calls.values()), ", ".join("%s %g" % pair for pair in self.calls.items()),
                "%g" % self.wakings, "%g" % self.switches]

    def json(self):
        return {"title": self.title, "system_calls": self.calls, "wake_ups": self.wakings, "switches": self.switches, "count": self.count,
                "actors": list(self.calls), **self.drawn}


def figure(value):
    return "%.0f" % value if value >= 100 else "%.3g" % value


def duration(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return "%.1f %s" % (ns / size, unit)
    return "%.1f ns" % ns


def amount(count):
    return "0" if not count else "%.2f" % count if count >= 0.1 else "%.5f" % count


def table(head, rows, left):
    """Columns as wide as their widest cell; those in `left` stand to the left."""
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join(lines)


def text(rows):
    times = [r.cells() for r in rows if isinstance(r, Times)]
    counts = [r.cells() for r in rows if isinstance(r, Counts)]
    growth = [r for r in rows if isinstance(r, Growth)]
    steps = [cells for r in rows if isinstance(r, Steps) for cells in r.cells()]
    parts = []
    if times:
        head = ["time", "median", "p99", "reference", "median", "p99", "against it", "limit", "", ""]
        parts.append(table(head, times, (0, 3, 8, 9)))
    if counts:
        parts.append(table(["Redis commands", "sent", "in scripts", "per", ""], counts, (0, 3, 4)))
    if growth:
        sizes = sorted({n for r in growth for n in r.us})
        head = ["us of the server, by ranges", *map(str, sizes), "%d to %d" % growth[0].between, "limit", ""]
        parts.append(table(head, [r.cells(sizes) for r in growth], (0, len(head) - 1)))
    lines = [r.cells() for r in rows if isinstance(r, Timeline)]
    if lines:
        parts.append(table(["until the caller has its lock", "system calls", "", "wake-ups", "switches"], lines, (0, 2)))
    if steps:
        parts.append(table(["steps", "of", "system calls", "page faults", "wake-ups", "limit", ""], steps, (0, 1, 6)))
    parts += [r.text() for r in rows if isinstance(r, Curve)]
    return "\n\n".join(parts)


def write_json(path, about, rows, failed):
    """rows: measurement's name -> its rows."""
    def of(kind):
        return [{"measurement": name, **row.json()}
                for name, some in rows.items() for row in some if isinstance(row, kind)]

    with open(path, "w") as f:
        json.dump({**about, "times": of(Times), "commands": of(Counts), "growth": of(Growth), "steps": of(Steps), "curves": of(Curve), "timelines": of(Timeline),
                   "not_measured": failed}, f, indent=1)
        f.write("\n")
