"""
Jobs under programs that look after them: su, sudo, timeout, a shell with job control. The keeper freezes the job, and these
programs see nothing of it. Where the keeper has to use SIGSTOP, they stop with their job, as they do after any SIGSTOP, and go on
with it.
"""
import os
import shlex
import signal

import pytest
from harness import BUILD, wait_until
from harness.host import SHIM
from harness.processes import comm, stat

from jobs import JOB, end, grows, is_frozen, pid_of, size, state
from test_freeze_programs import Terminal

LEASE = "ttl_ms = 6000; freeze_margin_ms = 2500;"
# Before the words of a keeper that cannot use ptrace().
NO_PTRACE = [os.path.join(BUILD, "tests/agents/older"), "117:EPERM" if os.uname().machine == "aarch64" else "101:EPERM"]
PARENTS = {
    "su": "su root -c {0}",
    "su in su": "su root -c 'su root -c {0}'",
    "sudo": "sudo {0}",
    "sudo in su": "su root -c 'sudo {0}'",
    "timeout": "timeout 600 {0}",
    "a script": "bash -c 'timeout 600 {0}; true' & wait",
}
# Programs that stop with a child that is stopped by a signal. timeout and a script do not.
STOP = [name for name in PARENTS if "su" in name]


def write_job(host):
    """A program that has the lock and writes to a file again and again; su and sudo may take its environment away."""
    path, script = host.path("job.out"), host.path("job.sh")
    with open(script, "w") as f:
        f.write(f"#!/bin/bash\nexport LD_PRELOAD={SHIM} DFLOCK_CONFIG={host.config} DFLOCK_RUNTIME_DIR={host.runtime}\n"
                f"exec flock {host.path('f')} bash -c {shlex.quote(JOB)} job {path}\n")
    os.chmod(script, 0o755)
    return path, script


def start(host, parent):
    path, script = write_job(host)
    process = host.popen("bash", "-c", PARENTS[parent].format(script), start_new_session=True)
    wait_until(lambda: size(path) > 3, "the job runs")
    return process, path


def ancestors(pid, last):
    """From the job's parent up to the process that the test has started."""
    found = []
    while pid != last:
        pid = int(stat(pid)[1])
        assert pid > 1
        found.append(pid)
    return found


def looking_after(pid, last):
    return [p for p in ancestors(pid, last) if comm(p) in ("su", "sudo", "timeout", "bash")]


def stop_and_go(host, redis, path, during=lambda: None):
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in host.log(), "frozen", 40)
    assert is_frozen(path)
    during()
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "the leases stand" in host.log(), "the leases stand", 40)
    grows(path)


def ends(process, path):
    """The job ends, and all processes that wait for it notice."""
    end(process, path)


@pytest.mark.parametrize("parent", PARENTS)
def test_they_see_nothing_of_it(make_host, redis, parent):
    a = make_host("a", lease=LEASE)
    process, path = start(a, parent)
    pid = pid_of(path)
    above = looking_after(pid, process.pid)
    stop_and_go(a, redis, path)
    assert not any(state(p) == "T" for p in above)
    ends(process, path)


@pytest.mark.parametrize("parent", PARENTS)
def test_they_go_on_with_a_job_that_got_sigstop(make_host, redis, parent):
    a = make_host("a", lease=LEASE, inside=NO_PTRACE)
    process, path = start(a, parent)
    pid = pid_of(path)
    above = [p for p in looking_after(pid, process.pid) if comm(p) in ("su", "sudo")]

    def stop():
        assert state(pid) == "T"
        if parent in STOP:
            wait_until(lambda: any(state(p) == "T" for p in above), "one that looks after it stops, too")
    stop_and_go(a, redis, path, stop)
    wait_until(lambda: not any(state(p) == "T" for p in above), "all go on")
    ends(process, path)


def test_one_that_was_stopped_before_stays_so(make_host, redis):
    """Its su was stopped by hand, before the outage."""
    a = make_host("a", lease=LEASE, inside=NO_PTRACE)
    process, path = start(a, "su")
    pid = pid_of(path)
    su, = [p for p in looking_after(pid, process.pid) if comm(p) == "su"]
    os.kill(su, signal.SIGSTOP)
    wait_until(lambda: state(su) == "T", "it is stopped")
    stop_and_go(a, redis, path)
    assert state(su) == "T"
    os.kill(su, signal.SIGCONT)
    ends(process, path)


@pytest.mark.parametrize("parent", ["su", "sudo", "timeout"])
@pytest.mark.parametrize("ptrace", [True, False], ids=["ptrace", "sigstop"])
def test_in_a_terminal(make_host, redis, parent, ptrace):
    """Under an interactive shell; sudo gives its job a terminal of its own, if it is told to (use_pty)."""
    a = make_host("a", lease=LEASE, inside=[] if ptrace else NO_PTRACE)
    path, script = write_job(a)
    terminal = Terminal(a)
    terminal.type(PARENTS[parent].format(script))
    wait_until(lambda: size(path) > 3, "the job runs")
    pid = pid_of(path)
    above = [p for p in ancestors(pid, terminal.pid) if p != terminal.pid]
    stop_and_go(a, redis, path)
    wait_until(lambda: not any(state(p) == "T" for p in above), "all go on")
    if ptrace:
        assert "Stopped" not in terminal.read()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: all(state(p) in ("Z", "gone") for p in above), "all that looked after it end")
    terminal.type("echo still $((40 + 2))")
    terminal.shows("still 42")
    terminal.end()
