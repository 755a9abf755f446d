"""
A keeper is killed, and the next one cannot open a file that it has a lease on: the file is forbidden, or no path leads to it, or its
file system does not answer. Its lease stays as long as it is not known that no process holds the lock, and nothing else has to wait.
"""
import errno
import fcntl
import json
import os
import signal
import subprocess

import pytest
from common import agent_with, attempt, is_busy, leases, opened
from harness import BUILD, Job, hanging, wait_until
from harness.filesystems import Ground
from harness.processes import state

LONG = "ttl_ms = 20000; probe_ms = 2000; linger_ms = 300;"
USER = 54321
pytestmark = pytest.mark.root("needs root")
# Locks its first argument, cannot be looked into by others of its user, and ends with its input.
NOT_DUMPABLE = """
import ctypes, fcntl, sys
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
f = open(sys.argv[1], "a")
fcntl.flock(f, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""

# Each open() of a file of the mount waits until this program ends: a virus scanner that does not answer.
SCANNER = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
group = libc.fanotify_init(4, 0)  # FAN_CLASS_CONTENT
if group < 0 or libc.fanotify_mark(group, 0x11, ctypes.c_uint64(0x10000), -100, sys.argv[1].encode()):  # FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN_PERM
    sys.exit("errno %d" % ctypes.get_errno())
print("on", flush=True)
sys.stdin.readline()
"""


def kill_keeper(host, which=1):
    """kill -9 of the keeper, or of its parent. When the next keeper serves, this is over."""
    pids = host.keeper_pids()
    os.kill(pids[which], signal.SIGKILL)

    def another():
        done = host.cli("status", "--json", check=False)  # fails if it dies meanwhile
        return done.returncode == 0 and json.loads(done.stdout).get("pid", pids[1]) != pids[1]
    wait_until(another, "another keeper serves", 30)


def is_kept(host, name, note):
    """Its lease is there, and status says why it is not given back. (Its state changes each time that is tried.)"""
    wait_until(lambda: [l for l in leases(host, name="t/" + name) if l["state"] != "releasing" and note in l["note"]],
               "the lease is kept, and status says why", 30)


@pytest.fixture
def ordinary(make_host, folder, redis):
    """(b, a): the keeper and all programs of host a are an ordinary user's."""
    b = make_host("b", lease=LONG)
    os.chmod(folder, 0o755)
    os.chmod(redis.socket, 0o777)
    a = make_host("a", lease=LONG, foreground=False, inside=["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"])
    for path in (a.files, a.runtime):
        os.chown(path, USER, USER)
    os.chmod(a.config, 0o644)
    return b, a


def test_a_file_that_may_not_be_opened(ordinary):
    """The kernel's list of locks tells when no process has the lock any more. Others may wait for that."""
    b, a = ordinary
    holder, owner, lender = agent_with(a), agent_with(a, "setlk 0 ex 0 10", "r"), agent_with(a, name="w")
    waiter, other = opened(b, "w"), opened(b, "r")
    for name in "frw":
        os.chmod(a.path(name), 0)
    kill_keeper(a)
    for name in "fr":
        is_kept(a, name, "its file cannot be opened (Permission denied)")
    is_busy(b)
    assert other.do("setlk 0 ex 5 1") == "EAGAIN"
    assert holder.do("flock 0 un") == "ok" and owner.do("setlk 0 un 0 10") == "ok"
    wait_until(lambda: attempt(b).word == "ok" and other.do("setlk 0 ex 5 1") == "ok", "they are given back")
    waiter.say("flock 0 ex")
    wait_until(lambda: leases(a, name="t/w", state="waiting"), "it is recalled, and known to be in use")
    assert waiter.silent() and lender.do("flock 0 un") == "ok"
    assert waiter.heard()[0] == "ok"


def test_a_deleted_file_whose_holder_cannot_be_looked_into(ordinary):
    b, a = ordinary
    holder = Job(a, "/usr/bin/python3", "-c", NOT_DUMPABLE, a.path("f")).held()
    os.unlink(a.path("f"))
    kill_keeper(a)
    is_kept(a, "f", "no path leads to its file, nor does a process that the keeper may look into; a process holds a lock")
    is_busy(b)
    holder.end()
    wait_until(lambda: attempt(b).word == "ok", "it is given back")


@pytest.fixture
def ground(make_host, make_view):
    """(b, a, view): a file system of host a that can be made to hang."""
    b, a = make_host("b", lease=LONG), make_host("a", lease=LONG)
    return b, a, make_view(a.path("dead"), hanging.OPEN)


def test_a_mount_that_is_gone(ground):
    """Every call on it fails with ENOTCONN; the lock is still there."""
    b, a, view = ground
    os.mkdir(b.path("dead"))
    agent_with(a, name="dead/f")
    view.server.kill()
    view.server.wait()
    with pytest.raises(OSError) as failed:
        open(a.path("dead/f")).close()
    assert failed.value.errno == errno.ENOTCONN
    kill_keeper(a)
    is_kept(a, "dead/f", "whether a process holds a lock on it cannot be known")
    assert a.log().count("its lease is kept") == 1
    is_busy(b, "dead/f")


