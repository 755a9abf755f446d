"""
Service managers without systemd: the files of docs/operating.md, taken from the page and run as they stand there, on a machine of the test's
own (machines.py), with runit's runsv and with Debian's start-stop-daemon, as sysvinit runs it.
"""
import os
import re
import signal

import pytest
from harness import text_of, wait_until
from harness.host import ROOT

from installed import needs
from machines import Machine

FILES = dict(re.findall(r"^```sh (/\S+)\n(.*?)^```$", text_of(os.path.join(ROOT, "docs/operating.md")), re.M | re.S))
RULES = 'protect = ( { path = "/srv/*"; } );'
SERVICE = "/etc/sv/dflock"
INIT = "/etc/init.d/dflock"
HELD = 'exec 9>/srv/f && flock 9 && echo held && while read -r line; do flock 9 && echo "$line"; done'


@pytest.fixture
def machine(redis, folder):
    os.chmod(folder, 0o755)
    one = Machine(redis, folder, "a", RULES, lease="ttl_ms = 20000; probe_ms = 5000;")
    one.run("ldconfig")
    yield one
    one.end()


def files(machine, *paths, log=""):
    for path in paths:
        machine.write(path, FILES[path].replace("/var/log/dflock.log", log or "/run/dflock.log"), 0o755)


def ok(machine, *words):
    done = machine.run(*words)
    assert done.returncode == 0, done
    return done.stdout


def is_there(machine):
    return '"pid"' in machine.run("dflock", "status", "--json").stdout


def keepers(machine):
    return [*machine.pids("dflockd-parent"), *machine.pids("dflockd")]


def fence(machine):
    return ok(machine, "dflock", "fence", "/srv/f")


class Holder:
    """A job that holds /srv/f, and locks it again when it is told a word: then a keeper has answered, or its page."""

    def __init__(self, machine):
        self.machine = machine
        self.process = machine.popen("sh", "-c", HELD, env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LD_PRELOAD": "libdflock.so"}, stdin=-1)
        assert self.process.stdout.readline() == "held\n", self.process.stderr.read()
        self.fence = fence(machine)

    def goes_on(self):
        """Under the lease that it had."""
        self.process.stdin.write("on\n")
        self.process.stdin.flush()
        return fence(self.machine) == self.fence and self.process.stdout.readline() == "on\n"

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0


def test_each_file_is_run():
    assert set(FILES) == {f"{SERVICE}/{name}" for name in ("run", "check", "finish")} | {INIT}


@needs("runsv", "runit")
def test_runit(machine):
    files(machine, *(f"{SERVICE}/{name}" for name in ("run", "check", "finish")))
    config = machine.read("/etc/dflock.conf")
    # It cannot start: one line says why, and runsv does not try again and again.
    machine.write("/etc/dflock.conf", "nonsense")
    machine.write(f"{SERVICE}/down", "")
    log = machine.popen("runsv", SERVICE)
    wait_until(lambda: machine.run("sv", "status", SERVICE).returncode == 0, "runsv is there")
    refused = machine.run("sv", "-w", "5", "start", SERVICE)
    assert refused.returncode != 0 and not is_there(machine), refused
    wait_until(lambda: ok(machine, "sv", "status", SERVICE).startswith("down: "), "it stays down")
    assert any("syntax error" in line for line in iter(log.stdout.readline, "")) and not keepers(machine)

    machine.write("/etc/dflock.conf", config)
    ok(machine, "sv", "-w", "30", "start", SERVICE)
    assert is_there(machine), "sv start has returned before programs are served"
    machine.init()
    job, pids = Holder(machine), keepers(machine)
    assert len(pids) == 2

    # Reload, restarted at once, and the supervised process is killed: the job keeps its lock.
    machine.write("/etc/dflock.conf", config.replace("/srv/*", "/srv/?"))
    ok(machine, "sv", "hup", SERVICE)
    wait_until(lambda: '"/srv/?"' in machine.read("/run/dflock/config.kept"), "it was reloaded")
    assert keepers(machine) == pids and job.goes_on()
    ok(machine, "sv", "quit", SERVICE)
    wait_until(lambda: len(keepers(machine)) == 2 and not set(keepers(machine)) & set(pids) and is_there(machine), "others serve")
    assert job.goes_on()

    # Stopped while a lock is held: serves until it ends, or is told once more.
    timeout = machine.run("sv", "-w", "1", "stop", SERVICE)
    assert timeout.returncode != 0 and is_there(machine) and job.goes_on(), timeout
    ok(machine, "sv", "term", SERVICE)
    wait_until(lambda: not keepers(machine), "it has ended at once")
    ok(machine, "sv", "-w", "30", "start", SERVICE)
    assert job.goes_on()
    assert machine.run("sv", "-w", "1", "stop", SERVICE).returncode != 0
    job.end()
    wait_until(lambda: not keepers(machine), "it has ended when the lock did")
    assert ok(machine, "sv", "status", SERVICE).startswith("down: ")


def test_sysvinit(machine):
    log = "/run/dflock.log"
    files(machine, INIT, log=log)
    config = machine.read("/etc/dflock.conf")
    machine.write("/etc/dflock.conf", "nonsense")
    refused = machine.run(INIT, "start")
    assert refused.returncode == 1 and "syntax error" in refused.stderr, refused
    wait_until(lambda: machine.run(INIT, "status").returncode != 0, "it has ended")

    machine.write("/etc/dflock.conf", config)
    ok(machine, INIT, "start")
    assert is_there(machine)
    ok(machine, INIT, "start")
    ok(machine, INIT, "status")
    machine.init()
    job, pids = Holder(machine), keepers(machine)
    machine.write("/etc/dflock.conf", "nonsense")
    refused = machine.run(INIT, "reload")
    assert refused.returncode != 0 and "syntax error" in refused.stderr
    machine.write("/etc/dflock.conf", config)
    ok(machine, INIT, "reload")
    assert keepers(machine) == pids
    ok(machine, INIT, "restart")
    assert not set(keepers(machine)) & set(pids) and job.goes_on()
    job.end()
    ok(machine, INIT, "stop")
    assert not keepers(machine) and machine.run(INIT, "status").returncode != 0


def test_killed_alone(machine):
    """What the page says of SIGKILL: the other one of the two goes on, and a manager that starts another one is told so."""
    files(machine, f"{SERVICE}/run")
    run = machine.popen(f"{SERVICE}/run")
    wait_until(lambda: is_there(machine), "it serves")
    machine.init()
    job = Holder(machine)
    parent, = machine.pids("dflockd-parent")
    os.kill(parent, signal.SIGKILL)
    run.wait(30)
    wait_until(lambda: len(keepers(machine)) == 2 and parent not in keepers(machine) and is_there(machine), "another pair serves")
    assert job.goes_on()
    again = machine.run(f"{SERVICE}/run")
    assert again.returncode == 75 and "another keeper serves" in again.stdout, again
    job.end()
