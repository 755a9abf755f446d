"""
dflock break under a system keeper: a user may end what is its own, and nothing else.

What must not be: a user ends another user's processes, or those of another host, through the keeper, which is root.
"""
import os
import subprocess

import pytest
from fronted import HOSTILE, OTHER, ground, place, prepare, shown  # noqa: F401
from harness import text_of, wait_until, write_text
from harness.host import CLI
from harness.processes import state

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for users")

HOLD = "echo got $$; exec sleep 1000"


def job(host, uid, name, script=HOLD):
    process = host.popen(*host.as_user(uid, "flock", prepare(host, name, uid), "sh", "-c", script), start_new_session=True)
    return process, int(process.stdout.readline().split()[1])


def dflock(host, uid, *words):
    env = host.env()
    env.pop("LD_PRELOAD")
    return subprocess.run([*host.inside, *host.as_user(uid, CLI, "break", "--yes", *words)], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)


def runs(pid):
    return state(pid) not in ("Z", "X", "gone")


@pytest.fixture
def host(ground):  # noqa: F811
    host, mount, puppet = ground
    yield host.wait_up()


def test_ones_own(host):
    process, pid = job(host, OTHER, "f")
    done = dflock(host, OTHER, host.path("f"))
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not runs(pid), "it has ended")
    process.communicate(timeout=20)


def test_another_users(host):
    process, pid = job(host, OTHER, "f")
    done = dflock(host, HOSTILE, "t/f")
    assert done.returncode == 1 and any(f"process {p} would have to end" in done.stderr for p in (pid, process.pid)), done.stderr
    assert "is not yours: only root or the keeper's user may do that" in done.stderr
    assert runs(pid)
    done = dflock(host, 0, "t/f")  # root may
    assert done.returncode == 0
    wait_until(lambda: not runs(pid), "it has ended")
    process.communicate(timeout=20)


def test_a_lock_that_is_shared_with_another_user(host):
    """Both hold it under one lease: neither may end the other."""
    prepare(host, "f", OTHER)
    os.chmod(host.path("f"), 0o666)
    jobs = [host.popen(*host.as_user(uid, "flock", "-s", host.path("f"), "sh", "-c", HOLD), start_new_session=True)
            for uid in (OTHER, HOSTILE)]
    pids = [int(process.stdout.readline().split()[1]) for process in jobs]
    done = dflock(host, HOSTILE, "t/f")
    assert done.returncode == 1 and "is not yours" in done.stderr
    assert all(runs(pid) for pid in pids)
    assert dflock(host, 0, "t/f").returncode == 0
    for process in jobs:
        process.communicate(timeout=20)


def test_what_no_process_holds_any_more(host):
    """A lease that stays for a moment, and a rest, are not a user's to end."""
    process, pid = job(host, OTHER, "f", "echo got $$")
    process.communicate(timeout=20)
    done = dflock(host, HOSTILE, "t/f")
    assert done.returncode in (1, 3)
    assert done.returncode == 3 or "not yours" in done.stderr


def test_other_hosts_are_not_a_users(host, make_host):
    b = make_host("b")
    text = text_of(b.config)
    write_text(b.config, "allow_break = true;\n" + text)
    b.cli("reload")
    process = b.popen("flock", b.path("f"), "sh", "-c", HOLD)
    pid = int(process.stdout.readline().split()[1])
    done = dflock(host, HOSTILE, "t/f")
    assert done.returncode == 1 and "only root or the keeper's user may take away what other hosts have" in done.stderr
    done = dflock(host, HOSTILE, "--host", b.status()["host"])
    assert done.returncode == 1 and "only root or the keeper's user may do that" in done.stderr
    assert runs(pid)
    assert dflock(host, 0, "t/f").returncode == 0
    wait_until(lambda: not runs(pid), "it has ended")
    process.communicate(timeout=20)
