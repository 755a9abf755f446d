"""
Programs that take record locks, by every way to them: fcntl() with POSIX and with OFD locks, lockf(), and what is built on
these. Two hosts, each with a file of its own under one lock name; without the shim each must get its lock.
"""
import os
import signal
import subprocess

import pytest
from harness import Job, write_text

# Each takes: the file, how ("ex", "sh", with "nb" to not wait), where the range begins, its length, and a time limit in seconds
# or 0. It says "held", "busy", "timeout" or what failed, and holds until a line comes.
PYTHON = """
import errno, fcntl, os, signal, struct, sys
call, path, how, first, length, limit = sys.argv[1:]
first, length, wait = int(first), int(length), not how.endswith("nb")
exclusive = how.startswith("ex")
def late(number, frame):
    raise TimeoutError
def lockf(f):
    fcntl.lockf(f, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB), length, first)
def posix(f, set=fcntl.F_SETLK, set_wait=fcntl.F_SETLKW):
    kind = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
    fcntl.fcntl(f, set_wait if wait else set, struct.pack("hhqqi4x", kind, os.SEEK_SET, first, length, 0))
def ofd(f):
    posix(f, fcntl.F_OFD_SETLK, fcntl.F_OFD_SETLKW)
def libc(f):
    f.seek(first)
    os.lockf(f.fileno(), os.F_LOCK if wait else os.F_TLOCK, length)
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, float(limit))
with open(path, "r+b") as f:
    try:
        {"lockf": lockf, "posix": posix, "ofd": ofd, "libc": libc}[call](f)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("held", flush=True)
    except TimeoutError:
        print("timeout", flush=True)
    except OSError as e:
        print("busy" if e.errno in (errno.EAGAIN, errno.EACCES) else e, flush=True)
    sys.stdin.readline()
"""
PERL = """
use strict; use Fcntl qw(:DEFAULT :seek); use File::FcntlLock; use Time::HiRes 'alarm'; $| = 1;
my ($call, $path, $how, $first, $length, $limit) = @ARGV;
my $type = $how =~ /^ex/ ? F_WRLCK : F_RDLCK;
my $set = $how =~ /nb$/ ? F_SETLK : F_SETLKW;
open(my $f, '+<', $path) or die $!;
my $said = eval {
    local $SIG{ALRM} = sub { die "timeout\\n" };
    alarm $limit;
    my $ok = $call eq 'pack' ? fcntl($f, $set, pack('s s x4 q q l x4', $type, SEEK_SET, $first, $length, 0))
        : File::FcntlLock->new(l_type => $type, l_whence => SEEK_SET, l_start => $first, l_len => $length)->lock($f, $set);
    my $why = $!{EAGAIN} || $!{EACCES} ? 'busy' : "$!";
    alarm 0;
    $ok ? 'held' : $why;
};
print $said // $@; print "\\n" if defined $said;
<STDIN>;
"""
RUBY = """
require 'fcntl'; require 'timeout'; $stdout.sync = true
path, how, first, length, limit = ARGV
lock = [how.start_with?('ex') ? Fcntl::F_WRLCK : Fcntl::F_RDLCK, IO::SEEK_SET, first.to_i, length.to_i, 0].pack('ssx4qqlx4')
File.open(path, 'r+') do |f|
  begin
    Timeout.timeout(limit.to_f) { f.fcntl(how.end_with?('nb') ? Fcntl::F_SETLK : Fcntl::F_SETLKW, lock) }
    puts 'held'
  rescue Timeout::Error
    puts 'timeout'
  rescue Errno::EAGAIN, Errno::EACCES
    puts 'busy'
  end
  $stdin.gets
end
"""
LOCKERS = {
    "python lockf": ["/usr/bin/python3", "-c", PYTHON, "lockf"],
    "python fcntl": ["/usr/bin/python3", "-c", PYTHON, "posix"],
    "python ofd": ["/usr/bin/python3", "-c", PYTHON, "ofd"],
    "python os.lockf": ["/usr/bin/python3", "-c", PYTHON, "libc"],
    "perl fcntl": ["perl", "-e", PERL, "pack"],
    "perl FcntlLock": ["perl", "-e", PERL, "object"],
    "ruby fcntl": ["ruby", "-e", RUBY],
}
MODES = [("ex", "exnb", True), ("ex", "shnb", True), ("sh", "exnb", True), ("sh", "shnb", False)]
locker = pytest.mark.parametrize("locker", LOCKERS)


def program(host, locker, how, first=0, length=0, limit=0):
    return Job(host, *LOCKERS[locker], host.path("f"), how, str(first), str(length), str(limit))


def holder(pair, locker, how="ex", first=0, length=0):
    return program(pair.a, locker, how, first, length).held()


def check_says(job, said):
    assert job.line() == said
    assert job.end() == 0


@locker
def test_modes(pair, locker):
    for first, second, excludes in MODES:
        if locker == "python os.lockf" and "sh" in first + second:
            continue  # lockf() has no shared locks
        job = holder(pair, locker, first)
        check_says(program(pair.b, locker, second), "busy" if excludes and pair.excludes else "held")
        job.end()
        check_says(program(pair.b, locker, second), "held")


