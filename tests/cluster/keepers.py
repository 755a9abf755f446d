"""What a host holds, and how a test kills its keeper."""
import contextlib
import json
import os
import signal

import pytest
from harness import netted, text_of, wait_until
from harness.filesystems import Ground
from harness.processes import files_of

LONG = "ttl_ms = 20000;"  # nothing runs out while a test looks
HOLD = "echo held; read line"


def opened(host, name="f", flags="rwc"):
    return host.opened(name, flags=flags)


@pytest.fixture(params=["preload", "net"])
def open_at(request):
    """opened() of a program with the preload, and of a static one under the net: what holds for both is tested once."""
    return opened if request.param == "preload" else netted.opened


@contextlib.contextmanager
def about(row):
    """Within a test that goes through several rows: a row that fails says which row it is."""
    try:
        yield
    except AssertionError as problem:
        raise AssertionError(f"{row}: {problem}") from problem


def held(host, **want):
    """The leases in the host's status that have these values."""
    return [l for l in host.status()["leases"] if all(l[k] == v for k, v in want.items())]


def wanted_elsewhere(host):
    wait_until(lambda: held(host, note="wanted by another host"), "the lease of %s is recalled" % host.name)


def queued(host):
    wait_until(lambda: held(host, note="waits for another host"), f"{host.name} is queued")


def leases(host, name="f", **want):
    return [l for l in host.status().get("leases", [])
            if l["name"] == "t/" + name and all(l[k] == v for k, v in want.items())]


def identity(host, name="f"):
    """What must outlive a keeper: the host, the token and the fence number of a lease."""
    lease, = leases(host, name)
    return host.status()["host"], lease["token"], lease["fence"]


def flock(host, *words, name="f"):
    """flock(1)'s exit status and what was said."""
    done = host.run("flock", "-E", "99", *words, host.path(name), "true")
    return done.returncode, done.stderr


def is_busy(host, name="f"):
    status, said = flock(host, "-n", name=name)
    assert status in (0, 99), said
    return status == 99


def socket_of(host):
    return os.path.join(host.runtime, "keeper.sock")


def kill_keeper(host):
    """kill -9 of the keeper, not of its parent; gives the parent's pid and the new keeper's when it serves."""
    parent, keeper = host.keeper_pids()
    os.kill(keeper, signal.SIGKILL)
    return parent, wait_for_another(host, keeper)


def parent_and_keeper(host, killed):
    """Their pids, also while the keeper only starts; None while there is none, or only one that was killed."""
    for pid in host.keeper_pids():
        try:
            children = text_of(f"/proc/{pid}/task/{pid}/children").split()
        except OSError:
            continue
        if children and int(children[0]) not in killed:
            return pid, int(children[0])
    return None


def serving(host):
    """The pid of the keeper that answers, if one does."""
    done = host.cli("status", "--json", check=False)  # fails if the keeper dies meanwhile
    return json.loads(done.stdout).get("pid") if done.returncode == 0 else None


def wait_for_another(host, keeper):
    return wait_until(lambda: {serving(host)} - {None, keeper}, "another keeper serves", 30).pop()


def both_anew(host, old):
    """[parent, keeper] when both are others than the old ones, and serve."""
    def found():
        pids = host.keeper_pids()
        return pids if len(pids) == 2 and not set(pids) & set(old) and serving(host) == pids[1] else None
    return wait_until(found, "another parent and keeper serve", 30)


def waits(host, name="f"):
    wait_until(lambda: leases(host, name, note="waits for another host"), host.name + " is queued")


@pytest.fixture
def pair(make_host):
    """b, whose keeper runs, and a, whose keeper is started by its programs; the store is open."""
    b = make_host("b", lease=LONG)
    return make_host("a", lease=LONG, foreground=False), b


@pytest.fixture
def on(make_host):
    """on(kind): the ground, and a host that protects its folder."""
    grounds, hosts = [], []

    def make(kind, name="a", more="", **options):
        grounds.append(Ground(kind))
        hosts.append(make_host(name, rules='{ tree = "%s"; name = "t"; %s }' % (grounds[-1].path, more), **options))
        hosts[-1].files = grounds[-1].path
        return grounds[-1], hosts[-1]

    yield make
    for host in hosts:
        host.stop()  # nothing may be open there any more
    for ground in grounds:
        ground.end()


@pytest.fixture
def two_long(make_host):
    return make_host("a", lease=LONG), make_host("b", lease=LONG)


def connected(pid):
    return any(name.startswith("socket:") for name in files_of(pid))
