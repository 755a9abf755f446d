"""
Which runtime directory is whose, without DFLOCK_RUNTIME_DIR: all processes of a user find the same one, whatever other
users make below /dev/shm. In a mount namespace of the test's own.
"""
import os
import signal

import pytest
from common import refused
from harness import wait_until
from harness.host import KEEPER
from harness.processes import state
from machine import NOBODY, USER

pytestmark = pytest.mark.root("needs other users and mounts, and so root")


def test_no_other_user_is_in_the_way(machine):
    """The control, and what an earlier version left is used."""
    machine.apart.sh(f"mkdir -m 0700 /dev/shm/dflock-{USER}; chown {USER} /dev/shm/dflock-{USER}")
    for uid in (0, USER):
        machine.works(uid)
        assert machine.where(uid)[0] == f"/dev/shm/dflock-{uid}"
    assert sorted(machine.list()) == ["dflock-0", f"dflock-{USER}"]


@pytest.mark.parametrize("uid", [0, USER])
def test_another_user_took_the_name(machine, uid):
    """The lock works, and when the name is free again, or others are taken, all processes still find the same keeper."""
    machine.take(f"/dev/shm/dflock-{uid}")
    machine.works(uid)
    found = machine.where(uid)
    assert found[0].startswith(f"/dev/shm/dflock-{uid}.")
    done = machine.cli("doctor", uid=uid)
    assert f"/dev/shm/dflock-{uid} belongs to uid {NOBODY}: another name is used instead" in done.stdout + done.stderr
    for name in ("", ".", ".0", ".00000000", ".~", "1"):
        if name:
            machine.take(f"/dev/shm/dflock-{uid}{name}")
        machine.works(uid)
        assert machine.where(uid) == found
    machine.apart.sh(f"rmdir /dev/shm/dflock-{uid}")
    machine.works(uid)
    assert machine.where(uid) == found
    assert not any("belongs to" in l for l in machine.cli("doctor", uid=uid).stdout.splitlines())


@pytest.mark.parametrize("what", ["touch $1", "ln -s /dev/shm $1", "ln -s nowhere $1", "mkdir $1; mount -t tmpfs -o mode=0700 tmpfs $1",
                                  "mkdir -m 0777 $1", "mkfifo $1"])
def test_what_else_may_be_there(machine, what):
    """Also what looks like root's: a user may mount a server of its own, which can show any owner."""
    machine.apart.sh(what, "/dev/shm/dflock-0")
    machine.works()
    found = machine.where()
    assert found[0].startswith("/dev/shm/dflock-0.")
    machine.works()
    assert machine.where() == found


def test_many_at_once(machine):
    """Processes that choose at the same time all find the same directory afterwards, the lowest of ours, and their locks exclude each other."""
    machine.take("/dev/shm/dflock-0")
    for process in [machine.begin(name=f"f{i}") for i in range(12)]:
        machine.end(process)
    machine.works()
    found = machine.where()
    assert found[0] == "/dev/shm/" + min(n for n in machine.list() if n != "dflock-0")
    held = machine.holding()
    outcomes = [machine.end(process) for process in [machine.begin() for _ in range(12)]]
    assert {o.word for o in outcomes} == {"busy"}
    assert machine.where() == found
    held.kill()
    held.communicate()


def test_a_squatter_at_work(machine):
    """Another user takes the name and lets it go, all the time: once a directory was found, all processes find it."""
    loop = machine.start("sh", "-c", "while :; do mkdir /dev/shm/dflock-0; rmdir /dev/shm/dflock-0; done", uid=NOBODY)
    try:
        for process in [machine.begin(name=f"f{i}") for i in range(8)]:
            machine.end(process)
        machine.works()
        found = {machine.where() for _ in range(10)}
        assert len(found) == 1
    finally:
        loop.kill()
        loop.communicate()


# --- /run/dflock ---


def test_run_dflock(machine):
    """Root made the user's directory there. Root's own is made when it is needed. Another user's directory does not count. A system keeper comes
    first."""
    machine.apart.sh(f"mkdir -m 0755 /run/dflock; mkdir -m 0700 /run/dflock/{USER} /run/dflock/{USER + 1}; "
                     f"chown {USER} /run/dflock/{USER}")
    for uid in (USER, 0):
        machine.works(uid)
        assert machine.where(uid)[0] == f"/run/dflock/{uid}"
    machine.works(USER + 1)
    assert machine.where(USER + 1)[0] == f"/dev/shm/dflock-{USER + 1}"
    done = machine.apart.run(KEEPER, "--config", machine.host.config, "--runtime-dir", "/run/dflock/", env=machine.env())
    assert done.returncode == 0, done.stderr
    for uid in (USER, 0):
        machine.works(uid)
        assert machine.where(uid)[0] == "/run/dflock"


# --- user namespaces ---


def test_a_namespace_uses_its_users_keeper(machine):
    """`unshare -Ur` and a lock: its uid 0 is not root. The keeper outside can stop those inside: so it may serve them."""
    refused(machine.lock(USER, before=["unshare", "-Ur"]),
            "no keeper of this user runs outside of this user namespace.*start dflockd outside, or set DFLOCK_RUNTIME_DIR")
    assert machine.list() == []
    machine.works(USER)
    found = machine.where(USER)
    for before in (["unshare", "-Ur"], ["unshare", "-U", "--map-user=77"], ["unshare", "-c"]):
        assert machine.lock(USER, before=before).word == "ok"
        assert machine.where(USER, before=before) == found
    assert machine.list() == [f"dflock-{USER}"]
    held = machine.holding(uid=USER, before=["unshare", "-Ur"])
    machine.redis.signal(signal.SIGSTOP)
    try:
        wait_until(lambda: state(held.pid) in "tT", "the holder is frozen")
    finally:
        machine.redis.signal(signal.SIGCONT)
        held.kill()
        held.communicate()
    machine.works()
    assert machine.where()[0] == "/dev/shm/dflock-0"
    machine.apart.sh(f"mkdir -m 0700 /run/x; chown {USER} /run/x")
    machine.works(USER, before=["unshare", "-Ur"], DFLOCK_RUNTIME_DIR="/run/x")


def test_a_user_without_a_number(machine):
    """All unknown users look like the program's own there: it is refused, also by name."""
    machine.take(f"/dev/shm/dflock-{NOBODY}")
    machine.take("/dev/shm/x")
    before = ["unshare", "-U"]
    refused(machine.lock(USER, before=before), "has no number in its user namespace")
    refused(machine.lock(USER, before=before, DFLOCK_RUNTIME_DIR="/dev/shm/x"), "has no number in its user namespace")
    machine.works(NOBODY)  # who really is


CONTAINER = """
mount -n --bind "$0" /mnt
mount -n -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p "$0"
mount -n --move /mnt "$0"
until flock -n "$1" true; do sleep 0.1; done
ls -d /dev/shm/dflock-[0-9]*
"""


def test_a_container(machine):
    """A /dev/shm of its own: its root is root there, and needs no other keeper. With its first process all in it end."""
    done = machine.start("unshare", "-Urmp", "--fork", "--kill-child", "--mount-proc", "--propagation=private", "sh", "-ec", CONTAINER,
                        os.path.dirname(machine.host.files), machine.host.path("f"), uid=USER)
    out, err = done.communicate(timeout=60)
    assert out == "/dev/shm/dflock-0\n", err
