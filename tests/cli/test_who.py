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
from harness.system import Place, SystemHost

OTHER = 5001


@pytest.fixture
def hosts(make_host):
    return make_host("a", lease="ttl_ms = 20000;"), make_host("b", lease="ttl_ms = 20000;")


def asked(host, lock, status=0):
    """The answer as JSON."""
    done = host.cli("who", "--json", lock, check=False)
    assert done.returncode == status, done
    return json.loads(done.stdout)


def who(host, lock, status=0):
    """The answer of a cluster whose hosts all answer: on a busy machine one may be late."""
    return wait_until(lambda: next((r for r in [asked(host, lock, status)] if "silent" not in states(r).values()), None),
                      "all hosts answer", 60)


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


# --- dflock who ---


def test_the_holder_and_not_the_one_that_asked(hosts):
    """The process that holds the lock is shown on both hosts, by file and by name. flock(1), which asked, has ended."""
    a, b = hosts
    before = int(time.time())
    job = holder(b, comm="nightly")
    for host, lock in ((a, "t/f"), (b, "t/f"), (b, b.path("f")), (a, a.path("f"))):
        report = who(host, lock)
        assert told(report) == {"b": {(job.pid, "nightly")}} and states(report) == {"b": "answered"}
        lease, = report["hosts"][0]["leases"]
        assert lease["job"]["command"] == "flock" and lease["job"]["pid"] != job.pid
        assert before <= report["hosts"][0]["holders"][0]["since"] <= time.time()
    text = a.cli("who", "t/f").stdout
    assert re.search(rf"^t/f: held\n    b-[0-9a-f]+  pid {job.pid} \(nightly\)  flock exclusive, whole file  since \d{{4}}-", text), text


def test_free(hosts):
    a, b = hosts
    assert who(a, "t/f", 1)["hosts"] == []
    assert a.cli("who", "t/f", check=False).stdout == "t/f: free\n"
    holder(b).end()
    report = who(a, "t/f", 1)  # the lease lingers, or has gone
    assert told(report) in ({}, {"b": set()})


def test_a_lease_without_a_holder(make_host):
    a, b = (make_host(name, lease="ttl_ms = 20000; linger_ms = 60000;") for name in "ab")
    holder(b, comm="earlier").end()
    done = a.cli("who", "t/f", check=False)
    assert done.returncode == 1 and "earlier" not in done.stdout
    assert re.fullmatch(r"t/f: free\n    b-[0-9a-f]+  has the lease, and no process uses it *\n", done.stdout)


def test_the_next_holder_under_a_cached_lease(make_host):
    """The lease was given to another program; the store knows that program's name. The one that has the lock now asked no
    keeper."""
    a, b = (make_host(name, lease="ttl_ms = 20000; linger_ms = 60000;") for name in "ab")
    holder(b, comm="earlier").end()
    later = holder(b, comm="later")
    assert told(who(a, "t/f")) == {"b": {(later.pid, "later")}}
    assert told(who(b, "t/f")) == {"b": {(later.pid, "later")}}


def test_several_holders(hosts):
    """Shared locks on both hosts, and a child that inherited one."""
    a, b = hosts
    first, second = holder(a, "-s", comm="one"), holder(b, "-s", comm="two")
    third = Job(b, "flock", "-s", b.path("f"), "sh", "-c", "echo held; read line; true").held()
    child, = (p for p in third.processes() if p != third.pid)
    for host in hosts:
        assert told(who(host, "t/f")) == {"a": {(first.pid, "one")},
                                          "b": {(second.pid, "two"), (third.pid, "flock"), (child, "sh")}}


def test_ranges(hosts):
    a, b = hosts
    one, two = a.agent(), b.agent()
    for agent, host, command in ((one, a, "setlk 0 ex 10 20"), (two, b, "setlk 0 ex 30 40")):
        assert agent.do(f"open 0 {host.path('f')} rwc") == "ok"
        assert agent.do(command) == "ok"
    for host in hosts:
        found = {h["host"][0]: [(p["space"], p["from"], p["to"], p["pid"]) for p in h["holders"]] for h in who(host, "t/f")["hosts"]}
        assert found == {"a": [("record", 10, 30, one.pid)], "b": [("record", 30, 70, two.pid)]}


def test_waiting_hosts(hosts):
    a, b = hosts
    holder(a)
    waiting = b.popen("flock", b.path("f"), "true")
    wait_until(lambda: who(a, "t/f")["waiting"], "the other host waits")
    assert re.search(r"^    b-[0-9a-f]+ .*waits \(1\.\)", a.cli("who", "t/f").stdout, re.M)
    waiting.kill()
    waiting.communicate()


