"""
warn_after_ms and kill_after_ms: a lock that is held too long is reported, and its holders are ended.

And no others are. The tests of the second half hold locks briefly, for several times kill_after_ms: they run beside a job that
hangs, until the keeper has ended that, so the keeper has looked and judged meanwhile.
"""
import os
import re
import signal
import sys
import textwrap
import time

import harness.host
import pytest
from harness import Job, text_of, wait_until
from harness.system import Hanging

from editing import read, write
from jobs import size, state
from keepers import held, kill_keeper

KILL = 1000  # the least that there may be
LEASE = "ttl_ms = 6000; freeze_margin_ms = 600; pin_ms = 50; linger_ms = 100;"
PAST = os.path.join(harness.host.BUILD, "tests/agents/past")
HANG = 'exec 9>"$1"; flock 9 && echo held; while :; do sleep 1000; done'
IGNORE = 'trap "" TERM; ' + HANG
LATER = """trap 'bash -c "trap : TERM; sleep 1000; sleep 1000" 9>&- & echo $! >"$1.later"' TERM
exec 9>"$1"; flock 9 && echo held; while :; do sleep 0.1 9>&-; done"""
NOBODY = 65534
LONG = 60


def rule(limits, files="%s", name="t"):
    return '{ tree = "%s"; name = "%s"; %s }' % (files, name, limits)


@pytest.fixture
def make(make_host):
    def make(name="a", warn=0, kill=0, lease=LEASE, **options):
        limits = ("warn_after_ms = %d; " % warn if warn else "") + ("kill_after_ms = %d;" % kill if kill else "")
        host = make_host(name, rules=rule(limits), lease=lease, **options)
        host.cli("log-level", "debug")  # each line, also several of one cause within a minute
        return host

    return make


def hang(host, name="f", script=HANG):
    return Job(host, "bash", "-c", script, "job", host.path(name)).held()


def ended(job, number=None):
    """By a signal."""
    status = job.process.wait(LONG)
    assert status < 0 if number is None else status == -number, status
    return status


def a_hang_is_ended(host, times=2):
    """The limit has passed so many times, and the keeper has acted."""
    for i in range(times):
        ended(hang(host, f"hang{i}"))


def killed(host, name=r"(?!hang)\S+"):
    """What the log says of processes that were signalled, by the name of the file below t/; not of the jobs of a_hang_is_ended()."""
    return re.findall(rf"HELD TOO LONG: t/{name} \(.* longer than kill_after_ms.*", host.log())


def check(host):
    done = host.cli("status", "--check", check=False)
    return done.returncode, done.stdout


def reported(host):
    return host.status()["too_long"]


# --- what is reported and ended ---

LOCKS = {"f": "flock 0 ex", "g": "flock 0 sh", "r": "setlk 0 ex 0 1", "o": "setlk 0 ex 0 1 ofd"}


def test_reported(make):
    """Once in the log; in status (JSON and text) and by --check, until the lock has gone."""
    host = make(warn=300)
    agents = {name: host.opened(name, lock) for name, lock in LOCKS.items()}
    wait_until(lambda: len(reported(host)) == len(LOCKS), "they are reported", LONG)
    log, text = host.log().splitlines(), host.cli("status").stdout
    for one in reported(host):
        name, path, pid = one["name"][2:], one["path"], one["pid"]
        assert (path, pid, one["doing"]) == (host.path(name), agents[name].pid, "")
        assert one["command"].endswith("agent") and one["held_ms"] >= 300
        line, = [l for l in log if "HELD TOO LONG" in l and f"{path}) is locked by pid {pid} (" in l]
        assert "warn_after_ms = 300" in line
        assert re.search(rf"HELD TOO LONG(?s:.*)\nt/{name} \({path}\), for .*, since .*\n    by pid {pid}: .*agent", text)
    status, text = check(host)
    assert status == 1 and "4 locks are held too long" in text
    for name, lock in LOCKS.items():
        assert agents[name].do(lock.replace(" ex", " un").replace(" sh", " un")) == "ok"
    wait_until(lambda: not reported(host), "it is over", LONG)
    assert check(host)[0] == 0
    assert host.log().count("HELD TOO LONG") == 4 and {agent.do("pid") for agent in agents.values()} == {"ok"}


