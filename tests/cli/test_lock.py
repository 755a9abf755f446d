"""`dflock lock NAME -- JOB`: a lock without a file and without a rule, with the options and exit statuses of flock(1)."""
import os
import signal
import subprocess

import pytest
from harness import Job, wait_until
from harness.host import CLI


@pytest.fixture
def host(make_host):
    return make_host("a")


def lock(host, *words, **more):
    return host.cli("lock", *words, check=False, **more)


def holding(host, *words, command="echo held; read line"):
    return Job(host, CLI, "lock", *words, "sh", "-c", command).held()


def ran(done):
    """Has `echo ran` run? If not, flock(1) has said that the lock is busy."""
    assert (done.stdout, done.returncode) in (("ran\n", 0), ("", 1)), done
    return done.returncode == 0


def states(host, name):
    return [lease["state"] for lease in host.status()["leases"] if lease["name"] == name]


def test_the_job_and_its_exit_status(host):
    done = lock(host, "nightly", "sh", "-c", "echo ran; exit 7")
    assert (done.stdout, done.returncode, done.stderr) == ("ran\n", 7, "")
    done = lock(host, "-F", "nightly", "sh", "-c", "echo $$ $DFLOCK_FENCE")
    assert done.returncode == 0 and len(done.stdout.split()) == 2 and done.stderr == ""
    assert lock(host, "-c", "echo $((1 + 1))", "nightly", env={"SHELL": "/bin/sh"}).stdout == "2\n"
    assert lock(host, "nightly", "-c", "echo $((1 + 1))").stdout == "2\n"  # the order of flock(1)
    assert lock(host, "nightly", "--command", "exit 3").returncode == 3
    assert lock(host, "nightly", "--", "sh", "-c", "echo ran").stdout == "ran\n"
    wait_until(host.kill_keeper, "the keeper has ended")
    assert ran(lock(host, "nightly", "echo", "ran")), "another one is started"


@pytest.mark.parametrize("words", ["-e", "-en", "--exclusive --nonblocking", "--nb", "--wait 5", "-o", "--close -n"])
def test_each_option_of_flock(two, words):
    """Also those that flock(1) has under a second name: a line of a crontab needs no other change than the first words."""
    a, b = two
    done = lock(a, *words.split(), "nightly", "sh", "-c", f"echo ran >&2; ls -l /proc/$$/fd; {CLI} lock -n nightly true")
    assert (done.returncode, done.stderr) == (1, "ran\n"), done
    assert ("names/nightly" in done.stdout) == (words not in ("-o", "--close -n")), done
    job = holding(a, *words.split(), "nightly")
    assert not ran(lock(b, "-n", "nightly", "echo", "ran"))
    job.end()
    assert ran(lock(b, "-n", "nightly", "echo", "ran"))


def test_what_makes_no_sense(host):
    words = [[], ["name"], ["", "true"], ["-c", "true", "name", "true"], ["--nonsense", "name", "true"],
             ["nightly", "-c"], ["nightly", "-c", "true", "more"], ["-c", "true", "nightly", "-c", "true"]]
    times = ["", "x", "5 m", "-1", "1e3", "5M", "31d", "0.1ms", "1.2.3", "ms", "9" * 30, "inf"]
    for each, said in [(each, "") for each in words] + [(["--at-least=" + time, "once", "true"], "--at-least is") for time in times] + [
            (["-s", "--at-least=5", "once", "true"], "exclusive")]:
        done = lock(host, *each)
        assert done.returncode == 125 and done.stdout == "" and said in done.stderr, done
    done = lock(host, "x" * 256, "echo", "ran")
    assert (done.stdout, done.returncode) == ("", 123) and "too long" in done.stderr