def test_a_mount_that_hangs_when_its_leases_are_taken_up(ground):
    """The other leases go on; when the mount answers again, those of its files go on, too."""
    b, a, view = ground
    os.mkdir(b.path("dead"))
    local, remote = agent_with(a), agent_with(a, name="dead/g")
    view.do("hold")
    kill_keeper(a)
    is_kept(a, "dead/g", "its file system has not answered the keeper")
    is_kept(a, "f", "")
    assert attempt(a, "new").word == "ok" and state(local.pid) == "S"
    is_busy(b)
    is_busy(b, "dead/g")
    view.do("let")
    waiters = opened(b), opened(b, "dead/g")
    for waiter, holder in zip(waiters, (local, remote)):
        waiter.say("flock 0 ex")
        assert waiter.silent() and holder.do("flock 0 un") == "ok"
        assert waiter.heard()[0] == "ok"


@pytest.fixture
def scanned(make_host):
    """(host, files): a host, and a folder of its files that is a mount, on a local file system."""
    host = make_host("a", lease=LONG)
    files = Ground("tmpfs", at=host.path("scanned"))
    yield host, files.path
    host.stop()
    files.end()


def test_a_scanner_that_does_not_let_files_be_opened(scanned):
    """It stops a keeper once: the next one opens no file in its loop, and serves the files of other mounts."""
    host, mount = scanned
    local, held, asking = agent_with(host), agent_with(host, name="scanned/f"), opened(host, "scanned/g")
    keeper = host.keeper_pids()[1]
    with subprocess.Popen(["/usr/bin/python3", "-c", SCANNER, mount], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as scanner:
        assert scanner.stdout.readline() == b"on\n"
        asking.say("flock 0 ex nb")
        wait_until(lambda: host.keeper_pids()[1:] not in ([], [keeper]), "the keeper is killed, and the next one started", 30)
        second = host.keeper_pids()[1]
        wait_until(host.serves, "the next one serves", 30)
        assert asking.heard(60)[0] == "ENOLCK"
        assert attempt(host, "new").word == "ok"
        wait_until(lambda: state(local.pid) == state(held.pid) == "S", "no holder is frozen")
        assert host.keeper_pids()[1] == second
    assert asking.do("flock 0 ex nb") == "ok"


@pytest.mark.parametrize("which", [1, 0], ids=["keeper", "parent"])
def test_killed_while_one_of_its_threads_hangs(ground, which):
    """Such a keeper never ends. The next one does not wait for that, and a program that waits for an answer asks the next one. If the parent was
    killed, the keeper makes room for another pair, which does not wait for its end either."""
    b, a, view = ground
    local, waiting, other = agent_with(a), opened(a, "w"), agent_with(b, name="w")
    asking = opened(a, "dead/g")
    waiting.say("flock 0 ex")
    wait_until(lambda: leases(a, name="t/w", note="waits for another host"), "it is queued")
    view.do("hold")
    asking.say("flock 0 ex")
    keeper = a.keeper_pids()[1]
    view.hangs(keeper)
    kill_keeper(a, which)
    assert which == 0 or state(keeper) == "Z" and "is not waited for" in a.log()
    assert attempt(a, "new").word == "ok" and state(local.pid) == "S"
    is_busy(b)
    wait_until(lambda: leases(a, name="t/w", note="waits for another host"), "the next keeper was asked")
    assert other.do("flock 0 un") == "ok"
    assert waiting.heard()[0] == "ok"
    view.do("let")
    wait_until(lambda: not os.path.exists(f"/proc/{keeper}"), "it has ended, and was reaped")


def test_the_kernel_lock_of_a_probe_of_a_keeper_that_cannot_end(make_host, make_view, tmp_path):
    """The keeper is killed in the moment in which a probe has the kernel lock, and another thread of it hangs in the kernel."""
    taken = str(tmp_path / "taken")
    b, a = make_host("b", lease=LONG), make_host("a", lease=LONG, foreground=False)
    a.inside = ["env", "LD_PRELOAD=" + os.path.join(BUILD, "tests/preload/held.so"), "DFLOCK_TEST_TAKEN=" + taken]
    a.start()
    a.inside = []
    view = make_view(a.path("dead"), hanging.OPEN)
    holder, waiter, asking = agent_with(a), opened(b), opened(a, "dead/g")
    waiter.say("flock 0 ex")
    wait_until(lambda: leases(a, state="waiting"), "it is recalled")
    open(taken, "w").close()
    assert holder.do("flock 0 un") == "ok"
    wait_until(lambda: os.path.exists(taken + ".reached"), "the probe has the kernel lock")

    def is_free():
        with open(a.path("f")) as f:  # without the shim
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                return False
    assert not is_free()
    view.do("hold")
    asking.say("flock 0 ex")
    keeper = a.keeper_pids()[1]
    view.hangs(keeper)
    kill_keeper(a)
    assert os.path.exists(f"/proc/{keeper}")
    os.unlink(taken)  # the next keeper has the preload as well
    wait_until(is_free, "it was let go of")
    assert waiter.heard()[0] == "ok"