def test_the_log_is_not_filled(make_host):
    """One line a minute about one file, with how many more there are."""
    host = make_host("a", rules=rule("warn_after_ms = 300;"), lease=LEASE)
    agents = [host.opened("f", "flock 0 sh") for _ in range(5)]
    wait_until(lambda: len(reported(host)) == 5, "all are reported", LONG)
    assert host.log().count("HELD TOO LONG") == 1
    assert {agent.do("pid") for agent in agents} == {"ok"}


@pytest.mark.parametrize("script,number", [(HANG, signal.SIGTERM), (IGNORE, signal.SIGKILL)], ids=["ends", "ignores"])
def test_ended(make, script, number):
    """With a line that says why, with what it started, and the next one gets the lock, here and on another host."""
    host, other = make("a", kill=KILL), make("b")
    job = hang(host, script=script)
    waits = [h.popen("flock", h.path("f"), "echo", "got it") for h in (host, other)]
    wait_until(lambda: job.processes(), "it runs")
    started = job.processes()
    assert job.line(LONG).startswith(f"dflock: {host.path('f')}: the lock is held too long, since ")
    ended(job, number)
    assert [w.communicate(timeout=LONG)[0] for w in waits] == ["got it\n"] * 2
    wait_until(lambda: all(state(p) in ("gone", "Z") for p in started), "what it started has ended, too", LONG)
    assert any("get SIGTERM" in line for line in killed(host, "f")) and killed(host) == killed(host, "f")
    # One that obeys ends by SIGTERM; what it started may be too slow for that on a busy machine, and gets the other, too.
    assert number == signal.SIGTERM or any("get SIGKILL" in line for line in killed(host))
    wait_until(lambda: not reported(host), "it is over", LONG)


def test_the_job_of_flock_is_ended(make):
    """Which inherits the lock, or has only been started by its holder, or has taken its place. A daemon that a job left behind keeps the lock:
    the classic. A stopped process cannot obey SIGTERM."""
    host = make(kill=KILL)
    done = host.run("bash", "-c", 'exec 9>"$1"; flock 9; setsid sleep 1000 >/dev/null 2>&1 & echo $!', "job", host.path("daemon"))
    pids, jobs = [int(done.stdout)], []
    for option in ("-x", "-o", "-F"):
        jobs.append(Job(host, "flock", option, host.path(option), "bash", "-c", "echo $$; while :; do sleep 1000; done"))
        pids.append(int(jobs[-1].line()))
    stopped = hang(host, "stopped")
    os.kill(stopped.pid, signal.SIGSTOP)
    for job in jobs:
        ended(job)
    ended(stopped, signal.SIGKILL)
    for pid in pids:
        wait_until(lambda: state(pid) in ("gone", "Z"), "the job has ended", LONG)
    assert host.run("flock", "-n", host.path("daemon"), "true").returncode == 0


def test_what_was_started_after_sigterm_is_ended(make):
    """The job answers SIGTERM with another process, which does not have the lock: SIGKILL ends it with the job."""
    a = make(kill=KILL, lease=LEASE.replace("margin_ms = 600", "margin_ms = 2500"))
    job = hang(a, script=LATER)
    wait_until(lambda: size(a.path("f.later")), "it is asked to end")
    later = int(text_of(a.path("f.later")))
    ended(job, signal.SIGKILL)
    wait_until(lambda: state(later) in ("gone", "Z"), "what it has started ends")


def test_only_the_one_that_hangs(make):
    """Shared locks and ranges count by process."""
    host = make(kill=KILL)
    hangs, brief = host.opened("f", f"open 1 {host.path('g')} rwc"), host.opened("f", f"open 1 {host.path('g')} rwc")
    assert hangs.do("flock 0 sh") == "ok" and hangs.do("setlk 1 ex 0 1") == "ok"

    def again():
        assert [brief.do(c) for c in ("flock 0 sh", "setlk 1 ex 5 1", "flock 0 un", "setlk 1 un 5 1")] == ["ok"] * 4
        return hangs.process.poll() is not None

    wait_until(again, "the process that hangs is ended", LONG)
    assert brief.do("flock 0 ex nb") == "ok" and brief.do("setlk 1 ex 0 0") == "ok"