@pytest.mark.parametrize("comm, shown", [
    (r"a\033[2Jb", "a?[2Jb"), (r"one two\n", "one two "), (r"\377\200x", "??x"), (r"j\303\266b", "j\u00f6b"),
    (r"x\342\200\256y", "x???y"), (r"\302\233y", "??y"), ("()) 1 2", "()) 1 2"), ("%s%n", "%s%n")])
def test_hostile_names(hosts, comm, shown):
    """No process can put control characters, or what turns the direction of text, on an operator's screen."""
    a, b = hosts
    job = holder(b, comm=comm.replace("%", "%%"))
    assert told(who(a, "t/f")) == told(who(b, "t/f")) == {"b": {(job.pid, shown)}}
    line = verbose(a, "flock", "-n", a.path("f"), "true").stderr
    assert f"pid {job.pid} ({shown})," in line and line.count("\n") == 1 and "\033" not in line


def test_names_may_stay_here(make_host):
    """show_jobs = false: this host tells others how many hold the lock, and no more; on itself it does."""
    a, b = make_host("a"), make_host("b", top="show_jobs = false;")
    job = holder(b, comm="secret")
    report = who(a, "t/f")
    host, = report["hosts"]
    assert (host["state"], host["count"], host["holders"]) == ("answered", 1, [])
    assert "secret" not in json.dumps(report) and "job" not in host["leases"][0]
    assert re.search(r"b-[0-9a-f]+  1 that it does not tell \(show_jobs\)", a.cli("who", "t/f").stdout)
    assert "held by host b, which does not tell its jobs" in verbose(a, "flock", "-n", a.path("f"), "true").stderr
    assert told(who(b, "t/f")) == {"b": {(job.pid, "secret")}}
    assert "job" not in json.dumps(a.status()["cluster"]["locks"])


# As the scripts of an older version write a lease: without a job.
OLD = """
redis.call('SET', KEYS[1], cmsgpack.pack({q = {}, l = {{token = ARGV[1], host = ARGV[2], file = '1:1', space = 'flock',
    mode = 'exclusive', from = string.rep('0', 19), to = '9223372036854775807', fence = 1}}}))
redis.call('HSET', 'dflock:{0}:hosts', ARGV[2], ARGV[3])
"""


def test_a_host_of_an_older_version(make_host, redis):
    a = make_host("a", lease="ttl_ms = 20000;")
    old = "old-0123456789abcdef"
    redis.command("EVAL", OLD, 1, "dflock:{0}:lock:t/f", "1" * 32, old, int(time.time() * 1000))
    report = who(a, "t/f")
    assert states(report) == {"old": "old"} and "job" not in report["hosts"][0]["leases"][0]
    assert "unknown: its dflock is of an older version" in a.cli("who", "t/f").stdout
    line = verbose(a, "flock", "-n", a.path("f"), "true").stderr
    assert line == f"dflock: {a.path('f')}: held by host old, job unknown: dflock there is of an older version\n"
    assert a.status()["cluster"]["locks"][0]["leases"][0]["host"] == old


def test_a_host_that_does_not_answer(hosts):
    """What the store knows of it is last known, and no holder."""
    a, b = hosts
    holder(b, comm="nightly")
    asks = who(a, "t/f")["hosts"][0]["leases"][0]["job"]
    wait_until(b.kill_keeper, "the host is away")
    report = asked(a, "t/f")
    assert states(report) == {"b": "silent"} and told(report) == {"b": set()}
    assert report["hosts"][0]["leases"][0]["job"] == asks
    assert re.search(rf"unknown: it has not answered +flock exclusive, whole file +last known: pid {asks['pid']} \(flock\) asked for it \d{{4}}-",
                     a.cli("who", "t/f").stdout)
    line = verbose(a, "flock", "-n", a.path("f"), "true", late=True).stderr
    assert re.fullmatch(rf"dflock: {a.path('f')}: held by host b, which has not answered; last known: pid {asks['pid']} "
                        r"\(flock\), which asked for it at \d\d:\d\d:\d\d\n", line), line


def test_without_the_store(make_host, redis):
    """This host's holders are still known; whether others have it is not."""
    a = make_host("a", lease="ttl_ms = 60000;")
    job = holder(a)
    redis.stop()
    wait_until(lambda: not a.status()["store"]["up"], "the store is away")
    done = a.cli("who", "--json", "t/f", check=False)
    assert done.returncode == 0 and told(json.loads(done.stdout)) == {"a": {(job.pid, "sh")}}
    assert "other hosts could not be asked" in done.stderr
    done = a.cli("who", "t/g", check=False)
    assert (done.returncode, done.stdout) == (2, "") and "other hosts could not be asked" in done.stderr


