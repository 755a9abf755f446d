"""
A mount namespace of the test's own with an empty /dev/shm and /run, where runtime directories without DFLOCK_RUNTIME_DIR are. Needs
root. delete() ends everything that runs in it, and with that it is gone.
"""
import os
import subprocess

from .host import Host
from .processes import pids_where
from .wait import wait_until

# The folder is below /dev/shm, and stays where it is.
MOUNTS = """
mount --make-rprivate /
mount -n --bind "$0" /mnt
mount -n -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p "$0"
mount -n --move /mnt "$0"
mount -n -t tmpfs -o mode=0755 tmpfs /run
echo ready
exec sleep infinity
"""


class Apart:
    def __init__(self, folder):
        self.process = subprocess.Popen(["unshare", "-m", "sh", "-ec", MOUNTS, folder], stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            self.process.wait()
            raise RuntimeError("a mount namespace of the test's own cannot be made")
        self.space = os.readlink(f"/proc/{self.process.pid}/ns/mnt")
        self.inside = ["nsenter", f"--mount=/proc/{self.process.pid}/ns/mnt"]

    def run(self, *words, **more):
        return subprocess.run([*self.inside, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, **more)

    def sh(self, script, *words):
        done = self.run("sh", "-ec", script, "sh", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pids(self):
        """Leaves out mount namespaces that were made from this one: no test makes them."""
        return pids_where(lambda pid: os.readlink(f"/proc/{pid}/ns/mnt") == self.space)

    def delete(self):
        def killed():
            return Host.kill([pid for pid in self.pids() if pid != self.process.pid])
        try:
            wait_until(killed, "all in the mount namespace have ended")
        finally:
            self.process.kill()
            self.process.communicate()