# --- and what is not ---

LOOPS = {
    "flock": "while True: fcntl.flock(f, fcntl.LOCK_EX); work(); fcntl.flock(f, fcntl.LOCK_UN)",
    "close": "while True: f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); work(); f.close()",
    "posix": "while True: fcntl.lockf(f, fcntl.LOCK_EX); work(); fcntl.lockf(f, fcntl.LOCK_UN)",
    "ofd": """
        def ofd(how): fcntl.fcntl(f, fcntl.F_OFD_SETLKW, struct.pack("hhqqi4x", how, 0, 0, 0, 0))
        while True: ofd(fcntl.F_WRLCK); work(); ofd(fcntl.F_UNLCK)
        """,
    "conversion": "while True: fcntl.flock(f, fcntl.LOCK_EX); work(); fcntl.flock(f, fcntl.LOCK_SH); work()",
    "ranges": "i = 0\nwhile True: fcntl.lockf(f, fcntl.LOCK_EX, 2, i % 9); work(); fcntl.lockf(f, fcntl.LOCK_UN, 2, i % 9); i += 1",
    # Processes that share a description do not exclude each other, so one mostly has the lock when another one asks.
    "turns": "[os.fork() for _ in range(2)]\nwhile True: fcntl.flock(f, fcntl.LOCK_EX); work(); fcntl.flock(f, fcntl.LOCK_UN)",
    # The locker has ended when the lock is used, and another one uses it soon.
    "children": """
        while True:
            if os.fork() == 0:
                fcntl.flock(f, fcntl.LOCK_EX)
                os._exit(0)
            os.wait(); work(); fcntl.flock(f, fcntl.LOCK_UN)
        """,
}
LOOP = "import fcntl, os, struct, sys, time\ndef work(): time.sleep(0.03)\nf = open(sys.argv[1], 'w')\nprint('runs', flush=True)\n"


def loop(host, how, name="f"):
    job = Job(host, sys.executable, "-c", LOOP + textwrap.dedent(LOOPS[how]), host.path(name))
    assert job.line() == "runs"
    return job


def runs_on(host, *jobs):
    for job in jobs:
        assert job.process.poll() is None, job.process.args
    assert not killed(host)


@pytest.mark.parametrize("loops", [list(LOOPS)[:4], list(LOOPS)[4:]], ids=["plain", "ways"])
def test_brief_and_often(make, loops):
    """Two programs in turns, and one that never meets another one."""
    host = make(warn=KILL, kill=KILL)
    names = {name: how for how in loops for name in (how, how, how + "-alone")}
    jobs = [loop(host, how, name) for how in loops for name in (how, how, how + "-alone")]
    a_hang_is_ended(host)
    runs_on(host, *jobs)
    assert not [one for one in reported(host) if one["name"][2:] in names]


def test_a_lock_that_is_taken_again_is_young(make):
    """It was held long enough to be reported, and is reported again only when its new age is that long: how often it was looked at, and
    whether a look found it free, does not count."""
    host = make(warn=KILL)
    agent = host.opened("f", "flock 0 ex")
    first, = wait_until(lambda: reported(host), "it is reported", LONG)
    assert first["held_ms"] >= KILL
    again = time.monotonic()
    assert agent.do("flock 0 un") == "ok" and agent.do("flock 0 ex") == "ok"
    second, = wait_until(lambda: reported(host), "it is reported again", LONG)
    assert KILL <= second["held_ms"] <= (time.monotonic() - again) * 1000


