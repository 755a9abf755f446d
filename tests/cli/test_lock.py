"""`dflock lock NAME -- JOB`: a lock without a file and without a rule, with the options and exit statuses of flock(1)."""
import json
import os
import signal
import subprocess

import pytest
from harness import Job, wait_until
from harness.host import CLI
from harness.system import Place, SystemHost


@pytest.fixture
def hosts(make_host):
    return make_host("a"), make_host("b")


@pytest.fixture
def host(make_host):
    return make_host("a")


def lock(host, *words, env={}):
    env = {**host.env(), **env}
    env.pop("LD_PRELOAD", None)
    return subprocess.run([*host.inside, CLI, "lock", *words], env=env, capture_output=True, text=True, timeout=60)


def holding(host, *words, command="echo held; read line"):
    return Job(host, CLI, "lock", *words, "sh", "-c", command).held()


def states(host, name):
    return [lease["state"] for lease in json.loads(host.cli("status", "--json").stdout)["leases"] if lease["name"] == name]


def test_the_job_and_its_exit_status(host):
    done = lock(host, "nightly", "sh", "-c", "echo ran; exit 7")
    assert (done.stdout, done.returncode, done.stderr) == ("ran\n", 7, "")


def test_hosts_exclude_each_other(hosts):
    a, b = hosts
    first = holding(a, "nightly")
    assert states(a, "lock:nightly") == ["held"]
    done = lock(b, "-n", "nightly", "echo", "ran")
    assert (done.stdout, done.returncode) == ("", 1)
    assert lock(b, "-n", "-E", "75", "nightly", "echo", "ran").returncode == 75
    assert lock(b, "-w", "0.1", "nightly", "echo", "ran").returncode == 1
    assert lock(b, "-n", "another", "echo", "ran").stdout == "ran\n"
    assert lock(a, "-n", "nightly", "echo", "ran").returncode == 1
    first.end()
    assert lock(b, "nightly", "echo", "ran").stdout == "ran\n"


def test_shared(hosts):
    a, b = hosts
    holding(a, "-s", "readers")
    assert lock(b, "-s", "-n", "readers", "echo", "ran").stdout == "ran\n"
    assert lock(b, "-n", "readers", "echo", "ran").returncode == 1


def test_a_waiter_gets_it(hosts):
    a, b = hosts
    first = holding(a, "nightly")
    second = Job(b, CLI, "lock", "nightly", "echo", "ran")
    wait_until(lambda: states(b, "lock:nightly") == ["asking"], "it waits")
    assert second.silent()
    first.end()
    assert second.line() == "ran"


def test_the_fence_number(hosts):
    numbers = [int(lock(host, "nightly", "sh", "-c", "echo $DFLOCK_FENCE").stdout) for host in (*hosts, *hosts)]
    assert numbers == sorted(set(numbers))


def test_the_lock_ends_with_the_job(hosts):
    """And not with flock(1) or dflock: what the job has started keeps it."""
    a, b = hosts
    job = holding(a, "nightly", command="echo held; read line; true")
    children = [p for p in job.processes() if p != job.pid]
    os.kill(job.pid, signal.SIGKILL)
    wait_until(lambda: job.process.poll() is not None, "it has ended")
    assert lock(b, "-n", "nightly", "echo", "ran").returncode == 1
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    assert lock(b, "-w", "30", "nightly", "echo", "ran").stdout == "ran\n"


def test_no_fork(host):
    done = lock(host, "-F", "nightly", "sh", "-c", "echo $$ $DFLOCK_FENCE")
    assert done.returncode == 0 and len(done.stdout.split()) == 2 and done.stderr == ""


def test_a_command_for_the_shell(host):
    assert lock(host, "-c", "echo $((1 + 1))", "nightly", env={"SHELL": "/bin/sh"}).stdout == "2\n"


    assert lock(host, "nightly", "-c", "echo $((1 + 1))").stdout == "2\n"  # the order of flock(1)
    assert lock(host, "nightly", "--command", "exit 3").returncode == 3
    assert lock(host, "nightly", "--", "sh", "-c", "echo ran").stdout == "ran\n"
    for words in ("nightly", "-c"), ("nightly", "-c", "true", "more"), ("-c", "true", "nightly", "-c", "true"):
        assert lock(host, *words).returncode == 125, words


