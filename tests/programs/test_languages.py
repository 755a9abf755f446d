"""
Programs of languages, and libraries: by every way to locks of the three kinds, their time limits, their child processes. Two hosts, each with a
file of its own under one lock name; without the shim each must get its lock.
"""
import itertools
import os
import signal
import subprocess

import pytest
from harness import Job

# Each takes: a call, the file, how ("ex", "sh", with "nb" to not wait), where the range begins, its length (flock() has none), and a time
# limit in seconds or 0, by the means that the language's users use. It says "held", "busy", "timeout" or what failed, and holds until a line
# comes.
PYTHON = """
import errno, fcntl, os, signal, struct, sys
call, path, how, first, length, limit = sys.argv[1:]
first, length, wait = int(first), int(length), not how.endswith("nb")
exclusive = how.startswith("ex")
mode = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB)
def late(number, frame):
    raise TimeoutError
def posix(f, set=fcntl.F_SETLK, set_wait=fcntl.F_SETLKW):
    kind = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
    fcntl.fcntl(f, set_wait if wait else set, struct.pack("hhqqi4x", kind, os.SEEK_SET, first, length, 0))
def libc(f):
    f.seek(first)
    os.lockf(f.fileno(), os.F_LOCK if wait else os.F_TLOCK, length)
calls = {"flock": lambda f: fcntl.flock(f, mode), "lockf": lambda f: fcntl.lockf(f, mode, length, first), "posix": posix,
         "ofd": lambda f: posix(f, fcntl.F_OFD_SETLK, fcntl.F_OFD_SETLKW), "libc": libc}
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, float(limit))
with open(path, "r+b") as f:
    try:
        calls[call](f)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("held", flush=True)
    except TimeoutError:
        print("timeout", flush=True)
    except OSError as e:
        print("busy" if e.errno in (errno.EAGAIN, errno.EACCES) else e, flush=True)
    sys.stdin.readline()
"""
PERL = """
use strict; use Fcntl qw(:DEFAULT :flock :seek); use File::FcntlLock; use Time::HiRes 'alarm'; $| = 1;
my ($call, $path, $how, $first, $length, $limit) = @ARGV;
my $type = $how =~ /^ex/ ? F_WRLCK : F_RDLCK;
my $set = $how =~ /nb$/ ? F_SETLK : F_SETLKW;
open(my $f, '+<', $path) or die $!;
my $said = eval {
    local $SIG{ALRM} = sub { die "timeout\\n" };
    alarm $limit;
    my $ok = $call eq 'flock' ? flock($f, ($how =~ /^ex/ ? LOCK_EX : LOCK_SH) | ($how =~ /nb$/ ? LOCK_NB : 0))
        : $call eq 'pack' ? fcntl($f, $set, pack('s s x4 q q l x4', $type, SEEK_SET, $first, $length, 0))
        : File::FcntlLock->new(l_type => $type, l_whence => SEEK_SET, l_start => $first, l_len => $length)->lock($f, $set);
    my $why = $!{EAGAIN} || $!{EACCES} ? 'busy' : "$!";
    alarm 0;
    $ok ? 'held' : $why;
};
print $said // $@; print "\\n" if defined $said;
<STDIN>;
"""
PHP = """
[, $call, $path, $how, $first, $length, $limit] = $argv;
$f = fopen($path, 'a');
pcntl_async_signals(true);
pcntl_signal(SIGALRM, function () { echo "timeout\\n"; fgets(STDIN); exit; }, false);
if ($limit > 0) pcntl_alarm((int)ceil($limit));
$ok = flock($f, (substr($how, 0, 2) == 'ex' ? LOCK_EX : LOCK_SH) | (strlen($how) > 2 ? LOCK_NB : 0), $busy);
pcntl_alarm(0);
echo $ok ? "held\\n" : ($busy ? "busy\\n" : "failed\\n");
fgets(STDIN);
"""
RUBY = """
require 'fcntl'; require 'timeout'; $stdout.sync = true
call, path, how, first, length, limit = ARGV
ex, nb = how.start_with?('ex'), how.end_with?('nb')
lock = [ex ? Fcntl::F_WRLCK : Fcntl::F_RDLCK, IO::SEEK_SET, first.to_i, length.to_i, 0].pack('ssx4qqlx4')
File.open(path, 'r+') do |f|
  begin
    Timeout.timeout(limit.to_f) do
      got = call == 'flock' ? f.flock((ex ? File::LOCK_EX : File::LOCK_SH) | (nb ? File::LOCK_NB : 0))
                            : f.fcntl(nb ? Fcntl::F_SETLK : Fcntl::F_SETLKW, lock)
      puts got == 0 ? 'held' : 'busy'
    end
  rescue Timeout::Error
    puts 'timeout'
  rescue Errno::EAGAIN, Errno::EACCES
    puts 'busy'
  end
  $stdin.gets
end
"""
INTERPRETERS = {"python": ["/usr/bin/python3", "-c", PYTHON], "perl": ["perl", "-e", PERL], "php": ["php", "-r", PHP, "--"],
                "ruby": ["ruby", "-e", RUBY]}
