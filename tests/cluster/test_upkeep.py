"""docs/maintenance.md: another ttl_ms, hosts that come and go, keepers that are restarted and replaced, while jobs hold locks."""
import os
import re
import shutil
import signal
import subprocess

import pytest
from harness import Job, text_of, wait_until
from harness.host import KEEPER, copy_engines

from jobs import grows, job, pid_of
from keepers import held


def change_ttl(host, old, new):
    text = text_of(host.config)
    assert f"ttl_ms = {old};" in text
    with open(host.config, "w") as f:
        f.write(text.replace(f"ttl_ms = {old};", f"ttl_ms = {new};"))


def locks(host):
    return host.run("flock", "-n", host.path("f"), "true").returncode == 0


def holder(host):
    return Job(host, "flock", "-n", host.path("f"), "sh", "-c", "echo held; read line; true").held()


def stopped(host):
    done = host.cli("stop", check=False)
    return done.returncode == 0 and not host.keeper_pids()


# --- ttl_ms ---

@pytest.fixture
def hosts(make_host):
    """Two hosts whose keepers start when they are needed, with an open store."""
    hosts = [make_host(name, foreground=False, lease="ttl_ms = 5000;") for name in "ab"]
    hosts[0].cli("init", "--force")
    return hosts


def test_changing_ttl(hosts):
    a, b = hosts
    for host in hosts:
        assert locks(host)
        change_ttl(host, 5000, 7000)
    assert a.cli("reload", check=False).returncode == 1
    assert all(map(locks, hosts)), "what is in force stays"
    running = holder(a)
    assert "is locked by a program" in a.cli("stop", check=False).stderr
    assert not locks(b)
    running.end()
    wait_until(lambda: stopped(a), "a's keeper has ended")
    left_out = a.cli("init", "--force", check=False)
    assert re.search(r"hosts still use its ttl_ms = 5000 \(b-[0-9a-f]{16}\): `dflock stop` there first", left_out.stderr), left_out
    assert locks(b)
    wait_until(lambda: stopped(b), "b's keeper has ended")
    assert a.cli("init", "--force").stdout == "the store is open: locks are granted\n"
    change_ttl(b, 7000, 5000)  # a configuration that is left out: the next keeper there is refused
    refused = b.run("flock", "-n", b.path("f"), "true")
    assert refused.returncode == 71
    assert "leases have ttl_ms = 7000, this keeper is configured with 5000: use the same value" in refused.stderr, refused.stderr
    wait_until(lambda: stopped(b), "that keeper has ended")
    change_ttl(b, 5000, 7000)
    assert all(map(locks, hosts))
    assert "(ttl 7 s)" in a.cli("status").stdout


# --- hosts ---

def test_a_host_is_added_and_removed(make_host):
    """It is added while a lock is held."""
    lease = "ttl_ms = 600000; linger_ms = 600000;"
    a = make_host("a", lease=lease)
    running = holder(a)
    b = make_host("b", lease=lease, foreground=False)
    assert not locks(b)
    running.end()
    assert locks(b)
    known = re.compile("^    b-[0-9a-f]{16}  ", re.M)
    assert known.search(a.cli("status", "--all").stdout)
    b.cli("stop")
    assert locks(a)
    assert not known.search(a.cli("status", "--all").stdout)


# --- keepers ---

@pytest.fixture
def program(folder):
    """A keeper's program that can be replaced; /dev/shm may be noexec."""
    place = os.path.join("/tmp", os.path.basename(folder))
    os.mkdir(place)
    copy_engines(place)
    yield shutil.copy(KEEPER, place)
    shutil.rmtree(place)


def run_keeper(host, program):
    env = {**host.env(), "LD_PRELOAD": ""}
    host.keeper = subprocess.Popen([program, "--foreground"], env=env, stderr=host.open_log(), stdout=subprocess.DEVNULL, start_new_session=True)
    wait_until(lambda: host.serves(), "it serves")


def programs(host):
    return {os.readlink(f"/proc/{pid}/exe") for pid in host.keeper_pids()}


def twice(host):
    """As an operator who does not want to wait."""
    parent = host.keeper_pids()[0]
    os.kill(parent, signal.SIGTERM)
    wait_until(lambda: "told to end: waits" in host.log(), "it waits for the lock")
    os.kill(parent, signal.SIGTERM)


def killed(host):
    """As systemd after TimeoutStopSec."""
    host.kill(host.keeper_pids())


@pytest.mark.parametrize("end", [twice, killed])
def test_a_keeper_is_replaced(make_host, program, end):
    """By another program under the same path, while a job holds a lock: its lease is taken up."""
    a, b = make_host("a", lease="ttl_ms = 20000;"), make_host("b", lease="ttl_ms = 20000;")
    wait_until(lambda: stopped(a), "a has none")
    run_keeper(a, program)
    process, path = job(a)
    before = held(a)[0]
    os.unlink(program)
    shutil.copy(KEEPER, program)
    os.kill(a.keeper_pids()[1], signal.SIGKILL)
    wait_until(lambda: "started again" in a.log() and a.serves(), "the parent starts it again")
    assert programs(a) == {program + " (deleted)"}
    end(a)
    a.keeper.wait()
    wait_until(lambda: not a.keeper_pids() and not a.serves(), "both have ended")
    run_keeper(a, program)
    assert programs(a) == {program}
    wait_until(lambda: held(a, token=before["token"], fence=before["fence"], state="held"), "the lease is taken up")
    grows(path)
    assert not locks(b) and not locks(a)
    os.kill(pid_of(path), signal.SIGKILL)
    assert "dflock" not in process.communicate(timeout=20)[1]
    wait_until(lambda: locks(b), "b gets the lock")
