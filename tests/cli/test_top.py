"""`dflock top`: a screen of the cluster's locks, and its keys."""
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios

import pyte
import pytest
from harness import Job, wait_until
from harness.job import holder
from harness.host import CLI

ROWS, COLUMNS = 24, 120


class Terminal:
    """A terminal on which `dflock top` runs, and what a person sees on it."""

    def __init__(self, host, *words):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self.stream = pyte.ByteStream(self.screen)
        env = {**host.env(), "TERM": "xterm"}
        env.pop("LD_PRELOAD")
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen([CLI, "top", *words], env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.slave = slave

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            self.stream.feed(os.read(self.master, 65536))
        return self.screen.display

    def row(self, *parts):
        """The line that has all of these, as soon as it is there."""
        try:
            return wait_until(lambda: next((line for line in self.read() if all(part in line for part in parts)), None), f"a line has {parts}")
        except AssertionError as e:
            raise AssertionError("\n".join([str(e), *self.screen.display])) from None

    def gone(self, part):
        wait_until(lambda: not any(part in line for line in self.read()), f"{part} is gone")

    def first(self, *parts):
        """In which order the texts stand on the screen."""
        self.read()
        whole = "\n".join(self.screen.display)
        return sorted(parts, key=whole.index)

    def press(self, keys):
        os.write(self.master, keys.encode())

    def ends(self):
        wait_until(lambda: self.read() and self.process.poll() is not None, "it has ended")
        return self.process.returncode

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal():
    made = []

    def make(host, *words):
        made.append(Terminal(host, *words))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_locks_hosts_and_the_filter(two, terminal):
    a, b = two
    jobs = holder(a, name="alpha"), holder(b, name="beta")
    waits = Job(b, "flock", b.path("alpha"), "true")
    top = terminal(a, "--seconds=1")
    top.row("t/alpha", "held", "flock exclusive, whole file", f"pid {jobs[0].pid} (flock)")
    top.row("t/alpha", "waits (1.)", f"pid {waits.pid} (flock)")
    top.row("t/beta", "held", f"pid {jobs[1].pid}")
    top.row("store unix:", "up", "hosts 2, silent 0", "leases 2, waiting 1")
    top.press("r")
    wait_until(lambda: top.first("t/alpha ", "t/beta ") == ["t/beta ", "t/alpha "], "the order is reversed")
    top.press("/bet")
    top.gone("t/alpha")
    top.row("filter: bet_")
    top.press("\033")
    top.row("t/alpha", "held")
    top.press("h")
    top.row("this host", "beat")
    top.gone("t/beta")
    assert jobs[0].end() == 0 and waits.end() == 0
    top.press("h")
    top.gone("waits (1.)")  # it looks again by itself
    assert jobs[1].end() == 0
    assert not termios.tcgetattr(top.slave)[3] & termios.ECHO
    top.press("q")
    assert top.ends() == 0
    assert termios.tcgetattr(top.slave)[3] == top.before[3]


def test_who_and_break(make_host, terminal):
    """They are the commands of that name: break asks, and takes the lock away."""
    a = make_host("a")
    job = holder(a)
    top = terminal(a)
    top.row("t/f", "held")
    top.press("\n")
    top.row("$ dflock who t/f")
    top.row(f"pid {job.pid}")
    top.row("(any key)")
    top.press(" ")
    top.row("q ends")
    top.press("b")
    top.row("[y/N]")
    top.press("y\n")
    top.row("(any key)")
    job.process.wait(30)
    top.press(" ")
    top.row("leases 0, waiting 0")
    top.press("q")
    assert top.ends() == 0


def test_names_move_no_cursor(make_host, terminal):
    a = make_host("a")
    job = holder(a, name="evil\033[2J\n日本")
    top = terminal(a)
    top.row("t/evil\\x1b[2J\\x0a", "held", "flock exclusive")
    assert job.end() == 0


def test_no_keeper(host_of, terminal):
    top = terminal(host_of("unix:/none", foreground=False))
    top.row("no keeper runs for")
    top.press("\nbq")
    assert top.ends() == 0


def test_no_terminal(host_of):
    a = host_of("unix:/none", foreground=False)
    done = a.cli("top", check=False)
    assert done.returncode == 1 and "this is no terminal on which a screen can be drawn" in done.stderr, done
    done = a.cli("top", "--seconds=0", check=False)
    assert (done.returncode, done.stderr) == (2, "dflock: --seconds takes from 1 to 3600, not 0\n")
