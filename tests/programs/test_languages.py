"""Python, Perl, PHP and Ruby: their own lock calls, their time limits, their child processes and threads."""
import os
import signal

import pytest
from harness import Job

# Each takes: the file, how ("ex", "sh", with "nb" to not wait), and a time limit in seconds or 0, by the means that the
# language's users use. It says "held", "busy", "timeout" or what failed, and holds until a line comes.
PYTHON = """
import fcntl, os, signal, sys
path, how, limit = sys.argv[1:]
flags = {"ex": fcntl.LOCK_EX, "sh": fcntl.LOCK_SH, "exnb": fcntl.LOCK_EX | fcntl.LOCK_NB,
         "shnb": fcntl.LOCK_SH | fcntl.LOCK_NB}
def late(number, frame):
    raise TimeoutError
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, float(limit))
with open(path, "a") as f:
    try:
        fcntl.flock(f, flags[how])
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("held", flush=True)
    except BlockingIOError:
        print("busy", flush=True)
    except TimeoutError:
        print("timeout", flush=True)
    sys.stdin.readline()
"""
PERL = """
use strict; use Fcntl ':flock'; use Time::HiRes 'alarm'; $| = 1;
my ($path, $how, $limit) = @ARGV;
my %flags = (ex => LOCK_EX, sh => LOCK_SH, exnb => LOCK_EX | LOCK_NB, shnb => LOCK_SH | LOCK_NB);
open(my $f, '>>', $path) or die $!;
my $said = eval {
    local $SIG{ALRM} = sub { die "timeout\\n" };
    alarm $limit;
    my $ok = flock($f, $flags{$how});
    my $why = $!{EWOULDBLOCK} ? 'busy' : "$!";
    alarm 0;
    $ok ? 'held' : $why;
};
print $said // $@; print "\\n" if defined $said;
<STDIN>;
"""
PHP = """
[, $path, $how, $limit] = $argv;
$flags = ['ex' => LOCK_EX, 'sh' => LOCK_SH, 'exnb' => LOCK_EX | LOCK_NB, 'shnb' => LOCK_SH | LOCK_NB];
$f = fopen($path, 'a');
pcntl_async_signals(true);
pcntl_signal(SIGALRM, function () { echo "timeout\\n"; fgets(STDIN); exit; }, false);
if ($limit > 0) pcntl_alarm((int)ceil($limit));
$ok = flock($f, $flags[$how], $busy);
pcntl_alarm(0);
echo $ok ? "held\\n" : ($busy ? "busy\\n" : "failed\\n");
fgets(STDIN);
"""
RUBY = """
require 'timeout'; $stdout.sync = true
path, how, limit = ARGV
flags = {'ex' => File::LOCK_EX, 'sh' => File::LOCK_SH, 'exnb' => File::LOCK_EX | File::LOCK_NB,
         'shnb' => File::LOCK_SH | File::LOCK_NB}
File.open(path, 'a') do |f|
  begin
    got = limit.to_f > 0 ? Timeout.timeout(limit.to_f) { f.flock(flags[how]) } : f.flock(flags[how])
    puts got == 0 ? 'held' : 'busy'
  rescue Timeout::Error
    puts 'timeout'
  end
  $stdin.gets
end
"""
LANGUAGES = {
    "python": ["/usr/bin/python3", "-c", PYTHON],
    "perl": ["perl", "-e", PERL],
    "php": ["php", "-r", PHP, "--"],
    "ruby": ["ruby", "-e", RUBY],
}
language = pytest.mark.parametrize("language", LANGUAGES)


def program(host, language, how, limit=0, name="f"):
    return Job(host, *LANGUAGES[language], host.path(name), how, str(limit))


def holder(pair, language, how="ex"):
    return program(pair.a, language, how).held()


def check_says(job, said):
    assert job.line() == said
    assert job.end() == 0


@language
@pytest.mark.parametrize("first,second,excludes", [("ex", "exnb", True), ("ex", "shnb", True), ("sh", "exnb", True),
                                                   ("sh", "shnb", False)])
def test_modes(pair, language, first, second, excludes):
    job = holder(pair, language, first)
    check_says(program(pair.b, language, second), "busy" if excludes and pair.excludes else "held")
    job.end()
    check_says(program(pair.b, language, second), "held")


@pytest.mark.parametrize("first,second", zip(LANGUAGES, list(LANGUAGES)[1:] + ["python"]))
def test_one_waits_for_another(pair, first, second):
    job = holder(pair, first)
    waiter = pair.waiter(*LANGUAGES[second], pair.b.path("f"), "ex", "0")
    os.kill(job.pid, signal.SIGKILL)
    pair.check_gets(waiter)


@language
def test_a_time_limit_leaves_no_waiter(pair, language):
    pair.check_limit(holder(pair, language), lambda: program(pair.b, language, "ex", limit=1))


@language
def test_a_time_limit_that_is_not_reached(pair, language):
    job = holder(pair, language)
    waiter = pair.waiter(*LANGUAGES[language], pair.b.path("f"), "ex", "60")
    job.end()
    pair.check_gets(waiter)


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


@pytest.mark.parametrize("structure", INHERITING)
@pytest.mark.parametrize("order", [1, -1], ids=["parent first", "child first"])
def test_kill_each_owner(pair, structure, order):
    job = Job(pair.a, *INHERITING[structure], pair.a.path("f"))
    said = job.line().split()
    assert said[0] == "held"
    first, second = map(int, said[1:][::order])
    pair.check_held()
    waiter = pair.waiter()
    os.kill(first, signal.SIGKILL)
    pair.check_held()
    if pair.excludes:
        assert waiter.silent(0.2)
    os.kill(second, signal.SIGKILL)
    pair.check_gets(waiter)


def test_python_threads(pair):
    """Each thread with its own descriptor: they exclude each other and the other host, also while they all wait."""
    text = """
import fcntl, os, sys, threading
path, witness, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
def work():
    for _ in range(rounds):
        with open(path, "a") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            if os.path.exists(witness + ".overlap"):
                return
            try:
                os.mkdir(witness)
                os.rmdir(witness)
            except FileExistsError:
                os.mkdir(witness + ".overlap")
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
"""
    witness = os.path.join(os.path.dirname(pair.a.files), "witness")
    rounds = 25 if pair.excludes else 1000000  # without the shim: until it happens
    jobs = [Job(host, "/usr/bin/python3", "-c", text, host.path("f"), witness, str(rounds)) for host in (pair.a, pair.b)]
    for job in jobs:
        assert job.line(120) is None
    assert os.path.exists(witness + ".overlap") != pair.excludes


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
