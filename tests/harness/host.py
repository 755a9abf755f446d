"""
A host: a keeper with a runtime directory of its own and lock files of its own (other inodes than those of the
other hosts, under the same lock names: with one inode the kernel would do the excluding and a test would show nothing).
"""
import contextlib
import glob
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from .ask import STATUS, ask
from .postgresql import Postgresql
from .processes import environ, pids_where, raw
from .zookeeper import Zookeeper
from .redis import LEAST_RIGHTS
from .wait import SLOW, Deadline, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("DFLOCK_BUILD", os.path.join(ROOT, "build"))
SHIM = os.path.join(BUILD, "libdflock.so")
KEEPER = os.path.join(BUILD, "dflockd")
CLI = os.path.join(BUILD, "dflock")
COMMANDS = os.path.join(BUILD, "dflock-commands")  # CLI starts it
DOCTOR = os.path.join(BUILD, "dflock-doctor")  # as well
NET = os.path.join(BUILD, "dflock-net")  # as well


def copy_engines(folder):
    """What a keeper in this folder may load."""
    for engine in glob.glob(os.path.join(BUILD, "dflock-*.so")):
        shutil.copy(engine, folder)


def copy_programs(folder):
    """The product in this folder, for users who cannot enter BUILD. By the name here: where the copy is."""
    copy_engines(folder)
    return {name: shutil.copy(globals()[name], folder) for name in ("SHIM", "KEEPER", "CLI", "COMMANDS", "DOCTOR", "NET")}


