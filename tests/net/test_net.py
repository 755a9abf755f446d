"""The prototype of a net under the preload: what docs/net.md says was found out. `-s` prints what was seen."""
import os
import re
import shutil
import signal
import struct
import subprocess

import pytest

from harness import BUILD, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(BUILD, "tests", "net")
FINDINGS = {
    "signals": "early received leak storm lost callback elsewhere",
    "window": "window gate behind order convert upgrade getlk outage replaced left",
    "rights": "filters dead survivor tables setuid dumpable uring compat",
}


@pytest.mark.parametrize("program, finding", [(p, f) for p in FINDINGS for f in FINDINGS[p].split()])
def test_finding(program, finding):
    if finding == "compat" and os.uname().machine != "x86_64":
        pytest.skip("x86-64 only")
    run = subprocess.run([os.path.join(PROGRAMS, program), finding], capture_output=True, text=True, timeout=300)
    print(run.stdout + run.stderr)
    assert run.returncode == 0, run.stdout + run.stderr


class Net:
    """Two hosts with one store. Each has a protected file of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.store = os.path.join(folder, "store")
        self.files = [os.path.join(folder, name) for name in "AB"]
        self.jobs = []
        for path in self.files:
            open(path, "w").close()

    def words(self, host, *job, weak=None, die_at=None):
        return [os.path.join(PROGRAMS, "gate"), *([weak] if weak else []), *(["--die", str(die_at)] if die_at else []), self.store, str(host), self.files[host], "--", *job]

    def start(self, host, *job, weak=None, die_at=None, **more):
        self.jobs.append(subprocess.Popen(self.words(host, *job, weak=weak, die_at=die_at), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True, start_new_session=True, **more))
        return self.jobs[-1]

    def log(self):
        try:
            with open(self.store + ".log") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def supervisor(self, host):
        """The one that works."""
        return int(wait_until(lambda: re.findall(rf"host {host}, supervisor (\d+): supervises", self.log()), "a supervisor")[-1])

    def given_back(self):
        """Leases, until the hosts' jobs had ended."""
        hosts = len(self.jobs)
        return sum(map(int, wait_until(lambda: len(found := re.findall(r"given back: (\d+)", self.log())) == hosts and found,
                                       "the supervisors' end")))

    def stop(self):
        for job in self.jobs:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
            job.stdin.close()
            job.stdout.close()


@pytest.fixture
def net(folder):
    net = Net(folder)
    yield net
    net.stop()


def play(net, kind, signals, shares=50, calls=2000, weak=None, die_at=None, meanwhile=None):
    """Two players on each host. What they had, how often two were inside, and what they say."""
    ground = os.path.join(net.folder, "ground")
    player = os.path.join(PROGRAMS, "player")
    line = " ".join(f'{player} "$0" {ground} {kind} {calls} ${seed} {signals} {shares} &' for seed in (1, 2)) + " wait"
    if os.path.exists(ground):
        os.unlink(ground)
    jobs = [net.start(host, "sh", "-c", line, net.files[host], str(host), str(host + 10), weak=weak, die_at=host == 0 and die_at)
            for host in (0, 1)]
    if meanwhile:
        meanwhile()
    said = "".join(job.communicate(timeout=300)[0] for job in jobs)
    print(said + net.log())
    with open(ground, "rb") as f:
        inside, entries, overlaps = struct.unpack("i4xqq", f.read(24))
    had = sum(int(n) for n in re.findall(r"had (\d+)", said))
    assert said.count("had ") == 4 and inside == 0, said
    return had, entries, overlaps, said


@pytest.mark.parametrize("shares", [0, 50])
@pytest.mark.parametrize("signals", [0, 1, 2])
@pytest.mark.parametrize("kind", ["flock", "posix", "ofd"])
def test_two_hosts(folder, kind, signals, shares):
    """Until both hosts have had the lock in turn: on a busy machine one host may have ended before the other begins."""
    for number in range(20):
        os.mkdir(os.path.join(folder, str(number)))
        net = Net(os.path.join(folder, str(number)))
        try:
            had, entries, overlaps, _ = play(net, kind, signals, shares)
            assert overlaps == 0 and had == entries > 0
            if net.given_back() > 0:
                return
        finally:
            net.stop()
    raise AssertionError("no lease was given back")


