"""`dflock run --net=on`: programs that no preload reaches, on two hosts."""
import errno
import os
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import time

import pytest
from harness import text_of, wait_until
from harness.host import BUILD, CLI
from harness.metrics import value
from harness.netted import NET, STATIC, Netted, both, netted, opened, run, stat, supervisors
from harness.processes import files_of, wait_channel, waits_for_lock

from keepers import LONG, held, wanted_elsewhere


def told(agent):
    """What its supervisor has said on its standard error."""
    wait_until(lambda: select.select([agent.process.stderr], [], [], 0)[0], "a line comes")
    return agent.process.stderr.readline().decode()


def test_verbose_tells_which_local_process_is_in_the_way(two):
    """The kernel waits, or fails, after the supervisor's last look."""
    verbose = {"options": ["--verbose"], "stderr": subprocess.PIPE}
    holder, other = opened(two[0]), opened(two[0], name="g")
    # Within two seconds the keeper finds it, or says who asked: the program itself, where it wants another lease.
    line = rf"dflock: {two[0].path('%s')}: held by this host(; last known: pid (%d|%d)|, pid %d) \(agent\),.* \d\d:\d\d:\d\d\n"
    assert holder.do("flock 0 ex") == "ok" and other.do("setlk 0 sh 0 10") == "ok"
    waits, fails, converts = opened(two[0], **verbose), opened(two[0], **verbose), opened(two[0], name="g", **verbose)
    waits.say("flock 0 ex")
    assert re.fullmatch(line % ("f", holder.pid, holder.pid, holder.pid), told(waits)) and waits.silent(0.05)
    assert fails.do("flock 0 ex nb") == "EAGAIN"
    assert re.fullmatch(line % ("f", holder.pid, holder.pid, holder.pid), told(fails))
    assert converts.do("setlk 0 sh 0 10") == "ok"  # its own lock is not in the way
    converts.say("setlk 0 ex 5 10 w")
    assert re.fullmatch(line % ("g", other.pid, converts.pid, other.pid), told(converts)) and converts.silent(0.05)
    assert holder.do("flock 0 un") == "ok" and other.do("setlk 0 un 0 10") == "ok"
    assert waits.heard()[0] == "ok" and converts.heard()[0] == "ok"


def test_verbose_says_nothing_of_the_callers_own_locks(two):
    alone = opened(two[0], options=["--verbose"], stderr=subprocess.PIPE)
    for first, then in (("flock 0 sh", "flock 0 ex"), ("setlk 0 sh 0 10", "setlk 0 ex 5 10 w"), ("setlk 0 sh 20 10 ofd", "setlk 0 ex 25 10 ofd w")):
        assert alone.do(first) == "ok" and alone.do(then) == "ok"
    alone.process.stdin.close()
    assert alone.process.stderr.read() == b""


def test_errors_are_the_kernels(two):
    a = opened(two[0])
    assert a.do(f"open 2 {two[0].path('f')} r") == "ok"
    calls = {"flock 0 sh ex": "EINVAL", "flock 1 ex": "EBADF", "setlk 0 ex -1 5": "EINVAL", "setlk 1 ex 0 5": "EBADF", "setlk 2 ex 0 5": "EBADF"}
    assert {words: a.do(words) for words in calls} == calls


def test_the_job_stays_what_it_is(two):
    """Its pid, its parent and its exit status. The supervisors hold none of its descriptors: a pipe ends when the job has closed it."""
    job = netted(two[0], "sh", "-c", "echo $$ $PPID; exec >&- 2>&-; read line; exit 7", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                 stderr=subprocess.PIPE, text=True)
    assert job.stdout.readline() == f"{job.pid} {os.getpid()}\n"
    assert job.stdout.read() == "" and job.stderr.read() == "" and job.poll() is None
    for pid in both(two[0]):
        assert stat(pid)[3] != stat(job.pid)[3]  # another session
    job.communicate(timeout=20)
    assert job.returncode == 7
    wait_until(lambda: not supervisors(two[0]), "the supervisors end")


