"""`dflock doctor` on the protected paths: is there what the rules name, and what does its file system do with locks?"""
import os
import re
import subprocess

import pytest
from harness import wait_until
from harness.host import CLI

from lines import LOCAL, Doctor, written

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount, and so root")


def doctor(host, *rules):
    """The findings about the rules, in their order."""
    protect(host, *rules)
    return Doctor(host).found[-len(rules):]


def protect(host, *rules):
    written(host, f'store = {{ server = "{host.server}"; }};\nprotect = (\n' + ",\n".join("{ %s }" % r for r in rules) + "\n);\n")
    host.cli("stop")  # it would have read another one


@pytest.fixture
def host(host_of, redis):
    a = host_of(redis, foreground=False)
    a.server = "unix:" + redis.socket
    return a


def test_on_a_tmpfs(host, folder):
    open(host.path("f"), "w").close()
    found = doctor(host, f'path = "{host.path("f")}";', f'path = "{host.path("new")}";', f'path = "{host.files}/*.lock";',
                   f'tree = "{folder}"; name = "t";')
    assert found == [
        ("ok", f"{host.path('f')}: tmpfs{LOCAL}"),
        ("ok", f"{host.path('new')}: does not exist yet; on tmpfs{LOCAL}"),
        ("ok", f"{host.files}/*.lock: tmpfs{LOCAL}"),
        ("ok", f"tree {folder}: tmpfs{LOCAL}"),
    ]


def test_files_with_several_links(host, folder):
    os.mkdir(host.path("d"))
    for name in ("a", "b.lock", "d/c"):
        open(host.path(name), "w").close()
        os.link(host.path(name), os.path.join(folder, os.path.basename(name)))
    open(host.path("d/one"), "w").close()
    rules = f'path = "{host.path("a")}";', f'path = "{host.files}/*.lock";', f'tree = "{host.path("d")}"; name = "t";', 'path = "/none/f";'
    protect(host, *rules)
    found = [text for text in Doctor(host).of("warning") if "link" in text]
    assert [text[:text.index(": a lock by")] for text in found] == [
        f"{rule} (line {line}): 1 file has more than one link, {host.path(name)} for example 2"
        for line, rule, name in ((3, host.path("a"), "a"), (4, f"{host.files}/*.lock", "b.lock"), (5, host.path("d"), "d/c"))]


def test_directories_that_are_not_there(host):
    found = doctor(host, 'path = "/none/f";', 'path = "/none/*.lock";', 'tree = "/none/t";')
    what = "does not exist; is it a typing error, or not mounted?"
    assert found == [
        ("warning", f"/none/f (line 3): the directory /none {what}"),
        ("warning", f"/none/*.lock (line 4): the directory /none {what}"),
        ("warning", f"tree /none/t (line 5): the directory /none/t {what}"),
    ]


def test_what_cannot_be_locked(host):
    fifo = host.path("fifo")
    os.mkfifo(fifo)
    found = doctor(host, 'path = "/proc/version";', f'path = "{fifo}";', 'path = "/dev/null";')
    assert found == [
        ("problem", "/proc/version: proc, no place for lock files; choose another path"),
        ("problem", f"{fifo}: neither a regular file nor a directory: locks on it are not protected; choose another path"),
        ("problem", "/dev/null: neither a regular file nor a directory: locks on it are not protected; choose another path"),
    ]


def test_a_path_behind_a_file(host):
    open(host.path("f"), "w").close()
    found = doctor(host, f'tree = "{host.path("f")}/x"; name = "t";')
    assert found == [("warning", f"tree {host.path('f')}/x (line 3): {host.path('f')}/x cannot be examined: Not a directory")]


def test_on_fuse(host, folder):
    """bindfs passes locks on or not, depending on an option that cannot be seen from outside."""
    data, view = os.path.join(folder, "data"), os.path.join(folder, "view")
    os.mkdir(data)
    os.mkdir(view)
    subprocess.run(["bindfs", data, view], check=True)
    try:
        [(level, line)] = doctor(host, f'tree = "{view}"; name = "t";')
    finally:
        wait_until(lambda: subprocess.run(["fusermount3", "-u", view], stderr=subprocess.DEVNULL).returncode == 0, "unmounted")
    assert level == "warning"
    assert re.fullmatch(rf"tree {view}: fuse\S*: whether it keeps locks here or passes them on is up to its program; dflock "
                        r"excludes other hosts either way, if the kernel lock works at all: try it with flock\(1\)", line)


@needs_root
def test_the_mount_that_is_on_top(host, folder):
    """The mount that a path leads to counts, not its name: a file system mounted over another one."""
    protect(host, f'tree = "{host.files}"; name = "t";')
    env = {k: v for k, v in host.env().items() if k != "LD_PRELOAD"}
    text = 'mount -t ramfs ramfs "$1" && "$2" doctor'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", text, "-", host.files, CLI], env=env, capture_output=True,
                          text=True, timeout=60)
    assert Doctor(host, done=done).found[-1] == ("ok", f"tree {host.files}: ramfs{LOCAL}")


@needs_root
def test_a_file_that_does_not_exist_in_a_chroot(host, folder):
    """The root there is no mount point, so the kernel lists no mount for what lies on it."""
    protect(host, 'path = "/own/f";')
    root = os.path.join(folder, "root")
    os.makedirs(os.path.join(root, "own"))
    text = """set -e; for d in /*; do if [ -L $d ]; then cp -d $d "$1"; elif [ -d $d ]; then mkdir "$1$d"; mount --rbind $d "$1$d"; fi; done
exec chroot "$1" "$2" doctor"""
    env = {k: v for k, v in host.env().items() if k != "LD_PRELOAD"}
    done = subprocess.run(["unshare", "--mount", "sh", "-c", text, "-", root, CLI], env=env, capture_output=True, text=True, timeout=60)
    assert Doctor(host, done=done).found[-1] == (
        "warning", "/own/f: does not exist yet; what its file system does with locks cannot be told: its mount is not in "
                   "/proc/self/mountinfo, as in a chroot")