def test_without_the_gate_they_overlap(folder):
    """The keeper tries the kernel lock and gives it back, as a probe does: this must be seen to go wrong."""
    for number in range(20):
        os.mkdir(os.path.join(folder, str(number)))
        net = Net(os.path.join(folder, str(number)))
        try:
            if play(net, "flock", 1, shares=0, weak="--open")[2] > 0:
                return
        finally:
            net.stop()
    raise AssertionError("no overlap")


def test_a_supervisor_is_killed(net):
    had, entries, overlaps, said = play(net, "flock", 1, calls=4000, meanwhile=lambda: os.kill(net.supervisor(0), signal.SIGKILL))
    assert overlaps == 0 and had == entries
    assert net.log().count("takes over") == 1
    assert said.count("refused 0 ") == 4, said


@pytest.mark.parametrize("kind", ["flock", "posix"])
def test_a_supervisor_ends_at_each_point(folder, kind):
    """Every call ends, with success, EWOULDBLOCK or EINTR: a player stops at any other errno, and none is refused."""
    for die_at in range(1, 31):
        os.mkdir(os.path.join(folder, str(die_at)))
        net = Net(os.path.join(folder, str(die_at)))
        try:
            had, entries, overlaps, said = play(net, kind, 1, calls=150, die_at=die_at)
            assert overlaps == 0 and had == entries and said.count("refused 0 ") == 4, said
            assert net.log().count("takes over") == 1
        finally:
            net.stop()


def build(folder, name):
    """A program that says "had", and the words with which it is started."""
    out = os.path.join(folder, name)
    bare = ["-O2", "-Wall", "-Wextra", "-Werror", "-nostdlib", "-static", "-ffreestanding", "-fno-stack-protector", "-fno-pie"]
    make = {
        "static": ["gcc", "-O2", "-static", "-xc", "-"],
        "musl": ["musl-gcc", "-O2", "-static", "-xc", "-"],
        "bare": ["gcc", *bare, os.path.join(HERE, "bare.c")],
        "i386": ["gcc", "-m32", *bare, os.path.join(HERE, "bare.c")],
        "go": ["go", "build", "-o", out, os.path.join(HERE, "lock.go")],
        "rust": ["rustc", "-O", os.path.join(HERE, "lock.rs")],
    }[name]
    if not shutil.which(make[0]) or (name == "i386" and os.uname().machine != "x86_64"):
        pytest.skip(f"cannot be built here: {name}")
    source = """#include <stdio.h>
        #include <sys/file.h>
        #include <fcntl.h>
        int main(int argc, char **argv) { struct flock l = {.l_type = F_WRLCK}; int fd = open(argv[1], O_RDWR);
        if (argc > 2 ? fcntl(fd, F_SETLKW, &l) : flock(fd, LOCK_EX)) return 1; puts("had"); fflush(stdout); return getchar() != EOF; }"""
    subprocess.run(make if name == "go" else [*make, "-o", out], input=source, text=True, check=True,
                   env=dict(os.environ, GO111MODULE="off", GOCACHE=os.path.join(folder, "go-cache")))
    return out


