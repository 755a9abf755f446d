"""A world for one test: a file to lock, a configuration, a runtime directory on a tmpfs."""
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

import fake_keeper as fk
from harness import text_of, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DFLOCK_BUILD", ROOT / "build"))
SHIM = BUILD / "libdflock.so"
PROGRAMS = BUILD / "tests" / "interpose"
MUSL = b"/ld-musl-" in (PROGRAMS / "places").read_bytes()  # `make check-musl`
RECVFROM = {"x86_64": "45", "aarch64": "207"}[os.uname().machine]
READ = {"x86_64": "0", "aarch64": "63"}[os.uname().machine]


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


def wait_in_recv(process, call=RECVFROM):
    """Until it waits for the keeper in the kernel: from then on a signal meets recvfrom()."""
    def waits():
        return text_of(f"/proc/{process.pid}/syscall").split()[0] == call
    wait_until(waits, f"{process.args} waits in call {call}")


def wait_in_pause(process):
    """Until it waits for there to be a keeper (shim/await.c)."""
    wait_until(lambda: has_timer(process.pid), f"{process.args} has a timer")
    wait_in_recv(process, READ)


def has_timer(pid):
    try:
        return any(os.readlink(f"/proc/{pid}/fd/{fd}") == "anon_inode:[timerfd]" for fd in os.listdir(f"/proc/{pid}/fd"))
    except FileNotFoundError:  # one of them was closed just now
        return False