FLOCK = ["python flock", "perl flock", "php flock", "ruby flock"]
RECORD = ["python lockf", "python posix", "python ofd", "python libc", "perl pack", "perl object", "ruby fcntl"]
MODES = [("ex", "exnb", True), ("ex", "shnb", True), ("sh", "exnb", True), ("sh", "shnb", False)]


def words(host, locker, how, first=0, length=0, limit=0):
    language, call = locker.split()
    return [*INTERPRETERS[language], call, host.path("f"), how, str(first), str(length), str(limit)]


def program(host, *how, **more):
    return Job(host, *words(host, *how, **more))


def holder(pair, locker, how="ex", first=0, length=0):
    return program(pair.a, locker, how, first, length).held()


def check_says(job, said):
    assert job.line() == said
    assert job.end() == 0


@pytest.mark.parametrize("locker", FLOCK + RECORD)
def test_modes_and_ranges(pair, locker):
    for first, second, excludes in MODES:
        if locker == "python libc" and "sh" in first + second:
            continue  # lockf() has no shared locks
        job = holder(pair, locker, first)
        check_says(program(pair.b, locker, second), "busy" if excludes and pair.excludes else "held")
        job.end()
    check_says(program(pair.b, locker, "exnb"), "held")
    if locker in RECORD:
        job = holder(pair, locker, "ex", 100, 50)
        for first, length, overlaps in ((0, 100, False), (150, 0, False), (0, 101, True), (149, 1, True), (0, 0, True)):
            check_says(program(pair.b, locker, "exnb", first, length), "busy" if overlaps and pair.excludes else "held")
        job.end()


@pytest.mark.parametrize("first, second", [pair for kind in (FLOCK, RECORD) for pair in zip(kind, kind[1:] + kind[:1])])
def test_one_waits_for_another(pair, first, second):
    """POSIX and OFD locks exclude each other; kill -9 ends both."""
    job = holder(pair, first)
    waiter = program(pair.b, second, "ex")
    pair.check_waits(waiter)
    os.kill(job.pid, signal.SIGKILL)
    check_says(waiter, "held")


@pytest.mark.parametrize("locker", [*FLOCK, "python lockf", "python ofd", "perl object", "ruby fcntl"])
def test_time_limits(pair, locker):
    """One that is reached leaves no waiter; one that is not has the lock."""
    pair.check_limit(holder(pair, locker), lambda: program(pair.b, locker, "ex", limit=1))
    job = holder(pair, locker)
    waiter = program(pair.b, locker, "ex", limit=60)
    pair.check_waits(waiter)
    job.end()
    check_says(waiter, "held")


