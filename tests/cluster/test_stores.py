"""What docs/stores.md says of each store but Redis: programs of two hosts exclude each other, and how the store is changed, step by step."""
import os
import subprocess

import pytest
from harness import Postgresql, Redis, Zookeeper, text_of, wait_until, write_text
from harness.host import CLI


@pytest.fixture(params=["postgresql", "zookeeper"])
def redis(request, folder):
    """What hosts of make_host are hosts of."""
    server = Postgresql(folder) if request.param == "postgresql" else Zookeeper(folder, servers=3)
    server.engine = request.param
    yield server
    server.stop()


def test_programs_of_two_hosts_exclude(two, folder, redis):
    """Each adds one to a number, which would get lost if two did so at a time."""
    number = os.path.join(folder, "number")
    write_text(number, "0\n")
    loop = f'for i in $(seq 25); do flock {{}} sh -c \'read n <{number}; sleep 0.002; echo $((n + 1)) >{number}\' || exit 1; done'
    jobs = [host.popen(CLI, "run", "--", "sh", "-c", loop.format(host.path("f"))) for host in two for _ in range(2)]
    for job in jobs:
        assert job.wait(120) == 0, job.stderr.read()
    assert text_of(number) == "100\n"
    assert two[0].status()["store"]["engine"] == redis.engine


@pytest.fixture
def old(folder):
    old = Redis(folder)
    yield old
    old.stop()


def with_new_store(host, old, new):
    return text_of(host.config).replace(f'server = "unix:{old.socket}";', new.settings())


def tried(host, config, place):
    """Step 1: the new store, by a keeper of its own. What doctor says."""
    os.makedirs(place)
    env = {k: v for k, v in host.env().items() if k != "LD_PRELOAD"} | {"DFLOCK_RUNTIME_DIR": place}
    said = subprocess.run([CLI, "doctor", "--config", config], env=env, capture_output=True, text=True, check=False, timeout=60)
    subprocess.run([CLI, "stop"], env=env, check=True, timeout=60, stdout=subprocess.DEVNULL)
    return said


def test_changing_the_store_step_by_step(folder, redis, old, host_of):
    """No host goes over while a lock is held, and one that was left out is refused: what doctor says before and after is as the page says."""
    a, b, left_out = host_of(old).init(), host_of(old, "b").wait_up(), host_of(old, "c").wait_up()
    held = a.opened("f", "flock 0 ex")
    new = os.path.join(folder, "NEW.conf")
    write_text(new, with_new_store(a, old, redis))
    said = tried(a, new, os.path.join(folder, "empty"))
    assert said.returncode == 0 and f"ok:      the store {redis.engine} " in said.stdout and "0 problems" in said.stdout, said.stdout
    for host in a, b:
        assert host.cli("stop", check=False).returncode == (1 if host is a else 0)
        write_text(host.config, with_new_store(host, old, redis))
    assert "store" in a.cli("reload", check=False).stderr
    assert held.do("flock 0 un") == "ok"
    wait_until(lambda: a.cli("stop", check=False).returncode == 0, "its keeper has ended")
    old.stop()
    for host in a, b:
        host.start()
        host.wait_up()
    wait_until(lambda: a.cli("init", check=False).returncode == 0, "the new store is open")
    assert held.do("flock 0 ex") == "ok" and b.opened().do("flock 0 ex nb") == "EAGAIN"
    for host in a, b:
        assert f"ok:      the store {redis.engine} " in host.cli("doctor").stdout
    problem, = (line for line in left_out.cli("doctor", check=False).stdout.splitlines() if line.startswith("problem:"))
    assert old.socket in problem
    said = left_out.run("flock", "-n", left_out.path("f"), "true")
    assert said.returncode != 0 and old.socket in said.stderr
