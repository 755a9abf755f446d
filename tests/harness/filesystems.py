"""
File systems to test on, each made for one test and removed after it.

On overlayfs (over two file systems) and btrfs, st_dev is not the device that /proc/locks and mountinfo show; both have files that
differ, but have the same number in /proc/locks (twins()). In the `container`, the programs see an overlayfs that the keeper does not.
"""
import os
import resource
import shutil
import subprocess
import tempfile

from .wait import wait_until

HARD_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
# As many as a keeper has room for (LIMITS in dflockd(8)); not all systems let root raise the limit.
MANY_LOCKS = min(20000, HARD_LIMIT - 2048 - 128)


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Ground:
    """path: the folder for lock files. inside: words before those of a program that is to see them. Removed when all programs that have files
    open there have ended (end())."""

    def __init__(self, kind, at=None):
        self.folder = tempfile.mkdtemp(prefix="dflock-ground-", dir="/var/tmp" if kind == "disk" else "/dev/shm")
        self.path, self.inside, self.mounts, self.other = at or os.path.join(self.folder, "ground"), [], [], None
        os.chmod(self.folder, 0o755)
        os.makedirs(self.path, exist_ok=True)
        KINDS[kind](self)
        os.chmod(self.path, 0o755)

    def below(self, name):
        path = os.path.join(self.folder, name)
        os.makedirs(path, exist_ok=True)
        return path

    def mount(self, where, *words):
        run(*words, where)
        self.mounts.append(where)
        return where

    def tmpfs(self, where=None):
        self.mount(where or self.path, "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs")

    def image(self, *make):
        image = os.path.join(self.folder, "image")
        with open(image, "wb") as f:
            f.truncate(192 << 20)
        run(*make, image)
        self.mount(self.path, "mount", "-o", "loop", image)

    def ext4(self):
        self.image("mkfs.ext4", "-q", "-E", "lazy_itable_init=1")

    def btrfs(self):
        """A subvolume has a device number of its own, which is in no table."""
        self.image("mkfs.btrfs", "-q")
        for part in "locks", "other":
            run("btrfs", "subvolume", "create", os.path.join(self.path, part))
        self.path, self.other = os.path.join(self.path, "locks"), os.path.join(self.path, "other")
        self.fill(10)

    def fill(self, count):
        for i in range(count):
            open(os.path.join(self.other, "other%d" % i), "w").close()

    def overlay(self, outside=True):
        """Upper and lower folders on different file systems: then the numbers that stat() and the kernel's lists show differ most."""
        lower, upper = self.below("lower"), self.below("upper")
        for where in (lower, upper):
            self.tmpfs(where)
        self.other = self.below("lower/other")
        self.fill(300)
        words = ["mount", "-t", "overlay", "overlay", "-o",
                 f"xino=off,lowerdir={lower},upperdir={self.below('upper/data')},workdir={self.below('upper/work')}"]
        merged = self.path
        if outside:
            self.mount(merged, *words)
            self.path, self.other = os.path.join(merged, "locks"), os.path.join(merged, "other")
            os.mkdir(self.path)
        else:
            self.path = os.path.join(merged, "locks")
            os.mkdir(self.path)
            self.below("upper/data/locks")
            self.inside = ["unshare", "--mount", "sh", "-c", f'{" ".join(words)} {merged} && exec "$@"', "sh"]

    def fuse(self):
        data = self.below("data")
        self.mount(self.path, "bindfs", "-o", "allow_other", data)

    def twins_there(self):
        return self.other is not None and not self.inside

    def twins(self):
        """Two files with the same number in /proc/locks: one in path, one of another layer or subvolume."""
        with_number = {os.stat(e.path).st_ino: e.path for e in os.scandir(self.other)}
        for i in range(1000):
            path = os.path.join(self.path, "twin%d" % i)
            open(path, "w").close()
            if os.stat(path).st_ino in with_number:
                return path, with_number[os.stat(path).st_ino]
        raise RuntimeError("no two files with the same number")

    def end(self):
        for where in reversed(self.mounts):
            wait_until(lambda: subprocess.run(["umount", where], stderr=subprocess.DEVNULL).returncode == 0 or
                       not os.path.ismount(where), where + " is unmounted")
        shutil.rmtree(self.folder)


KINDS = {"ext4": Ground.ext4, "tmpfs": Ground.tmpfs, "overlay": Ground.overlay, "btrfs": Ground.btrfs, "fuse": Ground.fuse,
         "disk": lambda ground: None, "container": lambda ground: ground.overlay(outside=False)}
MOUNTED = ["ext4", "tmpfs", "overlay", "btrfs", "fuse"]
