"""A real redis-server of the test's own, on a Unix socket in the test's folder."""
import functools
import os
import signal
import socket
import subprocess
import tempfile

from .wait import wait_until

SERVER = os.environ.get("REDIS_SERVER", "redis-server")
LEAST_RIGHTS = "DFLOCK_TEST_LEAST_RIGHTS" in os.environ  # hosts are a user with the rights that `dflock doctor --acl` prints


# Of tests/cluster/test_redis_key.py.
KEY_OF_TESTS = '{ path = "/f"; redis_key = "jobs:nightly"; redis_key_format = "redisson"; }'


class Redis:
    def __init__(self, folder, *options, address="127.0.0.1", port=0, inside=(), env=None):
        """inside: words before the server's own (Network.inside()); env: more environment for it."""
        self.folder, self.address = folder, address
        self.inside, self.env = inside, env or {}
        self.socket = os.path.join(folder, "redis.sock")
        self.port = port
        self.options = options
        self.process = None
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def start(self):
        self.process = subprocess.Popen(
            [*self.inside, SERVER, "--port", str(self.port), "--bind", self.address, "--protected-mode", "no",
             "--unixsocket", self.socket, "--save", "", "--dir", self.folder, "--daemonize", "no", "--loglevel", "warning", *self.options],
            env={**os.environ, **self.env},
            stdout=open(os.path.join(self.folder, "redis.log"), "ab"), stderr=subprocess.STDOUT)
        wait_until(self.answers, "redis-server answers")
        if LEAST_RIGHTS:
            self.give_rights()

    def give_rights(self, words=None, password="least"):
        """ACL SETUSER with these words, or those for a configuration that says nothing."""
        words = words or rights(rules=KEY_OF_TESTS)[0]
        self.command(*(w.replace(">PASSWORD", ">" + password) for w in words))

    def answers(self):
        try:
            self.command("PING")
            return True
        except RuntimeError as e:  # it wants a password: it is there
            return not str(e).startswith("LOADING")
        except OSError:
            return False

    def command(self, *words):
        """One command, its answer as Python values; raises RuntimeError on an error answer."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(self.socket)
            parts = [str(w).encode() for w in words]
            s.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
            return read(s.makefile("rb"))

    def role(self):
        """None: it does not answer."""
        try:
            return self.command("ROLE")[0]
        except OSError:
            return None

    def commands_processed(self):
        info = self.command("INFO", "stats")
        return int(next(l.split(":")[1] for l in info.splitlines() if l.startswith("total_commands_processed")))

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        if self.process:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self):
        self.stop()
        self.start()


@functools.cache  # a server that was restarted must have its user again at once
def rights(settings="", rules=""):
    """What `dflock doctor --acl` prints for these settings of the store, and rules: the words of each command."""
    from .host import CLI
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as f:
        f.write("store = { %s };\nprotect = ( %s );\n" % (settings, rules))
        f.flush()
        said = subprocess.run([CLI, "doctor", "--acl", "--config", f.name], capture_output=True, text=True, check=True, timeout=60)
    return [line.split() for line in said.stdout.splitlines() if not line.startswith("#")]


def read(f):
    """An answer, as Python values."""
    line = f.readline()
    if not line:
        raise OSError("redis-server closed the connection")
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest.decode()
    if kind == b"-":
        raise RuntimeError(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"$":
        n = int(rest)
        return None if n < 0 else f.read(n + 2)[:-2].decode("utf-8", "surrogateescape")
    if kind == b"*":
        n = int(rest)
        return None if n < 0 else [read(f) for _ in range(n)]
    raise OSError("not RESP: %r" % line)
