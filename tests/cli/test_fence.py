"""`dflock fence`: the number by which a resource turns away a writer that lost its lock."""
import json
import subprocess

import pytest
from harness import Job, wait_until
from harness.job import holder
from harness.host import CLI


@pytest.fixture
def host(make_host):
    return make_host("a")


def fence(host, *words):
    done = host.cli("fence", *words, check=False)
    assert done.returncode in (0, 1) and (done.stdout == "") == (done.returncode == 1), done
    return int(done.stdout) if done.returncode == 0 else done.stderr


def leases(host):
    return json.loads(host.cli("status", "--json").stdout)["leases"]


def test_by_file_and_by_name(host):
    holder(host)
    number, = (lease["fence"] for lease in leases(host))
    assert fence(host, host.path("f")) == number
    assert fence(host, "t/f") == number
    assert "t/g: no process on this host holds this lock" in fence(host, "t/g")


def test_a_later_holder_has_a_larger_number(make_host):
    a, b = make_host("a"), make_host("b")
    numbers = []
    for host in (a, b, a):
        job = holder(host)
        numbers.append(fence(host, "t/f"))
        job.end()
    assert numbers == sorted(set(numbers))


def test_from_inside_a_job(host):
    """What flock(1) has started asks for the lock of flock(1), beside another job with a lease of its own."""
    script = f"exec 9>>{host.path('f')}; flock -s 9; {CLI} fence t/f; exec 8>>{host.path('g')}; flock 8; {CLI} fence t/g"
    env = host.env()
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert done.stderr == "" and len(set(done.stdout.split())) == 2, done


def test_not_held_any_more(host):
    """The lease lingers, or is cached; no process relies on it."""
    holder(host).end()
    assert "no process on this host holds this lock" in fence(host, "t/f")


def test_no_keeper(host):
    wait_until(host.kill_keeper, "the keeper has ended")
    assert "no keeper runs" in fence(host, "t/f")


def test_a_caller_that_waits_has_none(make_host):
    a, b = make_host("a"), make_host("b")
    holder(a)
    waits = Job(b, "flock", b.path("f"), "true")
    wait_until(lambda: [lease for lease in leases(b) if lease["state"] == "asking"], "it waits")
    assert "no process on this host holds this lock" in fence(b, "t/f")
    assert waits.process.poll() is None




def test_processes_with_different_leases(make_host):
    """A reader of bytes under each lease: which one is meant must be said."""
    a, b = make_host("a"), make_host("b")
    lock = "import fcntl,sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX, 1, int(sys.argv[2])); print('held', flush=True); input()"
    for host in (a, b):
        open(host.path("r"), "a").close()
    jobs = []
    for host, first in ((a, 0), (b, 100), (a, 200)):  # the second one makes the first host's lease shrink to a part
        jobs.append(Job(host, "/usr/bin/python3", "-c", lock, host.path("r"), str(first)))
        assert jobs[-1].line() == "held"
    assert "under several leases" in fence(a, "t/r")
    numbers = [fence(a, "t/r", f"--pid={job.pid}") for job in (jobs[0], jobs[2])]
    assert len(set(numbers)) == 2
    assert f"neither process {jobs[1].pid} nor one above it" in fence(a, "t/r", f"--pid={jobs[1].pid}")


@pytest.mark.parametrize("words", [[], ["a", "b"], ["--pid=0", "a"], ["--pid=1x", "a"], ["--pid=99999999999", "a"]])
def test_words_that_make_no_sense(host, words):
    done = host.cli("fence", *words, check=False)
    assert done.returncode == 2 and done.stdout == ""


def test_for_programs(host):
    job = holder(host)
    assert json.loads(host.cli("fence", "--json", "t/f").stdout) == {"schema": 1, "lock": "t/f", "fence": fence(host, "t/f")}
    assert job.end() == 0