class Host:
    def __init__(self, redis, name, folder, shim=True, rules=None, lease="ttl_ms = 3000;", store="", foreground=True,
                 debug=False, inside=(), clock=None, times=False, top=""):
        """
        redis: a Redis, a Postgresql, a Zookeeper, an address, or settings of the store as text. rules: text for protect = (...); "%s" is the host's
        folder of files. Default: every file there, named by its name. inside: words before those of each program of this
        host (Network.inside()). clock: what they take for the time (Clock).
        top: more settings, outside of the groups.
        times: each line of the log begins with CLOCK_BOOTTIME in ns.
        """
        self.times = times
        self.inside, self.clock = list(inside), clock
        self.name = name
        self.shim = shim
        self.files = os.path.join(folder, "files-" + name)
        self.runtime = tempfile.mkdtemp(prefix="dflock-test-", dir="/dev/shm")
        self.config = os.path.join(folder, name + ".conf")
        self.log_path = os.path.join(folder, name + ".log")
        self.debug = debug
        self.keeper = None
        self.agents = []
        os.makedirs(self.files, exist_ok=True)
        if "probe_ms" not in lease:
            lease += " probe_ms = 5000;"  # else a call that does not wait gets EAGAIN where the machine is busy
        rules = rules or '{ tree = "%s"; name = "t"; }'
        if "past_look_ms" not in lease:
            lease += " past_look_ms = 60000;"  # else the keepers of all tests look for the holders of each other's locks
        where = redis if isinstance(redis, str) else redis.settings() if isinstance(redis, (Postgresql, Zookeeper)) else "unix:" + redis.socket
        where = where if "=" in where else f'server = "{where}";'
        if LEAST_RIGHTS and not isinstance(redis, str) and "password_file" not in store:
            store += ' user = "dflock"; password_file = "%s";' % self.password("least")
        with open(self.config, "w") as f:
            f.write('host = "%s"; %s\nstore = { %s %s };\nlease = { %s };\nprotect = ( %s );\n' %
                    (name, top, where, store, lease, rules.replace("%s", self.files)))
        if foreground:
            try:
                self.start()
            except BaseException:
                shutil.rmtree(self.runtime, ignore_errors=True)
                raise

    def password(self, text):
        """A file with it."""
        path = self.config + "-password"
        with open(path, "w", opener=lambda p, flags: os.open(p, flags, 0o600)) as f:
            f.write(text + "\n")
        return path

    def path(self, name):
        return os.path.join(self.files, name)

    def env(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("DFLOCK_", "LD_PRELOAD"))}
        env.update(DFLOCK_CONFIG=self.config, DFLOCK_RUNTIME_DIR=self.runtime)
        preloads = [SHIM] if self.shim else []
        if self.clock:
            env.update(self.clock.env())
            preloads.insert(0, env["LD_PRELOAD"])
        if preloads:
            env["LD_PRELOAD"] = ":".join(preloads)
        return env

    def plain_env(self, **more):
        """Of a program without the library."""
        env = {**self.env(), **more}
        env.pop("LD_PRELOAD", None)
        return env

    def start(self):
        """A keeper in the foreground, its log in a file."""
        env = self.plain_env()
        if self.debug:
            env["DFLOCK_LOG"] = "debug"
        if self.clock:
            env.update(self.clock.env())
        ready_read, ready_write = os.pipe()
        log = self.open_log()
        self.keeper = subprocess.Popen([*self.inside, KEEPER, "--foreground", "--ready-fd", str(ready_write)], env=env,
                                       pass_fds=[ready_write], stderr=log, stdout=subprocess.DEVNULL, start_new_session=True)
        os.close(ready_write)
        os.close(log)
        with os.fdopen(ready_read) as f:
            why = f.read()
        if why:
            self.keeper.wait()
            self.keeper = None
            raise RuntimeError(why)

    def open_log(self):
        log = os.open(self.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not self.times:
            return log
        read, write = os.pipe()
        threading.Thread(target=self.copy_log, args=(read, log), daemon=True).start()
        return write

    @staticmethod
    def copy_log(read, log):
        with os.fdopen(read, "rb") as lines:
            for line in lines:
                os.write(log, b"%d %s" % (time.clock_gettime_ns(time.CLOCK_BOOTTIME), line))
        os.close(log)

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def cli(self, *words, check=True, before=(), env=None, **more):
        """Runs dflock, with other words (as_user()) before it; returns the finished process with its output as text."""
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 60, **more}
        return subprocess.run([*self.inside, *before, CLI, *words], env=self.plain_env(**(env or {})), text=True, check=check, **more)

    def status(self):
        if not (self.inside or self.clock):  # these see another machine than this process does
            with contextlib.suppress(OSError):  # then dflock says why
                return json.loads(ask(os.path.join(self.runtime, "keeper.sock"), STATUS))
        said = self.cli("status", "--json", check=False)
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout)

    def wait_up(self):
        wait_until(lambda: self.status()["store"]["up"], "the store is up for " + self.name)
        return self

    def serves(self):
        """Is there a keeper that has taken up its leases?"""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            return s.connect_ex(os.path.join(self.runtime, "keeper.sock")) == 0

    def init(self):
        """Opens the store at once: no other host uses it."""
        self.wait_up()
        wait_until(lambda: self.cli("init", "--force", check=False).returncode == 0, "the store was opened")
        return self

    def keeper_pids(self):
        """The keepers' processes of this runtime directory: [parent, keeper]."""
        mark, keepers = self.runtime.encode(), []

        def is_ours(pid):
            comm = raw(f"/proc/{pid}/comm")
            if comm.startswith(b"dflockd") and (mark in raw(f"/proc/{pid}/cmdline") or mark in raw(f"/proc/{pid}/environ")):
                keepers.append((not comm.startswith(b"dflockd-parent"), pid))

        pids_where(is_ours)
        return [pid for _, pid in sorted(keepers)]

    def run(self, *words, **more):
        """A program under the shim (or not), to its end."""
        more.setdefault("timeout", 60)
        return subprocess.run([*self.inside, *words], env=self.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

    def popen(self, *words, **more):
        more.setdefault("stdout", subprocess.PIPE)
        more.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([*self.inside, *words], env=self.env(), text=True, **more)

    def agent(self, *words):
        agent = Agent(self, *words)
        self.agents.append(agent)
        return agent

    def opened(self, name="f", *commands, flags="rwc"):
        """An agent that has opened the file as its number 0, and done these commands."""
        agent = self.agent()
        for command in (f"open 0 {self.path(name)} {flags}", *commands):
            assert agent.do(command) == "ok", command
        return agent

    def program_pids(self):
        """Programs that were started with env(), and what they started."""
        mark = b"\0DFLOCK_RUNTIME_DIR=" + self.runtime.encode() + b"\0"
        return pids_where(lambda pid: mark in b"\0" + environ(pid))

    def kill_keeper(self):
        """Kills parent and keeper, and what the parent may have started meanwhile; true if none is left."""
        return self.kill(self.keeper_pids()) and not self.serves()  # one that is ending has no command line any more

    def kill_all(self):
        """The same with every program that a test has left: one that waits for a lock would start the next keeper."""
        return self.kill(self.program_pids() + self.keeper_pids()) and not self.serves()

    @staticmethod
    def kill(pids):
        """All at once, so that none starts another one."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
        return not pids

    def stop(self):
        for agent in self.agents:
            agent.kill()
        wait_until(self.kill_all, "the keeper and all programs have ended")
        if self.keeper:
            self.keeper.wait()
        shutil.rmtree(self.runtime, ignore_errors=True)


class Agent:
    """tests/agents/agent.c under a host's shim, or words that start another build of it. say() then heard(); do() is both."""

    def __init__(self, host, *words):
        self.process = subprocess.Popen([*host.inside, *(words or [os.path.join(BUILD, "tests/agents/agent")])], env=host.env(),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.pid = self.process.pid

    def say(self, command):
        self.process.stdin.write((command + "\n").encode())
        return self

    def line(self, seconds=20.0):
        """The next line that it writes; Deadline if none comes."""
        with selectors.DefaultSelector() as s:
            s.register(self.process.stdout, selectors.EVENT_READ)
            if not s.select(seconds * SLOW):
                raise Deadline(f"the agent has not answered within {seconds} s")
        line = b""
        while not line.endswith(b"\n"):
            c = self.process.stdout.read(1)
            if not c:
                raise Deadline("the agent has ended")
            line += c
        return line.decode().strip()

    def heard(self, seconds=20.0):
        """The answer's first word and number."""
        word, number = self.line(seconds).split()
        return word, int(number)

    def silent(self, seconds=0.3):
        """Nothing is heard for a while: for "still blocked". It proves little alone; the answer that comes later does."""
        with selectors.DefaultSelector() as s:
            s.register(self.process.stdout, selectors.EVENT_READ)
            return not s.select(seconds)

    def do(self, command, seconds=20.0):
        return self.say(command).heard(seconds)[0]

    def kill(self):
        if self.process.poll() is None:
            try:
                self.process.send_signal(signal.SIGCONT)
            except ProcessLookupError:
                pass
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
