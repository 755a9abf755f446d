"""
Holders that the keeper of an ordinary user may not look into: a program that may be run but not read. Root's keeper may look into
every process. (setpriv still has root's rights while it starts a program: it has to be another one that starts those.)
"""
import ctypes
import os
import re
import shutil
import signal
import subprocess

import pytest
from harness import text_of, wait_until, write_text
from harness.processes import stat

JOB = 'while :; do echo >>"$0"; read -t 0.01 <> <(:); done'
CANNOT = "which the keeper may not look into"

tmpfs = pytest.mark.parametrize("ground", ["tmpfs"], indirect=True)
user = pytest.mark.parametrize("sides", ["user"], indirect=True)


@pytest.fixture
def secret(shown):
    """bash, by a file that only root may read."""
    path = os.path.join(shown, "secret-bash")
    shutil.copy("/bin/bash", path)
    os.chmod(path, 0o711)
    return path


def size(path):
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def is_still(job):
    """None of its session's processes can run."""
    def stopped():
        found = [fields[0] for fields in map(stat, filter(str.isdigit, os.listdir("/proc"))) if fields and int(fields[3]) == job.process.pid]
        return set(found) & set("Tt") and set(found) <= set("TtZX")

    return wait_until(stopped, "all of it is stopped")


def grows(path):
    before = size(path)
    wait_until(lambda: size(path) > before, "the job goes on")


PIDFD_GETFD = 438


def copy_of(pid, fd):
    """A copy of another process's descriptor."""
    pidfd = os.pidfd_open(pid)
    copy = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, pidfd, fd, 0)
    os.close(pidfd)
    assert copy >= 0
    return copy


class Job:
    def __init__(self, side, *words):
        """words: the program; "OUT" in them is the file that it writes to."""
        self.host = side.host
        self.out = side.host.path("out")
        words = [self.out if w == "OUT" else w for w in words]
        self.process = subprocess.Popen([*side.host.inside, *side.by(0), *words], env=side.host.env(), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def runs(self):
        wait_until(lambda: size(self.out) > 3, "the job runs")
        return self

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return self.process.communicate(timeout=20)[1]


@pytest.fixture
def start():
    jobs = []

    def start(side, *words):
        jobs.append(Job(side, *words))
        return jobs[-1]

    yield start
    for job in jobs:
        job.end()


def status(host):
    return host.cli("status").stdout


def frozen_and_on(host, redis, job):
    redis.signal(signal.SIGSTOP)
    try:
        wait_until(lambda: "are frozen" in host.log(), "it is frozen", 20)
        assert is_still(job)
    finally:
        redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in host.log(), "it is let go", 20)
    grows(job.out)


@tmpfs
@user
def test_one_that_took_the_lock_is_stopped_by_a_signal(sides, redis, secret, start):
    a = sides[0].host
    job = start(sides[0], "flock", "-F", a.path("f"), secret, "-c", JOB, "OUT").runs()
    assert subprocess.run([*a.inside, "ls", f"/proc/{job.process.pid}/fd"], stderr=subprocess.PIPE).returncode != 0
    assert f"held by pid {job.process.pid}, {CANNOT}, exclusive: it is stopped by SIGSTOP" in status(a)
    frozen_and_on(a, redis, job)
    assert "cannot be stopped" not in a.log()


@tmpfs
@user
def test_one_that_was_started_by_a_holder_is_stopped(sides, redis, secret, start):
    a = sides[0].host
    job = start(sides[0], "flock", a.path("f"), secret, "-c", JOB, "OUT").runs()
    frozen_and_on(a, redis, job)


@tmpfs
@user
def test_one_that_took_the_lock_is_killed_when_it_is_lost(sides, redis, secret, start):
    a = sides[0].host
    job = start(sides[0], "flock", "-F", a.path("f"), secret, "-c", JOB, "OUT").runs()
    redis.stop()
    wait_until(lambda: a.status()["leases"][0]["state"] == "unsure", "the deadline passes", 20)
    assert is_still(job)
    last = size(job.out)
    redis.start()
    os.chmod(redis.socket, 0o777)
    assert job.process.wait(20) == -signal.SIGKILL
    assert size(job.out) == last


UNKNOWN = "a process that the keeper cannot find or may not look into"


def inherits(side, name, secret, start):
    """A job that inherits a lock of this name; a look has found that, and the leases that are older were looked at, too."""
    shell = f'exec 9>>"{side.host.path(name)}"; flock 9; exec "{secret}" -c \'{JOB}\' "$0"'
    start(side, "bash", "-c", shell, "OUT")
    wait_until(lambda: f"t/{name} ({side.host.path(name)}): its lock is held by {UNKNOWN}: it cannot be stopped" in side.host.log(),
               "the log says so", 20)