def test_the_supervisors_outlive_the_job(two):
    """Until what it left in the background has ended, too."""
    a = opened(two[1])
    background = f"( read line; {STATIC} ) & exit 0"
    job = netted(two[0], "sh", "-c", f"exec 9<&0; {background.replace('( read', '( exec <&9; read')}", stdin=subprocess.PIPE,
                 stdout=subprocess.PIPE, bufsize=0)
    assert job.wait(20) == 0
    assert a.do("flock 0 ex") == "ok"
    job.stdin.write(b"\nopen 0 %s rwc\nflock 0 ex nb\n" % two[0].path("f").encode())
    assert job.stdout.readline().startswith(b"ok") and job.stdout.readline().startswith(b"EAGAIN")
    job.stdin.close()
    job.stdout.close()
    wait_until(lambda: not supervisors(two[0]), "the supervisors end")


def test_a_supervisor_is_killed_at_rest(two):
    a, b = opened(two[0]), opened(two[1])
    for which in (0, 1):
        pids = both(two[1])
        os.kill(pids[which], signal.SIGKILL)
        assert a.do("flock 0 ex") == "ok"
        assert b.do("flock 0 ex nb") == "EAGAIN"
        both(two[1], pids[which:which + 1])
        assert a.do("flock 0 un") == "ok"
        assert b.do("flock 0 ex nb") == "ok" and b.do("flock 0 un") == "ok"


@pytest.mark.parametrize("command", ["flock 0 ex", "setlk 0 ex 0 1 w"])
def test_supervisors_are_killed_one_after_the_other(two, command):
    """While a call is kept: the next one takes it up."""
    a, b = opened(two[0]), opened(two[1])
    assert a.do(command) == "ok"
    b.say(command)
    wanted_elsewhere(two[0])
    for _ in range(3):
        pids = both(two[1])
        os.kill(pids[0], signal.SIGKILL)
        both(two[1], pids[:1])
    assert b.silent(0.1)
    assert a.do("close 0") == "ok"
    assert b.heard()[0] == "ok"
    assert opened(two[0]).do("flock 0 ex nb" if "flock" in command else "setlk 0 ex 0 1") == "EAGAIN"


def test_both_are_killed(two):
    b = opened(two[1])
    for pid in both(two[1]):
        os.kill(pid, signal.SIGSTOP)
    for pid in supervisors(two[1]):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not supervisors(two[1]), "they are gone")
    assert b.do("flock 0 ex nb") == "ENOSYS"


