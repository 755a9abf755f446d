"""A dflock command on a terminal of its own."""
import contextlib
import os
import pty
import selectors
import subprocess
import time

from harness.host import CLI


class Terminal:
    def __init__(self, host, *words):
        env = host.env()
        env.pop("LD_PRELOAD", None)
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen([*host.inside, CLI, *words], env=env, stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True)
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

    def say(self, line):
        os.write(self.master, (line + "\n").encode())

    def end(self):
        """All that it wrote, and its exit status."""
        while self.read(20):
            pass
        return self.text, self.process.wait(20)


@contextlib.contextmanager
def terminal(host, *words):
    t = Terminal(host, *words)
    try:
        yield t
    finally:
        if t.process.poll() is None:
            t.process.kill()
        t.process.wait()
        os.close(t.master)