def excludes(net, words, record=False):
    """The job that these words start has the lock on host 0, host 1 has not, and gets it afterwards."""
    take = ["python3", "-c", "import fcntl, sys; fcntl.{}(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)".format(
        "lockf" if record else "flock"), net.files[1]]
    job = net.start(0, *words, net.files[0], *(["record"] if record else []))
    said = [job.stdout.readline()]
    while said[-1] not in ("had\n", ""):  # sudo complains of a machine whose name it cannot look up
        said.append(job.stdout.readline())
    assert said[-1] == "had\n", said
    refused = subprocess.run(net.words(1, *take), capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "BlockingIOError" in refused.stderr, refused.stderr
    waits = net.start(1, *[word.replace("fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_EX") for word in take])
    job.stdin.close()
    assert job.wait(60) == 0 and waits.wait(60) == 0, waits.stdout.read()


@pytest.mark.parametrize("record", [False, True], ids=["flock", "record"])
@pytest.mark.parametrize("name", ["static", "musl", "bare", "i386", "go", "rust"])
def test_programs(net, name, record):
    if name == "rust" and record:
        pytest.skip("flock() only")
    excludes(net, [build(net.folder, name)], record)


@pytest.mark.parametrize("words", ["env -i", "sudo -n", "strace -f -o /dev/null", "setsid -w", "nice", "busybox env -i", "unshare -f -p"])
def test_around_it(net, words):
    excludes(net, [*words.split(), build(net.folder, "bare")])


def test_inherited(net):
    """The lock belongs to a description that a child inherits; the program that took it has ended."""
    job = net.start(0, "busybox", "sh", "-c", 'exec 9<>"$0"; flock 9; echo had; read line', net.files[0])
    assert job.stdout.readline() == "had\n"
    other = subprocess.run(net.words(1, "flock", "-n", net.files[1], "true"), capture_output=True, timeout=60)
    assert other.returncode == 1, other
    job.stdin.close()
    other = subprocess.run(net.words(1, "flock", net.files[1], "echo", "had"), capture_output=True, timeout=60)
    assert other.stdout == b"had\n"


DEADLOCK = """
import errno, fcntl, os, sys
f = open(sys.argv[1], 'r+')
one, two = os.pipe(), os.pipe()
child = os.fork() == 0
fcntl.lockf(f, fcntl.LOCK_EX, 1, 1 if child else 0)
os.write((one if child else two)[1], b'x')
os.read((two if child else one)[0], 1)
try:
    fcntl.lockf(f, fcntl.LOCK_EX, 1, 0 if child else 1)
except OSError as e:
    print(e.errno == errno.EDEADLK, flush=True)
if child:
    os._exit(0)
fcntl.lockf(f, fcntl.LOCK_UN)
os.wait()
"""


def test_deadlock(net):
    """Both wait in the kernel, which sees it."""
    assert net.start(0, "python3", "-c", DEADLOCK, net.files[0]).communicate(timeout=60)[0] == "True\n"


def test_one_inode_of_two_hosts(net):
    """Two keepers of one machine with one file: the gate of one keeps the other's jobs out, though their lock is free."""
    job = net.start(0, "cat")
    net.supervisor(0)
    net.files[1] = net.files[0]
    other = net.start(1, "true")

    def waits():
        with open("/proc/locks") as f:
            return any("->" in line and f" {other.pid} " in line for line in f)

    wait_until(waits, "the other host's wait")
    job.stdin.close()
    assert job.wait(60) == 0 and other.wait(60) == 0


def test_the_job_stays_what_it_is(net):
    """Its pid, parent and exit status; its output ends when it ends; the supervisors end with it, and hear no signals of its session."""
    job = net.start(0, "sh", "-c", 'echo $$ $PPID; kill -HUP 0; read line; exit 7', preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert job.stdout.readline() == f"{job.pid} {os.getpid()}\n"
    supervisor = net.supervisor(0)
    assert os.getsid(supervisor) != job.pid
    job.stdin.close()
    assert job.stdout.read() == "" and job.wait(60) == 7
    wait_until(lambda: not os.path.exists(f"/proc/{supervisor}/stat"), "the supervisor's end")


def test_an_ordinary_user(net):
    """With no_new_privs: the net works, sudo does not."""
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    os.chmod(net.folder, 0o777)
    for path in net.files:
        os.chmod(path, 0o666)
    bare = build(net.folder, "bare")
    job = subprocess.run([*user, *net.words(0, bare, net.files[0])], capture_output=True, text=True, input="", timeout=60)
    assert (job.returncode, job.stdout) == (0, "had\n"), job.stderr
    refused = subprocess.run([*user, *net.words(0, "sudo", "-n", "true")], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "no new privileges" in refused.stderr