FORBID = """
import ctypes, os, platform, struct, sys
number = {"x86_64": 317, "aarch64": 277}[platform.machine()]
code = b"".join(struct.pack("<HBBI", *i) for i in ((0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)))
libc = ctypes.CDLL(None, use_errno=True)
text = ctypes.create_string_buffer(code, len(code))
prog = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 4, ctypes.addressof(text)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(number, 1, 0, prog) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_where_seccomp_is_forbidden(two):
    done = run(two[0], "true", before=["/usr/bin/python3", "-c", FORBID])
    assert done.returncode == 125
    assert done.stderr == "dflock: not started: the net needs seccomp, which is forbidden here (by a container?): Operation not permitted\n"


def test_a_net_in_a_net(two):
    a, b = opened(two[0]), opened(two[1], CLI, "run", "--net=on", STATIC)
    assert len(both(two[1])) == 2
    assert a.do("flock 0 ex") == "ok"
    assert b.do("flock 0 ex nb") == "EAGAIN"


def test_a_net_in_a_net_of_another_configuration(two, folder):
    """Its name may be another one."""
    a, b = two
    inner = lambda **env: run(a, "env", *(f"DFLOCK_{k}={v}" for k, v in env.items()), CLI, "run", "--net=on", "echo", "started")
    same = os.path.join(folder, "same.conf")
    os.symlink(a.config, same)
    assert inner(CONFIG=same).stdout == "started\n"
    for other in ({"CONFIG": b.config}, {"RUNTIME_DIR": b.runtime}, {"CONFIG": b.config, "RUNTIME_DIR": b.runtime}):
        done = inner(**other)
        assert (done.returncode, done.stdout) == (125, "")
        assert re.fullmatch("dflock: not started: the net that this job is under goes by another .*\n", done.stderr), done.stderr


def test_the_key_of_the_preload(two):
    """A new one for each net; a net in a net has that of the outer one."""
    keys = [run(two[0], "sh", "-c", "echo $DFLOCK_NET").stdout for _ in range(2)]
    assert re.fullmatch("[0-9a-f]{16}\n", keys[0]) and keys[0] != keys[1]
    assert len(set(run(two[0], "sh", "-c", f"echo $DFLOCK_NET; exec {CLI} run --net=on sh -c 'echo $DFLOCK_NET'").stdout.split())) == 1


@pytest.mark.parametrize("words, options, said", [
    ([STATIC], ["--require"], (0, "")), (["sh", "-c", "exit 5"], ["--init"], (5, "")), (["sh", "-c", "exit 5"], ["--init", "--report"], (5, None)),
    (["/nowhere/job"], [], (127, "dflock: cannot run /nowhere/job: No such file or directory\n"))], ids=["require", "init", "report", "nowhere"])
def test_options(two, words, options, said):
    done = run(two[0], *words, options=options, input="")
    assert (done.returncode, done.stderr if said[1] is not None else None) == said


def test_a_refusal_is_said_to_the_program(two, redis):
    a = opened(two[0], stderr=subprocess.PIPE)
    redis.stop()
    wait_until(lambda: a.do("flock 0 ex nb") == "ENOLCK" or a.do("flock 0 un") == "ok" and False, "a refusal")
    assert re.match(rb"dflock: .*(redis|postgresql|zookeeper).*\n", a.process.stderr.readline())


def test_an_unprotected_file(two, folder):
    a = Netted(two[0])
    assert a.do(f"open 0 {folder}/other rwc") == "ok"
    assert a.do("flock 0 ex") == "ok" and a.do("setlk 0 ex 0 1") == "ok" and a.do("getlk 0 ex 0 1") == "un"


class Players:
    """Four on two hosts: never two inside, none is refused, and each counts what it had."""

    def __init__(self, two, folder, kind, *rows):
        """rows: calls, signals and shares of each one; those of one host are below one net if there are two rows."""
        self.ground = os.path.join(folder, "ground")
        self.jobs = []
        for i, host in enumerate(two):
            open(host.path("f"), "w").close()
            words = [f"{NET}/player $0 {self.ground} {kind} {calls} {2 * i + n} {signals} {shares}" for n, (calls, signals, shares) in enumerate(rows)]
            self.jobs.append(netted(host, "sh", "-c", " & ".join(words) + "; wait", host.path("f"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    text=True))

    def check(self):
        said = "".join(job.communicate(timeout=200)[0] for job in self.jobs)
        with open(self.ground, "rb") as f:
            inside, entries, overlaps = struct.unpack("i4xqq", f.read(24))
        assert said.count("had ") == 4 and said.count("refused 0 ") == 4, said
        assert overlaps == 0 and inside == 0 and entries == sum(map(int, re.findall(r"had (\d+)", said))) > 0, said


@pytest.mark.parametrize("kind", ["flock", "posix", "ofd"])
def test_two_hosts(two, folder, kind):
    """Under a thousand signals a second, with handlers without and with SA_RESTART."""
    Players(two, folder, kind, (200, 1, 50), (200, 2, 50)).check()


@pytest.mark.parametrize("kind", ["flock", "posix"])
def test_supervisors_are_killed_under_load(two, folder, kind):
    """Again and again, whatever they are doing: no call fails with an errno of its own, and none is lost."""
    players = Players(two, folder, kind, (600, 2, 50), (600, 0, 0))
    killed, before = 0, {}
    while any(job.poll() is None for job in players.jobs):
        for host in two:
            pids = supervisors(host)
            # The second one must be there, and know that it is.
            if len(pids) == 2 and pids != before.get(host) and b"--standby" in open(f"/proc/{pids[1]}/cmdline", "rb").read():
                os.kill(pids[killed % 2], signal.SIGKILL)
                before[host] = pids
                killed += 1
    players.check()
    assert killed > 4


def test_a_keeper_is_started(redis, make_host):
    """By a supervisor, also by one that was the second; the keeper itself is not under the net. With the preload: test_net_key.py."""
    make_host("opener")
    c = make_host("c", foreground=False)
    agent = opened(c)
    os.kill(both(c)[0], signal.SIGKILL)
    assert agent.do("flock 0 ex nb") == "ok"
    for pid in c.keeper_pids():
        assert "\nSeccomp:\t0\n" in text_of(f"/proc/{pid}/status")


@pytest.mark.parametrize("who", ["keeper", "keeper and parent"])
def test_a_keeper_dies_while_a_call_waits(two, who):
    a, b = opened(two[0]), opened(two[1])
    assert a.do("flock 0 ex") == "ok"
    b.say("flock 0 ex")
    wanted_elsewhere(two[0])
    pids = two[1].keeper_pids()
    for pid in pids if "parent" in who else pids[1:]:
        os.kill(pid, signal.SIGKILL)
    assert b.silent(0.2)
    assert a.do("flock 0 un") == "ok"
    assert b.heard()[0] == "ok"


def test_rights(two):
    """An ordinary user has the net, or one line says why not; setuid programs have no rights below it. Below root's they have."""
    look = ["sh", "-c", "grep NoNewPrivs /proc/self/status; exit 3"]
    if os.geteuid() == 0:
        done = run(two[0], *look)
        assert (done.returncode, done.stdout) == (3, "NoNewPrivs:\t0\n"), done.stderr
    as_user = [] if os.geteuid() else ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = run(two[0], *look, before=as_user)
    scope = subprocess.run(["cat", "/proc/sys/kernel/yama/ptrace_scope"], capture_output=True, text=True).stdout
    traced = scope in ("", "0\n")
    assert (done.returncode, done.stdout.split()[1:]) == ((3, ["1"]) if traced else (125, [])), done.stderr


