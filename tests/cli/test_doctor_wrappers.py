"""`dflock doctor` about programs that start others, and about interpreters: compared with whether LD_PRELOAD is still there."""
import os
import pwd
import shutil
import subprocess

import pytest
from harness.host import SHIM

from test_doctor_program import expect, needs_root, script

ROOT_NAME = pwd.getpwuid(0).pw_name


def keeps(*command):
    """Is the preload still in the environment of the program that this command starts? That program must print it."""
    done = subprocess.run(command, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LD_PRELOAD": SHIM},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert "PATH=" in done.stdout, done
    return f"LD_PRELOAD={SHIM}" in done.stdout


@needs_root
@pytest.mark.parametrize("command, level", [
    (["sudo", "-n", "env"], "problem"),
    (["su", "-", ROOT_NAME, "-c", "env"], "warning"),
    (["runuser", "-l", ROOT_NAME, "-c", "env"], "warning"),
    (["env", "-i", "PATH=/usr/bin:/bin", "env"], "warning"),
    (["setpriv", "--reset-env", "env"], "warning"),
    *((words.split(), "ok") for words in ("nice env", "nohup env", "timeout 9 env", "setsid -w env", "stdbuf -o0 env")),
    (["sh", "-c", "env"], "ok"),
], ids=lambda v: v[0] if isinstance(v, list) else "")
def test_wrappers(unable, command, level):
    if not shutil.which(command[0]):
        pytest.skip(f"there is no {command[0]}")
    expect(unable, command[0], level, "" if level == "ok" else "so that the locks of what it starts")
    assert keeps(*command) == (level == "ok")


def test_others_are_known_by_name(unable, programs):
    """Also through a link, as of /snap/bin."""
    for name in "doveadm", "snap", "flatpak", "systemd-run", "at", "doas", "ssh", "docker":
        path, link = script(programs, "#!/bin/sh", name), os.path.join(programs, "link-" + name)
        os.symlink(path, link)
        for program in (path, link):
            expect(unable, program, "problem", "so that the locks of what it starts are not protected; ")


def test_one_that_takes_locks_itself(unable, built):
    """Of cron the preload reaches what it locks itself, and not its jobs. If it does not reach cron, that counts."""
    path = built("cron")
    assert expect(unable, path, "warning").startswith(
        f"{path}: the preload reaches it, but jobs have the environment of their table, so that the locks of what")
    os.unlink(path)
    expect(unable, built("cron", "-static"), "problem", f"{path} is statically linked")


def test_dflock_run_goes_by_the_arguments(unable):
    quiet, warned = unable.cli("run", "env", "true"), unable.cli("run", "env", "-i", "/bin/true")
    assert quiet.stderr == ""
    assert warned.stderr.startswith("dflock: warning: ") and "it cleans the environment with -i" in warned.stderr


@pytest.mark.parametrize("first, level, what, kept", [
    ("#!/usr/bin/env sh", "ok", "/sh is dynamically linked", True),
    ("#!/usr/bin/env -S sh -e", "ok", "/env is dynamically linked", True),
    ("#!/usr/bin/env -S -i PATH=/usr/bin sh", "warning", "it cleans the environment with -i", False),
])
def test_env_in_the_first_line(unable, programs, first, level, what, kept):
    path = script(programs, first + "\nenv")
    expect(unable, path, level, what)
    assert keeps(path) == kept
