"""
Programs and keepers with another root directory, or mount namespace, than the other side: they may see one file under two
paths. A lock on a path that the page calls protected has a lease, or fails with a line; never the kernel lock alone.
"""
import os
import subprocess

import pytest
from harness import netted, wait_until
from harness.filesystems import MOUNTED, Ground
from jobs import outage
from keepers import is_busy, kill_keeper, leases

pytestmark = pytest.mark.root("needs mounts, and so root")

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
    """It is refused, unless a lease of this very file is there (by the page)."""
    host = make_host("a", lease="ttl_ms = 3000; linger_ms = 60000;")
    open(host.path("f"), "w").close()
    status, err, count = lock(host, *jail)
    assert (status, count) == (71, None)
    line, = [l for l in err.splitlines() if l.startswith("dflock:")]
    assert host.path("f") in line and jail[-1] + host.path("f") in line and "root directory" in line
    assert lock(host) == lock(host, *jail) == (0, "", 1)


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


# --- a mount that is gone ---

# Opens FILE, has all of its mount unmounted, and locks the descriptor with the words that follow.
ADRIFT = 'exec 9<>"$1" && umount -l "$2" && shift 2 && readlink /proc/self/fd/9 && exec "$@"'
FLOCK = ["flock", "-n", "9"]
LEASE = "ttl_ms = 3000; linger_ms = 60000;"
WAYS = {"preload": lambda host, *words: host.run(*words), "net": lambda host, *words: netted.run(host, *words)}


@pytest.fixture
def adrift(make_host):
    """adrift(kind): a host with a rule for all of a file system, and another host; lock(way, name): what the program said that locks after
    umount -l."""
    made = []

    def make(kind):
        ground = Ground(kind)
        at = ground.mounts[-1]
        a, b = make_host("a", rules='{ tree = "%s"; name = "t"; }' % at, lease=LEASE), make_host("b", lease=LEASE).init()
        made.append((a, ground))
        a.files = at
        open(a.path("f"), "w").close()

        def lock(way, name="f"):
            words = FLOCK if way == "preload" else ["env", "-i", *FLOCK]
            done = WAYS[way](a, "sh", "-c", ADRIFT, "-", a.path(name), at, *words)
            assert done.stdout == f"/{name}\n", done
            return done
        return a, b, at, lock

    yield make
    for host, ground in made:
        host.stop()  # nothing may be open there any more
        subprocess.run(["umount", "-l", ground.mounts[-1]], stderr=subprocess.DEVNULL)
        ground.end()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", MOUNTED)
def test_a_file_that_only_its_gone_mount_named_is_refused(adrift, kind, way):
    a, b, at, lock = adrift(kind)
    done = lock(way)
    assert done.returncode == 71 and len([l for l in done.stderr.splitlines() if "its mount is gone" in l]) == 1, done


@pytest.mark.parametrize("how", ["removed", "nested", "elsewhere"])
def test_a_mount_may_go_in_other_ways(adrift, how):
    """The file is removed before; its mount lies below the one that goes; it goes in the program's own mount namespace."""
    a, b, at, _ = adrift("tmpfs")
    where, before, inside = at, [], lambda pid: []
    if how == "nested":
        where = a.path("nested")
        os.mkdir(where)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", where], check=True)
        assert a.run("flock", "-n", os.path.join(where, "g"), "true").returncode == 0
    elif how == "elsewhere":
        before, inside = ["unshare", "--mount"], lambda pid: ["nsenter", f"--mount=/proc/{pid}/ns/mnt"]
    program = a.popen(*before, "sh", "-c", 'exec 9<>"$1"; echo opened; read line; exec flock -n 9', "-", os.path.join(where, "f"),
                      stdin=subprocess.PIPE)
    assert program.stdout.readline() == "opened\n"
    if how == "removed":
        os.unlink(os.path.join(where, "f"))
    subprocess.run([*inside(program.pid), "umount", "-l", at], check=True)
    _, err = program.communicate("\n", timeout=60)
    assert program.returncode == 71 and "its mount is gone" in err, err


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", MOUNTED)
def test_a_file_that_the_keeper_knows_keeps_its_name(adrift, redis, kind, way):
    """Both hosts have it shared; the program that wants it exclusively after umount -l would get the kernel's lock. The mount has gone while
    another lock is held: the next keeper has the lease, the holder is frozen in an outage, and the lease ends with the lock."""
    a, b, at, lock = adrift(kind)
    first, other, holder = a.opened("f", "flock 0 sh nb"), b.opened("f", "flock 0 sh nb"), a.opened("g", "flock 0 ex nb")
    assert first.do("flock 0 un") == "ok"
    assert lock(way).returncode == 1
    assert other.do("flock 0 un") == "ok"
    kill_keeper(a)
    assert is_busy(b, "g")
    outage(a, redis, [holder.pid])
    assert holder.do("flock 0 un") == "ok"
    wait_until(lambda: not is_busy(b, "g"), "the lease has ended")


# Opens FILE by its handle after all has been forgotten that was known of MOUNT; locks as above. The device stays the same.
BY_HANDLE = """
import ctypes, os, subprocess, sys
path, at = sys.argv[1:3]
libc, handle = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(b"\\x80", 136)
assert libc.name_to_handle_at(-100, path.encode(), handle, ctypes.byref(ctypes.c_int()), 0) == 0
device, = (line.split()[0] for line in open("/proc/mounts") if line.split()[1] == at)
kept = os.open(device, os.O_RDONLY)
while subprocess.run(["umount", at], stderr=subprocess.DEVNULL).returncode: # the keeper keeps the file of the attempt before open for a while
    pass
subprocess.run(["mount", device, at], check=True)
os.dup2(libc.open_by_handle_at(os.open(at, os.O_RDONLY), handle, os.O_RDWR), 9)
print(os.readlink("/proc/self/fd/9"), flush=True)
os.execvp(sys.argv[3], sys.argv[3:])
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_was_opened_by_its_handle_is_refused(make_host, way):
    ground = Ground("ext4")
    a = make_host("a", rules='{ tree = "%s"; name = "t"; }' % ground.path).init()
    try:
        path = os.path.join(ground.path, "f")
        open(path, "w").close()
        words = FLOCK if way == "preload" else ["env", "-i", *FLOCK]

        def refused():  # unless another process has looked at the path just now, and the kernel knows it
            done = WAYS[way](a, "python3", "-c", BY_HANDLE, path, ground.path, *words)
            if done.stdout == path + "\n":
                return False
            assert (done.returncode, done.stdout) == (71, "/\n") and "opened by its handle" in done.stderr, done
            return True

        wait_until(refused, "the kernel knows no path of it", 60)
    finally:
        a.stop()
        ground.end()


def test_what_no_rule_has_covered_stays_unprotected(make_host):
    """A file of another file system without a mount, and a memfd: their locks are the kernel's, and no keeper is asked."""
    a, other = make_host("a"), Ground("tmpfs")
    try:
        done = a.run("sh", "-c", ADRIFT, "-", os.path.join(other.path, "x"), other.path, *FLOCK)
    finally:
        other.end()
    assert (done.returncode, done.stdout) == (0, "/x\n"), done
    memory = "import fcntl, os; fcntl.flock(os.memfd_create('m'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    assert a.run("python3", "-c", memory).returncode == 0
    assert leases(a) == []
