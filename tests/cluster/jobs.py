"""Jobs that hold a lock while their lease cannot be renewed, and how a test sees whether they run."""
import os
import signal
import subprocess

from harness import wait_until
from harness.processes import children, state  # noqa: F401 (for the tests)

from keepers import is_busy  # noqa: F401 (as well)

JOB = 'trap "" INT; echo $$ >>"$1.pid"; while :; do echo >>"$1"; read -t 0.01 <> <(:); done'
# Long margins: a process that is not stopped in half of one is killed, which happens where too many programs run at once.
LEASE = "ttl_ms = 3000; freeze_margin_ms = 1300;"
# Where little processor time is left for each program, or a parent's search is slow, since it is traced.
SLOW_LEASE = "ttl_ms = 12000; freeze_margin_ms = 5000;"


def job(host, *how, out="out", names=("f",), script=JOB):
    """A job under flock(1), one for each lock, that writes a line to a file again and again."""
    path = host.path("job." + out)
    locks = [word for name in names for word in ("flock", *how, host.path(name))]
    process = host.popen(*locks, "bash", "-c", script, "job", path)
    wait_until(lambda: size(path) > 3, "the job runs")
    return process, path


def pid_of(path):
    """Of the job that writes there; of the first of several."""
    return int(open(path + ".pid").read().split()[0])


def end(process, path):
    """Kills the job; what its flock(1) has said on standard error."""
    os.kill(pid_of(path), signal.SIGKILL)
    return process.communicate(timeout=20)[1]


def size(path):
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def is_frozen(path):
    """It writes nothing, while a program that is not stopped does as much as the job does for ten lines."""
    before = size(path)
    subprocess.run(["bash", "-c", "for i in {1..10}; do read -t 0.01 <> <(:); done"], timeout=60)
    return size(path) == before


def grows(path):
    before = size(path)
    wait_until(lambda: size(path) > before, "the job goes on")


def frozen(host, redis):
    """The store does not answer: until holders are stopped."""
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in host.log(), "frozen", 40)


def let_go(host, redis):
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in host.log(), "they are let go", 40)


def outage(host, redis, pids):
    """All these are frozen, and go on."""
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: all(state(p) in "tT" for p in pids), "all are frozen", 10)
    wait_until(lambda: "are frozen" in host.log(), "and that is said", 10)
    let_go(host, redis)
    assert not any(state(p) in "tT" for p in pids)


class Job:
    """A job that has these locks."""

    def __init__(self, host, *names):
        self.process, self.path = job(host, out="-".join(n.replace("/", "_") for n in names), names=names)

    def pid(self):
        return pid_of(self.path)

    def waits_frozen(self):
        wait_until(lambda: state(self.pid()) in "tT", f"{self.path} is frozen", 40)
        assert is_frozen(self.path)

    def end(self):
        end(self.process, self.path)
