"""`dflock fence`: the number by which a resource turns away a writer that lost its lock."""
import json

import pytest
from harness import Job, wait_until
from harness.job import holder
from harness.host import CLI

NONE = "no process on this host holds this lock"


def fence(host, *words):
    done = host.cli("fence", *words, check=False)
    assert done.returncode in (0, 1) and (done.stdout == "") == (done.returncode == 1), done
    return int(done.stdout) if done.returncode == 0 else done.stderr


def test_by_file_and_by_name(two):
    """A later holder has a larger number. A lease that lingers, or is cached, has no process that relies on it, and a caller that waits none."""
    a, b = two
    numbers = []
    for host in (a, b, a):
        job = holder(host)
        number, = (lease["fence"] for lease in host.status()["leases"])
        assert fence(host, host.path("f")) == fence(host, "t/f") == number
        assert json.loads(host.cli("fence", "--json", "t/f").stdout) == {"schema": 1, "lock": "t/f", "fence": number}
        numbers.append(number)
        assert "t/g: " + NONE in fence(host, "t/g")
        if len(numbers) < 3:
            job.end()
            assert NONE in fence(host, "t/f")
    assert numbers == sorted(set(numbers))
    waits = Job(b, "flock", b.path("f"), "true")
    wait_until(lambda: [lease for lease in b.status()["leases"] if lease["state"] == "asking"], "it waits")
    assert NONE in fence(b, "t/f") and waits.process.poll() is None
    wait_until(b.kill_all, "the keeper has ended, and who would start the next one")
    waits.kill()
    assert "no keeper runs" in fence(b, "t/f")


def test_from_inside_a_job(make_host):
    """What flock(1) has started asks for the lock of flock(1), beside another job with a lease of its own."""
    host = make_host("a")
    script = f"exec 9>>{host.path('f')}; flock -s 9; {CLI} fence t/f; exec 8>>{host.path('g')}; flock 8; {CLI} fence t/g"
    done = host.run("sh", "-c", script)
    assert done.stderr == "" and len(set(done.stdout.split())) == 2, done


def test_a_file_whose_name_is_no_utf8(make_host):
    """As from a file system of another time: what is shown is plain text, and `fence`, `who` and `break` take the file's name."""
    host, name = make_host("a"), "caf\udce9\x1b[31m"
    job = Job(host, "flock", host.path(name), "sh", "-c", "echo held; read line; true").held()
    lease, = host.status()["leases"]
    assert (lease["name"], lease["path"]) == ("t/caf\\xe9\x1b[31m", host.path("caf\\xe9\x1b[31m"))
    assert host.cli("status").stdout.count("t/caf\\xe9\\x1b[31m") == 2
    assert host.cli("who", host.path(name)).stdout.startswith("t/caf\\xe9\\x1b[31m: held\n")
    assert fence(host, host.path(name)) == fence(host, "t/" + name) == lease["fence"]
    other = make_host("b", rules='{ path = "%s/*"; }')
    others = Job(other, "flock", other.path(name), "sh", "-c", "echo held; read line; true").held()
    assert other.path("caf\\xe9\\x1b[31m: held\n") in other.cli("who", other.path("caf\\xe9\x1b[31m")).stdout
    others.end()
    shown = [lease["name"], "t/caf\\xe9\\x1b[31m"]  # in JSON, and for people
    for lock in shown:
        assert host.cli("who", lock).stdout.startswith(shown[1] + ": held\n") and fence(host, lock) == lease["fence"]
    assert NONE in fence(host, host.path("caf\udcea\x1b[31m"))
    for lock in shown:
        assert "taken away: fence" in host.cli("break", "--yes", lock).stdout
        assert job.process.wait(20) == -9 and not host.status()["leases"]
        job = Job(host, "flock", host.path(name), "sh", "-c", "echo held; read line; true").held()
    assert "taken away: fence" in host.cli("break", "--yes", host.path(name)).stdout
    assert job.process.wait(20) == -9 and not host.status()["leases"]


def test_processes_with_different_leases(two):
    """A reader of bytes under each lease: which one is meant must be said."""
    a, b = two
    # The second one makes the first host's lease shrink to a part.
    one, other, three = (host.opened("r", f"setlk 0 ex {first} 1") for host, first in ((a, 0), (b, 100), (a, 200)))
    assert "under several leases" in fence(a, "t/r")
    assert len({fence(a, "t/r", f"--pid={agent.pid}") for agent in (one, three)}) == 2
    assert f"neither process {other.pid} nor one above it" in fence(a, "t/r", f"--pid={other.pid}")


@pytest.mark.parametrize("words", [[], ["a", "b"], ["--pid=0", "a"], ["--pid=1x", "a"], ["--pid=99999999999", "a"]])
def test_words_that_make_no_sense(host_of, words):
    done = host_of("unix:/none", foreground=False).cli("fence", *words, check=False)
    assert done.returncode == 2 and done.stdout == ""


@pytest.mark.root("needs namespaces, and so root")
@pytest.mark.parametrize("options", [["--mount-proc"], []], ids=["own proc", "outer proc"])
def test_from_inside_a_pid_namespace(make_host, options):
    """The keeper is outside, and has other numbers for the processes."""
    job = ["sh", "-c", f"echo $DFLOCK_FENCE; {CLI} fence lock:night"]
    done = make_host("a").run("unshare", "--pid", "--fork", *options, CLI, "lock", "night", "--", *job)
    assert done.stderr == "" and len(done.stdout.split()) == 2 and len(set(done.stdout.split())) == 1, done
