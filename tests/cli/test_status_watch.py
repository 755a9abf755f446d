"""`dflock status --watch`, on a terminal and elsewhere."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import pytest
from harness import wait_until
from harness.host import CLI


class Screen:
    """A terminal of 20 lines on which a command runs."""

    def __init__(self, host, *words):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", 20, 80, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        env = {**host.env(), "TERM": "xterm"}
        env.pop("LD_PRELOAD")
        self.text = ""
        self.process = subprocess.Popen([CLI, *words], env=env, stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                        start_new_session=True)

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 65536).decode()
        return self.text

    def shows(self, pattern, times=1):
        wait_until(lambda: len(re.findall(pattern, self.read())) >= times, f"{pattern} is shown {times} times")

    def press(self, keys):
        os.write(self.master, keys.encode())

    def ended(self):
        def so():
            self.read()  # it waits until the terminal has taken all
            return self.process.poll() is not None
        wait_until(so, "it has ended")
        self.read()
        return self.process.returncode

    def is_as_before(self):
        return termios.tcgetattr(self.slave)[3] == self.before[3]

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def screen(make_host):
    screens = []

    def make(*words, host=None):
        screens.append(Screen(host or make_host("a"), *words))
        return screens[-1]

    yield make
    for each in screens:
        each.close()


def test_in_place_until_q(screen):
    s = screen("status", "--watch=1")
    s.shows(r"\x1b\[H\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\x1b\[K\r\n", times=3)  # each over the one before
    assert s.text.startswith("\x1b[?1049h\x1b[?25l") and not s.is_as_before()
    s.press("q")
    assert s.ended() == 0 and s.is_as_before()
    last = s.text.split("\x1b[?25h\x1b[?1049l")[1]  # the last status stays to be read
    assert "this host has no leases" in last and "\x1b" not in last


def test_another_key_shows_it_at_once(screen):
    s = screen("status", "--watch=3600")
    s.shows(r"\x1b\[H\d{4}-")
    s.press(" ")
    s.shows(r"\x1b\[H\d{4}-", times=2)
    s.press("Q")
    assert s.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_terminal_as_it_was(screen, number):
    s = screen("status", "--watch")
    s.shows(r"\x1b\[H\d{4}-")
    s.process.send_signal(number)
    assert s.ended() == 128 + number and s.is_as_before() and "\x1b[?1049l" in s.text


def test_no_more_lines_than_the_terminal_has(screen, make_host):
    a = make_host("a", lease="ttl_ms = 20000; linger_ms = 60000;")
    for i in range(30):
        assert a.run("flock", a.path(f"f{i}"), "true").returncode == 0
    s = screen("status", "--watch", host=a)
    s.shows(r"\(\d+ more lines\)\x1b\[K\r\n\x1b\[J")
    frame = s.text.split("\x1b[H")[1].split("\x1b[J")[0]
    assert frame.count("\r\n") == 19
    s.press("q")
    assert s.ended() == 0


def test_a_keeper_that_comes_and_goes(screen, host_of):
    a = host_of("unix:/none", foreground=False)
    s = screen("status", "--watch=1", host=a)
    s.shows("no keeper runs for")
    a.start()
    s.shows("store   unix:/none, DOWN")
    s.press("q")
    assert s.ended() == 0


def test_not_on_a_terminal(make_host):
    a = make_host("a")
    env = {k: v for k, v in a.env().items() if k != "LD_PRELOAD"}
    with subprocess.Popen([CLI, "status", "--watch=1"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as p:
        text = "".join(p.stdout.readline() for _ in range(20))
        p.stdout.close()  # as `| head` does
        assert p.wait(20) == -signal.SIGPIPE
    assert "\x1b" not in text and len(re.findall(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", text, re.M)) >= 2


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "3601"])
def test_seconds(host_of, seconds):
    done = host_of("unix:/none", foreground=False).cli("status", "--watch=" + seconds, check=False)
    assert done.returncode == 2 and f"--watch takes from 1 to 3600 seconds, not {seconds}" in done.stderr


def test_a_keeper_that_closes_the_connection(make_host):
    """No bare "Broken pipe"."""
    a = make_host("a")
    a.stop()
    os.makedirs(a.runtime, 0o700)
    listener = subprocess.Popen(["python3", "-c", """
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1])
s.listen()
s.setblocking(True)
print("listens", flush=True)
while True:
    s.accept()[0].close()
""", os.path.join(a.runtime, "keeper.sock")], stdout=subprocess.PIPE, text=True)
    try:
        assert listener.stdout.readline() == "listens\n"
        for _ in range(50):
            done = a.cli("status", check=False)
            assert done.returncode == 1 and "Broken pipe" not in done.stderr and "closed the connection" in done.stderr, done
    finally:
        listener.kill()
        listener.wait()
        listener.stdout.close()
