"""
The keeper of a whole system, which serves several users from /run/dflock: in a mount namespace with a /run of its own, so that tests
run at the same time and leave nothing behind. Needs root.
"""
import os
import socket
import subprocess
import sys

from .host import Host
from .processes import pids_where, raw
from .wait import wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
SYSTEM_DIR = "/run/dflock"


class Place:
    """A mount namespace, which lives as long as the process that holds it."""

    def __init__(self):
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c",
             f"mount -t tmpfs -o mode=755 tmpfs /run && mkdir {SYSTEM_DIR} /run/fuse && chmod 755 {SYSTEM_DIR} && echo ok && exec sleep 100000"],
            stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self.process.stdout.readline() == "ok\n"
        self.inside = ["nsenter", f"--mount=/proc/{self.process.pid}/ns/mnt", "--"]

    def outside(self, path):
        """The same path for a process that is not in it."""
        return f"/proc/{self.process.pid}/root{path}"

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class SystemHost(Host):
    def __init__(self, redis, folder, place, name="system", **options):
        super().__init__(redis, name, folder, inside=place.inside, foreground=False, **options)
        os.rmdir(self.runtime)  # Host has made one
        self.place = place
        self.runtime = SYSTEM_DIR
        for path in (folder, self.files):
            os.chmod(path, 0o755)
        self.start()

    def serves(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            return s.connect_ex(self.place.outside(SYSTEM_DIR + "/keeper.sock")) == 0

    def keeper_pids(self):
        """Of this namespace only: other tests have a keeper of the same runtime directory."""
        return [pid for pid in super().keeper_pids() if self.is_inside(pid)]

    def program_pids(self):
        return [pid for pid in super().program_pids() if self.is_inside(pid)]

    def is_inside(self, pid):
        try:
            return os.stat(f"/proc/{pid}/ns/mnt").st_ino == os.stat(f"/proc/{self.place.process.pid}/ns/mnt").st_ino
        except OSError:
            return False

    def inhabitants(self, comm):
        """Processes of this name in the namespace, which share the keeper's program."""
        return pids_where(lambda pid: raw(f"/proc/{pid}/comm") == comm.encode() + b"\n" and self.is_inside(pid))

    def as_user(self, uid, *words):
        return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *words]

    def stop(self):
        for agent in self.agents:
            agent.kill()
        wait_until(self.kill_all, "the keeper and all programs have ended")
        if self.keeper:
            self.keeper.wait()


class Hanging:
    """A mount of hanging.py at /run/fuse/NAME of the namespace."""

    def __init__(self, place, name="m"):
        self.place, self.path = place, "/run/fuse/" + name
        os.mkdir(place.outside(self.path))
        self.process = subprocess.Popen([*place.inside, sys.executable, os.path.join(HERE, "hanging.py"), self.path],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.held = []
        assert self.process.stdout.readline() == "ok\n"

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        while (heard := self.process.stdout.readline()) != "ok\n":
            assert heard, "the server has ended"
            self.held.append(tuple(map(int, heard.split()[1:])))

    def end(self):
        """The kernel fails all that waits."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
