"""What `dflock metrics` says, and by how much it changed."""
import re
import subprocess

from .wait import Deadline, wait_until

SAMPLE = re.compile(r'(dflock_[a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\})? (-?[0-9.e+-]+|\+Inf|NaN)')


def parsed(text):
    """{'dflock_waiters{space="flock"}': 0.0, ...}; every line must be one that Prometheus takes."""
    values = {}
    assert text.endswith("\n") and "\r" not in text
    for line in text[:-1].split("\n"):
        if line.startswith(("# HELP dflock_", "# TYPE dflock_")):
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        key = line.rsplit(" ", 1)[0]
        assert key not in values, f"twice: {key}"
        values[key] = float(sample[3])
    return values


def metrics(host):
    done = host.cli("metrics")
    assert done.stderr == ""
    return parsed(done.stdout)


def value(host, name, **labels):
    """Labels in the order of the metric."""
    return metrics(host)[key_of(name, **labels)]


def key_of(name, **labels):
    inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"dflock_{name}" + (f"{{{inside}}}" if inside else "")


def ended(reason, number):
    return key_of("ended_processes_total", reason=reason, signal=number)


def promtool(text):
    """What promtool says against it: the conventions of Prometheus."""
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


# What moves by itself: time, connections (each question of ours is one), requests that no call asked for; and what is said for each store again.
RESTLESS = re.compile(r"dflock_(connections|deadline_left|store_request|stores_|beats_total|rules_|lease_hold_seconds_(sum|bucket)"
                      r"|lease_recall_seconds_(sum|bucket)|lock_wait_seconds_(sum|bucket)|leases\{|page_leases|waiters)")


class Since:
    """Since(host).moved() is {key: by how much} of all that has changed since then, but for what moves by itself."""

    def __init__(self, host):
        self.host, self.first = host, metrics(host)

    def moved(self):
        now = metrics(self.host)
        assert set(now) == set(self.first)
        return {key: now[key] - self.first[key] for key in now if now[key] != self.first[key] and not RESTLESS.match(key)}

    def moves(self, want):
        """In the end exactly these have moved."""
        seen = {}

        def same():
            seen.clear()
            seen.update(self.moved())
            return {key: by for key, by in seen.items() if key in want} == want

        try:
            wait_until(same, "the counts have moved", 30)
        except Deadline:
            raise AssertionError(f"{seen} instead of {want}") from None
        assert seen == want