def test_a_file_without_a_rule(hosts, folder):
    a, _ = hosts
    plain = os.path.join(folder, "plain")
    open(plain, "w").close()
    done = a.cli("who", plain, check=False)
    assert (done.returncode, done.stdout) == (2, "") and f"{plain}: no rule protects this file" in done.stderr
    assert a.cli("who", check=False).returncode == a.cli("who", "x", "y", check=False).returncode == 2
    assert a.cli("who", "x" * 2000, check=False).returncode == 2


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
    assert told(who(a, "t/f")) == {"b": {(job.pid, "sh")}}
    done = a.cli("who", "f", check=False, cwd=b.files)  # of b's file: no rule of a protects it
    assert done.returncode == 2 and "no rule protects this file" in done.stderr
    assert who(a, "t/never", 1)["hosts"] == []  # a rule gives a file this name
    assert a.cli("lock", "once", "true").returncode == 0
    done = a.cli("who", "once", check=False)
    assert done.returncode == 1 and done.stdout.startswith("lock:once: free\n"), done


def test_a_lock_without_a_file(hosts):
    a, b = hosts
    job = Job(b, CLI, "lock", "night ly", "sh", "-c", "echo held; read line").held()
    for host in hosts:
        report = who(host, "night ly")
        assert report["name"] == "lock:night%20ly" and len(told(report)["b"]) == 2  # flock(1), and the job
    assert who(a, "lock:night%20ly")["hosts"]


def test_a_keeper_is_started(host_of, redis, make_host):
    """At 3 a.m. none may run on this host."""
    job = holder(make_host("b"))
    a = host_of(redis, "a", foreground=False)
    assert told(who(a, "t/f")) == {"b": {(job.pid, "sh")}}


def test_another_user_of_a_system_keeper(redis, folder):
    """He sees what status shows him as well: the jobs of all users."""
    place = Place()
    host = SystemHost(redis, folder, place)
    try:
        host.init()
        job = holder(host)
        env = host.env()
        env.pop("LD_PRELOAD")
        done = subprocess.run([*host.inside, *host.as_user(OTHER), CLI, "who", "--json", "t/f"], env=env, capture_output=True,
                              text=True, timeout=60)
        assert done.returncode == 0 and told(json.loads(done.stdout)) == {"system": {(job.pid, "sh")}}, done
        done = verbose(host, *host.as_user(OTHER), "flock", "-n", host.path("f"), "true")
        assert done.returncode == 1 and f"held by this host, pid {job.pid} (sh)," in done.stderr, done
    finally:
        host.stop()
        place.end()


def test_status_shows_the_jobs_of_all_hosts(hosts):
    a, b = hosts
    holder(b)
    job = a.status()["cluster"]["locks"][0]["leases"][0]["job"]
    assert job["command"] == "flock"
    assert re.search(rf"held +b-[0-9a-f]+ +flock exclusive, whole file +fence \d+ +asked for by pid {job['pid']} \(flock\), \d{{4}}-",
                     a.cli("status").stdout)


def test_many_ask_at_a_time(hosts):
    a, b = hosts
    job = holder(b)
    env = a.env()
    env.pop("LD_PRELOAD")
    asking = [subprocess.Popen([CLI, "who", "--json", "t/f"], env=env, stdout=subprocess.PIPE) for _ in range(20)]
    answers = [json.loads(p.communicate(timeout=60)[0]) for p in asking]
    assert all(told(r) == {"b": {(job.pid, "sh")}} or states(r) == {"b": "silent"} for r in answers)
    assert any(told(r) == {"b": {(job.pid, "sh")}} for r in answers)


# --- DFLOCK_VERBOSE ---


def test_refused_because_of_another_host(hosts):
    a, b = hosts
    job = holder(b, comm="nightly")
    done = verbose(a, "flock", "-n", a.path("f"), "true")
    assert done.returncode == 1
    assert re.fullmatch(rf"dflock: {a.path('f')}: held by host b, pid {job.pid} \(nightly\), since \d\d:\d\d:\d\d\n", done.stderr)
    for env in ({}, {"DFLOCK_VERBOSE": ""}, {"DFLOCK_VERBOSE": "0"}):
        assert verbose(a, "flock", "-n", a.path("f"), "true", env=env).stderr == ""


def test_refused_because_of_a_local_holder(hosts):
    a, _ = hosts
    job = holder(a, comm="nightly")
    done = verbose(a, "flock", "-n", a.path("f"), "true")
    assert re.fullmatch(rf"dflock: {a.path('f')}: held by this host, pid {job.pid} \(nightly\), since \d\d:\d\d:\d\d\n", done.stderr)