def test_hosts_exclude_each_other(two):
    """Also those that wait; a later holder has a larger fence number; shared locks get along."""
    a, b = two
    numbers = [int(lock(host, "fenced", "sh", "-c", "echo $DFLOCK_FENCE").stdout) for host in (a, b, a, b)]
    assert numbers == sorted(set(numbers))
    assert "getting lock took" in lock(a, "--verbose", "nightly", "true").stdout
    first = holding(a, "nightly")
    assert states(a, "lock:nightly") == ["held"]
    for host, options in (b, ["-n"]), (b, ["-w", "0.1"]), (a, ["-n"]):
        assert not ran(lock(host, *options, "nightly", "echo", "ran"))
    assert lock(b, "-n", "-E", "75", "nightly", "echo", "ran").returncode == 75
    assert ran(lock(b, "-n", "another", "echo", "ran"))
    done = lock(b, "--verbose", "-n", "nightly", "true")
    assert done.returncode == 1 and "dflock: nightly: held by host a, pid" in done.stderr, done
    second = Job(b, CLI, "lock", "nightly", "echo", "ran")
    wait_until(lambda: states(b, "lock:nightly") == ["asking"], "it waits")
    assert second.silent()
    first.end()
    assert second.line() == "ran"
    holding(a, "-s", "readers")
    assert ran(lock(b, "-s", "-n", "readers", "echo", "ran")) and not ran(lock(b, "-n", "readers", "echo", "ran"))


def test_what_it_outlives(two):
    """The lock ends with the job, and not with flock(1) or dflock: what the job has started keeps it. So do a reload and the next keeper."""
    a, b = two
    job = holding(a, "nightly", command="echo held; read line; true")
    children = [p for p in job.processes() if p != job.pid]
    os.kill(job.pid, signal.SIGKILL)
    wait_until(lambda: job.process.poll() is not None, "it has ended")
    assert not ran(lock(b, "-n", "nightly", "echo", "ran"))
    with open(a.config, "a") as f:
        f.write("# a remark\n")
    a.cli("reload")
    assert not ran(lock(b, "-n", "nightly", "echo", "ran")) and ran(lock(a, "other", "echo", "ran"))
    wait_until(a.kill_keeper, "the keeper has ended")
    a.start()
    wait_until(lambda: states(a, "lock:nightly") == ["held"], "it was taken up")
    assert not ran(lock(b, "-n", "nightly", "echo", "ran"))
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    assert ran(lock(b, "-w", "30", "nightly", "echo", "ran"))


def test_any_name(two):
    a, b = two
    names = os.path.join(a.runtime, "names")
    for count, name in enumerate(["a/b", "../x", ".hidden", "with space", "per%cent", "ü", "-- "], 1):
        holding(a, "--", name)
        assert not ran(lock(b, "-n", "--", name, "echo", "ran"))
        assert ran(lock(b, "-n", "--", name + "2", "echo", "ran"))
        assert len(os.listdir(names)) == count and all(os.path.isfile(os.path.join(names, f)) for f in os.listdir(names))


def test_not_started(make_host, redis):
    """Without the store, or where something else has the place of the names."""
    a, b = make_host("a"), make_host("b", foreground=False)
    open(os.path.join(b.runtime, "names"), "w").close()
    b.start()
    done = lock(b, "nightly", "echo", "ran")
    assert (done.stdout, done.returncode) == ("", 123) and "names" in done.stderr
    redis.stop()
    wait_until(lambda: not a.status()["store"]["up"], "the store is down")
    done = lock(a, "nightly", "echo", "ran")
    assert (done.stdout, done.returncode) == ("", 123) and done.stderr.startswith("dflock: not started: "), done


def tried(system, uid, name="nightly"):
    words = [*system.inside, *system.as_user(uid, CLI, "lock", "-n", name, "echo", "ran")]
    return subprocess.run(words, env=system.env(), capture_output=True, text=True, timeout=60)


def test_all_users_of_a_system_share_the_names(make_system):
    system = make_system()
    job = Job(system, *system.as_user(12345, CLI, "lock", "nightly", "sh", "-c", "echo held $DFLOCK_FENCE; read line"))
    held, fence = job.line().split()
    assert held == "held" and int(fence) > 0
    assert [ran(tried(system, uid)) for uid in (23456, 0)] == [False, False]
    job.end()
    assert [ran(tried(system, uid)) for uid in (23456, 0)] == [True, True]
    mode = os.stat(system.place.outside(os.path.join(system.runtime, "names"))).st_mode
    assert mode & 0o7777 == 0o1777