@pytest.mark.parametrize("how", ["flock 0 ex", "flock 0 un"])
def test_one_that_goes_on_in_the_last_moment(make, tmp_path, how):
    """Its end is decided, and the keeper is about to write its last line: it locks again, and so has a young lock, or none."""
    sign = str(tmp_path / "fork")
    preload = os.path.join(harness.host.BUILD, "tests/preload/held.so")
    host = make(kill=5 * KILL, inside=["env", f"LD_PRELOAD={preload}", f"DFLOCK_TEST_FORK={sign}"])  # the keeper only
    host.inside = []
    open(sign, "w").close()
    agent = host.opened("f", "flock 0 ex")
    wait_until(lambda: os.path.exists(sign + ".reached"), "its end is decided", LONG)
    assert agent.do("flock 0 un") == "ok" and agent.do(how) == "ok"
    os.unlink(sign)
    later = hang(host, "hang")
    wait_until(lambda: agent.do(how) == "ok" and later.process.poll() is not None, "one that began later is ended", LONG)
    assert not killed(host)


def test_two_hosts_in_turns(make):
    hosts = make("a", kill=KILL), make("b", kill=KILL)
    jobs = [loop(host, "flock") for host in hosts]
    a_hang_is_ended(hosts[0])
    a_hang_is_ended(hosts[1])
    for host, job in zip(hosts, jobs):
        runs_on(host, job)


def test_a_caller_that_waits(make):
    """It has nothing, for however long."""
    host, other = make("a", kill=KILL), make("b")
    holder = Job(other, "flock", other.path("f"), "bash", "-c", "echo held; read line").held()
    waits = Job(host, "flock", host.path("f"), "bash", "-c", "echo held; read line")
    wait_until(lambda: held(host, state="asking"), "it waits")
    a_hang_is_ended(host, 1)
    runs_on(host, waits)
    holder.end()
    assert waits.line() == "held"
    waits.end()


def test_a_lock_past_dflock(make):
    """Whether or not a lease of another process covers it."""
    host = make(kill=KILL)
    jobs = [Job(host, PAST, "shared", host.path(name)) for name in "fg"]
    assert [job.line() for job in jobs] == ["held"] * 2
    agent = host.opened("g", "flock 0 sh")
    agent.process.wait(LONG)
    a_hang_is_ended(host)
    assert [job.process.poll() for job in jobs] == [None] * 2
    assert len(killed(host)) == 1


def test_the_limit_comes_while_locks_are_held(make):
    """A lock that was taken under an open page, before the rule had a limit: its age is not known."""
    host = make()
    job, brief = hang(host), loop(host, "flock", "g")
    agent = host.opened("h")
    for _ in range(3):  # the page shows its lease
        assert agent.do("flock 0 ex") == "ok" and agent.do("flock 0 un") == "ok"
    assert agent.do("flock 0 ex") == "ok"
    write(host, read(host).replace('name = "t";', 'name = "t"; kill_after_ms = %d;' % KILL))
    wait_until(lambda: "kill_after_ms that is new or shorter" in host.log(), "an operator must want that", LONG)
    assert host.cli("reload").returncode == 0
    a_hang_is_ended(host)
    runs_on(host, job, brief)
    assert agent.do("flock 0 un") == "ok" and agent.do("flock 0 ex") == "ok"  # now it is
    agent.process.wait(LONG)
    assert killed(host, "h")


def test_the_limit_changes_and_goes(make):
    host = make(kill=3000)
    job = hang(host)
    text = read(host)
    write(host, text.replace("kill_after_ms = 3000;", ""))
    assert host.cli("reload").returncode == 0
    write(host, text.replace('name = "t"; kill_after_ms = 3000;', 'name = "t";') .replace(
        "protect = (", 'protect = ( { path = "%s"; name = "t/hang0"; kill_after_ms = 3000; },' % host.path("hang0")))
    assert host.cli("reload").returncode == 0
    a_hang_is_ended(host, 1)
    runs_on(host, job)
    write(host, text)
    assert host.cli("reload").returncode == 0
    a_hang_is_ended(host, 1)
    runs_on(host, job)  # its grant was forgotten


