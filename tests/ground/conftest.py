"""The matrix: file systems, the users of the keeper and the programs, how many locks."""
import os
import shutil
import sys
import tempfile

import pytest
from harness import Host, host as host_module
from harness.filesystems import MOUNTED, Ground
from harness.system import Place, SystemHost

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))
USERS = (65534, 12345)  # nobody, and one that no file knows
WHO = ("root", "user", "system")


LEASE = "ttl_ms = 4000; freeze_margin_ms = 1500;"
# For thousands of locks, which keep a small machine busy for a while.
LONG_LEASE = "ttl_ms = 15000; freeze_margin_ms = 6000;"


def as_user(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


@pytest.fixture(params=MOUNTED)
def ground(request):
    ground = Ground(request.param)
    yield ground
    ground.end()


@pytest.fixture
def shown(folder, monkeypatch):
    """Programs that every user can run, and a folder that every user can enter."""
    with tempfile.TemporaryDirectory(prefix="dflock-test-", dir="/dev/shm") as shown:
        os.chmod(shown, 0o755)
        os.chmod(folder, 0o755)
        for program, copy in host_module.copy_programs(shown).items():
            monkeypatch.setattr(host_module, program, copy)
        agents = os.path.join(shown, "tests/agents")
        os.makedirs(agents)
        shutil.copy(os.path.join(host_module.BUILD, "tests/agents/agent"), agents)
        monkeypatch.setattr(host_module, "BUILD", shown)
        yield shown


class Side:
    """A host on the ground, and how its programs are started: by(N) are the words before those of the Nth user's."""

    def __init__(self, host, users):
        self.host, self.users = host, users

    def by(self, n):
        return as_user(self.users[n % len(self.users)]) if self.users else []

    def agent(self, name, user=0):
        inside = self.host.inside
        if not os.path.exists(self.host.path(name)):
            with open(self.host.path(name), "w"):
                os.chmod(self.host.path(name), 0o666)  # for each of the users
        self.host.inside = [*inside, *self.by(user)]
        agent = self.host.agent()
        self.host.inside = inside
        assert agent.do(f"open 0 {self.host.path(name)} rwc") == "ok"
        return agent


@pytest.fixture(params=WHO)
def sides(request, ground, redis, folder, shown):
    """Two hosts of that kind whose files are on the ground: other inodes, the same lock names."""
    os.chmod(redis.socket, 0o777)
    made, places = [], []

    def side(name):
        files = os.path.join(ground.path, name)
        os.mkdir(files)
        os.chmod(files, 0o777)
        options = dict(rules='{ tree = "%s"; name = "t"; }' % files, lease=LONG_LEASE if request.node.get_closest_marker("alone") else LEASE)
        if request.param == "system":
            places.append(Place())
            host = SystemHost(redis, folder, places[-1], name=name, **options)
        else:
            user = USERS[0] if request.param == "user" else 0
            host = Host(redis, name, folder, foreground=False, inside=as_user(user) if user else (), **options)
            os.chown(host.runtime, user, user)
            with open(host.log_path, "w"):
                pass
            os.chown(host.log_path, user, user)
            host.start()
        host.files = files
        made.append(host)
        if len(made) == 1:
            host.init()
        return Side(host, USERS if request.param == "system" else ())

    try:
        yield side("a"), side("b")
    finally:
        for host in made:
            host.stop()
        for place in places:
            place.end()
