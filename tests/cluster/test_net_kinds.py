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


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64's")
def test_x32_calls_are_refused(two, folder):
    open(two[0].path("f"), "w").close()
    job = start(two[0], built(folder, "gcc", "-DX32"), False, stdin=subprocess.DEVNULL)
    assert (job.stdout.read(), job.wait(20)) == (b"", ENOSYS)


def say(record):
    return "setlk 0 ex 7 1" if record else "flock 0 ex"


@pytest.fixture(params=[False, True], ids=["flock", "record"])
def record(request):
    return request.param


def start(host, bare, record, **more):
    return netted(host, bare, host.path("f"), *(["record"] if record else []), stdout=subprocess.PIPE, **more)


def test_excludes(two, bare, record):
    b = opened(two[1])
    open(two[0].path("f"), "w").close()
    job = start(two[0], bare, record, stdin=subprocess.PIPE)
    assert job.stdout.readline() == b"had\n"
    now = say(record) + ("" if record else " nb")
    assert b.do(now) == "EAGAIN"
    job.communicate(timeout=20)
    wait_until(lambda: b.do(now) == "ok", "it is free")


def test_waits_for_another_host(two, bare, record):
    open(two[0].path("f"), "w").close()
    b = opened(two[1])
    assert b.do(say(record)) == "ok"
    job = start(two[0], bare, record, stdin=subprocess.DEVNULL)
    wanted_elsewhere(two[1])
    assert job.poll() is None
    b.kill()
    assert job.stdout.read() == b"had\n" and job.wait(20) == 0


def test_is_called_back_from_the_kernel(two, bare, record):
    """It waits there for a program of its own host when the other host wants the lock: both get it."""
    a, b = opened(two[0]), opened(two[1])
    assert a.do(say(record)) == "ok"
    job = start(two[0], bare, record, stdin=subprocess.DEVNULL)
    wait_until(lambda: waits_for_lock(job.pid), "it waits")
    b.say(say(record) + (" w" if record else ""))
    wanted_elsewhere(two[0])
    a.kill()
    assert b.heard()[0] == "ok"
    b.kill()
    assert job.stdout.read() == b"had\n" and job.wait(20) == 0
