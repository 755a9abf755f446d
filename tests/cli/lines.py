"""What the command line says, taken apart: a finding of `dflock doctor` is (level, text)."""
import re

from harness import text_of, write_text

# What is said of a file system whose locks other hosts do not see.
LOCAL = ": its own locks hold on this machine only, those under dflock on all hosts"


class Doctor:
    """`dflock doctor` on a host, to its end. Its exit status and its last line must agree with the findings."""

    def __init__(self, host, *words, done=None, **more):
        """done: how it ended, if it has run already."""
        self.done = done or host.cli("doctor", *words, check=False, **more)
        *lines, empty, last = self.done.stdout.splitlines()
        assert empty == "" and self.done.stderr == "", self.done
        self.found = [re.fullmatch(r"(ok|warning|problem): +(.*)", line).groups() for line in lines]
        problems, warnings = len(self.of("problem")), len(self.of("warning"))
        assert last == f"{problems} problem{'s' * (problems != 1)}, {warnings} warning{'s' * (warnings != 1)}"
        assert self.done.returncode == (1 if problems else 0)

    def of(self, level):
        return [text for l, text in self.found if l == level]

    def has(self, level, pattern):
        """There is one finding in which the pattern occurs, and it has this level."""
        hits = [(l, text) for l, text in self.found if re.search(pattern, text)]
        assert [l for l, _ in hits] == [level], (pattern, self.done.stdout)
        return hits[0][1]

    def only(self, pattern):
        """The one problem."""
        assert len(self.of("problem")) == 1, self.done.stdout
        return self.has("problem", pattern)


def refusal(done, status=1):
    """The one line on standard error of a command that failed."""
    assert done.returncode == status and done.stdout == "", done
    assert re.fullmatch(r"dflock: [^\n]+\n", done.stderr), done.stderr
    return done.stderr[len("dflock: "):-1]


def unconfigured(host, home, *words):
    """dflock on a host without any configuration."""
    return host.cli(*words, check=False, env={"DFLOCK_CONFIG": "", "HOME": home})


def written(host, text):
    write_text(host.config, text)


def changed(host, old, new):
    text = text_of(host.config)
    assert old in text
    written(host, text.replace(old, new))
