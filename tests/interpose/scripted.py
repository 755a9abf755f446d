"""A lock call that a test watches from both sides: the answers that it gets, and the kernel lock that it takes."""
import fcntl
import os
import threading


class Local:
    """Another process's view of the kernel lock."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)

    def take(self, op=fcntl.LOCK_EX):
        try:
            fcntl.flock(self.fd, op | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False

    def free(self):
        """Whether nobody holds anything."""
        taken = self.take()
        if taken:
            self.release()
        return taken

    def release(self):
        fcntl.flock(self.fd, fcntl.LOCK_UN)


class Script:
    """A handler whose questions the test answers, one after the other."""

    def __init__(self):
        self.arrived = threading.Semaphore(0)
        self.questions, self.gone = [], threading.Event()

    def __call__(self, connection):
        while request := connection.receive():
            self.questions.append((connection, request))
            self.arrived.release()
        self.gone.set()

    def next(self):
        assert self.arrived.acquire(timeout=20), "no question came"
        return self.questions.pop(0)


def finish(process):
    """What it still says on standard error, once it was told to end. (Its output was read by lines.)"""
    process.stdin.close()
    out, err = process.stdout.read(), process.stderr.read()
    assert process.wait(20) == 0, (out, err)
    assert out.endswith("mask same\nchildren: -1 ECHILD\nchildren of all kinds: -1 ECHILD\nopen: 0 1 2 3\n")
    return err


def result(process):
    """The line of the call itself, as soon as it is there."""
    for line in process.stdout:
        if line.startswith("flock: "):
            return line.rstrip("\n")
    raise AssertionError("the program ended: " + process.stderr.read())
