"""
Folders for lock files on several file systems, made for one test and removed after it.

On overlayfs (over two file systems) and btrfs, st_dev is not the device that /proc/locks and mountinfo show; both have files that
differ, but have the same number in /proc/locks (twins()). In the `container`, the programs see an overlayfs that the keeper does not.
"""
import contextlib
import os
import subprocess
import tempfile

ALL = ["tmpfs", "disk", "overlayfs", "btrfs", "container"]


class Ground:
    """path: the folder; other: one on the same file system, but of another part of it (a lower layer, a subvolume). inside: words
    before those of a program that is to see them."""

    def __init__(self, path, other=None, inside=()):
        self.path, self.other, self.inside = path, other, list(inside)

    def twins(self):
        """Two files with the same number in /proc/locks: one in path, one in other."""
        with_number = {os.stat(e.path).st_ino: e.path for e in os.scandir(self.other)}
        for i in range(1000):
            path = os.path.join(self.path, "twin%d" % i)
            open(path, "w").close()
            if os.stat(path).st_ino in with_number:
                return path, with_number[os.stat(path).st_ino]
        raise RuntimeError("no two files with the same number")


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def mounted(at, *words):
    os.makedirs(at, exist_ok=True)
    run("mount", *words, at)
    try:
        yield at
    finally:
        run("umount", at)


def make_files(folder, count=300):
    os.makedirs(folder)
    for i in range(count):
        open(os.path.join(folder, "other%d" % i), "w").close()


@contextlib.contextmanager
def overlay(base, outside=True):
    """The upper layer is on another file system than the lower one."""
    with contextlib.ExitStack() as stack:
        for layer in "lower", "upper":
            stack.enter_context(mounted(os.path.join(base, layer), "-t", "tmpfs", layer))
        make_files(os.path.join(base, "lower", "other"))
        for folder in "upper/data", "upper/work", "merged":
            os.makedirs(os.path.join(base, folder))
        merged = os.path.join(base, "merged")
        options = f"xino=off,lowerdir={base}/lower,upperdir={base}/upper/data,workdir={base}/upper/work"
        if outside:
            stack.enter_context(mounted(merged, "-t", "overlay", "overlay", "-o", options))
            os.mkdir(os.path.join(merged, "locks"))
            yield Ground(os.path.join(merged, "locks"), os.path.join(merged, "other"))
            return
        os.mkdir(os.path.join(base, "upper/data/locks"))
        script = f'mount -t overlay overlay -o {options} {merged} && exec "$@"'
        yield Ground(os.path.join(merged, "locks"), inside=["unshare", "--mount", "sh", "-c", script, "sh"])


@contextlib.contextmanager
def btrfs(base):
    image, at = os.path.join(base, "image"), os.path.join(base, "btrfs")
    run("truncate", "-s", "128M", image)
    run("mkfs.btrfs", "-q", image)
    with mounted(at, "-o", "loop", image):
        for part in "locks", "other":
            run("btrfs", "subvolume", "create", os.path.join(at, part))
        for i in range(10):
            open(os.path.join(at, "other", "other%d" % i), "w").close()
        yield Ground(os.path.join(at, "locks"), os.path.join(at, "other"))


@contextlib.contextmanager
def ground(kind):
    with tempfile.TemporaryDirectory(prefix="dflock-ground-", dir="/dev/shm" if kind == "tmpfs" else "/var/tmp") as base:
        if kind == "overlayfs" or kind == "container":
            with overlay(base, outside=kind == "overlayfs") as made:
                yield made
        elif kind == "btrfs":
            with btrfs(base) as made:
                yield made
        else:
            yield Ground(base)