@pytest.mark.parametrize("first,second", zip(LOCKERS, list(LOCKERS)[1:] + list(LOCKERS)[:1]))
def test_one_waits_for_another(pair, first, second):
    """POSIX and OFD locks exclude each other; kill -9 ends both."""
    job = holder(pair, first)
    waiter = program(pair.b, second, "ex")
    pair.check_waits(waiter)
    os.kill(job.pid, signal.SIGKILL)
    check_says(waiter, "held")


@locker
def test_ranges(pair, locker):
    job = holder(pair, locker, "ex", 100, 50)
    for first, length, overlaps in ((0, 100, False), (150, 0, False), (0, 101, True), (149, 1, True), (0, 0, True)):
        check_says(program(pair.b, locker, "exnb", first, length), "busy" if overlaps and pair.excludes else "held")
    job.end()


@pytest.mark.parametrize("locker", ["python lockf", "python ofd", "perl FcntlLock", "ruby fcntl"])
def test_a_time_limit_leaves_no_waiter(pair, locker):
    pair.check_limit(holder(pair, locker), lambda: program(pair.b, locker, "ex", limit=1))


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


@pytest.mark.parametrize("asks", GETLK)
@pytest.mark.parametrize("locker,how,shown", [("python fcntl", "sh", "shared"), ("perl fcntl", "ex", "exclusive"),
                                              ("python ofd", "ex", "exclusive")])
def test_who_is_in_the_way(pair, locker, how, shown, asks):
    """A process of another machine has no number here: F_GETLK says -1, as it does for OFD locks."""
    job = holder(pair, locker, how, 100, 50)
    said = pair.b.run(*GETLK[asks], pair.b.path("f")).stdout
    assert said == (f"{shown} 100 50 -1\n" if pair.excludes else "free\n")
    job.end()
    assert pair.b.run(*GETLK[asks], pair.b.path("f")).stdout == "free\n"


# Libraries over these calls, as programs use them: "held" or "busy" at once, and held until a line comes.
LIBRARIES = {
    "mailbox": """
import mailbox  # lockf() on the mailbox, then a dot lock by link(), of which each host here has its own
box = mailbox.mbox(path)
try:
    box.lock()
    print("held", flush=True)
    sys.stdin.readline()
    box.unlock()  # else the dot lock would stay
except mailbox.ExternalClashError:
    print("busy", flush=True)
""",
    "fasteners": """
import fasteners
lock = fasteners.InterProcessLock(path)
print("held" if lock.acquire(blocking=False) else "busy", flush=True)
""",
    "filelock": """
import filelock
lock = filelock.FileLock(path)
try:
    lock.acquire(timeout=0)
    print("held", flush=True)
except filelock.Timeout:
    print("busy", flush=True)
""",
    "portalocker": """
import portalocker
lock = portalocker.Lock(path, timeout=0)
try:
    lock.acquire()
    print("held", flush=True)
except portalocker.LockException:
    print("busy", flush=True)
""",
    "zc.lockfile": """
import zc.lockfile
try:
    lock = zc.lockfile.LockFile(path)
    print("held", flush=True)
except zc.lockfile.LockError:
    print("busy", flush=True)
""",
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_python_libraries(pair, library):
    text = "import sys\npath = sys.argv[1]\n" + LIBRARIES[library] + "sys.stdin.readline()\n"
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


JAVA = """
import java.nio.channels.*;
import java.nio.file.*;

public class Lock {
    public static void main(String[] args) throws Exception {
        long first = Long.parseLong(args[2]), length = Long.parseLong(args[3]);
        boolean shared = args[1].startsWith("sh");
        try (FileChannel f = FileChannel.open(Path.of(args[0]), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            FileLock lock = args[1].endsWith("nb") ? f.tryLock(first, length, shared) : f.lock(first, length, shared);
            System.out.println(lock == null ? "busy" : "held");
            System.in.read();
        }
    }
}
"""


@pytest.mark.skipif(not os.environ.get("DFLOCK_JAVA"), reason="run by hand with DFLOCK_JAVA=1: a Java compiler is large")
def test_java(pair, folder):
    """FileChannel.lock() and tryLock(), alone and against others."""
    write_text(os.path.join(folder, "Lock.java"), JAVA)
    subprocess.run(["javac", "-d", folder, os.path.join(folder, "Lock.java")], check=True)

    def java(host, how, first=0, length=2 ** 63 - 1):
        return Job(host, "java", "-cp", folder, "Lock", host.path("f"), how, str(first), str(length))

    for first, second, excludes in MODES:
        job = java(pair.a, first).held()
        check_says(java(pair.b, second), "busy" if excludes and pair.excludes else "held")
        check_says(program(pair.b, "perl fcntl", second), "busy" if excludes and pair.excludes else "held")
        job.end()
    job = java(pair.a, "ex", 100, 50).held()
    check_says(java(pair.b, "exnb", 0, 100), "held")
    waiter = java(pair.b, "ex", 149, 1)
    pair.check_waits(waiter)
    os.kill(job.pid, signal.SIGKILL)
    check_says(waiter, "held")
    job = holder(pair, "python lockf")
    check_says(java(pair.b, "shnb"), "busy" if pair.excludes else "held")
    job.end()