@tmpfs
@user
def test_one_that_inherited_it_is_named_at_once(sides, redis, secret, start):
    """The process that took it has ended, and nothing shows the next holder: it cannot be stopped, which the log and status say long before an outage."""
    a = sides[0].host
    inherits(sides[0], "f", secret, start)
    assert re.search(rf"held by {UNKNOWN}, exclusive: it CANNOT BE STOPPED", status(a))
    for name in "gh":  # other looks
        inherits(sides[0], name, secret, start)
    assert a.log().count(f"t/f ({a.path('f')}): its lock is held by") == 1


@tmpfs
@user
def test_another_users_process_is_named(sides, redis, shown, start):
    """As through sudo: the process that took the lock belongs to another user by now."""
    a = sides[0].host
    started = subprocess.Popen(
        [*a.inside, "bash", "-c", f'exec 9>>"{a.path("f")}"; flock 9; echo ok; read; exec sleep 1000'], env=a.env(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    # A user cannot become another one without a setuid program: root hands the lock over in its place.
    heir = None
    try:
        assert started.stdout.readline() == "ok\n"
        fd = copy_of(started.pid, 9)
        heir = subprocess.Popen(["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "sleep", "1000"], pass_fds=[fd])
        os.close(fd)
        started.kill()
        started.wait()
        wait_until(lambda: "it cannot be stopped" in a.log(), "the log says so", 20)
        assert "CANNOT BE STOPPED" in status(a)
        heir.kill()
        heir.wait()
        wait_until(lambda: "CANNOT BE STOPPED" not in status(a), "it is gone", 20)
    finally:
        for process in filter(None, (started, heir)):
            process.kill()
            process.wait()
        started.stdin.close()
        started.stdout.close()


@tmpfs
@user
def test_unused_and_ordinary_locks_are_not_complained_of(sides, secret, start):
    a = sides[0].host
    start(sides[0], "flock", a.path("g"), "bash", "-c", JOB, "OUT").runs()
    agent = sides[0].agent("f")
    assert agent.do("flock 0 sh") == "ok"
    unused = sides[0].agent("h")
    assert unused.do("flock 0 ex") == "ok" and unused.do("flock 0 un") == "ok"
    before = status(a)
    for name in "ijk":  # three looks
        inherits(sides[0], name, secret, start)
    assert a.log().count("its lock is held by") == 3
    assert "CANNOT" not in before and CANNOT not in before and status(a).count("CANNOT BE STOPPED") == 3


def refuse(host):
    text = text_of(host.config)
    write_text(host.config, text.replace('name = "t";', 'name = "t"; unstoppable = "refuse";'))
    host.cli("reload")


@tmpfs
def test_a_rule_may_refuse_them(sides, secret, start):
    """What asks is a copy of flock(1) that may not be read."""
    a = sides[0].host
    refuse(a)
    flock = os.path.join(os.path.dirname(secret), "secret-flock")
    shutil.copy(shutil.which("flock"), flock)
    os.chmod(flock, 0o711)
    done = subprocess.run([*a.inside, *sides[0].by(0), "env", flock, a.path("f"), "true"], env=a.env(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    if sides[0].users or not a.inside:
        assert done.returncode == 0, done.stderr  # root's keeper may look into it
    else:
        assert done.returncode != 0 and "the keeper may not look into this process" in done.stderr, done.stderr
        assert 'unstoppable = "refuse"' in done.stderr
    # All other users have it, also again and again.
    for _ in range(2):
        assert subprocess.run([*a.inside, *sides[0].by(0), "flock", a.path("f"), "true"], env=a.env(), timeout=60).returncode == 0


@tmpfs
@user
def test_a_lease_that_is_open_lets_none_in_that_are_refused(sides, secret, start):
    """The shared page would let it in without a question."""
    a = sides[0].host
    refuse(a)
    agent = sides[0].agent("f")
    assert agent.do("flock 0 ex") == "ok" and agent.do("flock 0 un") == "ok"
    flock = os.path.join(os.path.dirname(secret), "secret-flock")
    shutil.copy(shutil.which("flock"), flock)
    os.chmod(flock, 0o711)
    done = subprocess.run([*a.inside, "env", flock, a.path("f"), "true"], env=a.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60)
    assert done.returncode != 0 and "the keeper may not look into this process" in done.stderr
