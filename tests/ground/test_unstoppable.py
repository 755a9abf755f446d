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
from harness import Job, text_of, wait_until, write_text
from harness.processes import stat

from jobs import frozen, grows, let_go, size

JOB = 'while :; do echo >>"$0"; read -t 0.01 <> <(:); done'
CANNOT = "which the keeper may not look into"
UNKNOWN = "a process that the keeper cannot find or may not look into"

pytestmark = pytest.mark.parametrize("ground", ["tmpfs"], indirect=True)
user = pytest.mark.parametrize("sides", ["user"], indirect=True)


def secret(shown, name):
    """A program, by a file that only root may read."""
    path = os.path.join(shown, "secret-" + name)
    shutil.copy(shutil.which(name), path)
    os.chmod(path, 0o711)
    return path


def is_still(job):
    """None of its session's processes can run."""
    def stopped():
        found = [fields[0] for fields in map(stat, filter(str.isdigit, os.listdir("/proc"))) if fields and int(fields[3]) == job.pid]
        return set(found) & set("Tt") and set(found) <= set("TtZX")

    return wait_until(stopped, "all of it is stopped")


PIDFD_GETFD = 438


def copy_of(pid, fd):
    """A copy of another process's descriptor."""
    pidfd = os.pidfd_open(pid)
    copy = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, pidfd, fd, 0)
    os.close(pidfd)
    assert copy >= 0
    return copy


def start(side, out, *words):
    """A job that writes to the file out, whose name follows these words."""
    job = Job(side.host, *side.by(0), *words, side.host.path(out))
    wait_until(lambda: size(side.host.path(out)) > 3, "the job runs")
    return job


def status(host):
    return host.cli("status").stdout


@user
def test_they_are_stopped_by_a_signal_and_killed(sides, redis, shown):
    """One that took the lock itself, and one that a holder has started."""
    a, bash = sides[0].host, secret(shown, "bash")
    job, started = start(sides[0], "job", "flock", "-F", a.path("f"), bash, "-c", JOB), start(sides[0], "started", "flock", a.path("g"), bash, "-c", JOB)
    assert subprocess.run([*a.inside, "ls", f"/proc/{job.pid}/fd"], stderr=subprocess.PIPE).returncode != 0
    assert f"held by pid {job.pid}, {CANNOT}, exclusive: it is stopped by SIGSTOP" in status(a)
    frozen(a, redis)
    assert is_still(job) and is_still(started)
    let_go(a, redis)
    grows(a.path("job"))
    grows(a.path("started"))
    assert "cannot be stopped" not in a.log()
    redis.stop()
    wait_until(lambda: {lease["state"] for lease in a.status()["leases"]} == {"unsure"}, "the deadline passes", 20)
    assert is_still(job) and is_still(started)
    last = size(a.path("job"))
    redis.start()
    os.chmod(redis.socket, 0o777)
    assert job.process.wait(20) == started.process.wait(20) == -signal.SIGKILL
    assert size(a.path("job")) == last


def inherits(side, name, bash):
    """A job that inherits a lock of this name; a look has found that, and the leases that are older were looked at, too."""
    shell = f'exec 9>>"{side.host.path(name)}"; flock 9; exec "{bash}" -c \'{JOB}\' "$0"'
    Job(side.host, *side.by(0), "bash", "-c", shell, side.host.path("out"))
    wait_until(lambda: f"t/{name} ({side.host.path(name)}): its lock is held by {UNKNOWN}: it cannot be stopped" in side.host.log(),
               "the log says so", 20)


@user
def test_one_that_inherited_it_is_named_at_once(sides, shown):
    """The process that took it has ended, and nothing shows the next holder: it cannot be stopped, which the log and status say long before an
    outage. They do not complain of unused and ordinary locks."""
    a, bash = sides[0].host, secret(shown, "bash")
    start(sides[0], "ordinary", "flock", a.path("g"), "bash", "-c", JOB)
    shared, unused = sides[0].agent("shared"), sides[0].agent("unused")
    assert shared.do("flock 0 sh") == "ok" and unused.do("flock 0 ex") == "ok" and unused.do("flock 0 un") == "ok"
    before = status(a)
    assert "CANNOT" not in before and CANNOT not in before
    inherits(sides[0], "f", bash)
    assert re.search(rf"held by {UNKNOWN}, exclusive: it CANNOT BE STOPPED", status(a))
    for name in "hi":  # other looks
        inherits(sides[0], name, bash)
    assert a.log().count("its lock is held by") == 3 and status(a).count("CANNOT BE STOPPED") == 3
    assert a.log().count(f"t/f ({a.path('f')}): its lock is held by") == 1


@user
def test_another_users_process_is_named(sides):
    """As through sudo: the process that took the lock belongs to another user by now."""
    a = sides[0].host
    started = Job(a, "bash", "-c", f'exec 9>>"{a.path("f")}"; flock 9; echo held; read; exec sleep 1000').held()
    # A user cannot become another one without a setuid program: root hands the lock over in its place.
    fd = copy_of(started.pid, 9)
    heir = subprocess.Popen(["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "sleep", "1000"], pass_fds=[fd])
    os.close(fd)
    try:
        started.kill()
        wait_until(lambda: "it cannot be stopped" in a.log(), "the log says so", 20)
        assert "CANNOT BE STOPPED" in status(a)
    finally:
        heir.kill()
        heir.wait()
    wait_until(lambda: "CANNOT BE STOPPED" not in status(a), "it is gone", 20)


def test_a_rule_may_refuse_them(sides, shown):
    """What asks is a copy of flock(1) that may not be read. Also where the shared page would let it in without a question, since a lease is
    open. All other programs have the lock, also again and again."""
    a, flock = sides[0].host, secret(shown, "flock")
    write_text(a.config, text_of(a.config).replace('name = "t";', 'name = "t"; unstoppable = "refuse";'))
    a.cli("reload")
    agent = sides[0].agent("f")
    for _ in range(2):
        done = a.run(*sides[0].by(0), "env", flock, a.path("f"), "true")
        if sides[0].users or not a.inside:
            assert done.returncode == 0, done.stderr  # root's keeper may look into it
        else:
            assert done.returncode != 0 and "the keeper may not look into this process" in done.stderr, done.stderr
            assert 'unstoppable = "refuse"' in done.stderr
        assert agent.do("flock 0 ex") == "ok" and agent.do("flock 0 un") == "ok"
        assert a.run(*sides[0].by(0), "flock", a.path("f"), "true").returncode == 0