@pytest.mark.parametrize("where", ["another host", "this host"])
def test_a_call_that_waits(hosts, where):
    """It says for which process as it begins to wait: so also before flock -w gives up."""
    a, b = hosts
    job = holder(b if where == "another host" else a, comm="nightly")
    text = rf"dflock: {a.path('f')}: held by {'host b' if where == 'another host' else where}, pid {job.pid} \(nightly\), since \d\d:\d\d:\d\d\n"
    before = time.monotonic()
    done = verbose(a, "flock", "-w", "3", a.path("f"), "true")
    assert done.returncode == 1 and re.fullmatch(text, done.stderr) and time.monotonic() - before < 30, done
    assert verbose(a, "flock", "-w", "0.01", a.path("f"), "true").returncode == 1  # perhaps while it asks
    assert verbose(a, "flock", "-w", "0.3", a.path("f"), "true", env={}).stderr == ""
    waits = subprocess.Popen([*a.inside, "flock", a.path("f"), "echo", "ran"], env={**a.env(), "DFLOCK_VERBOSE": "1"}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    line = waits.stderr.readline()
    job.say("")
    assert re.fullmatch(text, line) or "has not answered" in line
    assert waits.communicate(timeout=60) == ("ran\n", "") and waits.returncode == 0


def test_run_and_lock(hosts):
    a, b = hosts
    holder(b)
    env = {k: v for k, v in a.env().items() if k != "LD_PRELOAD"}

    def cli(*words):
        return subprocess.run([CLI, *words], env=env, capture_output=True, text=True, timeout=60)

    assert "held by host b, pid " in cli("run", "--verbose", "flock", "-n", a.path("f"), "true").stderr
    assert cli("run", "flock", "-n", a.path("f"), "true").stderr == ""
    Job(b, CLI, "lock", "x", "sh", "-c", "echo held; read line").line()
    assert "held by host b, pid " in cli("lock", "-n", "--verbose", "x", "true").stderr
    assert "held by" not in cli("lock", "-n", "x", "true").stderr
    shown = cli("lock", "--verbose", "y", "sh", "-c", "echo ${DFLOCK_VERBOSE-none}")
    assert "none" in shown.stdout.splitlines()  # beside flock(1)'s own lines
    env["DFLOCK_VERBOSE"] = "1"
    assert cli("lock", "--verbose", "y", "sh", "-c", "echo ${DFLOCK_VERBOSE-none}").stdout.split()[-1:] != ["none"]


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


def test_ranges_that_are_in_the_way(hosts):
    """Only these are shown; errno stays the call's; a program that asks again and again does not fill its log."""
    a, b = hosts
    one, two = b.agent(), b.agent()
    for agent, command in ((one, "setlk 0 ex 10 10"), (two, "setlk 0 ex 30 10")):
        assert agent.do(f"open 0 {b.path('f')} rwc") == "ok"
        assert agent.do(command) == "ok"
    open(a.path("f"), "w").close()
    done = verbose(a, "/usr/bin/python3", "-c", REFUSED, a.path("f"), "30", "5")
    assert set(done.stdout.split()) == {"EAGAIN"} and len(done.stdout.split()) == 21
    assert re.fullmatch(rf"dflock: {a.path('f')}: held by host b, pid {two.pid} \(agent\), since \d\d:\d\d:\d\d\n", done.stderr)
    assert verbose(a, "/usr/bin/python3", "-c", REFUSED, a.path("f"), "20", "5").stdout.split() == ["taken"] * 21
    assert "pid %d (agent)" % one.pid in verbose(a, "/usr/bin/python3", "-c", REFUSED, a.path("f"), "0", "20").stderr


def test_resting(make_host):
    a, b = (make_host(name, rules='{ tree = "%s"; name = "t"; at_least_ms = 60000; }', lease="ttl_ms = 20000;") for name in "ab")
    assert b.run("flock", "-n", b.path("f"), "true").returncode == 0
    wait_until(lambda: not b.status()["leases"], "the lease has gone back")
    assert re.fullmatch(rf"dflock: {a.path('f')}: free, but it rests for \d+ s more \(at_least_ms\)\n",
                        verbose(a, "flock", "-n", a.path("f"), "true").stderr)
    assert re.search(r"^t/f: free\n    rests for \d+ s more \(at_least_ms\): flock$", a.cli("who", "t/f", check=False).stdout, re.M)


def test_the_keeper_stops_while_it_looks(hosts):
    """The caller is told soon, and its call's result is the same."""
    a, b = hosts
    holder(b)
    keeper = b.keeper_pids()[1]
    os.kill(keeper, signal.SIGSTOP)
    try:
        done = verbose(a, "flock", "-n", a.path("f"), "true", late=True)
    finally:
        os.kill(keeper, signal.SIGCONT)
    assert done.returncode == 1 and "held by host b, which has not answered; last known: pid " in done.stderr
