"""
`dflock who LOCK`, and the line of DFLOCK_VERBOSE at a refused call: which processes hold a lock, on which hosts.

A name that may be old is never shown as a holder. The tests for that let another process take a lock whose lease its host
has already (so that the store is not asked), and let a host die that the store knows a name of.
"""
import json
import os
import re
import signal
import subprocess
import time

import pytest
from harness import Job, wait_until
from harness.host import CLI

OTHER = 5001
LONG = "ttl_ms = 20000;"
LINGERING = LONG + "linger_ms = 60000;"
SINCE = r"since \d\d:\d\d:\d\d"


@pytest.fixture
def hosts(make_host):
    return [make_host(name, lease=LONG + "probe_ms = 200;") for name in "ab"]


def asked(host, lock, status=0):
    """The answer as JSON."""
    done = host.cli("who", "--json", lock, check=False)
    assert done.returncode == status, done
    return json.loads(done.stdout)


def who(host, lock="t/f", status=0):
    """The answer of a cluster whose hosts all answer: on a busy machine one may be late."""
    return wait_until(lambda: next((r for r in [asked(host, lock, status)] if "silent" not in states(r).values()), None),
                      "all hosts answer", 60)


def text(host, lock="t/f"):
    return host.cli("who", lock, check=False).stdout


def told(report):
    """{host's name: {(pid, command)}}"""
    return {h["host"].rsplit("-", 1)[0]: {(p["pid"], p["command"]) for p in h["holders"]} for h in report["hosts"]}


def states(report):
    return {h["host"].rsplit("-", 1)[0]: h["state"] for h in report["hosts"]}


def holder(host, *how, name="f", comm=None):
    """A shell holds the lock on its own descriptor, as ( flock 9; job ) 9>file does: flock(1) has ended. comm: its name, as
    printf(1) writes it."""
    rename = f"printf '{comm}' >/proc/$$/comm; " if comm else ""
    return Job(host, "sh", "-c", f"{rename}exec 9>>{host.path(name)}; flock {' '.join(how)} 9; echo held; read line; exit 0").held()


def verbose(host, *words, late=False, env={"DFLOCK_VERBOSE": "1"}):
    """The program's end; late: a host may not answer. Else again if one did not, on a busy machine."""
    def run():
        done = subprocess.run([*host.inside, *words], env={**host.env(), **env}, capture_output=True, text=True, timeout=60)
        return done if late or "has not answered" not in done.stderr else None

    return wait_until(run, "all hosts answer", 60)


def refused(host, name="f", **more):
    """What flock -n says."""
    done = verbose(host, "flock", "-n", host.path(name), "true", **more)
    assert done.returncode == 1, done
    return done.stderr