# Each says what F_GETLK shows of a lock that [0, 1000) would meet: type, begin, length, and whether a process is named.
GETLK = {
    "python": ["/usr/bin/python3", "-c", """
import fcntl, os, struct, sys
with open(sys.argv[1], "r+b") as f:
    lock = fcntl.fcntl(f, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1000, 0))
kind, _, first, length, pid = struct.unpack("hhqqi4x", lock)
names = {fcntl.F_RDLCK: "shared", fcntl.F_WRLCK: "exclusive", fcntl.F_UNLCK: "free"}
print(names[kind], *(() if kind == fcntl.F_UNLCK else (first, length, pid)))
"""],
    "perl": ["perl", "-e", """
use Fcntl qw(:DEFAULT :seek); use File::FcntlLock;
open(my $f, '+<', $ARGV[0]) or die;
my $l = File::FcntlLock->new(l_type => F_WRLCK, l_whence => SEEK_SET, l_start => 0, l_len => 1000);
$l->lock($f, F_GETLK) or die $l->error;
my $mode = $l->l_type == F_RDLCK ? 'shared' : 'exclusive';
print $l->l_type == F_UNLCK ? 'free' : join(' ', $mode, $l->l_start, $l->l_len, $l->l_pid), "\\n";
"""],
}


@pytest.mark.parametrize("locker, how, shown", [
    ("python posix", "sh", "shared"), ("perl pack", "ex", "exclusive"), ("python ofd", "ex", "exclusive")])
def test_who_is_in_the_way(pair, locker, how, shown):
    """A process of another machine has no number here: F_GETLK says -1, as it does for OFD locks."""
    job = holder(pair, locker, how, 100, 50)
    for asks in GETLK.values():
        assert pair.b.run(*asks, pair.b.path("f")).stdout == (f"{shown} 100 50 -1\n" if pair.excludes else "free\n")
    job.end()
    for asks in GETLK.values():
        assert pair.b.run(*asks, pair.b.path("f")).stdout == "free\n"


# Programs whose lock is held by others than the process that took it. Each says "held", then the pids of those who have
# the descriptor by then, and waits.
INHERITING = {
    "python subprocess": ["/usr/bin/python3", "-c", """
import fcntl, os, subprocess, sys
f = open(sys.argv[1], "a")
fcntl.flock(f, fcntl.LOCK_EX)
child = subprocess.Popen(["sleep", "600"], pass_fds=[f.fileno()], stdout=subprocess.DEVNULL)
print("held", os.getpid(), child.pid, flush=True)
sys.stdin.readline()
"""],
    "python fork": ["/usr/bin/python3", "-c", """
import fcntl, os, sys, time
f = open(sys.argv[1], "a")
fcntl.flock(f, fcntl.LOCK_EX)
child = os.fork() or time.sleep(600)
print("held", os.getpid(), child, flush=True)
sys.stdin.readline()
"""],
    "python multiprocessing": ["/usr/bin/python3", "-c", """
import fcntl, multiprocessing, os, sys, time
f = open(sys.argv[1], "a")
def work(ready):
    fcntl.flock(f, fcntl.LOCK_EX)  # the child takes it, on the description that it shares with its parent
    ready.send(os.getpid())
    time.sleep(600)
mine, other = multiprocessing.Pipe()
multiprocessing.get_context("fork").Process(target=work, args=[other], daemon=True).start()
print("held", os.getpid(), mine.recv(), flush=True)
sys.stdin.readline()
"""],
    "perl fork": ["perl", "-e", """
use Fcntl ':flock'; $| = 1;
open(my $f, '>>', $ARGV[0]); flock($f, LOCK_EX) or die;
my $child = fork // die; if (!$child) { sleep 600; exit }
print "held $$ $child\\n"; <STDIN>;
"""],
    "ruby spawn": ["ruby", "-e", """
f = File.open(ARGV[0], 'a'); f.flock(File::LOCK_EX)
child = spawn('sleep 600', f => f, out: '/dev/null')
puts "held #{$$} #{child}"; $stdout.flush; $stdin.gets
"""],
}


