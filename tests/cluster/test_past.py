"""
Locks that are taken past dflock are reported: log, status, doctor. And no others are: each test of the second half is a way to
hold a kernel lock, for several looks, that is no reason for an alarm.
"""
import os
import signal
import subprocess

import harness.host
import pytest
from harness import Job, text_of, wait_until
from harness.mistakes import PAST as MISTAKES
from harness.mutants import mutant
from test_page_stress import Arena, Manner

from keepers import held, kill_keeper, leases, on  # noqa: F401 (fixture)

PAST = os.path.join(harness.host.BUILD, "tests/agents/past")
QUICK = "ttl_ms = 3000; past_look_ms = 50;"
LONG = 60  # where other tests hold thousands of locks, looks are far apart
NOBODY = 65534


@pytest.fixture
def host(make_host):
    return begun(make_host("a", lease=QUICK))


def begun(host):
    """What its first look lists was there before."""
    wait_until(lambda: host.status()["past_looks"]["count"], "the first look is over", LONG)
    return host


def past(host, kind, path, *words, inside=(), **more):
    """A program that has taken a lock past dflock."""
    return Job(host, *inside, PAST, kind, path, *words, **more).held()


def reported(host):
    return [lock for lock in host.status()["taken_past"] if not lock["before"]]


def from_before(host):
    return [lock for lock in host.status()["taken_past"] if lock["before"]]


def report(host):
    lock, = wait_until(lambda: reported(host), "the lock is reported", LONG)
    return lock


def looked(host, times=6):
    """So many more looks are over; more than it takes to report a lock."""
    first = host.status()["past_looks"]["count"]
    wait_until(lambda: host.status()["past_looks"]["count"] >= first + times, "the keeper has looked again", LONG)


def quiet(host, times=6):
    looked(host, times)
    assert host.status()["taken_past"] == [] and "PAST DFLOCK" not in host.log()


def doctor(host):
    done = host.cli("doctor", check=False)
    return done.returncode, done.stdout


# --- what is reported ---

SHELL = 'exec 9>"$1"; flock -n 9 && echo held; read line'


KINDS = {"flock": ("flock", "exclusive"), "shared": ("flock", "shared"), "posix": ("record", "exclusive"), "ofd": ("record", "exclusive")}


def test_reported(host, folder):
    """In the log, in status (JSON and text) and by doctor, once for a process, a file and a kind; until the lock has gone. None is, of which no
    rule names the file."""
    jobs = {kind: past(host, kind, host.path(kind)) for kind in KINDS}
    parts, other = past(host, "ranges", host.path("parts"), "3"), past(host, "flock", os.path.join(folder, "other"))
    wait_until(lambda: len(reported(host)) == 5, "the locks are reported", LONG)
    looked(host)
    locks = {lock["path"]: lock for lock in reported(host)}
    lock = locks.pop(host.path("parts"))
    assert len(locks) == 4 and (lock["pid"], lock["space"], lock["to"] - lock["from"]) == (parts.pid, "record", 1)
    text, said, log = host.cli("status").stdout, doctor(host)[1].splitlines(), host.log().splitlines()
    for kind, job in jobs.items():
        lock = locks[host.path(kind)]
        assert (lock["name"], lock["pid"], lock["from"], lock["to"]) == (f"t/{kind}", job.pid, 0, None)
        assert (lock["space"], lock["mode"]) == KINDS[kind]
        assert lock["command"] == f"{PAST} {kind} {host.path(kind)}" and lock["since"] >= host.status()["started"]
        line, = [l for l in log if "PAST DFLOCK" in l and host.path(kind) in l]
        assert f"pid {job.pid} ({PAST} {kind}" in line and "`dflock run`" in line
        assert host.path(kind) in text and f"locked by pid {job.pid}," in text
        assert [l for l in said if l.startswith("problem:") and f"{host.path(kind)} is locked past dflock by pid {job.pid}" in l]
    assert "PAST DFLOCK" in text and "`dflock run`" in text and host.log().count("PAST DFLOCK") == 5
    assert [job.end() for job in (*jobs.values(), parts, other)] == [0] * 6
    wait_until(lambda: not host.status()["taken_past"], "they have gone", LONG)
    for job in jobs.values():
        assert f"the lock that pid {job.pid} had taken past dflock has gone" in host.log()
    status, said = doctor(host)
    assert status == 0 and "no lock that was taken past dflock" in said


