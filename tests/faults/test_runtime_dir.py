"""A runtime directory that is not as it should be: each call is refused with a line that says what to do."""
import os
import shutil
import subprocess
import sys

import pytest
from common import Alive, attempt, refused, works
from harness import Host, Job, text_of, wait_until

NOBODY = 65534
needs_root = pytest.mark.root("needs another user, and so root")


@pytest.fixture
def host(redis, folder, host_of):
    """A host without a keeper: the shim starts one, in whatever directory it is told."""
    host = host_of(redis, foreground=False, lease="ttl_ms = 500; idle_ms = 0;")
    with open(host.path("f"), "w"):
        pass
    return host


def both_ways(host, directory, pattern, **more):
    for wait in (False, True):
        outcome = refused(attempt(host, wait=wait, DFLOCK_RUNTIME_DIR=str(directory), **more), pattern)
        assert outcome.seconds < 15


def test_directories_that_will_not_do(host, folder):
    link = os.path.join(folder, "link")
    os.symlink(host.runtime, link)
    for directory, pattern in [
            (link, "is a symbolic link; name the directory itself"),
            (link + "/", "is a symbolic link; name the directory itself"),
            (host.path("f"), "is not a directory; remove it or set DFLOCK_RUNTIME_DIR"),
            ("/proc/self/task", "is not on a tmpfs; mount one there, or set DFLOCK_RUNTIME_DIR"),
            (os.path.join(folder, "none", "below"), "cannot be made: No such file or directory; make it usable"),
            ("run/dflock", "DFLOCK_RUNTIME_DIR must be an absolute path of at most 91 characters, not run/dflock"),
            ("/dev/shm/" + "x" * 90, "DFLOCK_RUNTIME_DIR must be an absolute path of at most 91 characters")]:
        both_ways(host, directory, pattern)
    for mode in 0o770, 0o702, 0o1777:
        os.chmod(host.runtime, mode)
        both_ways(host, host.runtime, "can be written by others; take that away with chmod go-w")
    os.chmod(host.runtime, 0o700)
    if os.geteuid() == 0:
        os.chown(host.runtime, NOBODY, NOBODY)
        both_ways(host, host.runtime, "belongs to uid 65534, not to root or to uid 0, as which this process runs; have it removed, or set "
                                      "DFLOCK_RUNTIME_DIR")
        os.chown(host.runtime, 0, 0)
    works(host)  # as it should be


def test_the_longest_name(redis, folder, host_of):
    """91 bytes: the keeper there serves there, and not in the directory whose name is shorter by one."""
    neighbour, longest = host_of(redis, "n", foreground=False), host_of(redis, "l", foreground=False)
    for host, length in ((neighbour, 90), (longest, 91)):
        os.rmdir(host.runtime)
        host.runtime = os.path.join(folder, "").ljust(length, "x")
        host.start()
    for host in (neighbour, longest):
        assert host.serves() and host.status()["runtime_dir"] == host.runtime


@pytest.fixture
def as_nobody(host, folder, redis):
    """What a user without rights needs to run under the shim: files and a configuration that it can read."""
    os.chmod(folder, 0o755)
    os.chmod(redis.socket, 0o777)
    for path in host.files, host.path("f"):
        os.chmod(path, 0o755)
        os.chown(path, NOBODY, NOBODY)
    return {"before": ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]}


@needs_root
def test_a_user_without_rights(host, folder, as_nobody):
    """A directory of root's would be fine if a keeper of root's served there. In one of its own a keeper is started."""
    both_ways(host, os.path.join(folder, "below"), "cannot be made: Permission denied", **as_nobody)
    for mode in 0o700, 0o755:
        os.chmod(host.runtime, mode)
        both_ways(host, host.runtime, "Permission denied", **as_nobody)
    os.chown(host.runtime, NOBODY, NOBODY)
    wait_until(lambda: attempt(host, **as_nobody).word == "ok", "a keeper is started and grace is over")


LISTEN = f"""
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1])
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
s.listen()
print("listens", flush=True)
sys.stdin.read()
"""


