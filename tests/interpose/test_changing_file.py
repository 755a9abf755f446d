"""A file that changes all the time: its path is looked up again after a change, not at each lock, and the page is not asked again.
What the shim may remember of a descriptor: shim/recent.h."""
import os
import re
import subprocess
import time

import pytest

import fake_keeper as fk

CHANGES, LOCKS = 50, 8

PROGRAM = """
import fcntl, sys
with open(sys.argv[1], "ab", buffering=0) as file:
    for _ in range(int(sys.argv[2])):
        file.write(b"x")
        for _ in range(int(sys.argv[3])):
            fcntl.flock(file, fcntl.LOCK_EX)
            fcntl.flock(file, fcntl.LOCK_UN)
"""


@pytest.mark.parametrize("protected", [True, False], ids=["protected", "not protected"])
def test_a_changing_file_is_looked_up_once_for_each_change(world, protected):
    path, trace = world.lock if protected else world.lock.parent / "other", world.folder / "trace"
    env = world.environment()
    preload = env.pop("LD_PRELOAD")
    with world.keeper() as keeper:
        path.touch()
        if protected:
            fk.Leases(world.runtime).show(path)
        begin = time.monotonic()
        done = subprocess.run(["strace", "-o", trace, "-E", "LD_PRELOAD=" + preload, "/usr/bin/python3", "-c", PROGRAM, path, str(CHANGES),
                               str(LOCKS)], env=env, capture_output=True, text=True)
        passed = time.monotonic() - begin
    calls = trace.read_text()
    assert done.returncode == 0 and keeper.requests == 0, done.stderr
    assert len(re.findall(r"^statx\(\d+, (?:NULL|\"\"), ", calls, re.M)) >= CHANGES * LOCKS, "each call identifies its file"
    paths = len(re.findall(r"^readlinkat\(AT_FDCWD, \"/proc/thread-self/fd/", calls, re.M))
    roots = len(re.findall(r"^newfstatat\(AT_FDCWD, \"/\", ", calls, re.M))
    assert paths >= CHANGES
    # Whether the page is this program's depends on its root directory, too: looked at once a second.
    assert 1 <= roots <= 5 + 2 * passed
