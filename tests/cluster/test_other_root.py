"""
Programs and keepers with another root directory, or mount namespace, than the other side: they may see one file under two
paths. A lock on a path that the page calls protected has a lease, or fails with a line; never the kernel lock alone.
"""
import os
import subprocess

import pytest
from harness import netted, wait_until
from harness.filesystems import Ground
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


# --- a mount that is gone ---

# Opens FILE, has all of its mount unmounted, and locks the descriptor with the words that follow.
ADRIFT = 'exec 9<>"$1" && umount -l "$2" && shift 2 && readlink /proc/self/fd/9 && exec "$@"'
FLOCK = ["flock", "-n", "9"]
WAYS = {"preload": lambda host, *words: host.run(*words), "net": lambda host, *words: netted.run(host, *words)}


@pytest.fixture
def adrift(make_host, folder):
    """adrift(kind): a host with a rule for all of a file system, and another host; lock(way, name): what the program said that locks after
    umount -l."""
    grounds = []

    def make(kind, **options):
        grounds.append(Ground(kind, os.path.join(folder, kind)))
        at = grounds[0].path
        a, b = make_host("a", rules='{ tree = "%s"; name = "t"; }' % at, **options), make_host("b").init()
        with open(os.path.join(at, "f"), "w"):
            pass

        def lock(way, name="f", of=at):
            words = FLOCK if way == "preload" else ["env", "-i", *FLOCK]
            done = WAYS[way](a, "sh", "-c", ADRIFT, "-", os.path.join(of, name), at, *words)
            assert done.stdout == f"/{name}\n", done
            return done
        return a, b, at, lock

    yield make
    for ground in grounds:
        wait_until(lambda: subprocess.run(["umount", "-l", ground.path], stderr=subprocess.DEVNULL).returncode == 0 or
                   not os.path.ismount(ground.path), "it is unmounted")
        for where in ground.mounts[1:]:
            subprocess.run(["umount", "-l", where], check=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["ext4", "tmpfs", "overlay", "btrfs", "fuse"])
def test_a_file_that_only_its_gone_mount_named_is_refused(adrift, kind, way):
    a, b, at, lock = adrift(kind)
    done = lock(way)
    assert done.returncode == 71 and len([l for l in done.stderr.splitlines() if "its mount is gone" in l]) == 1, done


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["tmpfs", "overlay", "btrfs", "fuse"])
def test_a_file_that_the_keeper_knows_keeps_its_name(adrift, kind, way):
    """One program holds it shared; so does the one that locks after its mount is gone, and the other host gets no lock."""
    a, b, at, lock = adrift(kind)
    holder = a.agent()
    assert holder.do(f"open 0 {at}/f rw") == holder.do("flock 0 ex nb") == "ok"
    assert lock(way).returncode == 1
    assert holder.do("flock 0 un") == holder.do("flock 0 ex nb") == "ok"
    assert b.run("flock", "-n", b.path("f"), "true").returncode == 1


def test_what_no_rule_has_covered_stays_unprotected(adrift, folder):
    """A file of another file system without a mount, and a memfd: their locks are the kernel's, and no keeper is asked."""
    a, b, at, lock = adrift("tmpfs")
    asked = a.status()["calls"] if "calls" in a.status() else None
    other = Ground("tmpfs", os.path.join(folder, "other"))
    try:
        done = a.run("sh", "-c", ADRIFT, "-", os.path.join(other.path, "x"), other.path, *FLOCK)
    finally:
        other.end()
    assert (done.returncode, done.stdout) == (0, "/x\n"), done
    memory = "import fcntl, os; fcntl.flock(os.memfd_create('m'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    assert a.run("python3", "-c", memory).returncode == 0
    assert leases(a) == []