def test_without_the_preload(host):
    """A cleaned environment; the taker has gone, and a shell has the lock. Anybody may choose names: no line of the log, and no terminal, is
    theirs."""
    name = "f\n\033[2Jdflockd: ok"
    job = Job(host, "env", "-u", "LD_PRELOAD", "sh", "-c", SHELL, "sh", host.path(name)).held()
    lock = report(host)
    assert (lock["pid"], lock["path"]) == (job.pid, host.path(name))
    log, text = host.log(), host.cli("status").stdout + doctor(host)[1]
    assert "PAST DFLOCK" in log and "\ndflockd: ok" not in log
    assert "\033" not in log + text and "\\x1b[2J" in text


def test_a_lease_on_another_range_does_not_cover(make_host):
    """Another host has just this byte. Nor does a shared lease cover an exclusive lock."""
    a, b = begun(make_host("a", lease=QUICK)), begun(make_host("b", lease=QUICK))
    agent, other = a.opened(), b.opened()
    assert agent.do("setlk 0 ex 100 10") == "ok"
    assert other.do("setlk 0 ex 0 10") == "ok"  # a's lease on the whole is split
    assert agent.do("setlk 0 ex 200 10") == "ok"
    for host in (a, b):
        assert host.opened("g", "setlk 0 sh 100 10")
    quiet(a, 2)
    jobs = {"f": past(a, "byte", a.path("f"), "5"), "g": past(a, "byte", a.path("g"), "50")}
    wait_until(lambda: len(reported(a)) == 2, "the locks are reported", LONG)
    locks = {lock["path"]: lock for lock in reported(a)}
    assert {(name, job.pid, 5 if name == "f" else 50) for name, job in jobs.items()} == {
        (os.path.basename(path), lock["pid"], lock["from"]) for path, lock in locks.items()}
    assert {lock["mode"] for lock in locks.values()} == {"exclusive"} and locks[a.path("f")]["to"] == 6


def test_many(host):
    """More than are watched: that is said."""
    past(host, "flock", host.path("f"), "300")
    wait_until(lambda: len(reported(host)) > 20, "they are reported", LONG)
    wait_until(lambda: host.status()["past_looks"]["left_out"] >= 44, "all of them are listed", LONG)
    status, said = doctor(host)
    assert status == 1 and "`dflock status` shows them" in said and "were not looked at" in said


def test_by_a_link_that_no_rule_names(host, folder):
    """Once a program has locked the file by its protected path; for as long as that path leads to it."""
    alias = os.path.join(folder, "alias")
    open(host.path("f"), "w").close()
    os.link(host.path("f"), alias)
    assert host.run("flock", "-n", host.path("f"), "true").returncode == 0
    wait_until(lambda: not leases(host), "no lease is there that a lock could keep")
    for way in ("past", "preload"):
        job = past(host, "flock", alias) if way == "past" else Job(host, "sh", "-c", SHELL, "sh", alias).held()
        lock = report(host)
        assert (lock["name"], lock["path"], lock["pid"]) == ("t/f", alias, job.pid), way
        assert f"t/f ({alias}, a link of {host.path('f')} that no rule names) is locked by" in host.log()
        job.end()
        wait_until(lambda: not host.status()["taken_past"], "it is gone", LONG)
    os.unlink(host.path("f"))
    past(host, "flock", alias)
    looked(host)
    assert host.status()["taken_past"] == []


def test_by_a_mount_that_no_rule_names(on, folder):  # noqa: F811
    made, host = on("tmpfs", lease=QUICK)
    other = os.path.join(folder, "other")
    os.mkdir(other)
    subprocess.run(["mount", "--bind", made.path, other], check=True)
    try:
        job = past(host, "flock", os.path.join(other, "f"))
        lock = report(host)
        assert (lock["name"], lock["path"], lock["pid"]) == ("t/f", os.path.join(made.path, "f"), job.pid)
        job.end()
    finally:
        subprocess.run(["umount", "-l", other], check=True)


def test_off(make_host):
    host = make_host("a", lease="ttl_ms = 3000; past_look_ms = 0;")
    assert host.status()["past_looks"]["every_ms"] == 0
    assert "past_look_ms is 0" in doctor(host)[1]


# --- what is no reason for an alarm ---

