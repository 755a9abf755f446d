"""Programs behave the same with the shim as without it, wherever they call from."""
import glob
import json
import os
import pathlib
import re
import subprocess
import time

import pytest

import fake_keeper as fk
from world import BUILD, CASES, ROOT, SHIM, not_with_musl, wait_until_old

# What the shim may use of libc: no heap, no stdio, no threads, nothing that could be another library's; and nothing that one of glibc
# and musl lacks, or has with other structures (shim/oldlibc.h).
ALLOWED = set("""
    __errno_location _exit clock_gettime dladdr dlerror dlsym fstatfs getauxval getpid getrlimit getsockopt
    bcmp memchr memcmp memcpy memmove memset mkdir mmap munmap prctl sched_yield secure_getenv setrlimit setsockopt
    sigaction statfs strchr strcmp strcpy strcspn strlen strncmp strrchr strstr sysconf umask unsetenv
    environ __environ
    __cxa_finalize __stack_chk_fail
""".split())
# F_SETLKW is a cancellation point: a wait for the keeper is libc's recv(), or read() of a timer, with a clean-up handler. All are libc's own.
ALLOWED |= set("recv read pthread_testcancel _pthread_cleanup_push _pthread_cleanup_pop".split())
# Every shared library asks for these, weakly.
NOBODYS = set("__gmon_start__ _ITM_deregisterTMCloneTable _ITM_registerTMCloneTable".split())
MUSL = glob.glob("/lib/ld-musl-*.so.1")


def symbols(which, file=SHIM):
    out = subprocess.run(["nm", "-D", which, file], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines()}


def test_exports_are_those_of_the_map():
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "shim/exports.map").read_text(), flags=re.S)
    wanted = set(re.findall(r"^\t(\w+);", text, flags=re.M))
    if os.uname().machine in ("x86_64", "aarch64"):
        wanted.remove("__fcntl_time64")
    assert symbols("--defined-only") == wanted


def test_nothing_but_the_libc_functions_that_may_be_used():
    assert symbols("--undefined-only") - NOBODYS - ALLOWED == set()
    needed = subprocess.run(["readelf", "-d", SHIM], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"NEEDED.*\[(.*)\]", needed) == ["libc.so.6"]


@pytest.mark.skipif(not MUSL, reason="musl is not installed")
def test_musl_has_them_too():
    assert ALLOWED - symbols("--defined-only", MUSL[0]) == set()


@not_with_musl("about the keeper's objects")
def test_the_keepers_threads_fork_only_what_is_async_signal_safe():
    """A child of one thread of many has libc's locks as another thread had them. These files fork before there are threads."""
    objects = pathlib.Path(BUILD, "keeper")
    lacks = {}
    for line in subprocess.run(["nm", "-u", "-A", *objects.rglob("*.o")], capture_output=True, text=True, check=True).stdout.splitlines():
        file, kind_and_name = line.split(":", 1)
        lacks.setdefault(os.path.relpath(file, objects), set()).add(kind_and_name.split()[-1])
    forks = {file for file, names in lacks.items() if names & {"fork", "vfork"}}
    assert forks <= {"main.o", "runevent.o", "guard/supervise.o", "fronts/door.o"}
    assert {n for n in lacks["guard/lastwords.o"] if not n.startswith(("__asan", "__ubsan"))} <= set("""
        _Fork _exit alarm clock_gettime close geteuid lstat lstat64 open open64 pipe2 poll signal statx strcmp syscall
        text_add text_init text_print waitpid write __errno_location __stack_chk_fail
    """.split())


# Debian 10, Ubuntu 20.04 (2.31), RHEL 8: where old jobs live.
OLDEST_GLIBC = (2, 28)


def test_it_loads_with_the_oldest_glibc_that_it_is_for():
    out = subprocess.run(["readelf", "-W", "--version-info", SHIM], capture_output=True, text=True, check=True).stdout
    needed = out[out.index(".gnu.version_r"):]
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"Name: GLIBC_([0-9.]+)", needed)}
    assert versions and max(versions) <= OLDEST_GLIBC, needed
    # Also not such as GLIBC_PRIVATE or GLIBC_ABI_DT_RELR.
    assert len(re.findall(r"Name: ", needed)) == len(versions), needed