def test_keepers_are_killed(make):
    """The next keeper goes on with what the dead one granted; what is locked briefly stays young."""
    host = make(kill=5 * KILL)
    job = hang(host, "hang-before")
    loops = [loop(host, "flock", "g"), loop(host, "turns", "h")]
    for _ in range(3):
        kill_keeper(host)
    ended(job)
    later = hang(host, "hang-after")
    kill_keeper(host)
    ended(later)
    runs_on(host, *loops)


def test_a_keeper_is_killed_and_the_locks_of_then_have_ended(make):
    """What the dead keeper granted says nothing of locks that were taken past dflock, or under another rule."""
    host = make(kill=5 * KILL)
    agent = host.opened("f", "flock 0 sh")
    past = Job(host, PAST, "shared", host.path("f")).held()
    kill_keeper(host)
    agent.process.wait(LONG)
    a_hang_is_ended(host, 1)
    assert past.process.poll() is None
    assert killed(host, "f")


def test_frozen_time_does_not_count(make, redis):
    """The holder is frozen for far longer than it may hold the lock."""
    host = make(kill=3000, lease="ttl_ms = 2000; freeze_margin_ms = 600; pin_ms = 50;")
    job = hang(host)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: state(job.pid) in "tT", "it is frozen")
    frozen = time.monotonic()
    wait_until(lambda: time.monotonic() > frozen + 9, "the limit is over")
    assert state(job.pid) in "tT" and not killed(host)
    redis.signal(signal.SIGCONT)
    ended(job)
    assert int(re.search(r"held for (\d+) ms", killed(host)[0])[1]) < 9000


# --- users ---

@pytest.fixture
def system(make_system):
    host = make_system(rules=rule("kill_after_ms = %d;" % KILL), lease=LEASE)
    host.cli("log-level", "debug")
    os.chmod(host.files, 0o777)
    return host


@pytest.mark.root("mounts")
def test_one_that_cannot_be_ended(system):
    """It waits in the kernel for a file server, and SIGKILL takes effect after that. It is left alone, and others are not."""
    server = Hanging(system.place)
    try:
        server.say("hold 1")
        job = Job(system, "bash", "-c", 'exec 9>"$1"; flock 9 && echo held; read line; exec 8<"$2"', "job", system.path("f"), server.path + "/x")
        assert job.line() == "held"
        job.say("go")
        wait_until(lambda: state(job.pid) == "D", "it hangs", LONG)
        wait_until(lambda: "cannot be ended: it has got SIGKILL and is in state D" in system.log(), "that is said", LONG)
        a_hang_is_ended(system)
        assert state(job.pid) == "D" and len(killed(system, "f")) == 2
        wait_until(lambda: "could not be ended" in system.cli("status").stdout, "status says so")
    finally:
        server.end()
    ended(job)
    wait_until(lambda: system.run("flock", "-n", system.path("f"), "true").returncode == 0, "the lock is free")


GIVE = """
import array, fcntl, os, socket, sys
ours, theirs = socket.socketpair()
if os.fork() == 0:
    os.setuid(%d)
    f = open(sys.argv[1], "w")
    fcntl.flock(f, fcntl.LOCK_EX)
    ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [f.fileno()]))])
    os._exit(0)
message = theirs.recvmsg(1, socket.CMSG_SPACE(4))
os.wait()
print("held", flush=True)
sys.stdin.readline()
""" % NOBODY


@pytest.mark.root("runs programs as other users, and so needs root")
def test_a_lock_that_a_user_sends_to_root_ends_no_process_of_root(system):
    """The user's own job is ended."""
    users = Job(system, *system.as_user(NOBODY, "bash", "-c", HANG, "job", system.path("hang"))).held()
    job = Job(system, sys.executable, "-c", GIVE, system.path("f")).held()
    wait_until(lambda: "is not ended: it is another user's" in system.log(), "that is said", LONG)
    a_hang_is_ended(system)
    ended(users)
    assert job.process.poll() is None
    assert system.log().count("is not ended") == 1
    wait_until(lambda: "could not be ended" in system.cli("status").stdout, "status says so")
    assert job.end() == 0
