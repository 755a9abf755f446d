"""A keeper goes by the numbers in /proc: it serves only where these are its own, and programs only whose number it knows."""
import os
import re
import signal
import subprocess

import pytest
from common import attempt, refused, works
from harness import Apart, Deadline, wait_until
from harness.host import CLI, KEEPER
from harness.processes import children, state
from machine import USER

pytestmark = pytest.mark.root("needs namespaces, and so root")

# The first process of a pid namespace starts no keeper, and what it starts ends with it.
OUTER_PROC = ["unshare", "-p", "--fork", "--kill-child", "sh", "-c", '"$@"; exit $?', "sh"]
OWN_PROC = ["unshare", "-p", "--fork", "--kill-child", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh"]
REFUSED = "/proc is that of another pid namespace.*unshare --mount-proc"


@pytest.fixture
def host(redis, host_of):
    host = host_of(redis, foreground=False, lease="ttl_ms = 500; idle_ms = 0;")
    with open(host.path("f"), "w"):
        pass
    return host


def test_the_outer_proc(host):
    done = subprocess.run([*OUTER_PROC, KEEPER, "--foreground"], env=host.plain_env(), capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "/proc is that of another pid namespace" in done.stderr
    refused(attempt(host, before=OUTER_PROC), "no keeper runs, and none can be started: " + REFUSED)
    done = host.cli("doctor", before=OUTER_PROC, check=False)
    assert done.returncode == 1 and "problem: /proc is that of another pid namespace" in done.stdout


# Inside and outside the next process is to be number 950. Only builtins of the shell in between: they make no process.
BY_CHANCE = """
mkfifo "$2/ready" "$2/go"
unshare -p --fork --kill-child sh -c 'echo 949 >/proc/sys/kernel/ns_last_pid; echo >"$2/ready"; read x <"$2/go"; "$1" --foreground; exit $?' sh "$@" &
read x <"$2/ready"
echo 949 >/proc/sys/kernel/ns_last_pid
echo >"$2/go"
wait $!
"""


def test_a_number_that_is_the_same_by_chance(host, folder):
    done = subprocess.run([*OWN_PROC, "sh", "-c", BY_CHANCE, "sh", KEEPER, folder], env=host.plain_env(), stderr=subprocess.PIPE, text=True,
                          timeout=20)
    assert done.returncode == 1
    assert "/proc is that of another pid namespace" in done.stderr


def test_its_own_proc(host):
    """The control: inside it is served by a keeper inside, which a program outside cannot use."""
    inside = subprocess.Popen([*OWN_PROC, "sh", "-c", f'until flock -n {host.path("f")} true; do sleep 0.1; done; echo got; sleep 100'],
                              env=host.env(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert inside.stdout.readline() == "got\n"
        first = children(inside.pid)[0]

        def counted():
            done = host.cli("metrics", before=["nsenter", f"--target={first}", "--pid", "--mount"])
            return int(re.search(r'^dflock_lock_refusals_total{reason="program"} (\d+)', done.stdout, re.M)[1])

        before = counted()
        for _ in range(2):  # also if the page shows the lease
            refused(attempt(host), "the program runs in a pid namespace that the keeper cannot see: run a keeper in its container")
        assert counted() == before + 2
    finally:
        inside.kill()
        inside.communicate()


def test_a_program_inside(host):
    """A keeper outside knows the numbers of those inside: it serves, and stops, them."""
    works(host)
    inside = subprocess.Popen([*OUTER_PROC, "flock", "-n", host.path("f"), "sh", "-c", "echo got; exec sleep 100"],
                              env=host.env(), stdout=subprocess.PIPE, text=True)
    try:
        assert inside.stdout.readline() == "got\n"
        assert attempt(host).word == "busy"
        holders = host.status()["leases"][0]["holders"]
        assert {os.stat(f"/proc/{h['pid']}/ns/pid").st_ino for h in holders} != {os.stat("/proc/self/ns/pid").st_ino}
    finally:
        inside.kill()
        inside.communicate()


@pytest.fixture
def apart(folder):
    apart = Apart(folder)
    yield apart
    apart.delete()


@pytest.mark.parametrize("options, line", [("subset=pid", "/proc/locks cannot be read.*mount /proc without subset=pid"), (None, "/proc does not show this process")])
def test_a_proc_that_shows_too_little(host, apart, options, line):
    apart.sh(f"mount -n -t proc -o {options} proc /proc" if options else "mount -n -t tmpfs tmpfs /proc")
    apart.sh(f"mkdir -m 0700 {host.runtime}")
    refused(attempt(host, before=apart.inside), line)


@pytest.mark.parametrize("uid", [0, USER])
def test_hidepid(machine, uid):
    """A keeper that sees only its own user's processes sees all that it could stop: the holder, and what it started, are frozen."""
    machine.apart.sh("mount -n -t proc -o hidepid=2 proc /proc")
    machine.works(uid)
    held = machine.start("sh", "-c", f"exec 9>{machine.host.path('f')}; flock 9; sleep 100 9>&- & echo $!; wait", uid=uid)
    pids = [held.pid, int(held.stdout.readline())]
    wait_until(lambda: machine.lock(uid).word == "busy", "it has the lock")
    machine.redis.signal(signal.SIGSTOP)
    try:
        wait_until(lambda: all(state(pid) in "tT" for pid in pids), "the holder and its child are frozen")
    except Deadline as e:
        raise Deadline(f"{e}; {pids}\n{machine.cli('status', uid=uid).stdout}\n{machine.apart.sh('ps -ef --forest')}") from e
    finally:
        machine.redis.signal(signal.SIGCONT)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        held.communicate()
