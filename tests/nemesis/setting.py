"""
The machines of a fault run: five hosts and a redis-server, or three and sentinels, or a Redis Cluster, or a PostgreSQL, or a ZooKeeper, each in a network namespace
of its own, on each host three workers, and all that they leave behind to be judged.

The namespaces share pids and files. So a host is a keeper with a runtime directory of its own, and lock files that are
other inodes than those of the other hosts; SQLite's database is one, and each host sees it through a FUSE view of its
own. The numbers that the workers count up are files that all share.
"""
import collections
import glob
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys

import stamps
from harness import BUILD, Cluster, Deadline, Host, Network, Nodes, Postgresql, Redis, Views, Zookeeper, wait_until
from harness.host import CLI
from harness.nodes import MASTER, Place

HOSTS = "abcde"
KINDS = ("flock", "fcntl", "sqlite")
LEASE = 'ttl_ms = %d; freeze_margin_ms = %d; linger_ms = 100; on_lost = "%s";'
# A network that swallows everything must be noticed before the lease runs out.
STORE = "connect_ms = 1000;"
LOCKS = {"f0": "t/f0", "f1": "f1", "r0": "t/r0", "db": "v/db"}  # the file, and its lock name
LIMIT_S = 4  # after which a holder of f1 is ended
COUNTERS = [("f0", 0), ("f1", 0), ("r0", 0), ("r0", 1)]
WORKER = os.path.join(os.path.dirname(__file__), "worker.py")
HOLDER = os.path.join(BUILD, "tests/agents/holder")


def session(leader):
    """(pid, name, state) of all processes of that session."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(pid)) == leader:
                with open(f"/proc/{pid}/stat", errors="replace") as f:
                    name, state = f.read().split("(", 1)[1].rsplit(")", 1)
                yield int(pid), name, state.split()[0]
        except OSError:
            continue


class OnDisk:
    """A server that can be started with what is in the folder `disk`, with nothing, or with what was there long ago (`old`)."""

    def remember(self):
        """What is on disk now is what it will be started with when it is to be as it was long ago."""
        shutil.rmtree(self.old, ignore_errors=True)
        shutil.copytree(self.disk, self.old)

    def start_as(self, what):
        """same, empty or old."""
        self.stop()
        if what != "same":
            shutil.rmtree(self.disk)
        if what == "old":
            shutil.copytree(self.old, self.disk)
        self.start()


class Server(OnDisk, Redis):
    """On machine "store". With what it wrote to disk it can be started as it was, empty, or as it was long ago."""

    machines, ttl_s, words = ["store"], 3, "1 server"

    def __init__(self, folder, network):
        os.mkdir(folder)
        super().__init__(folder, "--appendonly", "yes", "--appendfsync", "always", address=network.addresses["store"],
                         port=6379, inside=network.inside("store"))
        self.settings = f'server = "{self.address}:6379";'
        self.disk, self.old = os.path.join(folder, "appendonlydir"), os.path.join(folder, "old")
        self.remember()


class Database(Postgresql):
    """The same with PostgreSQL."""

    machines, ttl_s, words = ["store"], 3, "1 PostgreSQL"

    def __init__(self, folder, network):
        os.mkdir(folder)
        os.chmod(os.path.dirname(folder), 0o711)  # the server is another user's
        self.address = network.addresses["store"]
        super().__init__(folder, inside=network.inside("store"), options=["-c", "listen_addresses=" + self.address])
        self.old = os.path.join(folder, "old")
        self.remember()

    def settings(self):
        return f'postgresql = "host={self.address} dbname=dflock user=dflock";'

    def restore(self):
        super().restore()
        with open(os.path.join(self.data, "pg_hba.conf"), "a") as f:
            f.write("host all all 10.0.0.0/8 trust\n")

    def remember(self):
        """As its disk would be after a loss of power."""
        self.process.send_signal(signal.SIGSTOP)  # then it starts no more
        self.signal(signal.SIGSTOP)
        shutil.rmtree(self.old, ignore_errors=True)
        subprocess.run(["cp", "-a", self.data, self.old], check=True)
        self.signal(signal.SIGCONT)

    def start_as(self, what):
        self.stop()
        if what == "empty":
            self.restore()
        elif what == "old":
            shutil.rmtree(self.data)
            subprocess.run(["cp", "-a", self.old, self.data], check=True)
        self.start()


class Ensemble(OnDisk, Zookeeper):
    """The same with ZooKeeper, of one server: more of them lose nothing."""

    machines, ttl_s, words = ["store"], 9, "1 ZooKeeper"  # its start takes seconds

    def __init__(self, folder, network):
        os.mkdir(folder)
        super().__init__(folder, address=network.addresses["store"], port=2181, inside=network.inside("store"),
                         within=lambda: network.within("store"))
        self.disk, self.old = os.path.join(self.folder, "0", "version-2"), os.path.join(folder, "old")
        self.remember()

    def remember(self):
        """As its disk would be after a loss of power."""
        self.signal(signal.SIGSTOP)
        super().remember()
        self.signal(signal.SIGCONT)


class Servers(Nodes):
    """Three of them that replicate, and a sentinel on the machine of each. They have no memory but the others'."""

    machines, ttl_s, words = ["s0", "s1", "s2"], 6, "3 servers with sentinels"  # a failover takes some seconds

    def __init__(self, folder, network):
        places = [Place(network.addresses[m], port, network.inside(m)) for port in (6379, 26379) for m in self.machines]
        super().__init__(folder, 3, 3, places=places)

    def stop_one(self, node):
        """When it starts again, it is what it is now, as if it had a configuration file that sentinels have rewritten."""
        follows = node.info("master_host")
        node.options = [o for i, o in enumerate(node.options) if "--replicaof" not in node.options[max(i - 1, 0):i + 1]]
        node.options += ["--replicaof", f"{follows} {node.info('master_port')}"] if follows else []
        node.stop()

    def fail_over(self, dice):
        dice.choice(self.sentinels).command("SENTINEL", "FAILOVER", MASTER)