def test_many_calls_wait_at_once(two):
    """None delays another one."""
    a = opened(two[0])
    assert a.do("flock 0 ex") == "ok"
    waiters = [opened(two[1]) for _ in range(3)]
    for waiter in waiters:
        waiter.say("flock 0 ex")
    wanted_elsewhere(two[0])
    other = opened(two[1], name="other")
    assert other.do("flock 0 ex nb") == "ok"
    assert a.do("flock 0 un") == "ok"
    while waiters:
        ready = wait_until(lambda: [w for w in waiters if not w.silent(0.01)], "one has it")[0]
        assert ready.heard()[0] == "ok" and ready.do("flock 0 un") == "ok"
        waiters = [w for w in waiters if w is not ready]


CROWD = """
import fcntl, os, sys, time
def locks(name, how):
    path = os.path.join(sys.argv[1], name)
    if os.fork() == 0:
        try:
            fcntl.flock(os.open(path, os.O_RDWR | os.O_CREAT), how)
        except OSError as e:
            os._exit(e.errno)
        if name == "mine":
            os.unlink(path)
        os._exit(0)
for _ in range(60):
    locks("all", fcntl.LOCK_SH)
for _ in range(60):
    os.wait()
end, refused = time.monotonic() + 2, []
while time.monotonic() < end or len(refused) < 20:
    locks("mine", fcntl.LOCK_EX | fcntl.LOCK_NB)
    refused.append(os.waitstatus_to_exitcode(os.wait()[1]))
print(sum(map(bool, refused)))
"""


def test_calls_that_have_ended_are_in_no_ones_way(two):
    """Sixty processes have locked a file and ended, and are seen out of their calls. Each later one makes a file anew, so that the lease of
    the file before must go back, whose process has ended as well."""
    done = run(two[0], "env", "-i", sys.executable, "-c", CROWD, two[0].files)
    assert done.stdout == "0\n", done.stdout + done.stderr


def test_supervisors_are_no_holders(make_host, redis):
    """While a call waits, they have a copy of a description with a lock. In an outage the program stops, and they do not."""
    lease = "ttl_ms = 3000; freeze_margin_ms = 1300;"
    a, b = make_host("a", lease=lease).wait_up(), make_host("b", lease=lease).wait_up()
    other, waits = opened(a), opened(b)
    assert other.do("setlk 0 ex 20 10 ofd") == "ok"
    assert waits.do("setlk 0 ex 0 10 ofd w") == "ok"
    waits.say("setlk 0 ex 20 10 ofd w")
    wanted_elsewhere(a)
    pids = both(b)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in b.log(), "frozen", 40)
    assert stat(waits.pid)[0] in "tTD"
    assert all(stat(pid)[0] == "S" for pid in pids)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in b.log(), "let go", 20)
    assert supervisors(b) == pids
    assert other.do("setlk 0 un 20 10 ofd") == "ok"
    assert waits.heard(40)[0] == "ok"


