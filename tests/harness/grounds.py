"""File systems to test on: each is mounted where a test wants it, and taken away at its end. All but bindfs need root."""
import os
import subprocess

from .wait import wait_until

GROUNDS = ["tmpfs", "ext4", "btrfs", "overlay-tmpfs", "overlay-ext4", "bindfs"]


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Grounds:
    """folder: where images, layers and what is below a view are kept."""

    def __init__(self, folder):
        self.folder = folder
        self.mounted = []

    def mount(self, kind, where):
        """Mounts a new file system of this kind; returns the folder in it to use."""
        os.makedirs(where, exist_ok=True)
        below = os.path.join(self.folder, "below-%d" % len(self.mounted))
        if kind == "tmpfs":
            self.mount_at(where, "mount", "-t", "tmpfs", "-o", "size=16m", "none", where)
        elif kind in ("ext4", "btrfs"):
            self.image(kind, below + ".img", where)
        elif kind.startswith("overlay-"):
            self.mount(kind.removeprefix("overlay-"), below)
            for layer in ("lower", "upper", "work"):
                os.makedirs(os.path.join(below, layer))
            self.mount_at(where, "mount", "-t", "overlay", "-o",
                          f"lowerdir={below}/lower,upperdir={below}/upper,workdir={below}/work", "none", where)
        elif kind == "bindfs":
            os.makedirs(below)
            self.mount_at(where, "bindfs", below, where)
        else:
            raise ValueError(kind)
        return where

    def image(self, kind, image, where):
        with open(image, "wb") as f:
            f.truncate(160 << 20)
        run("mkfs." + kind, *(["-q", "-E", "lazy_itable_init=1"] if kind == "ext4" else ["-q"]), image)
        self.mount_at(where, "mount", "-o", "loop", image, where)
        if kind == "btrfs":  # a subvolume has a device number of its own, which is in no table
            run("btrfs", "subvolume", "create", where + "/sub")
            self.mount_at(where, "mount", "--bind", where + "/sub", where)

    def mount_at(self, where, *words):
        run(*words)
        self.mounted.append(where)

    def unmount(self):
        """After all programs that have files open there have ended."""
        while self.mounted:
            where = self.mounted.pop()
            wait_until(lambda: subprocess.run(["umount", where], stderr=subprocess.DEVNULL).returncode == 0, f"{where} is unmounted")
