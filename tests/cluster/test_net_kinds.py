"""Under the net: programs without a libc, of each kind that the kernel runs."""
import os
import shutil
import subprocess

import pytest
from harness import wait_until
from harness.netted import netted, opened
from harness.processes import waits_for_lock

from keepers import wanted_elsewhere

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../net/bare.c")
FLAGS = ["-O2", "-nostdlib", "-static", "-ffreestanding", "-fno-stack-protector", "-fno-pie", SOURCE, "-o"]
KINDS = {
    "x86_64": {"native": ["gcc"], "i386": ["gcc", "-m32"]},
    "aarch64": {"native": ["gcc"], "aarch32": ["arm-linux-gnueabihf-gcc", "-marm"]},
}[os.uname().machine]
ENOSYS = 38


def built(folder, *words):
    program = os.path.join(folder, "bare")
    if not shutil.which(words[0]):
        pytest.skip(f"there is no {words[0]}")
    subprocess.run([*words, *FLAGS, program], check=True)
    return program


@pytest.fixture(params=KINDS)
def bare(request, folder):
    """tests/net/bare.c as a program of this kind."""
    return built(folder, *KINDS[request.param])


def start(host, bare, record):
    open(host.path("f"), "a").close()
    return netted(host, bare, host.path("f"), *(["record"] if record else []), stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64's")
def test_x32_calls_are_refused(two, folder):
    job = start(two[0], built(folder, "gcc", "-DX32"), False)
    assert (job.communicate(timeout=20)[0], job.returncode) == (b"", ENOSYS)


@pytest.fixture(params=[False, True], ids=["flock", "record"])
def record(request):
    return request.param


def words(record):
    """Of the programs beside it, for a call that does not wait, and one that does."""
    return ("setlk 0 ex 7 1", "setlk 0 ex 7 1 w") if record else ("flock 0 ex nb", "flock 0 ex")


def test_excludes(two, bare, record):
    """It waits for another host, and then keeps it out."""
    now, b = words(record)[0], opened(two[1])
    assert b.do(now) == "ok"
    job = start(two[0], bare, record)
    wanted_elsewhere(two[1])
    assert job.poll() is None
    b.kill()
    assert job.stdout.readline() == b"had\n"
    b = opened(two[1])
    assert b.do(now) == "EAGAIN"
    job.communicate(timeout=20)
    assert job.returncode == 0
    wait_until(lambda: b.do(now) == "ok", "it is free")


def test_is_called_back_from_the_kernel(two, bare, record):
    """It waits there for a program of its own host when the other host wants the lock: both get it."""
    now, waiting = words(record)
    a, b = opened(two[0]), opened(two[1])
    assert a.do(now) == "ok"
    job = start(two[0], bare, record)
    job.stdin.close()
    wait_until(lambda: waits_for_lock(job.pid), "it waits")
    b.say(waiting)
    wanted_elsewhere(two[0])
    a.kill()
    assert b.heard()[0] == "ok"
    b.kill()
    assert job.stdout.read() == b"had\n" and job.wait(20) == 0