def test_many_jobs_of_one_user_start_at_once(make_system):
    """As cron starts them: each finds its fence number, however many ask the keeper for theirs."""
    system = make_system()
    words = [*system.inside, *system.as_user(12345, "sh", "-c", f'for n in $(seq 24); do {CLI} lock "n$n" echo ran & done; wait')]
    done = subprocess.run(words, env=system.env(), capture_output=True, text=True, timeout=120)
    assert (done.stdout.count("ran\n"), done.stderr) == (24, "")


def test_a_name_is_for_all_users_whatever_the_umask(make_system):
    system = make_system()
    private = [*system.inside, *system.as_user(12345, "sh", "-c", f"umask 077; {CLI} lock nightly sh -c umask")]
    assert subprocess.run(private, env=system.env(), capture_output=True, text=True, timeout=60).stdout == "0077\n"
    assert ran(tried(system, 23456))


def test_a_place_that_another_user_has_taken(make_system):
    """Nothing is waited for, and the line says which user it was."""
    system = make_system()
    makes = {"fifo": "mkfifo", "folder": "mkdir", "link": "ln -s /nowhere", "closed": "umask 777; touch"}
    for name, make in makes.items():
        subprocess.run([*system.inside, *system.as_user(12345, "sh", "-c", f"{make} {system.runtime}/names/{name}")], env=system.env(), check=True)
    for name in makes:
        done = tried(system, 23456, name)
        assert (done.returncode, done.stdout) == (123, ""), done
        assert f"names/{name} " in done.stderr and "uid 12345 has made it; remove it" in done.stderr, done


def test_names_may_have_a_file_system_of_their_own(make_system):
    """As docs/operating.md says, so that users cannot fill up /run. The mount is there before the keeper."""
    system = make_system()
    system.stop()
    names = os.path.join(system.runtime, "names")
    options = "mode=1777,size=64k,nr_inodes=3,nosuid,nodev,noexec"  # one of the three is the directory
    subprocess.run([*system.inside, "mount", "-t", "tmpfs", "-o", options, "tmpfs", names], check=True)
    system.start()
    assert ran(tried(system, 12345, "one")) and ran(tried(system, 12345, "two"))
    full = tried(system, 12345, "three")
    assert full.returncode == 123 and f"not started: {names}/three: No space left on device" in full.stderr
    assert ran(tried(system, 23456, "one"))


# --- --at-least ---

def test_one_of_two_hosts_runs_a_short_job(two):
    """It is one lock. The time of the command that gets it counts; one without a time begins no rest, but finds that of others."""
    a, b = two
    first = lock(a, "-n", "-E", "75", "--at-least=2h", "once", "sh", "-c", "echo ran $DFLOCK_FENCE")
    assert first.returncode == 0 and first.stdout.startswith("ran ")
    for host in (a, b):
        done = lock(host, "-n", "-E", "75", "--at-least=2h", "once", "echo", "ran")
        assert (done.stdout, done.returncode) == ("", 75)
        for words in (["--at-least=500ms"], []):
            assert not ran(lock(host, "-n", *words, "once", "echo", "ran"))
    for host in (a, b):
        assert ran(lock(host, "-n", "free", "echo", "ran"))
    assert ran(lock(b, "-w", "30", "--at-least=0", "free", "echo", "ran"))
    assert ran(lock(a, "-s", "-x", "--at-least=300ms", "short", "echo", "ran"))
    assert ran(lock(b, "-w", "30", "--at-least=0.3", "short", "echo", "ran")), "a short rest ends"


def test_they_exclude_each_other_while_they_run(two):
    a, b = two
    first = holding(a, "--at-least=10ms", "once")
    for host in (a, b):
        for words in (["--at-least=5ms"], ["--at-least=10ms"], []):
            assert not ran(lock(host, "-n", *words, "once", "echo", "ran"))
    first.end()
    assert ran(lock(b, "-w", "30", "once", "echo", "ran"))


def test_units(host):
    for time, ms in {"90": 90000, "90s": 90000, "1.5": 1500, "500ms": 500, "5m": 300000, "2h": 7200000, "30d": 2592000000}.items():
        name = "once" + time
        holding(host, "--at-least=" + time, name)
        assert [os.path.basename(lease["path"]) for lease in host.status()["leases"] if lease["name"] == "lock:" + name] == [f"{name}~{ms}"]
