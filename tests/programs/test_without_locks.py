"""
Programs on which dflock has no effect between hosts, because they make no lock call, or none that decides: what they do instead, as
strace shows it, and that flock(1) around them helps.
"""
import os
import re
import subprocess

import pytest
from harness import Job, wait_until, write_text
from harness.processes import comm

from installed import needs

CALLS = "flock,fcntl,link,linkat"


def locks(host, *command, **more):
    """What the command and all that it starts do to lock: a list of calls."""
    trace = host.path("trace")
    env = {k: v for k, v in host.env().items() if k != "LD_PRELOAD"}
    subprocess.run(["strace", "-f", "-o", trace, "-e", "trace=" + CALLS, *command], env=env, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, **more)
    with open(trace) as f:
        return [line for line in f if re.search(r"LOCK|SETLK|OFD|link(at)?\(", line)]


@needs("start-stop-daemon", "dpkg")
def test_start_stop_daemon(two):
    """It reads the pid file and looks for the process on this machine: another host's daemon does not count."""
    started = []
    for host in two:
        words = ["start-stop-daemon", "--start", "--background", "--make-pidfile", "--pidfile", host.path("pid"), "--exec", "/bin/sleep", "--"]
        assert host.run(*words, "600").returncode == 0
        started.append(int(wait_until(lambda: os.path.exists(host.path("pid")) and open(host.path("pid")).read(), "the pid file is there")))
        wait_until(lambda: comm(started[-1]) == "sleep", "the daemon runs")
        assert host.run(*words, "600").returncode == 1, "on its own machine it excludes"
        assert not host.status()["leases"]
    assert len(set(started)) == 2
    assert locks(two[0], "flock", "-n", two[0].path("f"), "true"), "so that an empty list means something"
    assert locks(two[0], "start-stop-daemon", "--start", "--pidfile", two[0].path("pid"), "--exec", "/bin/sleep", "--", "600") == []


@needs("tsp", "task-spooler")
def test_task_spooler(two):
    """Its queue is a process of this machine, found by a socket; jobs of two machines run at the same time."""
    jobs = []
    for host in two:
        job = Job(host, "sh", "-c", 'export TS_SOCKET="$1" TMPDIR="$2"; tsp -nf sh -c "echo held; exec sleep 600"', "-",
                  host.path("socket"), host.files).held()
        assert not host.status()["leases"]
        jobs.append(job)


@needs("tsp", "task-spooler")
def test_flock_in_a_job_of_task_spooler(pair):
    """The job is a child of the command that queued it, so the preload is there. The queue then waits for the lock."""
    def queue(host):
        return Job(host, "sh", "-c", 'export TS_SOCKET="$1" TMPDIR="$2"; tsp -nf flock "$3" sh -c "echo held; until test -e $4; do sleep 0.02; done"',
                   "-", host.path("socket"), host.files, host.path("f"), host.path("done"))
    first = queue(pair.a).held()
    second = queue(pair.b)
    pair.check_waits(second)
    open(pair.a.path("done"), "w").close()
    open(pair.b.path("done"), "w").close()
    assert second.line() == "held"


@needs("sem", "parallel")
def test_parallel_semaphore(two):
    """It counts links of a file; flock() guards only the counting. Each host has the file in a home of its own."""
    for host in two:
        job = Job(host, "sh", "-c", 'HOME="$1"; export HOME; exec sem -u --fg --id x "echo held; exec sleep 600"', "-", host.files).held()
    calls = locks(two[0], "sh", "-c", 'HOME="$1" exec sem --fg --id y true', "-", two[0].files)
    assert any("flock(" in call for call in calls) and any("link(" in call for call in calls), calls


@needs("sem", "parallel")
def test_flock_around_parallel_semaphore(pair):
    job = Job(pair.a, "flock", pair.a.path("f"), "sem", "-u", "--fg", "--id", "x", "echo held; exec sleep 600").held()
    pair.check_held()
    job.kill()
    wait_until(lambda: not pair.is_busy(), "it is free")


DOVECOT = """base_dir = %s
state_dir = %s
log_path = /dev/stderr
mail_location = maildir:%s
ssl = no
"""


@needs("doveadm", "dovecot-core (not by scripts/install-deps.sh: it starts a server)")
def test_doveadm(two):
    """It runs doveconf, which starts doveadm again, with the variables alone that import_environment names."""
    host = two[0]
    config = host.path("dovecot.conf")

    def preloads():
        """How often the library is opened. doveadm ends with an error then: it serves no mail to root."""
        host.run("strace", "-f", "-o", host.path("trace"), "-e", "trace=openat", "-E", "LD_PRELOAD=" + host.env()["LD_PRELOAD"], "doveadm",
                 "-c", config, "mailbox", "list", "-u", "nobody")
        with open(host.path("trace")) as f:
            return sum("libdflock.so" in line for line in f)

    write_text(config, DOVECOT % (host.files, host.files, host.files))
    assert preloads() == 2, "doveadm and doveconf"
    with open(config, "a") as f:
        f.write("import_environment = $import_environment LD_PRELOAD\n")
    assert preloads() == 3, "and doveadm again"
    said = host.cli("doctor", "doveadm", check=False).stdout
    assert re.search(r"problem: \S+doveadm: it runs doveconf, which cleans the environment", said)
