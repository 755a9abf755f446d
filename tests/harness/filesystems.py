"""File systems to test on, each mounted in a folder of the test's own."""
import os
import resource
import subprocess

from .wait import wait_until

HARD_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
# As many as a keeper has room for (LIMITS in dflockd(8)); not all systems let root raise the limit.
MANY_LOCKS = min(20000, HARD_LIMIT - 2048 - 128)


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def disk(folder, make, megabytes):
    """A file system on a loop device: make are the words of mkfs."""
    image, where = os.path.join(folder, "image"), os.path.join(folder, "ground")
    with open(image, "wb") as f:
        f.truncate(megabytes << 20)
    run(*make, image)
    os.mkdir(where)
    run("mount", "-o", "loop", image, where)
    return [where]


def ext4(folder):
    return disk(folder, ["mkfs.ext4", "-q"], 512)


def btrfs(folder):
    return disk(folder, ["mkfs.btrfs", "-q"], 512)


def tmpfs(folder):
    where = os.path.join(folder, "ground")
    os.mkdir(where)
    run("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", where)
    return [where]


def overlay(folder):
    """Upper and lower folders on different file systems: then the numbers that stat() and the kernel's lists show differ most."""
    lower, below, where = (os.path.join(folder, d) for d in ("lower", "below", "ground"))
    for d in (lower, below, where):
        os.mkdir(d)
    run("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", below)
    os.mkdir(os.path.join(below, "upper"))
    os.mkdir(os.path.join(below, "work"))
    run("mount", "-t", "overlay", "-o", f"lowerdir={lower},upperdir={below}/upper,workdir={below}/work", "overlay", where)
    return [where, below]


def fuse(folder):
    data, where = os.path.join(folder, "data"), os.path.join(folder, "ground")
    os.mkdir(data)
    os.chmod(data, 0o755)
    os.mkdir(where)
    run("bindfs", "-o", "allow_other", data, where)
    return [where]


KINDS = {f.__name__: f for f in (ext4, tmpfs, overlay, btrfs, fuse)}


class Ground:
    """path: the folder on the file system of this kind."""

    def __init__(self, kind, folder):
        os.mkdir(folder)
        os.chmod(folder, 0o755)
        self.mounts = KINDS[kind](folder)
        self.path = self.mounts[0]
        os.chmod(self.path, 0o755)

    def end(self):
        """When all programs that have files open there have ended."""
        for where in self.mounts:
            wait_until(lambda: subprocess.run(["umount", where], stderr=subprocess.DEVNULL).returncode == 0 or
                       not os.path.ismount(where), where + " is unmounted")