@pytest.mark.parametrize("where", ["host b", "this host"])
def test_the_holder_and_not_the_one_that_asked(hosts, where):
    """The process that holds the lock is shown on both hosts, by file and by name, and to calls that are refused or wait. flock(1), which asked
    for it, has ended."""
    a, b = hosts
    at, before = (b, int(time.time())) if where == "host b" else (a, int(time.time()))
    job = holder(at, comm="nightly")
    for host, lock in ((a, "t/f"), (b, "t/f"), (b, b.path("f")), (a, a.path("f"))):
        report = who(host, lock)
        assert told(report) == {at.name: {(job.pid, "nightly")}} and states(report) == {at.name: "answered"}
        lease, = report["hosts"][0]["leases"]
        assert lease["job"]["command"] == "flock" and lease["job"]["pid"] != job.pid
        assert before <= report["hosts"][0]["holders"][0]["since"] <= time.time()
    assert re.search(rf"^t/f: held\n    {at.name}-[0-9a-f]+(?: \(this host\))?  pid {job.pid} \(nightly\)  flock exclusive, whole file  "
                     r"since \d{4}-", text(a))
    asker = a.status()["cluster"]["locks"][0]["leases"][0]["job"]
    assert asker["command"] == "flock"
    assert re.search(rf"held +{at.name}-[0-9a-f]+ .*flock exclusive, whole file +fence \d+ +asked for by pid {asker['pid']} \(flock\), \d{{4}}-",
                     a.cli("status").stdout)
    line = rf"dflock: {a.path('f')}: held by {where}, pid {job.pid} \(nightly\), {SINCE}\n"
    assert re.fullmatch(line, refused(a))
    for env in ({}, {"DFLOCK_VERBOSE": ""}, {"DFLOCK_VERBOSE": "0"}):
        assert refused(a, env=env) == ""
    # A call that waits says so as it begins: also before flock -w gives up, perhaps while it asks.
    begun = time.monotonic()
    done = verbose(a, "flock", "-w", "3", a.path("f"), "true")
    assert done.returncode == 1 and re.fullmatch(line, done.stderr) and time.monotonic() - begun < 30, done
    assert verbose(a, "flock", "-w", "0.01", a.path("f"), "true").returncode == 1
    assert verbose(a, "flock", "-w", "0.3", a.path("f"), "true", env={}).stderr == ""
    waits = subprocess.Popen(["flock", a.path("f"), "echo", "ran"], env={**a.env(), "DFLOCK_VERBOSE": "1"}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = waits.stderr.readline()
    job.say("")
    assert re.fullmatch(line, said) or "has not answered" in said
    assert waits.communicate(timeout=60) == ("ran\n", "") and waits.returncode == 0


def test_free(make_host):
    """A lease without a holder is none; the next holder under it is shown, who asked no keeper, and not the one that the store knows."""
    a, b = (make_host(name, lease=LINGERING) for name in "ab")
    assert who(a, "t/f", 1)["hosts"] == [] and text(a) == "t/f: free\n"
    holder(b, comm="earlier").end()
    assert told(who(a, "t/f", 1)) == {"b": set()}
    assert re.fullmatch(r"t/f: free\n    b-[0-9a-f]+  has the lease, and no process uses it *\n", text(a))
    later = holder(b, comm="later")
    for host in a, b:
        assert told(who(host)) == {"b": {(later.pid, "later")}}


def test_an_answer_that_cannot_be_written(make_host):
    """The exit status is not that of a lock which is free."""
    host = make_host("a")
    job = holder(host)
    with open("/dev/full", "w") as full:
        for words in ["t/f"], ["--json", "t/f"], ["t/g"]:
            done = host.cli("who", *words, check=False, stdout=full)
            assert (done.returncode, done.stderr) == (2, "dflock: cannot write the output: No space left on device\n"), words
    assert job.end() == 0


def test_several_holders_and_waiters(hosts):
    """Shared locks on both hosts, and a child that inherited one. Many ask at a time."""
    a, b = hosts
    first, second = holder(a, "-s", comm="one"), holder(b, "-s", comm="two")
    third = Job(b, "flock", "-s", b.path("f"), "sh", "-c", "echo held; read line; true").held()
    child, = (p for p in third.processes() if p != third.pid)
    all_of_them = {"a": {(first.pid, "one")}, "b": {(second.pid, "two"), (third.pid, "flock"), (child, "sh")}}
    for host in hosts:
        assert told(who(host)) == all_of_them
    asking = [subprocess.Popen([CLI, "who", "--json", "t/f"], env=a.plain_env(), stdout=subprocess.PIPE) for _ in range(20)]
    answers = [json.loads(p.communicate(timeout=60)[0]) for p in asking]
    right = [told(r) == all_of_them for r in answers]
    assert any(right) and all(so or "silent" in states(r).values() for so, r in zip(right, answers))
    waiting = b.popen("flock", b.path("f"), "true")
    wait_until(lambda: who(a)["waiting"], "the other host waits")
    assert re.search(r"^    b-[0-9a-f]+ .*waits \(1\.\)", text(a), re.M)
    waiting.kill()
    waiting.communicate()


# Says what was refused and with which errno, also from a signal handler; and that it does not ask all the time.
REFUSED = """
import errno, fcntl, signal, sys
f = open(sys.argv[1], "r+")

def attempt(*_):
    try:
        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, int(sys.argv[3]), int(sys.argv[2]))
        print("taken", flush=True)
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)

signal.signal(signal.SIGUSR1, attempt)
signal.raise_signal(signal.SIGUSR1)
for i in range(20):
    attempt()
"""


def test_ranges(hosts):
    """Only those that are in the way are shown; errno stays the call's; a program that asks again and again does not fill its log."""
    a, b = hosts
    one, two = b.opened("f", "setlk 0 ex 10 10"), b.opened("f", "setlk 0 ex 30 10")
    three = a.opened("f", "setlk 0 ex 60 5")
    for host in hosts:
        found = {h["host"][0]: [(p["space"], p["from"], p["to"], p["pid"]) for p in h["holders"]] for h in who(host)["hosts"]}
        assert {name: sorted(rows) for name, rows in found.items()} == {
            "a": [("record", 60, 65, three.pid)], "b": [("record", 10, 20, one.pid), ("record", 30, 40, two.pid)]}

    def tried(first, length):
        return verbose(a, "/usr/bin/python3", "-c", REFUSED, a.path("f"), str(first), str(length))

    done = tried(30, 5)
    assert done.stdout.split() == 21 * ["EAGAIN"]
    assert re.fullmatch(rf"dflock: {a.path('f')}: held by host b, pid {two.pid} \(agent\), {SINCE}\n", done.stderr)
    assert tried(20, 5).stdout.split() == ["taken"] * 21
    assert "pid %d (agent)" % one.pid in tried(0, 20).stderr


def test_hostile_names(hosts):
    """No process can put control characters, or what turns the direction of text, on an operator's screen."""
    a, b = hosts
    for i, (comm, shown) in enumerate([
            (r"a\033[2Jb", "a?[2Jb"), (r"one two\n", "one two "), (r"\377\200x", "??x"), (r"j\303\266b", "j\u00f6b"),
            (r"x\342\200\256y", "x???y"), (r"\302\233y", "??y"), ("()) 1 2", "()) 1 2"), ("%s%n", "%s%n")]):
        name = f"f{i}"
        job = holder(b, name=name, comm=comm.replace("%", "%%"))
        assert told(who(a, "t/" + name)) == told(who(b, "t/" + name)) == {"b": {(job.pid, shown)}}
        line = refused(a, name)
        assert f"pid {job.pid} ({shown})," in line and line.count("\n") == 1 and "\033" not in line


def test_names_may_stay_here(make_host):
    """show_jobs = false: this host tells others how many hold the lock, and no more; on itself it does."""
    a, b = make_host("a"), make_host("b", top="show_jobs = false;")
    job = holder(b, comm="secret")
    report = who(a)
    host, = report["hosts"]
    assert (host["state"], host["count"], host["holders"]) == ("answered", 1, [])
    assert "secret" not in json.dumps(report) and "job" not in host["leases"][0]
    assert re.search(r"b-[0-9a-f]+  1 that it does not tell \(show_jobs\)", text(a))
    assert "held by host b, which does not tell its jobs" in refused(a)
    assert told(who(b)) == {"b": {(job.pid, "secret")}}
    assert "job" not in json.dumps(a.status()["cluster"]["locks"])


# As the scripts of an older version write a lease: without a job.
OLD = """
redis.call('SET', KEYS[1], cmsgpack.pack({q = {}, l = {{token = ARGV[1], host = ARGV[2], file = '1:1', space = 'flock',
    mode = 'exclusive', from = string.rep('0', 19), to = '9223372036854775807', fence = 1}}}))
redis.call('HSET', 'dflock:{0}:hosts', ARGV[2], ARGV[3])
"""


def test_a_host_of_an_older_version(make_host, redis):
    a = make_host("a", lease=LONG)
    old = "old-0123456789abcdef"
    redis.command("EVAL", OLD, 1, "dflock:{0}:lock:t/f", "1" * 32, old, int(time.time() * 1000))
    report = who(a)
    assert states(report) == {"old": "old"} and "job" not in report["hosts"][0]["leases"][0]
    assert "unknown: its dflock is of an older version" in text(a)
    assert refused(a) == f"dflock: {a.path('f')}: held by host old, job unknown: dflock there is of an older version\n"
    assert a.status()["cluster"]["locks"][0]["leases"][0]["host"] == old


def test_a_host_that_does_not_answer(hosts):
    """What the store knows of it is last known, and no holder. The caller is told soon, and its call's result is the same."""
    a, b = hosts
    holder(b, comm="nightly")
    asks = who(a)["hosts"][0]["leases"][0]["job"]
    line = rf"dflock: {a.path('f')}: held by host b, which has not answered; last known: pid {asks['pid']} \(flock\), " \
        r"which asked for it at \d\d:\d\d:\d\d\n"
    keeper = b.keeper_pids()[1]
    os.kill(keeper, signal.SIGSTOP)
    try:
        assert re.fullmatch(line, refused(a, late=True))
    finally:
        os.kill(keeper, signal.SIGCONT)
    wait_until(b.kill_keeper, "the host is away")
    report = asked(a, "t/f")
    assert states(report) == {"b": "silent"} and told(report) == {"b": set()}
    assert report["hosts"][0]["leases"][0]["job"] == asks
    assert re.search(rf"unknown: it has not answered +flock exclusive, whole file +last known: pid {asks['pid']} \(flock\) asked for it "
                     r"\d{4}-", text(a))
    assert re.fullmatch(line, refused(a, late=True))


def test_without_the_store(make_host, redis):
    """This host's holders are still known; whether others have it is not."""
    a = make_host("a", lease="ttl_ms = 60000;")
    job = holder(a)
    redis.stop()
    wait_until(lambda: not a.status()["store"]["up"], "the store is away")
    done = a.cli("who", "--json", "t/f")
    assert told(json.loads(done.stdout)) == {"a": {(job.pid, "sh")}}
    assert "other hosts could not be asked" in done.stderr
    done = a.cli("who", "t/g", check=False)
    assert (done.returncode, done.stdout) == (2, "") and "other hosts could not be asked" in done.stderr


def test_a_word_that_nothing_knows(hosts, folder):
    """A file is named from another directory than its own: that is not the name of a free lock."""
    a, b = hosts
    job = holder(b)
    elsewhere = os.path.join(folder, "elsewhere")
    os.mkdir(elsewhere)
    for command, status in (("who", 2), ("fence", 1), ("break", 3)):
        done = a.cli(command, "f", check=False, cwd=elsewhere)
        assert (done.returncode, done.stdout) == (status, ""), done
        assert f"f: there is no such file in {elsewhere}, no rule gives a file this lock name" in done.stderr
        assert "give the file's whole path" in done.stderr
    assert told(who(a)) == {"b": {(job.pid, "sh")}}
    done = a.cli("who", "f", check=False, cwd=b.files)  # of b's file: no rule of a protects it
    assert (done.returncode, done.stdout) == (2, "") and "f: no rule protects this file" in done.stderr
    assert who(a, "t/never", 1)["hosts"] == []  # a rule gives a file this name
    for words in (), ("x", "y"), ("x" * 2000, ):
        assert a.cli("who", *words, check=False).returncode == 2


def test_a_lock_without_a_file(make_host, host_of, redis):
    """On a host where no keeper runs so far, as at 3 a.m."""
    b, a = make_host("b", lease=LONG), host_of(redis, "a", lease=LONG, foreground=False)
    Job(b, CLI, "lock", "night ly", "sh", "-c", "echo held; read line").held()
    for host in a, b:
        report = who(host, "night ly")
        assert report["name"] == "lock:night%20ly" and len(told(report)["b"]) == 2  # flock(1), and the job
    assert who(a, "lock:night%20ly")["hosts"]
    assert a.cli("lock", "once", "true").returncode == 0
    done = a.cli("who", "once", check=False)
    assert done.returncode == 1 and done.stdout.startswith("lock:once: free\n"), done


def test_another_user_of_a_system_keeper(make_system):
    """He sees what status shows him as well: the jobs of all users."""
    host = make_system()
    job = holder(host)
    done = host.cli("who", "--json", "t/f", before=host.as_user(OTHER))
    assert told(json.loads(done.stdout)) == {"system": {(job.pid, "sh")}}, done
    done = verbose(host, *host.as_user(OTHER), "flock", "-n", host.path("f"), "true")
    assert done.returncode == 1 and f"held by this host, pid {job.pid} (sh)," in done.stderr, done


def test_run_and_lock(hosts):
    a, b = hosts
    holder(b)
    Job(b, CLI, "lock", "x", "sh", "-c", "echo held; read line").held()
    for before, after in (["run"], ["flock", "-n", a.path("f"), "true"]), (["lock", "-n"], ["x", "true"]):
        assert "held by host b, pid " in a.cli(*before, "--verbose", *after, check=False).stderr
        assert "held by" not in a.cli(*before, *after, check=False).stderr
    show = "lock", "--verbose", "y", "sh", "-c", "echo ${DFLOCK_VERBOSE-none}"
    assert "none" in a.cli(*show).stdout.splitlines()  # beside flock(1)'s own lines
    assert "none" not in a.cli(*show, env={"DFLOCK_VERBOSE": "1"}).stdout.splitlines()


def test_resting(make_host):
    a, b = (make_host(name, rules='{ tree = "%s"; name = "t"; at_least_ms = 60000; }', lease=LONG) for name in "ab")
    assert b.run("flock", "-n", b.path("f"), "true").returncode == 0
    wait_until(lambda: not b.status()["leases"], "the lease has gone back")
    assert re.fullmatch(rf"dflock: {a.path('f')}: free, but it rests for \d+ s more \(at_least_ms\)\n", refused(a))
    assert re.search(r"^t/f: free\n    rests for \d+ s more \(at_least_ms\): flock$", text(a), re.M)
