"""
Containers that end: `dflock run` as the first process of a pid namespace, or with --init, ends what its job left and has the keepers
give everything back, so that other hosts need not wait for ttl_ms. Where the first process is another one, or is killed, they wait.
"""
import os
import re
import signal
import subprocess

import pytest
from harness import wait_until
from harness.host import CLI, KEEPER
from harness.processes import children, pids_where, state

pytestmark = pytest.mark.root("needs namespaces, and so root")

CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
RUN = [CLI, "run"]
LONG = "ttl_ms = 600000;"
USER = "31977"
UNCONFIRMED = (r"dflock: the store has not confirmed that everything was given back \(is it reachable\?\): what was locked here may stay "
               r"taken for other hosts for ttl_ms\n")
TOO_LATE = (r"dflock: a keeper has not given everything back within 5 s \(is the store reachable\?\): what was locked here may stay taken "
            r"for other hosts for ttl_ms\n")


class Container:
    """host: whose configuration and runtime directory it uses. words: its first process, and what that is to run."""

    def __init__(self, host, *words, before=CONTAINER):
        self.process = subprocess.Popen([*before, *words], env=host.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, start_new_session=True)
        self.inside = before == CONTAINER

    def first(self):
        """Its first process, by the number outside."""
        if not self.inside:
            return self.process.pid
        return children(self.process.pid)[0]

    def hears(self, line):
        assert self.process.stdout.readline() == line + "\n", self.process.communicate()[1]

    def no_more(self):
        """Ends its input."""
        self.process.stdin.close()
        self.process.stdin = None

    def signal(self, number):
        os.kill(self.first(), number)

    def pids(self):
        """Its processes, by their numbers outside, and their states."""
        space = os.stat(f"/proc/{self.first()}/ns/pid").st_ino
        return {pid: state(pid) for pid in pids_where(lambda pid: os.stat(f"/proc/{pid}/ns/pid").st_ino == space)}

    def end(self, seconds=60):
        """(exit status, standard output from here on, standard error)"""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err


@pytest.fixture
def a(make_host):
    """The containers' host, whose keeper the first lock starts."""
    make_host("opener", lease=LONG)
    return make_host("a", lease=LONG, shim=False, foreground=False)


@pytest.fixture
def b(a, make_host):
    return make_host("b", lease=LONG)


@pytest.fixture
def start(request):
    """start(WORDS...): a container of host a, unless `host` says another one."""
    started = []

    def start(*words, host=None, **more):
        started.append(Container(host or request.getfixturevalue("a"), *words, **more))
        return started[-1]

    yield start
    for container in started:
        if container.process.poll() is None:
            container.process.kill()
            container.process.communicate()


def is_free(host):
    return host.run("flock", "-n", host.path("f"), "true").returncode == 0


def locking(a, *words):
    return ["flock", "-n", a.path("f"), *words]


# --- everything is given back ---

def test_when_the_job_ends(a, b, start):
    """Locks of files and names, with a report, and a keeper from before the job, which is a child of the first process."""
    assert start(*RUN, *locking(a, "sh", "-c", "exit 7")).end() == (7, "", "")
    assert is_free(b)
    assert start(CLI, "lock", "x", "--", "sh", "-c", "exit 7").end() == (7, "", "")
    assert b.run(CLI, "lock", "-n", "x", "--", "true").returncode == 0
    status, _, err = start(*RUN, "--report", "--require=taken", *locking(a, "true")).end()
    assert status == 0 and a.path("f") in err, err
    assert is_free(b)
    assert start(*RUN, "--require=" + a.path("f"), *locking(a, "true")).end() == (0, "", "")
    assert is_free(b)


def test_when_it_is_told_to_end(a, b, start):
    """flock(1) ends at once, and what it ran has time to clean up; the lock is held meanwhile."""
    job = "trap 'sleep 0.5; echo cleaned; exit 0' TERM; echo held; while :; do sleep 0.05; done"
    container = start(*RUN, *locking(a, "sh", "-c", job))
    container.hears("held")
    assert not is_free(b)
    container.signal(signal.SIGTERM)
    assert container.end()[:2] == (128 + signal.SIGTERM, "cleaned\n")
    assert is_free(b)


def test_processes_that_do_not_end(a, b, start):
    """A background process has the lock, and ignores SIGTERM."""
    job = "exec 9>$0; flock -n 9 || exit 1; (trap '' TERM; echo held; while :; do sleep 0.05; done) & read line; exit 7"
    container = start(*RUN, "--init=0", "sh", "-c", job, a.path("f"))
    container.hears("held")
    container.no_more()
    assert container.end() == (7, "", "")
    assert is_free(b)


def test_a_keeper_in_the_foreground(a, b, start):
    job = '"$0" --foreground 2>/dev/null & until flock "$1" echo held; do sleep 0.1; done'
    status, out, _ = start(*RUN, "sh", "-c", job, KEEPER, a.path("f")).end()
    assert (status, out) == (0, "held\n")
    assert is_free(b)