def test_another_system_call_is_a_jump_and_writes_nothing():
    """What is on the stack may be another thread's to change; and some calls leave no frame behind."""
    if os.uname().machine != "x86_64":
        pytest.skip("x86-64 instructions")
    out = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "--disassemble=syscall", SHIM], capture_output=True, text=True,
                         check=True).stdout
    found = [" ".join(line.split("\t")[1].split("#")[0].split()) for line in out.splitlines() if "\t" in line]
    assert "endbr64" in found and any(re.match(r"jmp \*0x[0-9a-f]+\(%rip\)", line) for line in found), out
    assert not [line for line in found if re.match(r"(push|call|pop|sub|ret)", line) or "(%rsp)" in line], out


# Names that a process has with glibc before 2.34 only if it has libdl or libpthread.
ELSEWHERE_BEFORE = ("dlsym", "dladdr", "dlerror", "pthread_testcancel", "_pthread_cleanup_push", "_pthread_cleanup_pop")


@pytest.mark.parametrize("case", [CASES[0], CASES[1], "places syscall-main {lock}", "places constructor {lock}"])
def test_as_with_an_old_glibc_that_lacks_some_names(world, case):
    """A copy of the library asks for names that no libc has, which is what it meets there."""
    data = open(SHIM, "rb").read()
    for name in ELSEWHERE_BEFORE:
        assert data.count(b"\0" + name.encode() + b"\0") >= 1, name
        data = data.replace(b"\0" + name.encode() + b"\0", b"\0" + name[:-1].encode() + b"#\0")
    old = world.folder / "libdflock.so"
    old.write_bytes(data)
    plain = run(world, case, env=world.environment(preload=False))
    with world.keeper() as keeper:
        result = run(world, case, env=world.environment(LD_PRELOAD=str(old)))
        assert (result.stdout, result.stderr) == (plain.stdout, "") and keeper.requests > 0


def run(world, case, anew=True, **kwargs):
    if anew:
        world.lock.unlink(missing_ok=True)
    result = world.run(*case.format(lock=world.lock, data=world.lock.parent).split(), **kwargs)
    assert result.returncode == 0, result
    return result


@pytest.mark.parametrize("case", [*CASES, pytest.param("waits before ofd {lock}", marks=not_with_musl(
    "F_OFD_SETLKW is no cancellation point of musl's; with the shim it may be one, as pthreads(7) has it"))])
def test_same_as_plain(world, case):
    plain = run(world, case, env=world.environment(preload=False))
    assert plain.stdout and plain.stderr == ""
    assert run(world, case, env=world.environment(config=False)).stdout == plain.stdout

    with world.keeper(rules=[(fk.PATH, "/another.lock"), (fk.GLOB, "/x/*")]) as keeper:
        unprotected = run(world, case)
        assert (unprotected.stdout, unprotected.stderr, keeper.requests) == (plain.stdout, "", 0)

    with world.keeper() as keeper:
        protected = run(world, case)
        assert (protected.stdout, protected.stderr) == (plain.stdout, "")
        assert keeper.requests > 0

    with world.keeper() as keeper:
        world.lock.touch()
        leases = fk.Leases(world.runtime)
        for space in (fk.FLOCK, fk.RECORD):
            leases.show(world.lock, space)
        covered = run(world, case, anew=False)
        assert (covered.stdout, covered.stderr) == (plain.stdout, "")
        # A call asks if the kernel refuses it: that might be the keeper's own test.
        program, how = case.split()[:2]
        if how == "flock":
            assert keeper.requests == 3
        elif program == "waits" and how != "before" or program == "places" and how in ("constructor", "handler", "fork", "vfork"):
            assert keeper.requests == 0


# For each file that a keeper is asked of when a lock is in the way.
ANSWERS = [{"verdict": fk.OK, "reason": "x: held by\033 host b"}, {"verdict": fk.WAITING}, None]


@pytest.mark.parametrize("case", [case for case in CASES if not any(word in case for word in ("record", "before", "threads {"))])
def test_same_when_it_is_reported_or_verbose(world, case):
    """Whatever the keeper answers: results and errno stay. One of another version closes the connection."""
    plain = run(world, case, env=world.environment(preload=False))
    report = ["env", "LD_PRELOAD=", str(BUILD / "dflock"), "run", "--report=/dev/null", "--json"]
    for rules in ([], None):
        with world.keeper(rules=rules) as keeper:
            reported = run(world, case, wrap=report)
            assert (reported.stdout, keeper.requests > 0) == (plain.stdout, rules is None)
            # dflock itself cannot read the configuration, which is the fake keeper's.
            assert reported.stderr.count("\n") == 1 and "the report has no lock names" in reported.stderr
            shown = run(world, case, env=world.environment(DFLOCK_LOG="debug"))
            assert shown.stdout == plain.stdout and (" us\n" in shown.stderr or "closed" in case)

    for said in ANSWERS:
        def answer(connection):
            while request := connection.receive():
                if request.op != fk.HELD:
                    connection.grant(request)
                elif said:
                    connection.send(**said)
                else:
                    return

        with world.keeper(answer):
            result = run(world, case, env=world.environment(DFLOCK_VERBOSE="1"))
        assert result.stdout == plain.stdout
        shown = {"dflock: x: held by? host b"} if said and "reason" in said else set()
        assert set(result.stderr.splitlines()) <= shown
        if case in CASES[:2]:  # one for the file that they lock
            assert len(result.stderr.splitlines()) == len(shown)


