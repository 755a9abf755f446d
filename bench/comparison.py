"""
What a user would take instead, in the same run: libraries and commands that lock through Redis, ZooKeeper or etcd, with their default
settings. Each is driven through a small program (others/), so that a lock call of Python is compared with a lock call of Python. What
is not installed is left out, and said.
"""
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from bench.lab import BUILD, CannotMeasure
from bench.measurements import measurement
from bench.report import Curve
from tests.harness import Deadline, Host, Postgresql, wait_until
from tests.harness.host import CLI

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "others")
PYTHON = ["/usr/bin/python3", os.path.join(HERE, "player.py")]
MODULES = os.path.join(BUILD, "bench/others/node_modules")
JARS = "curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute", "guava", "slf4j-api", "slf4j-nop"
PAIRS, TURNS, JOBS = 200, 10, 10
REST_S = 0.02
WARM, WARM_S = 1500, 0.002


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def server(lab, name, command, port, **env):
    """A server of another kind, in a folder of its own, until it is not needed any more."""
    log = open(lab.open_file(name + ".log"), "ab")
    with subprocess.Popen(command, stdout=log, stderr=log, env={**lab.plain(), **env}, start_new_session=True) as p:
        try:
            def answers():
                if p.poll() is not None:
                    raise CannotMeasure("%s does not start" % name)
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    return True
            wait_until(answers, name + " answers", 60)
            yield "127.0.0.1:%d" % port
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, 9)


def zookeeper(lab):
    port, folder = free_port(), tempfile.mkdtemp(dir=lab.folder)
    with open(os.path.join(folder, "zoo.cfg"), "w") as f:
        f.write("tickTime=2000\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n" % (folder, port))
    return server(lab, "zookeeper", ["/usr/share/zookeeper/bin/zkServer.sh", "start-foreground", os.path.join(folder, "zoo.cfg")], port,
                  ZOO_LOG_DIR=folder, JMXDISABLE="true")


def etcd(lab):
    port, peer = free_port(), free_port()
    urls = ["http://127.0.0.1:%d" % p for p in (port, peer)]
    return server(lab, "etcd", ["etcd", "--data-dir", lab.open_file("etcd"), "--listen-client-urls", urls[0],
                                "--advertise-client-urls", urls[0], "--listen-peer-urls", urls[1],
                                "--initial-advertise-peer-urls", urls[1], "--initial-cluster", "default=" + urls[1]], port)


class Player:
    def __init__(self, command, env):
        self.process = subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        if self.process.stdout.readline() != "ready\n":
            raise CannotMeasure(self.process.stderr.read().strip().splitlines()[-1])

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        return [int(word) for word in self.process.stdout.readline().split()]

    def end(self):
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def players(*commands_and_envs):
    some = []
    try:
        for command, env in commands_and_envs:
            some.append(Player(command, env))
        yield some
    finally:
        for p in some:
            p.end()


def pair_and_turns(one, other):
    """Medians in us: of a pair when nobody else wants the lock, and from one's unlock to the other's having it."""
    with players(one, other) as (a, b):
        a.say("pair %d" % PAIRS)
        a.hear()  # what is slow once
        a.say("pair %d" % PAIRS)
        pair = statistics.median(a.hear()) / 1e3
        turns = []
        a.say("lock")
        a.hear()
        for rest in (WARM_S,) * WARM + (REST_S,) * TURNS:  # a server in Java is slow until it has done much: a pair of ours asks none
            b.say("lock")
            time.sleep(rest)
            a.say("unlock")
            turns.append((b.hear()[0] - a.hear()[0]) / 1e3)
            a, b = b, a
        return {"pair, us": pair, "hand-over, us": statistics.median(turns[WARM:])}


def job(env, *words):
    """Median in ms of a shell job (true) under the lock, from start to end; {} is another name each time."""
    took = []
    for i in range(JOBS):
        begin = time.monotonic()
        subprocess.run([w.replace("{}", str(i)) for w in words], env=env, check=True, stdout=subprocess.DEVNULL, timeout=60)
        took.append((time.monotonic() - begin) * 1e3)
    return {"job wrapped once, ms": statistics.median(took)}


def etcd_turns(where):
    """etcdctl has no lock call: it holds the lock until it is ended."""
    def start():
        return subprocess.Popen(["etcdctl", "--endpoints", where, "lock", "bench"], env={**os.environ, "ETCDCTL_API": "3"}, text=True,
                                stdout=subprocess.PIPE)
    turns, a = [], start()
    a.stdout.readline()
    for _ in range(TURNS):
        b = start()
        time.sleep(0.2)
        begin = time.monotonic_ns()
        a.terminate()
        b.stdout.readline()
        turns.append((time.monotonic_ns() - begin) / 1e3)
        a.communicate()
        a = b
    a.terminate()
    a.communicate()
    return {"hand-over, us": statistics.median(turns)}