def test_from_before_the_keeper(make_host):
    """It may be from a time without dflock: shown, and no alarm."""
    host = make_host("a", lease=QUICK, foreground=False)
    job = past(host, "flock", host.path("f"))
    host.start()
    host.init()
    lock, = wait_until(lambda: from_before(host), "it is shown", LONG)
    assert (lock["pid"], lock["path"]) == (job.pid, host.path("f"))
    assert reported(host) == [] and "PAST DFLOCK" not in host.log()
    assert "before the keeper" in host.cli("status").stdout
    status, said = doctor(host)
    assert status == 0 and "warning: " + host.path("f") in said
    job.say("again")  # it drops the lock and takes it again; for the kernel that is the same one
    assert job.line() == "held"
    looked(host)
    assert reported(host) == []


def test_from_before_the_rule(make_host):
    host = begun(make_host("a", lease=QUICK, rules='{ path = "%s/g"; }'))
    past(host, "flock", host.path("f"))
    quiet(host)
    text = text_of(host.config)
    with open(host.config, "w") as f:
        f.write(text.replace("protect = (", 'protect = ( { path = "%s"; },' % host.path("f")))
    host.cli("reload")
    lock, = wait_until(lambda: from_before(host), "it is shown", LONG)
    assert lock["path"] == host.path("f") and reported(host) == []
    job = past(host, "flock", host.path("g"))
    assert report(host)["pid"] == job.pid  # what comes now is not from before


@pytest.mark.long
def test_at_full_speed(two_quick, folder):
    """From the page, through questions, with hand-overs and probes; and the lock is held at many looks."""
    arena = Arena(folder, two_quick, 1, Manner(3, 20000, [], 0))
    try:
        for host in two_quick:
            quiet(host, 25)
        wait_until(lambda: not arena.look() or arena.counts()[1] > 1000, "the lock was had 1000 times", LONG)
        for host in two_quick:
            quiet(host)
        assert arena.found() == [] and arena.word(8) == 0
    finally:
        for process in arena.workers.values():
            process.kill()
            process.wait()


@pytest.fixture
def two_quick(make_host):
    lease = "ttl_ms = 20000; past_look_ms = 50; linger_ms = 20;"
    return begun(make_host("a", lease=lease)), begun(make_host("b", lease=lease))


def test_of_a_child(host):
    """The descriptor of the process that took it was closed, or the process has ended; a child has the lock. So it is with flock(1) in a
    shell. The next keeper, too, has the leases."""
    Job(host, "sh", "-c", SHELL, "sh", host.path("g")).held()
    agent = host.opened("f", "flock 0 ex nb")
    assert agent.do("fork") == "ok" and agent.do("close 0") == "ok"
    quiet(host)
    agent.kill()
    quiet(host)
    assert len(held(host)) == 2
    kill_keeper(host)
    looked(host)
    assert len(leases(host, "f") + leases(host, "g")) == 2 and host.status()["taken_past"] == [] and "PAST DFLOCK" not in host.log()


def test_of_records(make_host):
    """POSIX and OFD locks of several processes, on parts of a lease that another host has split; neighbours are one lock in the
    kernel's list, and more than one lease."""
    a, b = begun(make_host("a", lease=QUICK)), begun(make_host("b", lease=QUICK))
    agents = [host.opened() for host in (a, a, b)]
    assert agents[0].do("setlk 0 ex 0 10") == "ok" and agents[1].do("setlk 0 sh 20 10 ofd") == "ok"
    assert agents[2].do("setlk 0 ex 50 10") == "ok"
    assert agents[0].do("setlk 0 ex 10 10") == "ok" and agents[1].do("setlk 0 ex 30 10") == "ok"
    assert agents[1].do("setlk 0 ex 20 10 ofd") == "ok"
    quiet(a)
    quiet(b)


def test_stopped_and_asking(make_host, redis):
    """Programs that wait for the kernel, or for the store, and one that is stopped."""
    host = begun(make_host("a", lease="ttl_ms = 60000; past_look_ms = 50;"))
    job = Job(host, "flock", "-n", host.path("f"), "sh", "-c", "echo held; read line").held()
    waiter = host.popen("flock", host.path("f"), "true")
    os.kill(job.pid, signal.SIGSTOP)
    quiet(host)
    redis.signal(signal.SIGSTOP)
    looked(host)
    redis.signal(signal.SIGCONT)
    quiet(host)
    os.kill(job.pid, signal.SIGCONT)
    job.end()
    assert waiter.wait(20) == 0


@pytest.fixture
def neighbours(make_host):
    """Two keepers on this machine that protect the same files, of one store."""
    a = begun(make_host("a", lease=QUICK))
    return a, make_host("b", lease=QUICK + "linger_ms = 0;", rules='{ tree = "%s"; name = "t"; }' % a.files)


