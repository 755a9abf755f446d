"""Programs of musl and of glibc: they exclude each other between hosts, in one job, and from a container that has no glibc."""
import glob
import json
import os
import subprocess

import pytest
from harness import netted, wait_until
from harness.host import CLI, ROOT, SHIM

from keepers import leases

# Makes FOLDER the root of its mount namespace, sets NAME=VALUE..., and starts what follows, as who starts a container does.
ENTERING = """
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	if (chdir(*++argv) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"))
		return 98;
	while (*++argv && strchr(*argv, '='))
		putenv(*argv);
	return *argv ? execv(*argv, argv) : 99;
}
"""
# Locks FILE, and then lets the shell run what follows.
HOLDING = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
int main(int argc, char **argv)
{
	int fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	return argc != 3 || flock(fd, LOCK_EX) ? 99 : system(argv[2]) ? 98 : 0;
}
"""


@pytest.fixture
def built(folder):
    """built(NAME, FILE or TEXT): the program, by musl-gcc."""
    def make(name, source):
        path = os.path.join(folder, name)
        options = ["-D_GNU_SOURCE", "-w", "-I", ROOT, "-include", os.path.join(ROOT, "tests/musl.h"), "-x", "c", "-", "-o", path]
        text = source if "\n" in source else open(os.path.join(ROOT, source)).read()
        subprocess.run(["musl-gcc", "-O2", *options], input=text, text=True, check=True)
        return path

    return make


@pytest.fixture
def musl(built):
    return built("agent", "tests/agents/agent.c")


def opened(host, *words):
    agent = host.agent(*words)
    assert agent.do(f"open 0 {host.path('f')} rwc") == "ok"
    return agent


# What tries to lock, what waits for it, what unlocks.
CALLS = [("flock 0 ex nb", "flock 0 ex", "flock 0 un"), ("setlk 0 ex 0 10", "setlk 0 ex 0 10 w", "setlk 0 un 0 10"),
         ("lockf 0 tlock 10", "lockf 0 lock 10", "lockf 0 ulock 10")]


@pytest.mark.parametrize("first", ["musl", "glibc"])
def test_they_exclude_each_other(two, musl, first):
    a, b = [opened(host, *([musl] if (host is two[0]) == (first == "musl") else [])) for host in two]
    for trying, waiting, unlock in CALLS:
        assert a.do(trying) == "ok"
        assert b.do(trying) == "EAGAIN", trying
        b.say(waiting)
        wait_until(lambda: leases(two[0], note="wanted by another host"), f"the lease is recalled: {waiting}")
        assert b.silent(0.05)
        assert a.do(unlock) == "ok"
        assert b.heard()[0] == "ok"
        assert a.do(trying) == "EAGAIN", trying
        assert b.do(unlock) == "ok"


def test_below_the_net(two, musl):
    """The library is loaded there, too, and its lock calls carry the key of the net."""
    a, b = netted.opened(two[0], musl), opened(two[1])
    for lock, unlock in (("flock 0 ex nb", "flock 0 un"), ("setlk 0 ex 0 10", "setlk 0 un 0 10"), ("setlk 0 ex 0 10 w ofd", "setlk 0 un 0 10 ofd")):
        assert a.do(lock) == "ok"
        assert b.do(lock.replace(" w", "")) == "EAGAIN"
        assert a.do(unlock) == "ok"
    assert b.do("flock 0 ex nb") == "ok"
    assert a.do("flock 0 ex nb") == "EAGAIN"


def test_a_job_of_both(two, built):
    """A shell of glibc starts a program of musl, which starts one of glibc. No dynamic linker writes a line."""
    a, b = two
    outer = built("holding", HOLDING)
    words = [CLI, "run", "--require", "--report", "--json", "--", "sh", "-c", f'"$1" "$2" "flock -n $3 echo both" || exit', "-", outer, a.path("f"), a.path("g")]
    done = subprocess.run(words, env={k: v for k, v in a.env().items() if k != "LD_PRELOAD"}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "both\n"), done
    assert {row["file"]: row["taken"] for row in json.loads(done.stderr)["files"]} == {a.path("f"): 1, a.path("g"): 1}
    # And the job itself may be of musl.
    done = b.cli("run", "--require", "--", outer, b.path("f"), "true", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# $1: the new root; $2...: what is there as it is here; then "--", and the words that are started, the root after the first one.
CONTAINER = """
set -e
root=$1 && shift
mount --make-rprivate / && mount -t tmpfs tmpfs "$root" && mkdir "$root/proc" && mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do
    mkdir -p "$root$(dirname "$1")"
    if [ -d "$1" ]; then mkdir "$root$1"; else : >"$root$1"; fi
    mount --bind "$1" "$root$1"
    shift
done
enter=$2 && shift 2
exec "$enter" "$root" "$@"
"""


@pytest.mark.root("needs mounts, and so root")
def test_in_a_container_without_glibc(two, built, musl, folder):
    """With the machine's keeper: the library, the runtime directory, the configuration and the folder of the locks are mounted there."""
    a, b = two
    root, library = os.path.join(folder, "root"), glob.glob("/lib/ld-musl-*.so.1")[0]
    os.mkdir(root)
    there = [library, SHIM, a.runtime, a.config, a.files, musl]
    a.inside = ["env", "LD_PRELOAD=", "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", CONTAINER, "-", root, *there, "--"]
    inside = [built("enter", ENTERING), f"LD_PRELOAD={SHIM}", "DFLOCK_REQUIRE=1"]
    done = a.run(*inside, "DFLOCK_RUNTIME_DIR=/run/none", musl, stdin=subprocess.DEVNULL)
    assert done.returncode == 123 and done.stderr.startswith("dflock: not started: ") and done.stderr.count("\n") == 1, done
    mine, other = opened(a, *inside, musl), opened(b)
    assert mine.do("flock 0 ex nb") == "ok"
    assert other.do("flock 0 ex nb") == "EAGAIN"
    assert mine.do("flock 0 un") == "ok"
    assert other.do("flock 0 ex nb") == "ok"
    assert mine.do("flock 0 ex nb") == "EAGAIN"
