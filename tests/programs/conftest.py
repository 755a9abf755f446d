"""
Two hosts whose files have the same lock names, with the shim and (the control) without it. And for programs that share data:
a folder that every host sees through a FUSE view of its own, as on a mount whose locks are local: shared data, separate
kernel locks.
"""
import os
import time

import pytest
from harness import Job, Views, wait_until

BUSY = 99
VIEWERS = "abcd"


class Pair:
    """Hosts a and b. excludes: what holds on a must be busy on b; without the shim it must not be. before: words before those of a job."""

    def __init__(self, a, b, excludes, before=()):
        self.a, self.b, self.excludes, self.before = a, b, excludes, before

    def job(self, host, *words, **more):
        return Job(host, *self.before, *words, **more)

    def run(self, host, *words, **more):
        return host.run(*self.before, *words, **more)

    def is_busy(self, name="f", *options):
        status = self.b.run("flock", "-n", "-E", str(BUSY), *options, self.b.path(name), "true")
        assert status.returncode in (0, BUSY), status.stderr
        return status.returncode == BUSY

    def check_held(self, name="f"):
        assert self.is_busy(name) == self.excludes

    def check_free(self, name="f"):
        assert not self.is_busy(name)

    def leases(self, host, note):
        return [l for l in host.status()["leases"] if l["note"] == note]

    def waiter(self, *command, name="f"):
        """A program on b that waits for what is held on a, says "held" and ends. Without the shim it has it at once."""
        job = Job(self.b, *(command or ("flock", self.b.path(name), "echo", "held")))
        if self.excludes:
            wait_until(lambda: self.leases(self.a, "wanted by another host"), "a's lease is recalled")
            assert job.silent()
        else:
            assert job.line() == "held" and job.end() == 0
        return job

    def check_waits(self, job):
        """b's program waits for a, in whichever space; for locks that pair.waiter() has not taken."""
        if self.excludes:
            wait_until(lambda: self.leases(self.b, "waits for another host"), "b waits")
            assert job.silent()

    def check_gets(self, job):
        if self.excludes:
            assert job.line() == "held"
        assert job.end() == 0

    def check_limit(self, job, second):
        """b's program waits for a second, while this job of a has the lock, and then leaves no waiter."""
        start = time.monotonic()
        other = second()
        if self.excludes:
            assert other.line() == "timeout" and time.monotonic() - start >= 1
            wait_until(lambda: self.waiters() == 0, "no waiter is left in the store")
        else:
            assert other.line() == "held"
        assert other.end() == 0
        job.end()

    def waiters(self):
        """How many wait in the store."""
        return sum(len(lock["waiters"]) for lock in self.a.status()["cluster"]["locks"])


@pytest.fixture
def make_pair(make_host):
    def make(excludes, before=(), **options):
        return Pair(*(make_host(name, lease="ttl_ms = 10000;", **options) for name in "ab"), excludes, before)
    return make


@pytest.fixture(params=["shim", "plain"])
def pair(request, make_pair):
    shim = request.param == "shim"
    pair = make_pair(shim, shim=shim, foreground=shim)
    for host in (pair.a, pair.b):
        open(host.path("f"), "w").close()
    return pair


@pytest.fixture
def views(folder):
    """The folder; hosts named a to d see it as theirs. To be asked for before make_host, since hosts have files open there."""
    views = Views(os.path.join(folder, "data"), [os.path.join(folder, "files-" + name) for name in VIEWERS])
    yield views.data
    views.unmount()