@pytest.mark.parametrize("where, space", [("constructor", "flock"), ("syscall-main", "record")])
@pytest.mark.parametrize("protected", [True, False])
def test_a_report_goes_by_what_the_keeper_says(world, where, space, protected):
    """Where the page says nothing; and the kernel's lock alone is no lease."""
    def answer(connection):
        while request := connection.receive():
            connection.grant(request) if protected else connection.send(fk.NOT_PROTECTED)

    file = world.folder / "report"
    with world.keeper(answer, with_page=False):
        run(world, f"places {where} {{lock}}", wrap=["env", "LD_PRELOAD=", str(BUILD / "dflock"), "run", f"--report={file}", "--json"])
    row = next(row for row in json.loads(file.read_text())["files"] if row["space"] == space)
    assert row["taken"] + row["taken_unprotected"] > 0 == row["taken_unprotected" if protected else "taken"], row


@not_with_musl("musl calls no .preinit_array: nothing runs before it knows the environment")
def test_before_libc_knows_the_environment_a_lock_is_refused(world):
    with world.keeper() as keeper:
        result = run(world, "places preinit {lock}")
        assert result.stdout == ("preinit: -1 ENOLCK\npreinit: 0 -\npreinit: -1 ENOLCK\npreinit: 0 -\nopen: 0 1 2\n")
        lines = run(world, "places syscall-preinit {lock}").stdout
        assert "flock: -1 ENOLCK\n" in lines and "F_SETLKW: -1 ENOLCK\n" in lines and "all six: 1 -\n" in lines
        assert "no such call: -1 ENOSYS\n" in lines and keeper.requests == 0
        # And nothing was decided for good.
        assert run(world, "places constructor {lock}").stdout.startswith("constructor: 0 -") and keeper.requests


def test_a_directory_can_be_protected(world):
    with world.keeper(rules=[(fk.PATH, str(world.lock.parent))]) as keeper:
        assert "directory: 0 -\n" in run(world, CASES[0]).stdout and keeper.requests == 1


OTHER_PRELOAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
int flock(int fd, int op)
{
	int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
	return write(1, "other flock\n", 12) == 12 ? next(fd, op) : -1;
}
int fcntl(int fd, int cmd, ...)
{
	return write(1, "other fcntl\n", 12) == 12 ? fd + cmd : -1;
}
__attribute__((constructor)) static void start(void)
{
	extern int open(const char *, int, ...);
	int (*first)(int, int) = (int (*)(int, int))dlsym(RTLD_DEFAULT, "flock");
	int fd = open(getenv("LOCK"), 02);
	if (fd >= 0 && first(fd, 2) == 0 && write(1, "locked early\n", 13) == 13)
		close(fd);
}
"""


@pytest.mark.parametrize("order", ["{shim} {other}", "{other} {shim}"])
def test_other_preloads_work_too(world, order):
    other = world.folder / "other.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", other], input=OTHER_PRELOAD, text=True, check=True)
    world.lock.touch()
    env = world.environment(LD_PRELOAD=order.format(shim=SHIM, other=other), LOCK=str(world.lock))
    with world.keeper() as keeper:
        result = world.run("places", "constructor", world.lock, env=env)
    # Before its constructor, the shim goes by itself; the lease is asked for from the first call on.
    assert "locked early\n" in result.stdout and keeper.requests == 3, result
    assert "other flock\nconstructor: 0 -\n" in result.stdout
    assert "other fcntl\nconstructor: 4 -\n" in result.stdout


def test_no_configuration_is_said_once(world):
    result = run(world, "places threads {lock}", env=world.environment(config=False))
    assert result.stderr.count("\n") == 1 and "no configuration" in result.stderr


def test_the_descriptors_that_a_lock_needs_are_used_up(world):
    with world.keeper(rules=[]):
        assert run(world, "limits used-up {lock}").stdout.startswith("used up: -1 ENOLCK")
    with world.keeper() as keeper:
        result = run(world, "limits used-up {lock}")
        assert result.stdout == "used up: -1 ENOLCK\ntwo left: 0 -\nunlock: 0 -\n"
        assert "Too many open files" in result.stderr and keeper.requests == 1


def test_an_unprotected_file_needs_none_of_them(world):
    """Also beside protected files, where the file's mount must be known."""
    with world.keeper(rules=[]) as keeper:
        fk.cover(world.runtime, os.stat(world.lock.parent).st_dev)
        result = run(world, "limits used-up-later {lock}")
        assert (result.stdout, result.stderr) == ("with the page: 0 -\nused up: 0 -\n", "") and keeper.requests <= 1