def test_verbose(hosts):
    a, b = hosts
    assert "getting lock took" in lock(a, "--verbose", "nightly", "true").stdout
    holding(a, "nightly")
    done = lock(b, "--verbose", "-n", "nightly", "true")
    assert done.returncode == 1 and "dflock: nightly: held by host a, pid" in done.stderr, done


@pytest.mark.parametrize("name", ["a/b", "../x", ".hidden", "with space", "per%cent", "ü", "-- "])
def test_any_name(hosts, name):
    a, b = hosts
    holding(a, "--", name)
    assert lock(b, "-n", "--", name, "echo", "ran").returncode == 1
    assert lock(b, "-n", "--", name + "2", "echo", "ran").stdout == "ran\n"
    assert {os.path.dirname(path) for path in (os.path.join(a.runtime, "names", f) for f in os.listdir(os.path.join(a.runtime, "names")))} == \
        {os.path.join(a.runtime, "names")}
    assert len(os.listdir(os.path.join(a.runtime, "names"))) == 1


def test_a_name_that_is_too_long(host):
    done = lock(host, "x" * 256, "echo", "ran")
    assert (done.stdout, done.returncode) == ("", 123) and "too long" in done.stderr


def test_not_started_without_the_store(host, redis):
    redis.stop()
    wait_until(lambda: not json.loads(host.cli("status", "--json").stdout)["store"]["up"], "the store is down")
    done = lock(host, "nightly", "echo", "ran")
    assert (done.stdout, done.returncode) == ("", 123) and done.stderr.startswith("dflock: not started: "), done


def test_a_keeper_is_started(host):
    wait_until(host.kill_keeper, "the keeper has ended")
    assert lock(host, "nightly", "echo", "ran").stdout == "ran\n"


def test_it_stays_a_lock_through_a_reload(hosts):
    a, b = hosts
    holding(a, "nightly")
    with open(a.config, "a") as f:
        f.write("# a remark\n")
    a.cli("reload")
    assert lock(b, "-n", "nightly", "echo", "ran").returncode == 1
    assert lock(a, "other", "echo", "ran").stdout == "ran\n"


def test_it_outlives_its_keeper(hosts):
    a, b = hosts
    holding(a, "nightly")
    wait_until(a.kill_keeper, "the keeper has ended")
    a.start()
    wait_until(lambda: states(a, "lock:nightly") == ["held"], "it was taken up")
    assert lock(b, "-n", "nightly", "echo", "ran").returncode == 1


@pytest.mark.parametrize("words", [[], ["name"], ["", "true"], ["-c", "true", "name", "true"], ["--nonsense", "name", "true"]])
def test_words_that_make_no_sense(host, words):
    done = lock(host, *words)
    assert done.returncode == 125 and done.stdout == ""


def test_a_directory_that_something_else_has(make_host):
    a = make_host("a", foreground=False)
    with open(os.path.join(a.runtime, "names"), "w"):
        pass
    a.start()
    done = lock(a, "nightly", "echo", "ran")
    assert (done.stdout, done.returncode) == ("", 123) and "names" in done.stderr


@pytest.fixture
def system(redis, folder):
    os.chmod(redis.socket, 0o777)
    place = Place()
    host = SystemHost(redis, folder, place)
    host.init()
    yield host
    host.stop()
    place.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="runs programs as other users, and so needs root")
def test_all_users_of_a_system_share_the_names(system):
    job = Job(system, *system.as_user(12345, CLI, "lock", "nightly", "sh", "-c", "echo held $DFLOCK_FENCE; read line"))
    held, fence = job.line().split()
    assert held == "held" and int(fence) > 0

    def tried(uid):
        words = [*system.inside, *system.as_user(uid, CLI, "lock", "-n", "nightly", "echo", "ran")]
        return subprocess.run(words, env=system.env(), capture_output=True, text=True, timeout=60)

    for uid in (23456, 0):
        assert (tried(uid).stdout, tried(uid).returncode) == ("", 1)
    job.end()
    for uid in (23456, 0):
        assert tried(uid).stdout == "ran\n"
    mode = os.stat(system.place.outside(os.path.join(system.runtime, "names"))).st_mode
    assert mode & 0o7777 == 0o1777


