"""`dflock doctor` about programs that start others, and about interpreters: compared with whether LD_PRELOAD is still there."""
import os
import pwd
import shutil
import subprocess

import pytest
from harness.host import SHIM

from test_doctor_program import about, host, needs_root, script  # noqa: F401 (fixture)


def keeps(*command):
    """Is the preload still in the environment of the program that this command starts? That program must print it."""
    done = subprocess.run(command, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LD_PRELOAD": SHIM},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert "PATH=" in done.stdout, done
    return f"LD_PRELOAD={SHIM}" in done.stdout


@needs_root
@pytest.mark.parametrize("command, level", [
    (["sudo", "-n", "env"], "problem"),
    (["su", "-", pwd.getpwuid(0).pw_name, "-c", "env"], "warning"),
    (["runuser", "-l", pwd.getpwuid(0).pw_name, "-c", "env"], "warning"),
    (["env", "-i", "PATH=/usr/bin:/bin", "env"], "warning"),
    (["setpriv", "--reset-env", "env"], "warning"),
], ids=lambda v: v[0] if isinstance(v, list) else "")
def test_wrappers(host, command, level):
    if not shutil.which(command[0]):
        pytest.skip(f"there is no {command[0]}")
    found = about(host, command[0])
    assert found[0] == level and "so that the locks of what it starts" in found[1]
    assert not keeps(*command)


@pytest.mark.parametrize("command", [["nice", "env"], ["nohup", "env"], ["timeout", "9", "env"], ["setsid", "-w", "env"],
                                     ["stdbuf", "-o0", "env"], ["sh", "-c", "env"]], ids=" ".join)
def test_what_keeps_the_environment(host, command):
    assert about(host, command[0])[0] == "ok" and keeps(*command)


@pytest.mark.parametrize("name", ["doveadm", "snap", "flatpak", "systemd-run", "at", "doas", "ssh", "docker"])
def test_others_are_known_by_name(host, programs, name):
    """Also through a link, as of /snap/bin."""
    path = script(programs, "#!/bin/sh", name)
    os.symlink(path, os.path.join(programs, "link"))
    for program in (path, os.path.join(programs, "link")):
        level, line = about(host, program)
        assert level == "problem" and "so that the locks of what it starts are not protected; " in line


def test_one_that_takes_locks_itself(host, programs, compiled):
    """Of cron the preload reaches what it locks itself, and not its jobs. If it does not reach cron, that counts."""
    path = compiled("cron")
    level, line = about(host, path)
    assert level == "warning"
    assert line.startswith(f"{path}: the preload reaches it, but jobs have the environment of their table, so that the locks of what")
    os.unlink(path)
    path = compiled("cron", "-static")
    level, line = about(host, path)
    assert level == "problem" and f"{path} is statically linked" in line


def test_dflock_run_goes_by_the_arguments(host):
    quiet, warned = host.cli("run", "env", "true"), host.cli("run", "env", "-i", "/bin/true")
    assert quiet.stderr == ""
    assert warned.stderr.startswith("dflock: warning: ") and "it cleans the environment with -i" in warned.stderr


# --- scripts ---

@pytest.mark.parametrize("first, level, what, kept", [
    ("#!/usr/bin/env sh", "ok", "/sh is dynamically linked", True),
    ("#!/usr/bin/env -S sh -e", "ok", "/env is dynamically linked", True),
    ("#!/usr/bin/env -S -i PATH=/usr/bin sh", "warning", "it cleans the environment with -i", False),
])
def test_env_in_the_first_line(host, programs, first, level, what, kept):
    path = script(programs, first + "\nenv")
    found = about(host, path)
    assert found[0] == level and what in found[1], found
    assert keeps(path) == kept


def test_env_of_nothing(host, programs):
    assert about(host, script(programs, "#!/usr/bin/env no-such-program"))[0] == "problem"