class Clustered:
    """
    A Redis Cluster: `all` are the node with dflock's slot and its replicas, of which one at a time fails. The two other masters, on
    machines that are never cut, are the majority that elects a replica.
    """

    machines, ttl_s, words = ["s0", "s1", "s2", "v0", "v1"], 6, "a cluster"

    def __init__(self, folder, network):
        places = [Place(network.addresses[m], port, network.inside(m)) for m in ("v0", "v1", "s0", "s1", "s2") for port in (6379, 16379)]
        self.cluster = Cluster(folder, 3, 2, places=places)
        self.sentinels, self.all = self.cluster.all[:2], self.cluster.all[2:]
        self.settings = self.cluster.settings(replicas=2)

    def master(self):
        said = {voter.owner() for voter in self.sentinels}
        return next((n for n in self.all if {n.id} == said and n.role() == "master"), None)

    def fail_over(self, dice):
        dice.choice([n for n in self.all if n.role() == "slave"]).command("CLUSTER", "FAILOVER")

    def stop_one(self, node):
        """Its nodes.conf says what it is when it starts again."""
        node.stop()

    def stop(self):
        self.cluster.stop()


class Stage:
    def __init__(self, folder, seed, on_lost="freeze", store=Server):
        self.folder, self.seed, self.on_lost, self.kind = folder, seed, on_lost, store
        self.ttl_s, self.machines = store.ttl_s, store.machines
        self.stamps, self.counters, self.signs, self.logs = (
            os.path.join(folder, name) for name in ("stamps", "counters", "signs", "logs"))
        self.network = self.store = self.views = None
        self.hosts, self.workers, self.writes, self.started = [], {}, {}, 0
        self.operators, self.operated = set(), collections.Counter()
        for path in (self.stamps, self.counters, self.signs, self.logs):
            os.mkdir(path)
        for name, at in COUNTERS:
            with open(os.path.join(self.counters, f"{name}.{at}"), "wb") as f:
                f.write(bytes(8))

    def __enter__(self):
        try:
            self.set()
        except BaseException:
            self.strike()
            raise
        return self

    def __exit__(self, *_):
        self.strike()

    def set(self):
        self.network = Network([*self.machines, *HOSTS])
        self.store = self.kind(os.path.join(self.folder, "redis"), self.network)
        self.views = Views(os.path.join(self.folder, "data"), [self.view(name) for name in HOSTS])
        db = sqlite3.connect(os.path.join(self.views.data, "db"))
        db.executescript("PRAGMA journal_mode=DELETE; CREATE TABLE counter (n); INSERT INTO counter VALUES (0);"
                         "CREATE TABLE log (n);")
        db.close()
        for name in HOSTS:
            rules = '{ path = "%s/f1"; name = "f1"; kill_after_ms = ' + str(1000 * LIMIT_S) + '; }, ' \
                '{ tree = "%s"; name = "t"; }, { tree = "' + self.view(name) + '"; name = "v"; }'
            lease = LEASE % (1000 * self.ttl_s, 1000 * self.ttl_s // 3, self.on_lost)
            host = Host(self.store if isinstance(self.store, (Postgresql, Zookeeper)) else self.store.settings, name, self.folder, rules=rules, store=STORE, lease=lease, debug=True, times=True,
                        top="allow_break = true;", inside=self.network.inside(name))
            self.hosts.append(host)
            for lock in ("f0", "f1", "r0"):
                open(host.path(lock), "w").close()
        self.hosts[0].init()
        for host in self.hosts:
            host.wait_up()
            for kind in KINDS:
                self.start_worker(host, kind)

    def strike(self):
        for process in [*self.workers.values(), *self.operators]:
            self.end(process)
        for host in self.hosts:
            host.stop()
        if self.views:
            self.views.unmount()
        if self.store:
            self.store.stop()
        if self.network:
            self.network.delete()

    def view(self, name):
        return os.path.join(self.folder, "view-" + name)

    # --- workers ---

    def start_worker(self, host, kind):
        self.started += 1
        path = os.path.join(self.stamps, f"{host.name}-{kind}-{self.started}")
        files = self.view(host.name) if kind == "sqlite" else host.files
        words = [sys.executable, "-B", WORKER, kind, path, str(self.seed * 1000 + self.started), self.signs, files,
                 self.counters, HOLDER]
        # Holders never rest; nice, so that keepers are not kept from their work, which must not depend on it.
        self.writes[host.name, kind] = path
        with open(self.folder + "/workers.log", "ab") as log:
            self.workers[host.name, kind] = subprocess.Popen(
                [*host.inside, "nice", "-n", "19", *words], env=host.env(), start_new_session=True,
                stdin=subprocess.DEVNULL, stderr=log)

    def tend(self):
        """Workers that were killed are replaced. How many."""
        dead = [key for key, process in self.workers.items() if process.poll() is not None]
        for name, kind in dead:
            self.start_worker(self.host(name), kind)
        return len(dead)

    def host(self, name):
        return next(h for h in self.hosts if h.name == name)

    def operate(self, name, after_s, *words):
        """An operator at that host says `dflock break WORDS` so many seconds later."""
        host = self.host(name)
        env = {**host.env(), "LD_PRELOAD": ""}
        with open(os.path.join(self.logs, "operators"), "a") as log:
            operator = subprocess.Popen([*host.inside, "sh", "-c", 'sleep "$0"; exec "$@"', str(after_s), CLI, "break", *words], env=env,
                                        start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.operators.add(operator)
        return operator

    def end_operator(self, operator):
        """The command ends by itself, done or refused."""
        self.operated[operator.wait(90)] += 1
        self.operators.remove(operator)

    @staticmethod
    def signal(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    @staticmethod
    def end(process):
        if process.poll() is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait()

    def show(self, sign):
        """To the workers: "calm" or "stop"."""
        open(os.path.join(self.signs, sign), "w").close()

    def finish(self):
        """All end by themselves: no worker waits for ever."""
        self.show("stop")
        self.wait_until(lambda: all(p.poll() is not None for p in self.workers.values()), "every worker has ended", 60)

    def wait_until(self, condition, what, seconds):
        """If it takes too long, says what each worker is doing."""
        try:
            return wait_until(condition, what, seconds)
        except Deadline:
            for key, process in self.workers.items():
                if process.poll() is None:
                    print("worker", *key, [(pid, name, state) for pid, name, state in session(process.pid)])
            for host in self.hosts:
                print(host.name, host.keeper_pids(), host.cli("status", check=False).stdout, host.log()[-3000:])
            for record in self.records():
                if record.state in (stamps.ASKED, stamps.RUNS):
                    print(stamps.describe(record))
            raise

    # --- what they left ---

    def records(self):
        return stamps.read(self.stamps)

    def running(self):
        """Of holders that are alive, the records."""
        newest = [stamps.newest(path) for path in self.writes.values()]
        return [r for r in newest if r and r.state == stamps.RUNS and self.is_holder(r.pid)]

    @staticmethod
    def is_holder(pid):
        """And not another process that has got its number."""
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
            return WORKER.encode() in words or HOLDER.encode() in words
        except OSError:
            return False

    def finals(self):
        values = {}
        for name, at in COUNTERS:
            with open(os.path.join(self.counters, f"{name}.{at}"), "rb") as f:
                values[name, at], = struct.unpack("<q", f.read(8))
        db = sqlite3.connect(os.path.join(self.views.data, "db"))
        values["db", 0], = db.execute("SELECT n FROM counter").fetchone()
        db.close()
        return values

    def check_database(self):
        """Lines that say what is wrong with it."""
        db = sqlite3.connect(os.path.join(self.views.data, "db"))
        try:
            whole, = db.execute("PRAGMA integrity_check").fetchone()
            n, = db.execute("SELECT n FROM counter").fetchone()
            rows = [row for row, in db.execute("SELECT n FROM log ORDER BY n")]
        except sqlite3.Error as e:
            return [f"the database: {e}"]
        finally:
            db.close()
        lines = [] if whole == "ok" else ["the database: " + whole]
        if rows != list(range(1, n + 1)):
            lines.append(f"lost update: the database counted to {n}, but has {len(rows)} rows, {len(set(rows))} different")
        return lines

    def check(self):
        """Lines that say what was wrong; after finish()."""
        return stamps.check(self.records(), self.finals()) + self.check_database()

    def keep_logs(self, path):
        """What keepers and the nemesis said, and what all workers did, with times."""
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.logs, path)
        for log in glob.glob(self.folder + "/*.log"):
            shutil.copy(log, path)
        with open(os.path.join(path, "records"), "w") as f:
            for r in sorted(self.records(), key=lambda r: r.begun):
                f.write(f"{r.begun} {stamps.describe(r)}\n")

    def said(self, words):
        """How many lines of the keepers' logs have these words."""
        return sum(line.count(words) for path in glob.glob(self.folder + "/*.log") for line in open(path, errors="replace"))
