"""
Containers: `dflock run` as the first process of namespaces of its own (mounts, processes, and users with other numbers), with the
keeper of the host's system or with one of its own. The host's keeper serves a file that it sees under the same path (a volume), and
refuses others with a line that says what to mount; a container's own keeper needs no file that others see.
"""
import os
import signal
import subprocess

import pytest
from fronted import HOSTILE as USER
from harness import wait_until
from harness.host import CLI
from harness.processes import children

pytestmark = pytest.mark.root("needs namespaces, and so root")

LONG = "ttl_ms = 600000; linger_ms = 50;"
MOUNT = "its path leads the keeper to another file or to none; in a container, mount its folder from the host under the same path, " \
        "or run a keeper in the container"
# What the container does with the folder $F before its job starts; $W is another one.
GROUNDS = {
    "volume": "true",
    "overlay": "mount -t tmpfs x $W && mkdir $W/u $W/w && mount -t overlay -o $O,lowerdir=$F,upperdir=$W/u,workdir=$W/w x $F && "
               "echo changed >>$F/f",
    "tmpfs": "mount -t tmpfs x $F && touch $F/f",
    "elsewhere": "mount --bind $F $W && F=$W",
}
# As an image's first process has it: $1 is a shell's job, whose file is $2.
FIRST = 'f=$F/f; exec "$CLI" run $RUN -- flock -n "$f" sh -c "$JOB"'
HELD = "echo held; read line; exit 7"


@pytest.fixture
def system(make_system, place, folder):
    """A keeper of the host's system. /run/other is a folder that nothing else uses."""
    os.chmod(folder, 0o755)
    subprocess.run([*place.inside, "sh", "-c", "mkdir -m 777 /run/other /run/own"], check=True)
    return make_system(lease=LONG, rules='{ tree = "%s"; name = "t"; }, { tree = "/run/other"; name = "t"; }').wait_up()


class Container:
    def __init__(self, host, ground, uid=0, job=HELD, run="", runtime=None):
        users = ["--user", "--map-root-user"] if uid else []
        self.name = host.path("f")
        with open(self.name, "a"):
            os.chown(self.name, uid, uid)
        env = host.plain_env(F=host.files, W="/run/other", O="userxattr" if uid else "index=off", CLI=CLI, RUN=run, JOB=job,
                             **({"DFLOCK_RUNTIME_DIR": runtime} if runtime else {}))
        words = [*host.inside, *(host.as_user(uid) if uid else ()), "unshare", *users, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                 "sh", "-ec", GROUNDS[ground] + "; " + FIRST]
        self.process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        start_new_session=True)

    def held(self):
        assert self.process.stdout.readline() == "held\n", self.process.communicate()
        return self

    def first(self):
        """Its first process, by the number outside."""
        return children(self.process.pid)[0]

    def end(self, line="go\n"):
        out, err = self.process.communicate(line, timeout=60)
        return self.process.returncode, out, [l for l in err.splitlines() if l.startswith("dflock:")]


@pytest.fixture
def container():
    started = []

    def start(*args, **more):
        started.append(Container(*args, **more))
        return started[-1]
    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def is_free(host):
    return host.run("flock", "-n", host.path("f"), "true").returncode == 0


@pytest.mark.parametrize("uid", [0, USER])
def test_a_volume_and_the_hosts_keeper(system, make_host, container, uid):
    """It excludes the host's own programs (the kernel does) and other hosts; the end of its first process frees it at once."""
    b = make_host("b", lease=LONG)
    inside = container(system, "volume", uid, run="--require=" + system.path("f")).held()
    assert not is_free(b)
    assert system.run("flock", "-n", system.path("f"), "true").returncode == 1
    assert inside.end() == (7, "", [])
    wait_until(lambda: is_free(b), "another host has it")
    inside = container(system, "volume", uid, job="trap '' TERM; echo held; while :; do sleep 0.05; done").held()
    assert not is_free(b)
    os.kill(inside.first(), signal.SIGKILL)
    inside.end()
    wait_until(lambda: is_free(b), "the keeper lives on, and gives it back")


@pytest.mark.parametrize("uid", [0, USER])
def test_a_file_that_the_hosts_keeper_does_not_see(system, container, uid):
    for ground in "overlay", "tmpfs", "elsewhere":
        status, out, lines = container(system, ground, uid).end()
        assert status != 7 and out == "", "the job must not have started"
        assert len(lines) == 1 and MOUNT in lines[0], lines
        assert system.status()["leases"] == []


@pytest.mark.parametrize("uid", [0, USER])
def test_a_keeper_of_its_own(system, make_host, container, uid):
    """Two containers of one image: each has a file of its own, and the lock name is one."""
    b = make_host("b", lease=LONG)
    runtime = "/run/own/keeper"
    own = container(system, "overlay", uid, runtime=runtime + "1", run="--require").held()
    assert not is_free(b)
    status, out, lines = container(system, "overlay", uid, runtime=runtime + "2").end()
    assert (status, out, lines) == (1, "", [])
    assert own.end() == (7, "", [])
    assert is_free(b), "its keeper has given it back before it ended"
    assert container(system, "overlay", uid, runtime=runtime + "2", job="exit 7").end() == (7, "", [])
