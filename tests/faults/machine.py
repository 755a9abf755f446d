"""A machine of the test's own as far as runtime directories go (Apart), with several users and one configuration."""
import json
import os
import subprocess

from common import outcome
from harness import Apart, Host, wait_until
from harness.host import CLI, SHIM

NOBODY = 65534
USER = 31977  # of nobody on the real machine


class Machine:
    """Every user can run the programs, and lock the files. DFLOCK_RUNTIME_DIR is set only where a call gives it."""

    def __init__(self, redis, folder):
        self.redis, self.apart = redis, Apart(folder)
        self.host = Host(redis, "a", folder, foreground=False, lease="ttl_ms = 500; idle_ms = 0;")
        os.chmod(os.path.join(folder, "redis.sock"), 0o777)
        os.chmod(folder, 0o755)
        os.chmod(self.host.files, 0o777)

    def delete(self):
        self.apart.delete()
        self.host.stop()

    def words(self, uid=0, before=()):
        change = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
        return [*self.apart.inside, *change, *before]

    def env(self, **more):
        env = {**self.host.env(), "HOME": "/nonexistent", **more}
        if "DFLOCK_RUNTIME_DIR" not in more:
            del env["DFLOCK_RUNTIME_DIR"]
        return env

    def start(self, *words, uid=0, before=(), **environment):
        env = self.env(LD_PRELOAD=SHIM, **environment)
        return subprocess.Popen([*self.words(uid, before), *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def begin(self, uid=0, name="f", **more):
        path = self.host.path(name)
        with open(path, "a"):
            os.chmod(path, 0o666)
        return self.start("flock", "-n", path, "true", uid=uid, **more)

    def holding(self, **more):
        """A shell that has the lock, and becomes sleep(1)."""
        held = self.start("sh", "-c", f"exec 9>{self.host.path('f')}; flock 9 && echo got && exec sleep 100", **more)
        assert held.stdout.readline() == "got\n"
        return held

    @staticmethod
    def end(process):
        _, err = process.communicate(timeout=60)
        return outcome(process.returncode, err, 0)

    def lock(self, uid=0, **more):
        return self.end(self.begin(uid, **more))

    def works(self, uid=0, **more):
        wait_until(lambda: self.lock(uid, **more).word == "ok", f"uid {uid} gets a lock")

    def cli(self, *words, uid=0, before=(), **environment):
        return subprocess.run([*self.words(uid, before), CLI, *words], env=self.env(LD_PRELOAD="", **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)

    def where(self, uid=0, **more):
        """(runtime directory, pid) of the keeper that programs of this user find."""
        done = self.cli("status", "--json", uid=uid, **more)
        assert done.returncode == 0, done.stderr
        keeper = json.loads(done.stdout)
        return keeper["runtime_dir"], keeper["pid"]

    def take(self, name, uid=NOBODY):
        """Another user makes that entry first."""
        self.apart.sh(f"setpriv --reuid={uid} --regid={uid} --clear-groups mkdir {name}")

    def list(self):
        return [l for l in self.apart.sh("ls /dev/shm").split() if l.startswith("dflock-") and "test" not in l]