def test_of_another_keeper(neighbours):
    """The lock of a shell under another keeper of this machine; dflock is nowhere in the processes that have it."""
    a, b = neighbours
    job = Job(b, "sh", "-c", 'exec 9>"$1"; flock -n 9 && exec env -u LD_PRELOAD sh -c "echo held; read line"', "sh", a.path("f")).held()
    quiet(a)
    assert leases(b) and not leases(a)
    other = past(b, "flock", a.path("g"))
    assert report(a)["pid"] == other.pid and report(b)["pid"] == other.pid


@pytest.mark.long
def test_of_another_keeper_at_full_speed(neighbours, folder):
    """Their leases come and go between two looks at the store."""
    a, b = neighbours
    workers = [b.popen("sh", "-c", 'while :; do flock "$1" sleep 0.0$2; done', "sh", a.path("f"), str(i)) for i in range(1, 5)]
    try:
        quiet(a, 40)
        assert all(worker.poll() is None for worker in workers)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


# --- where files are ---

@pytest.mark.parametrize("kind", ["tmpfs", "disk", "overlay", "btrfs"])
def test_on_file_systems(on, kind):  # noqa: F811
    """Where stat, fdinfo and /proc/locks show different numbers for one file, and two files may have one number in /proc/locks: one is under a
    lease, and the other one is not protected."""
    made, host = on(kind, lease=QUICK)
    Job(host, "flock", "-n", host.path("f"), "sh", "-c", "echo held; read line").held()
    assert host.opened("f", "setlk 0 ex 5 5")
    if made.twins_there():
        protected, other = made.twins()
        Job(host, "flock", "-n", protected, "sh", "-c", "echo held; read line").held()
        past(host, "flock", other)
    quiet(host)
    other = past(host, "flock", host.path("g"))
    assert (report(host)["pid"], report(host)["path"]) == (other.pid, host.path("g"))


CONTAINER = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]


@pytest.mark.root("only root may make a pid namespace")
def test_of_a_container(host, folder):
    """The path is protected, and leads to another file there. Where it has a protected file of ours under a path of its own, that is reported by
    our path and number of the process."""
    other, there = os.path.join(folder, "other"), os.path.join(folder, "there")
    for path in (other, there):
        os.mkdir(path)
    words = [*CONTAINER, "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "-"]
    past(host, "flock", host.path("f"), inside=[*words, other, host.files])
    assert os.path.exists(os.path.join(other, "f"))
    quiet(host)
    past(host, "flock", os.path.join(there, "f"), inside=[*words, host.files, there])
    lock = report(host)
    assert lock["path"] == host.path("f") and os.path.join(there, "f") in lock["command"]


@pytest.mark.root("needs root, for another user")
def test_another_users(redis, make_host, folder):
    """A keeper that may not look into a process says that, and calls it nothing."""
    os.chmod(folder, 0o777)
    host = make_host("a", lease=QUICK, foreground=False)
    for path in (host.runtime, host.files):
        os.chown(path, NOBODY, NOBODY)
    os.chmod(redis.socket, 0o777)
    host.inside = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    host.start()
    host.init()
    user, host.inside = host.inside, []
    past(host, "flock", host.path("f"))
    host.inside = user
    wait_until(lambda: host.status()["past_looks"]["not_found"], "the keeper has seen it", LONG)
    quiet(host)
    assert "may not look into" in doctor(host)[1]


# --- these tests find what they are for ---

def under_a_lease(make_host):
    host = begun(make_host("a", lease=QUICK))
    return host, Job(host, "sh", "-c", SHELL, "sh", host.path("f"))


def under_another_keeper(make_host):
    a = begun(make_host("a", lease=QUICK))
    b = make_host("b", lease=QUICK, rules='{ tree = "%s"; name = "t"; }' % a.files)
    return a, Job(b, "sh", "-c", SHELL, "sh", a.path("f"))


def before_the_keeper(make_host):
    host = make_host("a", lease=QUICK, foreground=False)
    job = Job(host, PAST, "flock", host.path("f")).held()
    host.start()
    host.init()
    return host, job


@pytest.mark.parametrize("name,situation", zip(MISTAKES, (under_a_lease, under_another_keeper, before_the_keeper)))
def test_mutants(name, situation, make_host, monkeypatch):
    """A keeper with a mistake raises a false alarm."""
    with mutant(MISTAKES[name], harness.host.BUILD, "dflockd") as made:
        monkeypatch.setattr(harness.host, "KEEPER", os.path.join(made, "dflockd"))
        host, job = situation(make_host)
        assert report(host)["pid"] == job.pid
