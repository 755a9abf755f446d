"""
Programs and keepers with another root directory, or mount namespace, than the other side: they may see one file under two
paths. A lock on a path that the page calls protected has a lease, or fails with a line; never the kernel lock alone.
"""
import os
import subprocess

import pytest
from keepers import leases

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs mounts, and so root")

# "/" once more, with all that is mounted there: the root directory has the same device and inode.
JAIL = 'mount --make-rprivate / && mount --rbind / "$1" && j=$1 && shift && exec chroot "$j" "$@"'


@pytest.fixture
def jail(folder):
    path = os.path.join(folder, "jail")
    os.mkdir(path)
    return ["unshare", "--mount", "sh", "-c", JAIL, "-", path]


def lock(host, *before):
    """A program that has the lock: (its exit status, what it said, how many leases there were meanwhile)."""
    program = host.popen(*before, "flock", "-n", host.path("f"), "sh", "-c", "echo held; read line", stdin=subprocess.PIPE)
    held = program.stdout.readline() == "held\n"
    count = len(leases(host)) if held else None
    _, err = program.communicate("\n", timeout=20)
    return program.returncode, err, count


def test_a_program_with_another_root(make_host, jail):
    host = make_host("a")
    open(host.path("f"), "w").close()
    status, err, count = lock(host, *jail)
    assert (status, count) == (71, None)
    line, = [l for l in err.splitlines() if l.startswith("dflock:")]
    assert host.path("f") in line and jail[-1] + host.path("f") in line and "root directory" in line


def test_a_program_in_another_mount_namespace(make_host, folder):
    """The protected path is another directory there; the keeper sees the same path."""
    host = make_host("a")
    other = os.path.join(folder, "other")
    os.mkdir(other)
    inside = ["unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "-", other, host.files]
    assert lock(host, *inside) == (0, "", 1)


def test_a_keeper_with_another_root(make_host, jail):
    host = make_host("a", foreground=False)
    host.inside = jail
    host.start()
    host.inside = []
    host.init()
    status, err, count = lock(host)
    assert (status, count) == (0, 1) or (status == 71 and host.path("f") in err), (status, err, count)


def test_a_lease_that_is_there_covers_a_program_with_another_root(make_host, jail):
    """By the page: it is the lease of this very file."""
    host = make_host("a", lease="ttl_ms = 3000; linger_ms = 60000;")
    assert lock(host) == lock(host, *jail) == (0, "", 1)
