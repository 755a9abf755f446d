"""
Descriptors whose close never ends, and others that no program should send, from users of a system keeper: the keeper serves everybody
else meanwhile, can be stopped, killed and restarted, and what was left behind is bounded and ends when the mount answers.
"""
import ast
import os
import subprocess
import sys
import time

import pytest
from common import attempt
from harness import wait_until
from harness.hanging import FLUSH, OPEN
from harness.system import SYSTEM_DIR, Hanging, Place, SystemHost

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for users and mounts")

HOSTILE, OTHER = 12345, 12346
GRANTED, REFUSED = 1, 4
FRONTS_PER_USER = 4
PUPPET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "puppet.py")


class Puppet:
    def __init__(self, host, uid=HOSTILE, before=()):
        self.host = host
        self.process = subprocess.Popen([*host.inside, *before, *host.as_user(uid, sys.executable, "-B", PUPPET)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env={**host.env(), "LD_PRELOAD": ""}, start_new_session=True)
        self.question = f"question({host.config!r})"

    def do(self, expression):
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        assert "Error" not in said, said
        return ast.literal_eval(said)

    def open(self, path):
        return self.do(f"keep(os.open({path!r}, os.O_RDWR | os.O_CREAT))")

    def connect(self):
        return self.do(f"connect({SYSTEM_DIR!r})")

    def send(self, question, *fds):
        """On a connection of its own, whose number it gives."""
        number = self.connect()
        self.do(f"send({number}, {question}, *{list(fds)!r})")
        return number

    def answer(self, number):
        return self.do(f"answer({number})")

    def kill(self):
        self.process.kill()  # may stay in D until the mounts are gone


@pytest.fixture
def place():
    place = Place()
    yield place
    place.end()


@pytest.fixture
def ground(redis, folder, place):
    """(host, mount, puppet(uid)): a system keeper, a file system that can be made to hang, and clients of it."""
    host = SystemHost(redis, folder, place, rules='{ tree = "%s"; name = "t"; }, { tree = "/run/fuse"; name = "fuse"; }')
    puppets, mounts = [], []

    def mount(name="m"):
        mounts.append(Hanging(place, name))
        return mounts[-1]

    def puppet(*args, **more):
        puppets.append(Puppet(host, *args, **more))
        return puppets[-1]
    try:
        host.init()
        yield host, mount, puppet
    finally:
        for each in puppets:
            each.kill()
        for each in mounts:
            each.end()
        for each in puppets:
            each.process.wait(20)
            each.process.stdin.close()
            each.process.stdout.close()
        host.stop()


def served(host, uid=0, seconds=2.0, name=None):
    """A new lock of this user, soon."""
    name = name or "u%d-%d" % (uid, time.monotonic_ns())
    begun = time.monotonic()
    path = host.path(name)
    with open(path, "a"):
        os.chown(path, uid, uid)
    words = host.as_user(uid) if uid else ()
    got = attempt(host, name, before=[*host.inside, *words])
    assert got.word == "ok", got
    assert time.monotonic() - begun < seconds
    return got


def turns(host):
    """The loop answers, and nobody is frozen."""
    begun = time.monotonic()
    status = host.status()
    assert time.monotonic() - begun < 2
    return status


def fronts(host):
    return host.inhabitants("dflock-front")


def in_state_d(pids):
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as f:
                if f.read().rpartition(")")[2].split()[0] == "D":
                    found.append(pid)
        except OSError:
            pass
    return found


def test_a_close_that_never_ends(ground):
    """FLUSH is not answered, and fifty connections bring such a descriptor: root and another user are served, each in no time."""
    host, mount, puppet = ground
    served(host), served(host, OTHER)
    dead, hostile = mount(), puppet()
    fds = [hostile.open(f"{dead.path}/f{i}") for i in range(5)]
    dead.say(f"hold {FLUSH}")
    before = host.keeper_pids()
    numbers = [hostile.send(hostile.question, fds[i % 5]) for i in range(50)]
    for _ in range(5):
        served(host), served(host, OTHER), turns(host)
    assert hostile.answer(numbers[-1])[0] == REFUSED
    served(host), served(host, OTHER), turns(host)
    assert len(fronts(host)) <= FRONTS_PER_USER + 4
    assert host.keeper_pids() == before
    dead.say(f"let {FLUSH}")
    wait_until(lambda: not in_state_d(fronts(host)), "what was left behind has ended")
    served(host, HOSTILE)


@pytest.mark.parametrize("uid", [HOSTILE, 0])
def test_a_malformed_question_with_it(ground, uid):
    """What is not looked at has to be closed, too: also for the keeper's own user, whom it trusts to mean well."""
    host, mount, puppet = ground
    served(host), served(host, OTHER)
    dead, hostile = mount(), puppet(uid)
    fd = hostile.open(f"{dead.path}/f")
    dead.say(f"hold {FLUSH}")
    before = host.keeper_pids()
    for question in ("b''", "b'x'", f"question({host.config!r}, magic=1)", f"question({host.config!r}, op=7)", f"question({host.config!r}, mode=9)"):
        hostile.send(question, fd)
        served(host), served(host, OTHER), turns(host)
    for count in (2, 250):
        hostile.send(hostile.question, *[fd] * count)
        served(host), served(host, OTHER), turns(host)
    assert host.keeper_pids() == before


def test_more_mounts_than_threads(ground):
    host, mount, puppet = ground
    served(host), served(host, OTHER)
    hostile = puppet()
    for i in range(18):
        dead = mount(f"m{i}")
        fds = [hostile.open(f"{dead.path}/{name}") for name in "ab"]
        dead.say(f"hold {FLUSH}")
        for fd in fds:
            hostile.send(hostile.question, fd)
    other = mount("other")
    for _ in range(3):
        served(host), served(host, OTHER), turns(host)
        theirs = puppet(OTHER)
        assert theirs.answer(theirs.send(theirs.question, theirs.open(f"{other.path}/f")))[0] == GRANTED


def test_the_keeper_can_be_stopped_killed_and_restarted(ground):
    host, mount, puppet = ground
    served(host), served(host, OTHER)
    dead, hostile = mount(), puppet()
    fds = [hostile.open(f"{dead.path}/f{i}") for i in range(4)]
    dead.say(f"hold {FLUSH}")
    for question in (hostile.question, "b'x'"):
        hostile.send(question, fds[0])
    unread = hostile.send(hostile.question, fds[1])
    parent, keeper = host.keeper_pids()
    os.kill(keeper, 9)
    wait_until(lambda: host.keeper_pids()[1:] not in ([], [keeper]) and host.serves(), "the next keeper serves", 3)
    assert host.keeper_pids()[0] == parent
    wait_until(lambda: attempt(host, "again", before=host.inside).word == "ok", "it grants")
    served(host), served(host, OTHER), turns(host)
    hostile.send(hostile.question, fds[2])
    os.kill(parent, 15)
    host.keeper.wait(10)
    assert not host.keeper_pids()
    host.start()
    served(host, seconds=20), served(host, OTHER), turns(host)
    assert unread is not None
