"""A world for one test: a file to lock, a configuration, a runtime directory on a tmpfs; and programs that lock there."""
import fcntl
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

import fake_keeper as fk
from harness import Agent, Clock, text_of, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DFLOCK_BUILD", ROOT / "build"))
SHIM = BUILD / "libdflock.so"
PROGRAMS = BUILD / "tests" / "interpose"
MUSL = b"/ld-musl-" in (PROGRAMS / "places").read_bytes()  # `make check-musl`
ARM = os.uname().machine == "aarch64"
RECVFROM, READ, FCNTL, FLOCK_CALL, FUTEX = ("207", "63", "25", "32", "98") if ARM else ("45", "0", "72", "73", "202")
# Programs and their words that must do the same under the shim; and of which questions there are, if the page has a lease.
PLACES = ("constructor", "handler", "fork", "vfork", "threads")
CASES = [
    "calls flock {lock} {data}", "calls fcntl {lock}", "calls record {lock}", "limits closed {lock}", "waits restart x {lock}",
    "waits interrupt sn {lock}", "waits held x {lock}", *(f"places {where} {{lock}}" for where in (*PLACES, "threads-fork")),
    *(f"places record-{where} {{lock}}" for where in PLACES), *(f"places syscall-{where} {{lock}}" for where in ("main", *PLACES[:-1])),
    *(f"waits before {call} {{lock}}" for call in ("x", "setlkw", "lockf", "setlk", "tlock", "getlk", "sysflock", "syssetlkw")),
]


def not_with_musl(reason):
    return pytest.mark.skipif(MUSL, reason=reason)


class World:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.config = self.folder / "dflock.conf"
        self.runtime = self.folder / "run"
        self.runtime.mkdir(mode=0o700)
        self.lock = self.folder / "data" / "the.lock"
        self.lock.parent.mkdir()
        self.shim = SHIM
        self.order(rules=[[fk.PATH, str(self.lock)]])

    def order(self, **orders):
        """The configuration, which tells a fake keeper that the shim starts what to do."""
        self.config.write_text(json.dumps({"rules": [], **orders}))

    def keeper(self, handler=fk.grant_all, rules=None, **kwargs):
        rules = [(fk.GLOB, f"{self.lock}*")] if rules is None else rules
        return fk.Keeper(self.runtime, self.config, rules, handler, **kwargs)

    def own_shim(self, beside="dflockd"):
        """A copy of the shim, with the fake keeper beside it as dflockd."""
        folder = self.folder / "lib"
        folder.mkdir()
        self.shim = folder / "libdflock.so"
        shutil.copy(SHIM, self.shim)
        program = folder / beside
        program.write_text(f"#!/usr/bin/python3\nimport sys\nsys.path.insert(0, {str(ROOT / 'tests/interpose')!r})\n"
                           "sys.dont_write_bytecode = True\nimport fake_keeper\nsys.exit(fake_keeper.main())\n")
        program.chmod(0o755)

    def environment(self, preload=True, config=True, **more):
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C", "NOT_FOR_THE_KEEPER": "1"}
        if preload:
            env["LD_PRELOAD"] = str(self.shim)
        if config:
            env.update(DFLOCK_CONFIG=str(self.config), DFLOCK_RUNTIME_DIR=str(self.runtime))
        return {**env, **more}

    def standing_clock(self):
        """The environment of a program that another preload shows clocks that stand still: faketime(1)."""
        env = Clock(str(self.folder / "clock"), fast_ppm=-999_999).env()
        return {**env, "LD_PRELOAD": f"{env['LD_PRELOAD']}:{self.shim}"}

    def command(self, program, *args):
        assert (PROGRAMS / program).exists(), "make agents first"
        return [str(PROGRAMS / program), *map(str, args)]

    def run(self, program, *args, env=None, wrap=(), **kwargs):
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run([*wrap, *self.command(program, *args)], env=env or self.environment(),
                              capture_output=True, text=True, timeout=60, **kwargs)

    def start(self, program, *args, env=None):
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command(program, *args), env=env or self.environment(), stdin=pipe, stdout=pipe,
                                stderr=pipe, text=True)

    def started(self):
        """What the keepers that the shim started were given."""
        return [json.loads(pathlib.Path(name).read_text()) for name in glob.glob(f"{self.runtime}/started-*.json")]

    def end_keepers(self):
        """And their files, as if none had ever run."""
        for about in self.started():
            if os.path.exists(f"/proc/{about['pid']}"):
                os.kill(about["pid"], signal.SIGKILL)
        for name in self.runtime.iterdir():
            name.unlink()

    def end(self):
        self.end_keepers()
        shutil.rmtree(self.folder)


class Locker(Agent):
    """An agent that has the world's file open."""

    def __init__(self, world, flags="rwc", preload=True, path=None, wrap=(), **env):
        self.says = world.folder / f"says-{os.urandom(4).hex()}"
        self.env, self.inside = lambda: world.environment(preload=preload, **env), ["sh", "-c", 'exec "$@" 2>"$0"', self.says, *wrap]
        super().__init__(self)
        self.path = str(path or world.lock)
        assert self.do(f"open 0 {self.path} {flags}") == "ok"
        assert self.do("alarm 0") == "ok"

    def locks(self, owner=fk.PROCESS):
        return fk.locks(self.pid, self.path, owner)

    def waits_in(self, number):
        """In a system call, in any of its threads."""
        waits_in(self.pid, number)

    def waits_for_a_keeper(self):
        """shim/await.c"""
        wait_until(lambda: has_timer(self.pid), "it has a timer")
        self.waits_in(READ)

    def signal(self, number=signal.SIGALRM):
        os.kill(self.pid, number)

    def said(self):
        return self.says.read_text()

    def hears(self, error="ok"):
        heard = self.heard()[0]
        assert heard == error, heard


def waits_in(pid, number):
    def waits():
        return any(text_of(f"/proc/{pid}/task/{task}/syscall").split()[0] == number for task in os.listdir(f"/proc/{pid}/task"))
    wait_until(waits, f"{pid} waits in system call {number}")


def has_timer(pid):
    try:
        return any(os.readlink(f"/proc/{pid}/fd/{fd}") == "anon_inode:[timerfd]" for fd in os.listdir(f"/proc/{pid}/fd"))
    except FileNotFoundError:  # one of them was closed just now
        return False


def numbers_of(pid, field, base=10):
    """Of /proc/PID/status, from lines that have this in their names."""
    with open(f"/proc/{pid}/status") as status:
        return [int(line.split()[1], base) for line in status if field in line.split(":")[0]]


def is_free(path):
    """Nobody has it by flock(), not even shared."""
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False


def result(process):
    """The line of the call itself, as soon as it is there."""
    for line in process.stdout:
        if line.startswith("flock: "):
            return line.rstrip("\n")
    raise AssertionError("the program ended: " + process.stderr.read())


def have(script, locker, *commands):
    for command in commands:
        locker.say(command)
        script.next_known().grant()
        assert locker.heard()[0] == "ok", command


def wait_until_old(path):
    """What has just changed is not remembered."""
    wait_until(lambda: time.time_ns() > os.stat(path).st_ctime_ns + 30_000_000, "the file is old enough")
