"""
Which runtime directory is whose, without DFLOCK_RUNTIME_DIR: all processes of a user find the same one, whatever other
users make below /dev/shm. In a mount namespace of the test's own.
"""
import json
import os
import shutil
import subprocess
import tempfile

import pytest
from common import Outcome, WORDS, refused
from harness import Apart, Host, wait_until
from harness.host import CLI, KEEPER, SHIM

NOBODY = 65534
USER = 31977  # of nobody on the machine
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs other users and mounts, and so root")


class Ground:
    """A machine with one configuration; everybody can run the programs, and lock the files."""

    def __init__(self, redis, folder, shown):
        self.redis, self.apart = redis, Apart(folder)
        self.host = Host(redis, "a", folder, foreground=False, lease="ttl_ms = 500; idle_ms = 0;")
        self.programs = {p: shutil.copy(p, shown) for p in (SHIM, KEEPER, CLI)}
        os.chmod(os.path.join(folder, "redis.sock"), 0o777)
        os.chmod(shown, 0o755)
        os.chmod(folder, 0o755)
        os.chmod(self.host.files, 0o777)

    def delete(self):
        self.apart.delete()
        self.host.stop()

    def words(self, uid=0, before=()):
        change = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
        return [*self.apart.inside, *change, *before]

    def env(self, **more):
        env = {**self.host.env(), "HOME": "/nonexistent", **more}
        if "DFLOCK_RUNTIME_DIR" not in more:
            del env["DFLOCK_RUNTIME_DIR"]
        return env

    def start(self, *words, uid=0, before=(), **environment):
        env = self.env(LD_PRELOAD=self.programs[SHIM], **environment)
        return subprocess.Popen([*self.words(uid, before), *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def begin(self, uid=0, name="f", **more):
        path = self.host.path(name)
        with open(path, "a"):
            os.chmod(path, 0o666)
        return self.start("flock", "-n", path, "true", uid=uid, **more)

    @staticmethod
    def end(process):
        _, err = process.communicate(timeout=60)
        lines = [l for l in err.splitlines() if l.startswith("dflock:")]
        assert len(lines) <= 1, lines
        return Outcome(WORDS[process.returncode], "".join(lines), 0)

    def lock(self, uid=0, **more):
        return self.end(self.begin(uid, **more))

    def works(self, uid=0, **more):
        wait_until(lambda: self.lock(uid, **more).word == "ok", f"uid {uid} gets a lock")

    def cli(self, *words, uid=0, before=(), **environment):
        return subprocess.run([*self.words(uid, before), self.programs[CLI], *words], env=self.env(LD_PRELOAD="", **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)

    def where(self, uid=0, **more):
        """(runtime directory, pid) of the keeper that programs of this user find."""
        done = self.cli("status", "--json", uid=uid, **more)
        assert done.returncode == 0, done.stderr
        keeper = json.loads(done.stdout)
        return keeper["runtime_dir"], keeper["pid"]

    def take(self, name, uid=NOBODY):
        """Somebody makes that first."""
        self.apart.sh(f"setpriv --reuid={uid} --regid={uid} --clear-groups mkdir {name}")

    def list(self):
        return [l for l in self.apart.sh("ls /dev/shm").split() if l.startswith("dflock-") and "test" not in l]


@pytest.fixture
def ground(redis, folder):
    with tempfile.TemporaryDirectory(prefix="dflock-test-") as shown:
        ground = Ground(redis, folder, shown)
        yield ground
        ground.delete()


def test_nobody_is_in_the_way(ground):
    """The control, and what an earlier version left is used."""
    ground.apart.sh(f"mkdir -m 0700 /dev/shm/dflock-{USER}; chown {USER} /dev/shm/dflock-{USER}")
    for uid in (0, USER):
        ground.works(uid)
        assert ground.where(uid)[0] == f"/dev/shm/dflock-{uid}"
    assert sorted(ground.list()) == ["dflock-0", f"dflock-{USER}"]


@pytest.mark.parametrize("uid", [0, USER])
def test_somebody_took_the_name(ground, uid):
    """The lock works, and when the name is free again, or others are taken, everybody still finds the same keeper."""
    ground.take(f"/dev/shm/dflock-{uid}")
    ground.works(uid)
    found = ground.where(uid)
    assert found[0].startswith(f"/dev/shm/dflock-{uid}.")
    done = ground.cli("doctor", uid=uid)
    assert f"/dev/shm/dflock-{uid} belongs to uid {NOBODY}: another name is used instead" in done.stdout + done.stderr
    for name in ("", ".", ".0", ".00000000", ".~", "1"):
        if name:
            ground.take(f"/dev/shm/dflock-{uid}{name}")
        ground.works(uid)
        assert ground.where(uid) == found
    ground.apart.sh(f"rmdir /dev/shm/dflock-{uid}")
    ground.works(uid)
    assert ground.where(uid) == found
    assert not any("belongs to" in l for l in ground.cli("doctor", uid=uid).stdout.splitlines())


@pytest.mark.parametrize("what", ["touch $1", "ln -s /dev/shm $1", "ln -s nowhere $1", "mkdir $1; mount -t tmpfs -o mode=0700 tmpfs $1",
                                  "mkdir -m 0777 $1", "mkfifo $1"])
def test_what_else_may_be_there(ground, what):
    """Also what looks like root's: a user may mount a server of his own, which can show any owner."""
    ground.apart.sh(what, "/dev/shm/dflock-0")
    ground.works()
    found = ground.where()
    assert found[0].startswith("/dev/shm/dflock-0.")
    ground.works()
    assert ground.where() == found


def test_many_at_once(ground):
    """Of those who choose at the same time all find the same one afterwards, and what they locked excludes."""
    ground.take("/dev/shm/dflock-0")
    for process in [ground.begin(name=f"f{i}") for i in range(12)]:
        ground.end(process)
    ground.works()
    found = ground.where()
    assert found[0] == "/dev/shm/" + min(n for n in ground.list() if n != "dflock-0")
    held = ground.start("sh", "-c", f"exec 9>{ground.host.path('f')}; flock 9 && echo got && exec sleep 100")
    assert held.stdout.readline() == "got\n"
    outcomes = [ground.end(process) for process in [ground.begin() for _ in range(12)]]
    assert {o.word for o in outcomes} == {"busy"}
    assert ground.where() == found
    held.kill()
    held.communicate()


def test_a_squatter_at_work(ground):
    """He takes the name and lets it go, all the time: once one was found, everybody finds it."""
    loop = ground.start("sh", "-c", "while :; do mkdir /dev/shm/dflock-0; rmdir /dev/shm/dflock-0; done", uid=NOBODY)
    try:
        for process in [ground.begin(name=f"f{i}") for i in range(8)]:
            ground.end(process)
        ground.works()
        found = {ground.where() for _ in range(10)}
        assert len(found) == 1
    finally:
        loop.kill()
        loop.communicate()


def test_several_siblings(ground):
    """The lowest of ours is the one, in whatever order they were made."""
    ground.take("/dev/shm/dflock-0")
    for name in ("5", "3", "7"):
        ground.apart.sh(f"mkdir -m 0700 /dev/shm/dflock-0.{name}")
    ground.take("/dev/shm/dflock-0.1")
    ground.works()
    assert ground.where()[0] == "/dev/shm/dflock-0.3"


# --- /run/dflock ---


def test_run_dflock(ground):
    """A user's own directory that root made there; root's is made when it is needed; one that is somebody else's does not count."""
    ground.apart.sh(f"mkdir -m 0755 /run/dflock; mkdir -m 0700 /run/dflock/{USER} /run/dflock/{USER + 1}; "
                    f"chown {USER} /run/dflock/{USER}")
    for uid in (USER, 0):
        ground.works(uid)
        assert ground.where(uid)[0] == f"/run/dflock/{uid}"
    ground.works(USER + 1)
    assert ground.where(USER + 1)[0] == f"/dev/shm/dflock-{USER + 1}"


def test_the_system_keeper_comes_first(ground):
    ground.apart.sh(f"mkdir -m 0755 /run/dflock; mkdir -m 0700 /run/dflock/{USER}; chown {USER} /run/dflock/{USER}")
    done = ground.apart.run(ground.programs[KEEPER], "--config", ground.host.config, "--runtime-dir", "/run/dflock/", env=ground.env())
    assert done.returncode == 0, done.stderr
    for uid in (USER, 0):
        ground.works(uid)
    assert ground.where()[0] == "/run/dflock"
    assert not ground.list()


# --- user namespaces ---


def test_a_namespace_does_not_take_roots(ground):
    """`unshare -Ur` and a lock: its uid 0 is not root."""
    outcome = ground.lock(USER, before=["unshare", "-Ur"])
    refused(outcome, "no keeper of this user runs outside of this user namespace.*start dflockd outside, or set DFLOCK_RUNTIME_DIR")
    assert ground.list() == []
    ground.works()
    assert ground.where()[0] == "/dev/shm/dflock-0"


def test_a_namespace_uses_its_users_keeper(ground):
    ground.works(USER)
    found = ground.where(USER)
    for before in (["unshare", "-Ur"], ["unshare", "-U", "--map-user=77"], ["unshare", "-c"]):
        assert ground.lock(USER, before=before).word == "ok"
        assert ground.where(USER, before=before) == found
    assert ground.list() == [f"dflock-{USER}"]


def test_its_holder_is_stopped_by_that_keeper(ground):
    """The keeper outside can stop those inside: so it may serve them."""
    ground.works(USER)
    held = ground.start("sh", "-c", f"exec 9>{ground.host.path('f')}; flock 9 && echo got && exec sleep 100", uid=USER, before=["unshare", "-Ur"])
    assert held.stdout.readline() == "got\n"
    ground.redis.signal(19)
    try:
        def stopped():
            with open(f"/proc/{held.pid}/stat") as f:
                return f.read().rsplit(")", 1)[1].split()[0] in "tT"
        wait_until(stopped, "the holder is frozen")
    finally:
        ground.redis.signal(18)
        held.kill()
        held.communicate()


def test_a_namespace_with_a_directory_of_its_own(ground):
    ground.apart.sh(f"mkdir -m 0700 /run/x; chown {USER} /run/x")
    ground.works(USER, before=["unshare", "-Ur"], DFLOCK_RUNTIME_DIR="/run/x")


def test_a_user_without_a_number(ground):
    """All that is unknown there looks like his own: he is refused, also by name."""
    ground.take(f"/dev/shm/dflock-{NOBODY}")
    ground.take("/dev/shm/x")
    before = ["unshare", "-U"]
    refused(ground.lock(USER, before=before), "has no number in its user namespace")
    refused(ground.lock(USER, before=before, DFLOCK_RUNTIME_DIR="/dev/shm/x"), "has no number in its user namespace")
    ground.works(NOBODY)  # who really is


CONTAINER = """
mount -n --bind "$0" /mnt
mount -n -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p "$0"
mount -n --move /mnt "$0"
until flock -n "$1" true; do sleep 0.1; done
ls -d /dev/shm/dflock-[0-9]*
"""


def test_a_container(ground):
    """A /dev/shm of its own: its root is root there, and needs no other keeper. With its first process all in it end."""
    done = ground.start("unshare", "-Urmp", "--fork", "--kill-child", "--mount-proc", "--propagation=private", "sh", "-ec", CONTAINER,
                        os.path.dirname(ground.host.files), ground.host.path("f"), uid=USER)
    out, err = done.communicate(timeout=60)
    assert out == "/dev/shm/dflock-0\n", err
