"""A keeper has nothing of the program that happened to start it: neither its priority nor its limits."""
import json
import os
import shutil
import signal
import subprocess

import pytest
from harness import text_of, wait_until
from common import attempt, works
from harness.host import BUILD, KEEPER
from machine import USER

pytestmark = pytest.mark.root("starts programs with other priorities, and as others")


@pytest.fixture
def host(redis, host_of):
    host = host_of(redis, foreground=False, lease="ttl_ms = 500; idle_ms = 0;")
    with open(host.path("f"), "w"):
        pass
    return host


LIMITS = ["prlimit", "--cpu=60", "--fsize=100000000", "--as=2000000000", "--data=1000000000"]
MAY_RAISE = subprocess.run(["prlimit", "--cpu=60", "sh", "-c", "ulimit -t unlimited"], stderr=subprocess.DEVNULL).returncode == 0
HAMPERED = {
    "nice": ["nice", "-n", "19"],
    "idle": ["chrt", "--idle", "0"],
    "batch": ["chrt", "--batch", "0"],
    "real time": ["chrt", "--rr", "5"],
    "one CPU": ["taskset", "-c", "0"],
    "I/O": ["ionice", "-c", "3"],
    "out of memory": ["choom", "-n", "500", "--"],
    "soft limits": ["prlimit", "--cpu=60:", "--fsize=100000000:", "--as=2000000000:", "--nofile=400:"],
    "signals": ["sh", "-c", 'trap "" TERM INT PIPE USR1 USR2 CHLD; exec "$@"', "sh"],
    "personality": ["setarch", "-R"],
    **({"limits": LIMITS} if MAY_RAISE else {}),
    "umask": ["sh", "-c", 'umask 0777; exec "$@"', "sh"],
}


def facts(pid):
    """What a process has of all that."""
    def read(name):
        return text_of(f"/proc/{pid}/{name}")
    status = dict(l.split(":\t", 1) for l in read("status").splitlines() if ":\t" in l)
    keys = ("Cpus_allowed", "Mems_allowed", "SigBlk", "SigIgn", "Umask")
    limits = {l[:25].strip(): l[25:].split()[:2] for l in read("limits").splitlines()[1:]}
    return dict(nice=os.getpriority(os.PRIO_PROCESS, pid), policy=os.sched_getscheduler(pid), oom=read("oom_score_adj"),
                slack=read("timerslack_ns") if os.path.exists(f"/proc/{pid}/timerslack_ns") else None, personality=read("personality"),
                **{k: status[k] for k in keys}, **limits)


def test_nothing_is_inherited(host):
    """Whatever the first program had: the keeper and its parent are as if a plain one had started them."""
    works(host)
    plain = [facts(pid) for pid in host.keeper_pids()]
    assert len(plain) == 2
    for what, before in HAMPERED.items():
        assert host.kill_keeper() is False
        while not host.kill_keeper():
            pass
        shutil.rmtree(host.runtime)
        os.mkdir(host.runtime, 0o700)
        attempt(host, before=before)  # the store may be in grace
        assert [facts(pid) for pid in host.keeper_pids()] == plain, what


def test_what_cannot_be_taken_back(machine):
    """A user's keeper may not become less nice: doctor says so. The next one, of a plain program, is not."""
    machine.begin(USER, before=["nice", "-n", "39"]).communicate()  # 19, whatever this process has
    done = machine.cli("doctor", uid=USER)
    assert "warning: the keeper runs with nice 19: on a busy machine its leases may run out" in done.stdout
    assert machine.cli("stop", uid=USER).returncode == 0
    machine.works(USER)
    assert "nice 19" not in machine.cli("doctor", uid=USER).stdout


def test_an_older_kernel(host_of):
    """The numbers are those of x86-64 and arm64 alike."""
    old = host_of("unix:/none", "old", foreground=False)
    for number, name in (434, "pidfd_open"), (438, "pidfd_getfd"), (436, "close_range"):
        done = subprocess.run([os.path.join(BUILD, "tests/agents/older"), str(number), KEEPER, "--foreground"], env=old.plain_env(),
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert f"has no {name}(), or a container's filter denies it: the keeper needs Linux 5.10 or later" in done.stderr, done


def test_openat2_is_refused(redis, host_of):
    """As RestrictSUIDSGID of systemd does, which the package's unit has: the next keeper finds the files all the same."""
    host = host_of(redis, "suid", inside=[os.path.join(BUILD, "tests/agents/older"), "437"])
    agent = host.opened("f", "flock 0 ex")

    def fences():
        said = host.cli("status", "--json", check=False)
        return said.returncode == 0 and [lease["fence"] for lease in json.loads(said.stdout).get("leases", []) if lease["state"] == "held" and lease["holders"]]
    before = fences()
    keeper = host.keeper_pids()[1]
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: keeper not in host.keeper_pids() and fences() == before, "the next keeper has taken up the lease, and found the file")
    agent.do("flock 0 un")