@pytest.mark.root("only root may make a pid namespace")
def test_the_first_process_of_a_namespace(two):
    """`dflock run` stays the first one, and has the job as a child; without it the supervisors would be the job's children."""
    before = ["unshare", "--pid", "--fork", "--mount-proc"]
    done = run(two[0], "sh", "-c", "echo $$", before=before)
    assert done.returncode == 0 and int(done.stdout) > 1, done
    env = {k: v for k, v in two[0].env().items() if k != "LD_PRELOAD"}
    done = subprocess.run([*before, os.path.join(BUILD, "dflock-net"), "", "true"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 125 and "first process of a pid namespace" in done.stderr, done


READ_ONLY = """
import ctypes, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
question = struct.pack("hhqqi4x", 1, 0, 0, 0, 0)
page[:len(question)] = question
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
if sys.argv[2] == "read-only":
    assert libc.mprotect(ctypes.c_void_p(at), 4096, mmap.PROT_READ) == 0
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
ret = libc.syscall(72 if os.uname().machine == "x86_64" else 25, fd, 5, ctypes.c_void_p(at))
print(ret, ctypes.get_errno(), struct.unpack("hhqqi4x", ctypes.string_at(at, 32))[0])
"""


def test_getlk_into_memory_that_may_only_be_read(two):
    a = opened(two[0])
    assert a.do("setlk 0 ex 0 10") == "ok"
    for memory, said in (("read-only", f"-1 {errno.EFAULT} 1"), ("writable", "0 0 1")):
        done = run(two[1], "env", "-u", "LD_PRELOAD", "/usr/bin/python3", "-c", READ_ONLY, two[1].path("f"), memory)
        assert done.stdout == said + "\n", (memory, done.stderr)


SECRET = """
import ctypes, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(447, 0)  # memfd_secret()
if fd < 0:
    sys.exit("none")
os.ftruncate(fd, 4096)
page = mmap.mmap(fd, 4096)
page[:32] = struct.pack("hhqqi4x", 1, 0, 0, 0, 0)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
for at in at, 4096:
    ret = libc.syscall(72 if os.uname().machine == "x86_64" else 25, os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), int(sys.argv[2]), ctypes.c_void_p(at))
    print(ret, ret and ctypes.get_errno(), flush=True)
"""


@pytest.mark.parametrize("command", [5, 6], ids=["F_GETLK", "F_SETLK"])
def test_memory_that_only_the_program_can_read(two, folder, command):
    """The kernel can read it, too, and would take a lock that no lease covers."""
    def lock(path):
        done = run(two[1], "env", "-u", "LD_PRELOAD", "/usr/bin/python3", "-c", SECRET, path, str(command))
        if done.stderr == "none\n":
            pytest.skip("this kernel has no memfd_secret()")
        return done

    a = opened(two[0])
    assert a.do("setlk 0 ex 0 10") == "ok"
    done = lock(two[1].path("f"))
    assert done.stdout == f"-1 {errno.ENOLCK}\n-1 {errno.EFAULT}\n" and "cannot be found out" in done.stderr, done
    done = lock(os.path.join(folder, "unprotected"))
    assert done.stdout == f"0 0\n-1 {errno.EFAULT}\n" and not done.stderr, done


ALL_WAIT = """
import fcntl, os, sys
sys.stdin.readline()
for _ in range(12):
    if os.fork() == 0:
        fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)
        os._exit(0)
fcntl.flock(os.open(sys.argv[2], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
print("locked", flush=True)
"""


def test_no_thread_can_be_started_for_a_while(two):
    """All threads of the supervisor have calls that wait for another host; the next call is received when there may be more threads."""
    a, path = opened(two[0]), two[1].path("f")
    open(path, "w").close()
    assert a.do("flock 0 ex") == "ok"
    job = netted(two[1], "env", "-u", "LD_PRELOAD", "/usr/bin/python3", "-c", ALL_WAIT, path, two[1].path("other"), stdin=subprocess.PIPE,
                 stdout=subprocess.PIPE, text=True)
    first = both(two[1])[0]
    size = int(re.search(r"VmSize:\s*(\d+)", text_of(f"/proc/{first}/status"))[1]) * 1024
    before = resource.prlimit(first, resource.RLIMIT_AS, (size + 200 * 1024, resource.RLIM_INFINITY))  # less than a stack
    job.stdin.write("\n")
    job.stdin.flush()
    waits = lambda tid: re.search("epoll|ep_poll", wait_channel(tid))
    wait_until(lambda: not any(map(waits, os.listdir(f"/proc/{first}/task"))), "no thread waits for a call")
    resource.prlimit(first, resource.RLIMIT_AS, before)
    assert select.select([job.stdout], [], [], 20)[0], "the call hangs"
    assert a.do("flock 0 un") == "ok"
    assert job.communicate(timeout=20)[0] == "locked\n"


CONVERTS = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_SH)
child = os.fork()
if child == 0:
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os._exit(0)
os.waitpid(child, 0)
fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.readline()
with open(f"/proc/self/fdinfo/{fd}") as f:
    print(f.read().count("lock:"))
"""


def test_a_call_that_was_killed_unlocks_nothing(make_host, proxy):
    """It fails because of another host, when its process is dead and another one has locked the description that both had."""
    a, b = make_host("a", lease=LONG), make_host("b", lease=LONG, server=proxy.address).wait_up()
    other, path = opened(a), b.path("f")
    assert other.do("flock 0 sh") == "ok"
    job = netted(b, "env", "-u", "LD_PRELOAD", "/usr/bin/python3", "-c", CONVERTS, path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child = int(job.stdout.readline())
    proxy.hold_messages()
    job.stdin.write("\n")
    job.stdin.flush()
    wait_until(lambda: held(b, state="asking"), "the child's call is at the store")
    os.kill(child, signal.SIGKILL)
    assert job.stdout.readline() == "locked\n"
    proxy.pass_messages()
    wait_until(lambda: not any(path in files_of(pid) for pid in supervisors(b)), "no supervisor has a call")
    assert job.communicate("\n", timeout=20)[0] == "1\n"


# --- cycles, over hosts and with calls that wait in a kernel ---

def waits_in_kernel(agent):
    wait_until(lambda: waits_for_lock(agent.pid), f"pid {agent.pid} waits in the kernel")


def queued(host):
    wait_until(lambda: held(host, state="asking"), f"host {host.name} is in the store's queue")


def three(two):
    """Two programs of the first host and one of the other, which have the bytes 0, 1 and 2."""
    agents = opened(two[0]), opened(two[0]), opened(two[1])
    for i, agent in enumerate(agents):
        assert agent.do(f"setlk 0 ex {i} 1") == "ok"
    return agents


def test_one_of_the_cycle_waits_in_a_kernel(two):
    """p waits for q in the kernel of the first host, r waits for p, and q for r."""
    p, q, r = three(two)
    p.say("setlk 0 ex 1 1 w")
    waits_in_kernel(p)
    r.say("setlk 0 ex 0 1 w")
    queued(two[1])
    assert q.do("setlk 0 ex 2 1 w", seconds=10) == "EDEADLK"
    assert p.silent(0.2) and r.silent(0.1)
    assert q.do("setlk 0 un 1 1") == "ok"
    assert p.heard()[0] == "ok"
    assert p.do("setlk 0 un 0 2") == "ok"
    assert r.heard()[0] == "ok"


def test_the_call_that_waits_in_a_kernel_closes_it(two):
    """Then another one of the cycle fails, as with the preload."""
    p, q, r = three(two)
    r.say("setlk 0 ex 0 1 w")
    queued(two[1])
    q.say("setlk 0 ex 2 1 w")
    queued(two[0])
    p.say("setlk 0 ex 1 1 w")
    assert q.heard(seconds=20)[0] == "EDEADLK"
    assert p.silent(0.1) and r.silent(0.1)


@pytest.mark.parametrize("waits", ["nobody", "another host"])
def test_a_cycle_of_one_host(two, waits):
    """The kernel finds it: the last call gets EDEADLK. While another host waits for a lock of the cycle, it may be the other call, if that is
    called back just then."""
    p, q, r = three(two)
    p.say("setlk 0 ex 1 1 w")
    waits_in_kernel(p)
    if waits == "another host":
        before, begin = value(two[0], "calls_seen_out_total"), time.monotonic()
        r.say("setlk 0 ex 0 2 w")
        queued(two[1])
        assert p.silent(0.5)
        waits_in_kernel(p)
        # It is called back at growing pauses, and not all the time: once in SEEOUT_PATIENCE_MS, where the machine is so busy that it does not
        # get back to where it waited.
        assert value(two[0], "calls_seen_out_total") - before < 10 + 50 * (time.monotonic() - begin)
    q.say("setlk 0 ex 0 1 w")
    said = select.select([q.process.stdout, p.process.stdout][:1 if waits == "nobody" else 2], [], [], 20)[0]
    assert said, "no call of the cycle has ended"
    one, other, byte = (q, p, 1) if q.process.stdout in said else (p, q, 0)
    assert one.heard()[0] == "EDEADLK"
    assert one.do(f"setlk 0 un {byte} 1") == "ok"
    assert other.heard(seconds=20)[0] == "ok"