def test_nothing_is_written_into_what_was_opened_as_stderr(world):
    data = world.folder / "data" / "database"
    with world.keeper(fk.refuse_all):
        result = run(world, f"limits stderr-is-data {{lock}} {data}")
        assert result.stdout.startswith("stderr is data: -1 ENOLCK")
        assert result.stderr == "" and data.read_bytes() == b""
        # Where descriptor 2 is what it was, the line comes, also into a file.
        with open(data, "w") as log:
            subprocess.run(world.command("waits", "restart", "x", world.lock), env=world.environment(), stderr=log,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        assert data.read_text() == "dflock: so it is\n"
        # One that is not read ends no program.
        end, stderr = os.pipe()
        process = subprocess.Popen(world.command("limits", "stderr-is-broken", world.lock), env=world.environment(),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)
        os.close(stderr)
        os.close(end)
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0 and out.startswith("stderr is broken: -1 ENOLCK")


# Takes and gives up a lock again and again; between some of these, the file changes.
PAIRS = """
import fcntl, sys
changes = int(sys.argv[2])
with open(sys.argv[1], "ab", buffering=0) as file:
    for _ in range(changes or 1):
        if changes:
            file.write(b"x")
        for _ in range(int(sys.argv[3])):
            fcntl.flock(file, fcntl.LOCK_EX)
            fcntl.flock(file, fcntl.LOCK_UN)
"""
CHANGES, LOCKS = 50, 8


def traced_pairs(world, path, changes, locks):
    """The system calls, as strace has them."""
    trace, env = world.folder / "trace", world.environment()
    preload = env.pop("LD_PRELOAD")
    done = subprocess.run(["strace", "-o", trace, "-E", "LD_PRELOAD=" + preload, "/usr/bin/python3", "-c", PAIRS, path, str(changes), str(locks)],
                          env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return trace.read_text()


def test_an_unprotected_lock_costs_one_more_call(world):
    world.lock.touch()
    wait_until_old(world.lock)
    with world.keeper(rules=[]):
        lines = traced_pairs(world, world.lock, 0, 100).splitlines()
    if os.geteuid():  # whose page, unlike root's, is not for every user: the shim asks who the process is now
        lines = [line for line in lines if not line.startswith("geteuid()")]
    locks = [i for i, line in enumerate(lines) if line.startswith("flock(")]
    extra = [b - a - 1 for a, b in zip(locks, locks[1:])]
    # Nothing before LOCK_UN, one statx before LOCK_EX; more only when a second has passed.
    assert len(locks) == 200 and sum(n == 0 for n in extra) >= len(extra) // 2
    assert sum(n > 1 for n in extra) <= 5


@pytest.mark.parametrize("protected", [True, False], ids=["protected", "not protected"])
def test_a_changing_file_is_looked_up_once_for_each_change(world, protected):
    """Not at each lock, and the page is not asked again. What the shim may remember of a descriptor: shim/recent.h."""
    path = world.lock if protected else world.lock.parent / "other"
    with world.keeper() as keeper:
        path.touch()
        if protected:
            fk.Leases(world.runtime).show(path)
        begin = time.monotonic()
        calls = traced_pairs(world, path, CHANGES, LOCKS)
        passed = time.monotonic() - begin
    assert keeper.requests == 0
    assert len(re.findall(r"^statx\(\d+, (?:NULL|\"\"), ", calls, re.M)) >= CHANGES * LOCKS, "each call identifies its file"
    paths = len(re.findall(r"^readlinkat\(AT_FDCWD, \"/proc/thread-self/fd/", calls, re.M))
    roots = len(re.findall(r"^newfstatat\(AT_FDCWD, \"/\", ", calls, re.M))
    assert paths >= CHANGES
    # Whether the page is this program's depends on its root directory, too: looked at once a second.
    assert 1 <= roots <= 5 + 2 * passed
