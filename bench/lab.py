"""Where things are measured: private redis-servers, hosts and files, made when they are first asked for; close() ends
and removes all of it."""
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile

from tests.harness import BUILD, Host, Redis, wait_until
from tests.harness.host import CLI, KEEPER, SHIM

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = 30  # no single program takes longer


class CannotMeasure(Exception):
    """In one line: what is missing, or what went wrong."""


class Lab:
    def __init__(self):
        self.stack = contextlib.ExitStack()
        self.folder = tempfile.mkdtemp(prefix="dflock-bench-", dir="/dev/shm")
        self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.servers, self.hosts, self.fresh = {}, {}, 0
        self.fence = None  # the largest fence number of the store, when protected() was last asked

    def close(self):
        self.stack.close()

    def redis(self, name="store"):
        if name not in self.servers:
            folder = os.path.join(self.folder, "redis-" + name)
            os.mkdir(folder)
            self.servers[name] = server = Redis(folder)
            self.stack.callback(server.stop)
        return self.servers[name]

    def host(self, name, store="store", lease=""):
        """A keeper with default settings, or the given ones, and a protected folder of its own (host.path())."""
        if name not in self.hosts:
            for path in (SHIM, KEEPER, CLI):
                if not os.path.exists(path):
                    raise CannotMeasure(path + " is missing: run make")
            host = Host(self.redis(store), name, self.folder, lease=lease, foreground=False)
            self.stack.callback(host.stop)
            host.start()
            host.init()
            self.hosts[name] = host
        return self.hosts[name]

    @contextlib.contextmanager
    def some_hosts(self, count, socket, lease=""):
        """So many hosts of a store behind a socket, for a while. With lock names of their own: those before them were just killed."""
        hosts = []
        self.fresh += 1
        name = "t%d" % self.fresh
        rules = '{ tree = "%%s"; name = "%s"; }' % name
        folder = tempfile.mkdtemp(dir=self.folder)
        try:
            for i in range(count):
                hosts.append(Host("unix:" + socket, "h%d" % i, folder, lease=lease, rules=rules, foreground=False))
                hosts[i].start()
            hosts[0].init()
            yield hosts
        finally:
            for host in hosts:
                host.stop()
            for key in self.redis().command("KEYS", "dflock:{0}:lock:%s/*" % name):
                self.redis().command("DEL", key)

    def start_together(self, programs):
        """Each says "ready" and waits for a line."""
        for p in programs:
            if p.stdout.readline() != "ready\n":
                raise CannotMeasure(os.path.basename(p.args[0]) + ": " + p.stderr.read().strip())
        for p in programs:
            p.stdin.write("\n")
            p.stdin.flush()

    def plain(self):
        """The environment of programs that run as if dflock were not there."""
        return {k: v for k, v in os.environ.items() if not k.startswith(("DFLOCK_", "LD_PRELOAD"))}

    def open_file(self, name):
        """A path that no host protects."""
        return os.path.join(self.folder, name)

    def new_prefix(self, host):
        """For files that were never there before."""
        self.fresh += 1
        return host.path("f%d-" % self.fresh)

    def run(self, env, program, *words):
        """The samples of one run of a measuring program; env: a Host or an environment."""
        with self.popen(env, program, *words) as p:
            return self.samples(p)

    @contextlib.contextmanager
    def popen(self, env, program, *words, **more):
        path = os.path.join(HERE if program.endswith(".py") else os.path.join(BUILD, "bench"), program)
        if not os.path.exists(path):
            raise CannotMeasure(path + " is missing: run make bench")
        env = env.env() if isinstance(env, Host) else env
        pipe = subprocess.PIPE
        with subprocess.Popen([path, *map(str, words)], env=env, text=True, stdin=pipe, stdout=pipe, stderr=pipe,
                              **more) as p:
            try:
                yield p
            finally:
                p.kill()

    def samples(self, p):
        """What a started program measured. Any word on its standard error is a failure, also the dynamic linker's
        that it could not preload, which would compare plain with plain."""
        try:
            out, err = p.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise CannotMeasure("%s has not ended within %d s" % (" ".join(p.args), SECONDS)) from None
        if p.returncode or err:
            raise CannotMeasure("%s: %s" % (os.path.basename(p.args[0]), " / ".join(err.split("\n")).strip(" /") or
                                            "exit status %d" % p.returncode))
        return [float(line) for line in out.split()]

    def locks(self):
        """The lock names that the store has something of."""
        return self.redis().command("KEYS", "dflock:{0}:lock:*")

    def protected(self):
        """Fails if the store has given no lease since the last time and has none: then it was plain locks that were measured.
        (A lease that was used through the page alone may be given back at any moment, linger_ms after the last question.)"""
        fence = self.redis().command("HGET", "dflock:{0}:store", "fence")
        if fence == self.fence and not self.locks():
            raise CannotMeasure("the store has no lock: the files that were locked are not protected")
        self.fence = fence

    def settle(self):
        """Waits until what was locked before has been given back, which would be measured along."""
        wait_until(lambda: not self.locks(), "the leases of what was measured before are given back")

    def turns(self, count, rest_us, hosts=None):
        """Two hosts hand a lock to and fro, each `count` times: the samples of both."""
        ends = socket.socketpair()
        hosts = hosts or (self.host("a"), self.host("b"))
        with contextlib.ExitStack() as stack:
            players = []
            for host, end, role in zip(hosts, ends, ("first", "second")):
                words = host.path("turns"), end.fileno(), role, count, rest_us
                players.append(stack.enter_context(self.popen(host, "turns", *words, pass_fds=[end.fileno()])))
            for end in ends:
                end.close()
            samples = [s for p in players for s in self.samples(p)]
        if len(samples) < count:
            raise CannotMeasure("most waiters came late: the machine is too busy")
        return samples
