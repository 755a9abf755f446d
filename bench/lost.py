"""
What becomes of a job under a lock when something breaks, with dflock and with what a user would take instead. Every lock has a time
to live of TTL_S. On one side the job of a first holder writes down when it runs (others/stamps.py), on the other side a second one
waits for the same lock. Then:

  all killed      the first job and the program that locks for it get SIGKILL: how long until the second one runs?
  locker killed   the program that locks for the job (flock(1), etcdctl, a Python script) gets SIGKILL, and the job goes on
  cut off         the first side no longer reaches the server, and the second one does
  long job        nothing breaks, and the job takes longer than the time to live

In the last three the figure is for how long both jobs ran at once, as long as was looked: WATCHED_S. Zero is what a lock is for.
"""
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

from bench.comparison import etcd
from bench.lab import CannotMeasure
from bench.measurements import measurement
from bench.report import Curve
from tests.harness import Deadline, Host, wait_until

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "others")
TTL_S = 10
WATCHED_S = 2.5 * TTL_S


class Wire:
    """Passes bytes on to a server, at an address of its own, until it is cut: then nothing passes any more, and no end is told."""

    def __init__(self, family, own, server):
        self.family, self.server, self.is_cut, self.open = family, server, threading.Event(), []
        self.listener = socket.socket(family)
        self.listener.bind(own)
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                self.open.append(client)
                if self.is_cut.is_set():
                    continue
                server = socket.socket(self.family)
                server.connect(self.server)
                self.open.append(server)
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self.pump, args=(one, other), daemon=True).start()

    def pump(self, one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if self.is_cut.is_set():
                    return
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def cut(self):
        self.is_cut.set()

    def end(self):
        for s in (self.listener, *self.open):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()


class Dflock:
    def __init__(self, lab, stack):
        self.redis = lab.redis("lost")
        self.wire = Wire(socket.AF_UNIX, lab.open_file("lost-wire"), self.redis.socket)
        stack.callback(self.wire.end)
        self.hosts = []
        for name, where in (("first", lab.open_file("lost-wire")), ("second", self.redis.socket)):
            host = Host("unix:" + where, name, lab.folder, lease="ttl_ms = %d;" % (TTL_S * 1000), foreground=False)
            stack.callback(host.stop)
            host.start()
            self.hosts.append(host)
        self.hosts[1].init()

    def start(self, side, name, job):
        host = self.hosts[side]
        return subprocess.Popen(["flock", host.path(name), *job], env=host.env(), start_new_session=True, stderr=subprocess.DEVNULL)


class RedisPy:
    def __init__(self, lab, stack):
        self.env, self.redis = lab.plain(), lab.redis("lost-py")
        self.wire = Wire(socket.AF_UNIX, lab.open_file("lost-py-wire"), self.redis.socket)
        stack.callback(self.wire.end)
        self.where = [lab.open_file("lost-py-wire"), self.redis.socket]
        if subprocess.run(["/usr/bin/python3", "-c", "import redis"], env=self.env, stderr=subprocess.DEVNULL).returncode:
            raise CannotMeasure("python3-redis is not installed")

    def start(self, side, name, job):
        return subprocess.Popen(["/usr/bin/python3", os.path.join(HERE, "redis_lock.py"), self.where[side], name, str(TTL_S), *job],
                                env=self.env, start_new_session=True, stderr=subprocess.DEVNULL)


class Etcdctl:
    def __init__(self, lab, stack):
        where = stack.enter_context(etcd(lab))
        host, port = where.split(":")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            own = s.getsockname()
        self.wire = Wire(socket.AF_INET, own, (host, int(port)))
        stack.callback(self.wire.end)
        self.env, self.where = {**lab.plain(), "ETCDCTL_API": "3"}, ["127.0.0.1:%d" % own[1], where]

    def start(self, side, name, job):
        return subprocess.Popen(["etcdctl", "--endpoints", self.where[side], "lock", "--ttl", str(TTL_S), name, *job], env=self.env,
                                start_new_session=True, stderr=subprocess.DEVNULL)


def stamps(path):
    with contextlib.suppress(FileNotFoundError), open(path) as f:
        return [int(line) / 1e9 for line in f.read().splitlines()]
    return []


def end(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def both(lab, what, name, breaks):
    """Two jobs under one lock; what happens to the first is `breaks`. (When it broke, stamps of the first, stamps of the second.)"""
    files = [lab.open_file("stamps-%s-%s-%d" % (type(what).__name__, name, i)) for i in (0, 1)]
    jobs = [["/usr/bin/python3", os.path.join(HERE, "stamps.py"), f] for f in files]
    first = what.start(0, name, jobs[0])
    try:
        wait_until(lambda: stamps(files[0]), "the first has the lock", 60)
        second = what.start(1, name, jobs[1])
        try:
            time.sleep(1)
            broken = time.monotonic()
            breaks(first)
            with contextlib.suppress(Deadline):
                wait_until(lambda: stamps(files[1]), "the second has the lock", WATCHED_S)
            # How long they run at once is looked at until the same moment, whatever came first.
            time.sleep(max(0, broken + WATCHED_S - time.monotonic()) if name != "killed" else 0)
            return broken, stamps(files[0]), stamps(files[1])
        finally:
            end(second)
    finally:
        end(first)


def ran_both_s(_, first, second):
    """For how long the first went on after the second had begun."""
    return max(0.0, first[-1] - second[0]) if second else 0.0


def all_of(lab, what):
    killed = both(lab, what, "killed", end)
    if not killed[2]:
        raise CannotMeasure("the second did not get the lock")
    found = {"all killed: free after, s": killed[2][0] - killed[0]}
    for title, name, breaks in (("locker killed", "locker", lambda p: os.kill(p.pid, signal.SIGKILL)),
                                ("long job", "long", lambda p: None),
                                ("cut off", "cut", lambda p: what.wire.cut())):
        found[title + ": both ran, s"] = ran_both_s(*both(lab, what, name, breaks))
    return found


@measurement("lost")
def lost(lab):
    """What becomes of a job under a lock when something breaks, beside others, each with the same time to live."""
    curve = Curve("a job under a lock whose time to live is %d s, when something breaks (looked at for %.0f s)" % (TTL_S, WATCHED_S), "lock")
    for name, kind in (("dflock", Dflock), ("redis-py Lock", RedisPy), ("etcdctl lock", Etcdctl)):
        try:
            with contextlib.ExitStack() as stack:
                curve.add(name, all_of(lab, kind(lab, stack)))
        except (CannotMeasure, Deadline, OSError, subprocess.SubprocessError) as why:
            print("bench: lost: %s: left out: %s" % (name, why), file=sys.stderr)
    return [curve]
