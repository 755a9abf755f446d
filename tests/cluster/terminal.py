"""A program on a terminal of its own."""
import contextlib
import fcntl
import os
import pty
import selectors
import subprocess
import termios
import time

from harness.host import CLI


class Terminal:
    def __init__(self, words, env):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(words, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.text = ""

    def read(self, seconds):
        """False: it has ended, or says nothing more."""
        with selectors.DefaultSelector() as s:
            s.register(self.master, selectors.EVENT_READ)
            if not s.select(seconds):
                return False
        try:
            self.text += os.read(self.master, 65536).decode(errors="replace")
        except OSError:
            return False
        return True

    def until(self, words, seconds=20):
        deadline = time.monotonic() + seconds
        while words not in self.text:
            assert self.read(max(0, deadline - time.monotonic())), f"{words!r} was not said: {self.text!r}"

    def say(self, line, end="\n"):
        os.write(self.master, (line + end).encode())

    def end(self):
        """All that it wrote, and its exit status."""
        while self.read(20):
            pass
        return self.text, self.process.wait(20)


@contextlib.contextmanager
def on_terminal(words, env):
    t = Terminal(words, env)
    try:
        yield t
    finally:
        if t.process.poll() is None:
            t.process.kill()
        t.process.wait()
        os.close(t.master)


def terminal(host, *words):
    """A dflock command."""
    return on_terminal([*host.inside, CLI, *words], {**host.env(), "LD_PRELOAD": ""})


def shell(host):
    """An interactive bash with job control. What it has started must have ended before it does."""
    return on_terminal(["/bin/bash", "--norc", "--noprofile", "-i"], {**host.env(), "PS1": "ready> ", "HISTFILE": ""})
