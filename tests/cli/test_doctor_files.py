"""`dflock doctor` on the protected paths: is there what the rules name, and what does its file system do with locks?"""
import os
import re
import subprocess

import pytest
from harness import Views
from harness.host import CLI

from lines import LOCAL, Doctor, written

needs_root = pytest.mark.root("needs a mount, and so root")


def protect(host, *rules):
    written(host, f'store = {{ server = "{host.server}"; }};\nprotect = (\n' + ",\n".join("{ %s }" % r for r in rules) + "\n);\n")
    host.cli("stop")  # it would have read another one


@pytest.fixture
def host(host_of, redis):
    a = host_of(redis, foreground=False)
    a.server = "unix:" + redis.socket
    return a


def test_each_kind_of_path(host, folder):
    files, fifo = host.files, host.path("fifo")
    open(host.path("f"), "w").close()
    os.mkfifo(fifo)
    gone = "does not exist; is it a typing error, or not mounted?"
    unfit = "neither a regular file nor a directory: locks on it are not protected; choose another path"
    rows = [
        (f'path = "{files}/f";', "ok", f"{files}/f: tmpfs{LOCAL}"),
        (f'path = "{files}/new";', "ok", f"{files}/new: does not exist yet; on tmpfs{LOCAL}"),
        (f'path = "{files}/*.lock";', "ok", f"{files}/*.lock: tmpfs{LOCAL}"),
        (f'tree = "{folder}"; name = "t";', "ok", f"tree {folder}: tmpfs{LOCAL}"),
        ('path = "/none/f";', "warning", f"/none/f (line 7): the directory /none {gone}"),
        ('path = "/none/*.lock";', "warning", f"/none/*.lock (line 8): the directory /none {gone}"),
        ('tree = "/none/t";', "warning", f"tree /none/t (line 9): the directory /none/t {gone}"),
        ('path = "/proc/version";', "problem", "/proc/version: proc, no place for lock files; choose another path"),
        (f'path = "{fifo}";', "problem", f"{fifo}: {unfit}"),
        ('path = "/dev/null";', "problem", f"/dev/null: {unfit}"),
        (f'tree = "{files}/f/x"; name = "x";', "warning", f"tree {files}/f/x (line 13): {files}/f/x cannot be examined: Not a directory"),
    ]
    protect(host, *(rule for rule, _, _ in rows))
    assert Doctor(host).found[-len(rows):] == [row[1:] for row in rows]


def test_files_with_several_links(host, folder):
    os.mkdir(host.path("d"))
    for name in ("a", "b.lock", "d/c"):
        open(host.path(name), "w").close()
        os.link(host.path(name), os.path.join(folder, os.path.basename(name)))
    open(host.path("d/one"), "w").close()
    protect(host, f'path = "{host.path("a")}";', f'path = "{host.files}/*.lock";', f'tree = "{host.path("d")}"; name = "t";', 'path = "/none/f";')
    found = [text for text in Doctor(host).of("warning") if "link" in text]
    assert [text[:text.index(": a lock by")] for text in found] == [
        f"{rule} (line {line}): 1 file has more than one link, {host.path(name)} for example 2"
        for line, rule, name in ((3, host.path("a"), "a"), (4, f"{host.files}/*.lock", "b.lock"), (5, host.path("d"), "d/c"))]


def test_a_tree_that_takes_long(host):
    """Each of its files answers, only there are many: that is no file system that does not answer."""
    tree = host.path("many")
    os.mkdir(tree)
    for i in range(40):
        open(f"{tree}/{i}", "w").close()
    protect(host, f'tree = "{tree}"; name = "t";')
    slow = ["strace", "-o", "/dev/null", "-P", tree, "-e", "trace=newfstatat", "-e", "inject=newfstatat:delay_enter=200000"]
    done = subprocess.run([*slow, CLI, "doctor"], env=host.plain_env(), capture_output=True, text=True, timeout=120)
    assert f"tree {tree}: tmpfs" in done.stdout and done.stderr == "", done


def test_on_fuse(host, folder):
    """bindfs passes locks on or not, depending on an option that cannot be seen from outside."""
    view = os.path.join(folder, "view")
    views = Views(os.path.join(folder, "data"), [view])
    try:
        protect(host, f'tree = "{view}"; name = "t";')
        level, line = Doctor(host).found[-1]
    finally:
        views.unmount()
    assert level == "warning"
    assert re.fullmatch(rf"tree {view}: fuse\S*: whether it keeps locks here or passes them on is up to its program; dflock "
                        r"excludes other hosts either way, if the kernel lock works at all: try it with flock\(1\)", line)


ROOT_OF_ITS_OWN = """set -e; for d in /*; do if [ -L $d ]; then cp -d $d "$1"; elif [ -d $d ]; then mkdir "$1$d"; mount --rbind $d "$1$d"; fi; done
exec chroot "$1" "$2" doctor"""


@needs_root
@pytest.mark.parametrize("how", ["mounted over", "chroot"])
def test_the_mount_that_is_on_top(host, folder, how):
    """The mount that a path leads to counts, not its name. The root of a chroot is none, so the kernel lists none for what lies on it."""
    root = os.path.join(folder, "root")
    os.makedirs(os.path.join(root, "own"))
    if how == "chroot":
        protect(host, 'path = "/own/f";')
        text, said = ROOT_OF_ITS_OWN, ("warning", "/own/f: does not exist yet; what its file system does with locks cannot be told: its mount is "
                                                  "not in /proc/self/mountinfo, as in a chroot")
    else:
        protect(host, f'tree = "{root}"; name = "t";')
        text, said = 'mount -t ramfs ramfs "$1" && "$2" doctor', ("ok", f"tree {root}: ramfs{LOCAL}")
    done = subprocess.run(["unshare", "--mount", "sh", "-c", text, "-", root, CLI], env=host.plain_env(), capture_output=True, text=True, timeout=60)
    assert Doctor(host, done=done).found[-1] == said