@pytest.mark.skipif(os.geteuid() != 0, reason="runs programs as other users, and so needs root")
def test_names_may_have_a_file_system_of_their_own(system):
    """As docs/operating.md says, so that users cannot fill up /run. The mount is there before the keeper."""
    def tried(uid, name):
        words = [*system.inside, *system.as_user(uid, CLI, "lock", "-n", name, "echo", "ran")]
        return subprocess.run(words, env=system.env(), capture_output=True, text=True, timeout=60)

    system.stop()
    names = os.path.join(system.runtime, "names")
    options = "mode=1777,size=64k,nr_inodes=3,nosuid,nodev,noexec"  # one of the three is the directory
    subprocess.run([*system.inside, "mount", "-t", "tmpfs", "-o", options, "tmpfs", names], check=True)
    system.start()
    assert tried(12345, "one").stdout == "ran\n" and tried(12345, "two").stdout == "ran\n"
    full = tried(12345, "three")
    assert full.returncode == 123 and f"not started: {names}/three: No space left on device" in full.stderr
    assert tried(23456, "one").stdout == "ran\n"


# --- --at-least ---

def test_one_of_two_hosts_runs_a_short_job(hosts):
    a, b = hosts
    words = ("-n", "-E", "75", "--at-least=1h", "once", "sh", "-c", "echo ran $DFLOCK_FENCE")
    first = lock(a, *words)
    assert first.returncode == 0 and first.stdout.startswith("ran ")
    for host in (a, b):
        assert (lock(host, *words).stdout, lock(host, *words).returncode) == ("", 75)
    assert lock(b, "-n", "--at-least=1h", "another", "echo", "ran").stdout == "ran\n"


def test_commands_that_say_another_time(hosts):
    """It is one lock. The time of the command that gets it counts; one without a time begins no rest, but finds that of others."""
    a, b = hosts
    assert lock(a, "-n", "--at-least=2h", "once", "echo", "ran").stdout == "ran\n"
    for host in (a, b):
        for words in (["--at-least=500ms"], []):
            assert lock(host, "-n", *words, "once", "echo", "ran").returncode == 1
    for host in (a, b):
        assert lock(host, "-n", "free", "echo", "ran").stdout == "ran\n"
    assert lock(b, "-w", "30", "--at-least=0", "free", "echo", "ran").stdout == "ran\n"


def test_they_exclude_each_other_while_they_run(hosts):
    a, b = hosts
    first = holding(a, "--at-least=10ms", "once")
    for host in (a, b):
        for words in (["--at-least=5ms"], ["--at-least=10ms"], []):
            assert lock(host, "-n", *words, "once", "echo", "ran").returncode == 1
    first.end()
    assert lock(b, "-w", "30", "once", "echo", "ran").stdout == "ran\n"


def test_a_short_rest_ends(hosts):
    a, b = hosts
    assert lock(a, "--at-least=300ms", "once", "echo", "ran").stdout == "ran\n"
    assert lock(b, "-w", "30", "--at-least=0.3", "once", "echo", "ran").stdout == "ran\n"


@pytest.mark.parametrize("time,ms", [("90", 90000), ("90s", 90000), ("1.5", 1500), ("500ms", 500), ("5m", 300000), ("2h", 7200000), ("30d", 2592000000)])
def test_units(host, time, ms):
    holding(host, "--at-least=" + time, "once")
    lease, = json.loads(host.cli("status", "--json").stdout)["leases"]
    assert (lease["name"], os.path.basename(lease["path"])) == ("lock:once", f"once~{ms}")


@pytest.mark.parametrize("time", ["", "x", "5 m", "-1", "1e3", "5M", "31d", "0.1ms", "1.2.3", "ms", "9" * 30, "inf"])
def test_times_that_make_no_sense(host, time):
    done = lock(host, "--at-least=" + time, "once", "true")
    assert done.returncode == 125 and "--at-least is" in done.stderr, done


def test_shared_and_at_least(host):
    done = lock(host, "-s", "--at-least=5", "once", "true")
    assert done.returncode == 125 and "exclusive" in done.stderr
    assert lock(host, "-s", "-x", "--at-least=5ms", "once", "echo", "ran").stdout == "ran\n"
