"""
Machines of which each has dflock installed below /usr/local and its own /etc, /run, /srv, /var/spool and process numbers: namespaces. So
commands and paths are used exactly as they are written down. Needs root. All that runs in a machine ends with it.
"""
import contextlib
import os
import shlex
import signal
import subprocess

from harness import BUILD, text_of, wait_until, write_text
from harness.views import UNCACHED
from harness.processes import children, pids_where, raw

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# On a machine without packages: apt has something to do there, and does nothing.
EMPTY_APT = r"""
for dir in /var/lib/dpkg /var/lib/apt /var/cache/apt /var/log; do mount -t tmpfs tmpfs $dir; done
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/apt/lists/partial /var/cache/apt/archives/partial /var/log/apt
rm -rf /etc/apt/sources.list* && touch /etc/apt/sources.list /var/lib/dpkg/available /var/lib/dpkg/status
"""
# What cron gives its jobs.
CRON = {"HOME": "/root", "LOGNAME": "root", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}

# $1: the test's folder, which stays visible, $2: the build, $3: the machine's name.
SETUP = r"""
set -e
hostname "$3"
folder=$1
cp -a /etc "$folder/etc-$3"
rm -rf "$folder/etc-$3"/cron* "$folder/etc-$3"/dflock*
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/kept
mount --bind "$folder" /run/kept
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p "$folder"
mount --bind /run/kept "$folder"
umount /run/kept
rmdir /run/kept
mount --bind "$folder/etc-$3" /etc
for dir in /usr/local /srv /var/spool; do
    [ -d "$dir" ] || continue
    mount -t tmpfs -o mode=755 tmpfs "$dir"
done
mkdir -p /usr/local/bin /usr/local/sbin /usr/local/lib /var/spool/cron/crontabs
cp "$2/dflock" "$2/dflock-commands" "$2/dflock-doctor" /usr/local/bin
cp "$2/dflockd" /usr/local/sbin
cp "$2/libdflock.so" /usr/local/lib
echo ok
exec bash -c 'sleep infinity & wait' # reaps orphans, as an init does
"""


class Machine:
    """rules: the text of protect. lease: more settings of the group lease."""

    def __init__(self, redis, folder, name, rules, lease="ttl_ms = 10000; probe_ms = 5000;"):
        self.name, self.folder, self.programs = name, folder, []
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc", "--propagation", "private",
             "sh", "-c", SETUP, "-", folder, BUILD, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        if self.process.stdout.readline() != "ok\n":
            raise RuntimeError(self.process.stderr.read())
        self.first, = children(self.process.pid)
        self.inside = ["nsenter", f"--target={self.first}", "--mount", "--pid", "--uts", "--"]
        self.write("/etc/dflock.conf", f'host = "{name}";\nstore = {{ server = "unix:{redis.socket}"; }};\nlease = {{ {lease} }};\n{rules}\n')

    def outside(self, path):
        """The same path for a process that is not in the machine."""
        return f"/proc/{self.first}/root{path}"

    def write(self, path, text, mode=0o644):
        path = self.outside(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_text(path, text)
        os.chmod(path, mode)

    def read(self, path):
        """What is in the file; "" if it is not there."""
        try:
            return text_of(self.outside(path))
        except FileNotFoundError:
            return ""

    def popen(self, *words, env=None, **more):
        """A program in the machine; one word is a line for the shell."""
        words = words if len(words) > 1 else ["sh", "-c", words[0]]
        process = subprocess.Popen([*self.inside, *words], env=env or {"PATH": PATH, "HOME": "/root"}, start_new_session=True,
                                   **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more})
        self.programs.append(process)
        return process

    def run(self, *words, **more):
        process = self.popen(*words, **more)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def init(self):
        """Opens the store at once: no other machine uses it."""
        wait_until(lambda: self.run("dflock", "init", "--force").returncode == 0, "the store was opened")

    def share(self, data, where):
        """Shows the folder data at this path: shared data, separate kernel locks, as on a mount whose locks are local."""
        done = self.run(f"mkdir -p {shlex.quote(where)} && bindfs -o {UNCACHED} {shlex.quote(data)} {shlex.quote(where)}")
        assert done.returncode == 0, done

    def pids(self, comm):
        """Processes of this name, by their numbers outside."""
        space = os.stat(f"/proc/{self.first}/ns/pid").st_ino
        return pids_where(lambda pid: raw(f"/proc/{pid}/comm") == comm.encode() + b"\n" and os.stat(f"/proc/{pid}/ns/pid").st_ino == space)

    def kill(self, *comms):
        """Kills processes of these names; one may end because another one was killed."""
        for pid in [pid for comm in comms for pid in self.pids(comm)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self):
        """As if its power were cut."""
        self.process.kill()
        self.process.wait()
        for process in self.programs:
            process.wait()
        for pipe in [p for process in (self.process, *self.programs) for p in (process.stdin, process.stdout, process.stderr) if p]:
            pipe.close()