@needs_root
def test_a_keeper_of_another_user(host):
    """In a directory that is in order: the line says whose keeper it is, where, and who asks."""
    path = os.path.join(host.runtime, "keeper.sock")
    with subprocess.Popen([sys.executable, "-c", LISTEN, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        try:
            assert keeper.stdout.readline() == "listens\n"
            both_ways(host, host.runtime, f"the keeper of {host.runtime} runs as uid {NOBODY}, and this process as uid 0; "
                                          "leave DFLOCK_RUNTIME_DIR out, or set it to a directory of this user's")
        finally:
            keeper.kill()


# --- a directory that is full ---


@pytest.fixture
def small(folder):
    """A small tmpfs; fill(bytes) leaves no more room than that."""
    path = os.path.join(folder, "small")
    os.mkdir(path)
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", path], capture_output=True)
    if mount.returncode:
        pytest.skip("may not mount: " + mount.stderr.decode())
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def fill(path, leave=0):
    room = os.statvfs(path)
    with open(os.path.join(path, "filler"), "wb") as f:
        os.posix_fallocate(f.fileno(), 0, room.f_bfree * room.f_bsize - leave)


@pytest.fixture
def small_host(host, small):
    """Its runtime directory is there."""
    os.rmdir(host.runtime)
    host.runtime = small
    return host


def words_below(host, folder):
    """What calls on protected files and on another one meet: each is served, or refused with a line."""
    outcomes = [attempt(host, name) for name in ("f", folder, "f", folder)]
    for outcome in outcomes:
        assert outcome.word == "ok" or refused(outcome, "No space left on device.*make room on|store is in grace"), outcome
    return [outcome.word for outcome in outcomes]


@needs_root
@pytest.mark.parametrize("kilobytes", [0, 64, 400, 800, 1600, 2000])
def test_nearly_full(small_host, small, folder, kilobytes):
    """A keeper serves, or none starts. No program dies of it, then or later, and no keeper."""
    fill(small, leave=kilobytes << 10)
    words = words_below(small_host, folder)
    assert ("ok" in words) == (kilobytes >= 2000), words
    os.unlink(os.path.join(small, "filler"))
    works(small_host)
    assert words_below(small_host, folder) == ["ok"] * 4


@needs_root
def test_full_at_a_reload(small_host, small, folder):
    """The page has had the memory for all rules since it was made. Only the copy for the next keeper cannot be written."""
    works(small_host)
    with Alive(small_host):
        fill(small)
        text = text_of(small_host.config)
        with open(small_host.config, "w") as f:
            more = "".join(f'{{ path = "{folder}/{"x" * 200}{i}"; name = "n{i}"; }}, ' for i in range(3000))
            f.write(text.replace("protect = (", "protect = ( " + more))
        small_host.cli("reload")
        assert small_host.status()["rules"]["count"] == 3001
        assert words_below(small_host, folder) == ["ok"] * 4


HOLD_MORE = """
import errno, fcntl, sys
held = []
for i in range(3000):
    held.append(open(sys.argv[1] + str(i), "w"))
    try:
        fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)
        break
sys.stdin.read()
"""


@needs_root
def test_full(redis, folder, small):
    """No room for another entry in the table of leases: nothing new is granted, since a keeper that starts again would not know of it."""
    a, b = Host(redis, "a", folder, foreground=False, lease="ttl_ms = 3000; linger_ms = 0;"), Host(redis, "b", folder)
    shutil.rmtree(a.runtime)
    a.runtime = small
    try:
        a.start()
        a.init()
        fill(small)
        with Alive(a):
            # It has room for some more entries. Python holds them, until one is refused.
            holder = Job(a, "/usr/bin/python3", "-c", HOLD_MORE, a.path("file"))
            assert "table of leases cannot grow" in holder.line(120) and holder.line() == "ENOLCK"
            refused(attempt(a), "table of leases cannot grow.*is the runtime directory's file system full")
            refused(attempt(a, wait=True), "table of leases cannot grow")
            assert attempt(b, "file0").word == "busy"
            holder.end()
            works(b, "file0")
            works(a)
            os.unlink(os.path.join(small, "filler"))
            works(a, "another")
    finally:
        a.stop()
        b.stop()