def modules():
    """Where node finds redlock and redis-semaphore; installs them if they are not there."""
    if not shutil.which("npm"):
        raise CannotMeasure("npm is not installed")
    if not os.path.isdir(MODULES):
        folder = os.path.dirname(MODULES)
        os.makedirs(folder, exist_ok=True)
        shutil.copy(os.path.join(HERE, "package.json"), folder)
        done = subprocess.run(["npm", "install", "--silent", "--no-fund", "--no-audit"], cwd=folder, capture_output=True, text=True,
                              timeout=300)
        if done.returncode:
            raise CannotMeasure("npm install: " + done.stderr.strip()[-200:])
    return MODULES


def flock_alone(lab):
    words = PYTHON + ["flock", "-", lab.open_file("alone")]
    return {**pair_and_turns((words, lab.plain()), (words, lab.plain())),
            **job(lab.plain(), "flock", lab.open_file("job"), "true")}


def dflock(lab):
    a, b = lab.host("a"), lab.host("b")
    return {**pair_and_turns(*[(PYTHON + ["flock", "-", h.path("others")], h.env()) for h in (a, b)]),
            **job(a.env(), "flock", a.path("job{}"), "true")}


def dflock_run(lab):
    a = lab.host("a")
    env = {k: v for k, v in a.env().items() if k != "LD_PRELOAD"}
    return job(env, CLI, "run", "--", "flock", a.path("run{}"), "true")


def redis_py(lab):
    words = PYTHON + ["redis-py", lab.redis("others").socket, "bench"]
    script = "import redis, subprocess\nwith redis.Redis(unix_socket_path=%r).lock('job{}', timeout=30): subprocess.run(['true'])"
    return {**pair_and_turns((words, lab.plain()), (words, lab.plain())),
            **job(lab.plain(), "/usr/bin/python3", "-c", script % lab.redis("others").socket)}


def of_node(kind):
    def measure(lab):
        env = {**lab.plain(), "NODE_PATH": modules()}
        words = ["node", os.path.join(HERE, "player.js"), kind, lab.redis("others").socket, "bench-" + kind]
        return pair_and_turns((words, env), (words, env))
    return measure


def kazoo(lab):
    with zookeeper(lab) as where:
        words = PYTHON + ["kazoo", where, "bench"]
        return pair_and_turns((words, lab.plain()), (words, lab.plain()))


def curator(lab):
    jars = [os.path.join("/usr/share/java", jar + ".jar") for jar in JARS]
    missing = [jar for jar in jars if not os.path.exists(jar)]
    if missing or not shutil.which("javac"):
        raise CannotMeasure("libcurator-recipes-java or a JDK is not installed")
    with zookeeper(lab) as where:
        words = ["java", "-cp", ":".join(jars), os.path.join(HERE, "Curator.java"), where, "bench"]
        return pair_and_turns((words, lab.plain()), (words, lab.plain()))


def dflock_at(lab, settings):
    """With another store: as many messages, and all that is between them and the call."""
    with contextlib.ExitStack() as stack:
        hosts = []
        for name in "ab":
            hosts.append(Host(settings, name, tempfile.mkdtemp(dir=lab.folder)))
            stack.callback(hosts[-1].stop)
        hosts[0].init()
        return pair_and_turns(*[(PYTHON + ["flock", "-", h.path("others")], h.env()) for h in hosts])


def dflock_zookeeper(lab):
    with zookeeper(lab) as where:
        return dflock_at(lab, 'zookeeper = "%s/dflock";' % where)


def dflock_postgresql(lab):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # which a server that is not root's can enter
        server = Postgresql(folder)
        try:
            return dflock_at(lab, server.settings())
        finally:
            server.stop()


def etcdctl(lab):
    with etcd(lab) as where:
        return {**etcd_turns(where),
                **job({**lab.plain(), "ETCDCTL_API": "3"}, "etcdctl", "--endpoints", where, "lock", "job{}", "true")}


CONTENDERS = {
    "flock() alone, one machine": flock_alone,
    "dflock": dflock,
    "dflock run": dflock_run,
    "redis-py Lock": redis_py,
    "redlock (node)": of_node("redlock"),
    "redis-semaphore (node)": of_node("redis-semaphore"),
    "dflock on ZooKeeper": dflock_zookeeper,
    "kazoo Lock on ZooKeeper": kazoo,
    "Curator InterProcessMutex on ZooKeeper": curator,
    "dflock on PostgreSQL": dflock_postgresql,
    "etcdctl lock": etcdctl,
}


@measurement("others")
def others(lab):
    """Beside others, with default settings: a pair when nobody else wants the lock, a hand-over between two processes, and a shell
    job under the lock from start to end."""
    curve = Curve("beside others (medians)", "lock")
    for name, measure in CONTENDERS.items():
        try:
            curve.add(name, measure(lab))
        except (CannotMeasure, Deadline, OSError, subprocess.SubprocessError, IndexError) as why:
            print("bench: others: %s: left out: %s" % (name, why), file=sys.stderr)
    return [curve]