@pytest.mark.parametrize("structure, order", zip(INHERITING, itertools.cycle([1, -1])))
def test_kill_each_owner(pair, structure, order):
    """The parent first, or the child."""
    job = Job(pair.a, *INHERITING[structure], pair.a.path("f"))
    said = job.line().split()
    assert said[0] == "held"
    first, second = map(int, said[1:][::order])
    waiter = pair.waiter()
    os.kill(first, signal.SIGKILL)
    pair.check_held()
    if pair.excludes:
        assert waiter.silent(0.2)
    os.kill(second, signal.SIGKILL)
    pair.check_gets(waiter)


PHP_SESSION = """
[, $folder, $options] = $argv;
session_save_path($folder); session_id('one');
session_start(json_decode($options, true));
$_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
echo "held\\n"; fgets(STDIN);
"""


def test_php_sessions(pair):
    """PHP locks a session's file from session_start() to the end, and waits; with read_and_close only while it reads."""
    def session(host, options="{}"):
        return Job(host, "php", "-r", PHP_SESSION, "--", host.files, options)

    first = session(pair.a).held()
    pair.check_held("sess_one")
    second = session(pair.b)
    pair.check_waits(second)
    os.kill(first.pid, signal.SIGKILL)
    assert second.line() == "held"
    second.end()
    reader = session(pair.a, '{"read_and_close": true}').held()
    pair.check_free("sess_one")
    reader.end()


# Libraries over these calls, as programs use them: "held" or "busy" at once, and held until a line comes.
LIBRARIES = {
    "mailbox": """
import mailbox  # lockf() on the mailbox, then a dot lock by link(), of which each host here has its own
taken, lock = mailbox.ExternalClashError, mailbox.mbox(path)
take = lock.lock
""",
    "fasteners": """
import fasteners
lock, taken = fasteners.InterProcessLock(path), AssertionError
def take():
    assert lock.acquire(blocking=False)
""",
    "filelock": """
import filelock
lock, taken = filelock.FileLock(path, timeout=0), filelock.Timeout
take = lock.acquire
""",
    "portalocker": """
import portalocker
lock, taken = portalocker.Lock(path, timeout=0), portalocker.LockException
take = lock.acquire
""",
    "zc.lockfile": """
import zc.lockfile
taken = zc.lockfile.LockError
def take():
    global lock
    lock = zc.lockfile.LockFile(path)
""",
}
TAKE = """
try:
    take()
    print("held", flush=True)
except taken:
    print("busy", flush=True)
sys.stdin.readline()
getattr(lock, "unlock", int)()  # else the dot lock of a mailbox would stay
"""


@pytest.mark.parametrize("library", LIBRARIES)
def test_python_libraries(pair, library):
    text = "import sys\npath, lock = sys.argv[1], None\n" + LIBRARIES[library] + TAKE
    a, b = (["/usr/bin/python3", "-c", text, host.path("f")] for host in (pair.a, pair.b))
    job = Job(pair.a, *a).held()
    check_says(Job(pair.b, *b), "busy" if pair.excludes else "held")
    os.kill(job.pid, signal.SIGKILL)
    job.process.wait()
    check_says(Job(pair.b, *b), "held")


# Debian 13's flock(1) has it, Debian 12's has not.
if "--fcntl" in subprocess.run(["flock", "--help"], stdout=subprocess.PIPE, text=True).stdout:
    def test_flock_fcntl(pair):
        """OFD locks. Of flock() on the same file they know nothing."""
        job = Job(pair.a, "flock", "--fcntl", pair.a.path("f"), "sh", "-c", "echo held; read line").held()
        assert pair.is_busy("f", "--fcntl") == pair.excludes
        assert not pair.is_busy("f")
        waiter = Job(pair.b, "flock", "--fcntl", pair.b.path("f"), "echo", "held")
        pair.check_waits(waiter)
        job.end()
        check_says(waiter, "held")
