"""Any program as a holder of locks: it says line by line what happened, and ends when its standard input ends."""
import os
import queue
import signal
import subprocess
import threading

from .host import ROOT
from .processes import environ, pids_where
from .wait import SLOW, Deadline


class Job:
    """A program under a host's shim. When the host stops, it is killed with all that it started."""

    def __init__(self, host, *words, **more):
        self.process = subprocess.Popen([*host.inside, *words], env=host.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, start_new_session=True, **more)
        self.pid = self.process.pid
        self.mark = host.runtime
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        host.agents.append(self)

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def line(self, seconds=30.0):
        """The next line of its output; None after the last."""
        try:
            return self.lines.get(timeout=seconds * SLOW)
        except queue.Empty:
            raise Deadline(f"{self.process.args} has said nothing for {seconds} s") from None

    def held(self, seconds=30.0):
        """The job, when it has said that it has the lock."""
        assert self.line(seconds) == "held"
        return self

    def silent(self, seconds=0.1):
        """It says nothing for a while. Proves little alone; what it says later does."""
        try:
            said = self.lines.get(timeout=seconds)
        except queue.Empty:
            return True
        raise AssertionError(f"{self.process.args} should wait, but said {said!r}")

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self, seconds=30.0):
        """Ends its input, waits for it, and gives its exit status."""
        self.process.stdin.close()
        return self.process.wait(seconds)

    def processes(self):
        """All that it started and that has not left its session."""
        return pids_where(lambda pid: os.getsid(pid) == self.pid and self.mark.encode() in environ(pid))

    def kill(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.kill()  # processes() does not see it if its first thread has ended
        self.process.wait()
        self.process.stdin.close()


THREADS = ["/usr/bin/python3", os.path.join(ROOT, "tests/agents/threads.py")]


def holder(host, *how, name="f"):
    """flock(1) that has the lock, with a job that ends when its input ends."""
    return Job(host, "flock", *how, host.path(name), "sh", "-c", "echo held; read line; true").held()