def test_another_users_keeper(a, b, start, folder, redis):
    """The first process is root, and the job a user: this one's keeper has the leases."""
    for path, mode in (folder, 0o755), (redis.socket, 0o777), (a.files, 0o777):
        os.chmod(path, mode)
    os.chown(a.runtime, int(USER), int(USER))
    change = ["setpriv", "--reuid=" + USER, "--regid=" + USER, "--clear-groups"]
    assert start(*RUN, *change, *locking(a, "echo", "held")).end() == (0, "held\n", "")
    assert is_free(b)


def test_init_below_another_first_process(a, b, start):
    """As with tini, or where the containers of a pod share their processes."""
    status = start("sh", "-c", '"$@"; exit $?', "sh", *RUN, "--init", *locking(a, "sh", "-c", "exit 7")).end()
    assert status == (7, "", "")
    assert is_free(b)


def test_init_without_a_namespace(a, b, start):
    """It ends what its job left, and nothing else: not the keepers of other hosts, nor what this test started."""
    other = subprocess.Popen(["sleep", "1000"])
    try:
        job = "flock -n $0 sh -c 'echo held; exec sleep 1000' & read line; exit 7"
        container = start(*RUN, "--init", "sh", "-c", job, a.path("f"), before=[])
        container.hears("held")
        _, keeper = b.keeper_pids()
        container.no_more()
        assert container.end() == (7, "", "")
        assert is_free(b)
        assert other.poll() is None and b.keeper_pids()[1] == keeper
        assert not a.program_pids()
    finally:
        other.kill()
        other.wait()


# --- as the first process ---

def test_it_relays_signals_and_reaps_orphans(a, start):
    container = start(*RUN, "sh", "-c", "trap 'echo came; exit 3' USR1; for i in 1 2 3 4 5; do (sleep 0.01 &); done; echo ready; while :; do read line; done")
    container.hears("ready")
    wait_until(lambda: len(container.pids()) == 2, "dflock and the shell are left")
    assert "Z" not in container.pids().values()
    container.signal(signal.SIGUSR1)
    assert container.end() == (3, "came\n", "")


def test_its_status(a, start):
    for words, status, line in (
            (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL, []),
            (["/nonexistent/x"], 127, ["dflock: cannot run /nonexistent/x: No such file or directory"]),
            (["/"], 126, ["dflock: cannot run /: Permission denied"])):
        code, out, err = start(*RUN, *words).end()
        assert (code, out, err.splitlines()[-1:]) == (status, "", line)
    for seconds in ("x", "-1", "3601", "1x", ""):
        done = a.run(*RUN, "--init=" + seconds, "true")
        assert done.returncode == 125 and f'--init takes 0 to 3600 seconds, not "{seconds}"' in done.stderr


# --- and where that cannot be ---

def test_a_store_that_is_away(a, redis, start):
    """The keeper is waited for, but not for ever, and a line says what may stay. The job's status stays."""
    container = start(*RUN, *locking(a, "sh", "-c", "echo held; read line; exit 7"))
    container.hears("held")
    redis.stop()
    container.no_more()
    status, out, err = container.end()
    assert (status, out) == (7, "") and re.fullmatch(UNCONFIRMED, err), err


def test_a_lease_that_is_unsure(redis, make_host, start):
    """It is not known whether the lease stands, so the keeper would wait for the store."""
    make_host("opener", lease="ttl_ms = 2000;")
    c = make_host("c", lease="ttl_ms = 2000;", shim=False, foreground=False)
    container = start(*RUN, *locking(c, "sh", "-c", "echo held; read line; exit 7"), host=c)
    container.hears("held")
    redis.signal(signal.SIGSTOP)
    try:
        wait_until(lambda: any(letter in "tT" for letter in container.pids().values()), "the job is frozen")
        first = [pid for pid in container.pids() if open(f"/proc/{pid}/comm").read() == "flock\n"]
        os.kill(first[0], signal.SIGKILL)
        status, out, err = container.end()
        assert (status, out) == (128 + signal.SIGKILL, "") and re.fullmatch(TOO_LATE, err), err
    finally:
        redis.signal(signal.SIGCONT)


@pytest.mark.parametrize("first", ["killed", "another"])
def test_what_stays_taken(redis, make_host, first):
    """The first process is killed, or is not `dflock run`: the lock is free after ttl_ms, and not before."""
    b = make_host("b", lease="ttl_ms = 4000; probe_ms = 200;")
    a = make_host("a", lease="ttl_ms = 4000;", shim=first == "another", foreground=False)
    if first == "killed":
        container = Container(a, *RUN, *locking(a, "sh", "-c", "echo held; exec sleep 1000"))
        container.hears("held")
        container.signal(signal.SIGKILL)
    else:
        container = Container(a, "sh", "-c", 'flock -n "$0" echo held; exit $?', a.path("f"))
        container.hears("held")
    container.end()
    assert not is_free(b)
    waiting = b.popen("flock", b.path("f"), "true")
    assert waiting.wait(60) == 0
