"""Leases in the page: what they cover costs no question and is as without the shim; what they do not is asked for."""
import os
import subprocess

import pytest

import fake_keeper as fk
from fake_keeper import DESCRIPTION, EXCLUSIVE as EX, FLOCKED, PROCESS, SHARED as SH
from harness import wait_until
from world import FLOCK_CALL, ROOT, SHIM, have, not_with_musl


@pytest.fixture
def leases(world, script):
    world.lock.touch()
    return fk.Leases(world.runtime)


@pytest.fixture
def covered(world, leases):
    """Everything on the world's file."""
    return [leases.show(world.lock, space) for space in (fk.FLOCK, fk.RECORD)]


# --- nothing is asked ---

FLOCKS = ["flock 0 sh", "flock 0 ex", "flock 0 ex nb", "flock 0 sh nb", "flock 0 un", "flock 0 ex nb", "flock 0 un nb", "flock 0 sh"]
RECORDS = [
    "setlk 0 ex 10 5", "setlk 0 ex 10 5", "setlk 0 sh 10 5", "setlk 0 sh 12 2", "setlk 0 ex 12 2 w", "setlk 0 un 0 0",
    "setlk 0 sh 0 0 w", "setlk 0 ex 5 5", "setlk 0 un 0 100", "lockf 0 lock 7", "lockf 0 test 7", "lockf 0 ulock 0",
    "getlk 0 ex 0 0", "setlk 0 ex -20 0 end", "setlk 0 sh 90 0", "getlk 0 sh 3 4", "setlk 0 un 0 0",
]


@pytest.mark.parametrize("calls, owner", [
    (FLOCKS, PROCESS), (RECORDS, PROCESS),
    ([c + " ofd" if c.split()[0] != "lockf" else c for c in ("setlk 0 ex 10 5", "getlk 0 ex 0 0", "setlk 0 un 0 0",
                                                            "setlk 0 sh 0 0 w", "setlk 0 un 5 5")], DESCRIPTION),
], ids=["flock", "posix", "ofd"])
def test_what_the_page_covers_asks_nothing_and_is_as_plain(world, script, covered, lockers, calls, owner):
    def play(locker):
        locker.do("size 0 100")
        return [(locker.do(call), locker.locks(owner), locker.locks(FLOCKED)) for call in calls]

    plain = play(lockers(preload=False, path=world.folder / "plain"))
    assert play(lockers()) == plain and script.keeper.requests == 0
    assert {word for word, _, _ in plain} <= {"ok", "un"}


# --- what is not covered is asked for ---

def odd(leases):
    leases.page[fk.LEASES_AT] |= 1


def another_version(leases):
    leases.page[8] += 1


NOT_COVERED = {
    "nothing is shown": lambda leases, path: None,
    "other space": lambda leases, path: leases.show(path, fk.RECORD),
    "shared only": lambda leases, path: leases.show(path, mode=SH),
    "other path": lambda leases, path: leases.show(path, called=str(path) + "x"),
    "other inode": lambda leases, path: leases.show(path, ino=os.stat(path.parent).st_ino),
    "being written": lambda leases, path: leases.show(path, seq=3),
    "closed": lambda leases, path: leases.close(leases.show(path)),
    "run out": lambda leases, path: (leases.show(path), leases.clock(fk.boottime())),
    "another clock": lambda leases, path: (leases.show(path), leases.clock(namespace=os.stat("/"))),
    "clock being written": lambda leases, path: (leases.show(path), odd(leases)),
    "page of another version": lambda leases, path: (leases.show(path), another_version(leases)),
}


@pytest.mark.parametrize("how", NOT_COVERED)
def test_what_is_not_covered_is_asked_for(script, leases, world, one, how):
    NOT_COVERED[how](leases, world.lock)
    have(script, one, "flock 0 ex")


@pytest.mark.parametrize("start, to, asks", [(10, 20, False), (9, 20, True), (10, 21, True), (12, 13, False)])
def test_ranges(script, leases, world, one, start, to, asks):
    leases.show(world.lock, fk.RECORD, start=10, to=20)
    one.say(f"setlk 0 ex {start} {to - start}")
    if asks:
        script.next().grant()
    one.hears()
    assert script.keeper.requests == asks and one.locks() == [(EX, start, to)]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.root("only root may make a time namespace")
def test_a_program_with_another_clock(world, covered, script, ahead):
    """In a time namespace of its own; its CLOCK_BOOTTIME may be behind for ever."""
    offset = 1000 if ahead else -int(min(1000, fk.boottime() // fk.SECOND))
    process = subprocess.Popen(["unshare", "--time", "--boottime", str(offset), "--fork",
                                *world.command("waits", "restart", "x", world.lock)],
                               env=world.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    script.next().grant()
    assert process.communicate(timeout=20)[0].startswith("flock: 0 -\n")


@not_with_musl("the second preload is glibc's")
def test_a_program_whose_clock_stands_still(world, covered, script, lockers):
    have(script, lockers(**world.standing_clock()), "flock 0 ex")


def test_a_renamed_file_is_another(world, script, covered, leases, one):
    assert one.do("flock 0 ex") == one.do("flock 0 un") == "ok" and script.keeper.requests == 0
    os.rename(world.lock, f"{world.lock}2")
    one.say("flock 0 ex")
    question = script.next(have=False)
    assert question.request.fds == [f"{world.lock}2"]
    question.grant()
    one.hears()


# --- closed while the kernel lock was taken ---

CLOSER = r"""
/* A second preload, which the shim takes for libc: when a lock has been taken, it closes the slots that the test has marked. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>
#include "wire/page.h"

static int taken(int rc)
{
	char path[4096] = "";
	struct page *page;
	int fd;

	strcat(strcat(path, getenv("DFLOCK_RUNTIME_DIR")), "/page");
	fd = rc == 0 ? open(path, O_RDWR) : -1;
	if (fd < 0)
		return rc;
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	for (int i = 0; i < LEASES_BUCKETS * LEASES_IN_BUCKET; i++) {
		struct leases_slot *slot = &page->leases.slots[0][0] + i;

		if (slot->reserved)
			*slot = (struct leases_slot){.seq = slot->seq + 2};
	}
	munmap(page, sizeof(*page));
	return rc;
}

int flock(int fd, int op)
{
	int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
	int rc = next(fd, op);

	return op & LOCK_UN ? rc : taken(rc);
}

int fcntl64(int fd, int cmd, ...)
{
	int (*next)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64");
	va_list ap;
	struct flock *arg;
	int rc;

	va_start(ap, cmd);
	arg = va_arg(ap, struct flock *);
	va_end(ap);
	if (!next) /* musl */
		next = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl");
	rc = next(fd, cmd, arg);
	return (cmd == F_SETLK || cmd == F_OFD_SETLK) && arg->l_type != F_UNLCK ? taken(rc) : rc;
}
"""


@pytest.fixture(scope="module")
def closer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("closer")
    (folder / "closer.c").write_text(CLOSER)
    subprocess.run(["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", f"-I{ROOT}", "-o", folder / "closer.so", folder / "closer.c", "-ldl"],
                   check=True)
    return folder / "closer.so"


@pytest.fixture
def closing(world, leases, closer):
    """show() a slot that is closed as soon as the next lock has been taken."""
    world.shim = f"{SHIM}:{closer}"
    return lambda space, **fields: leases.show(world.lock, space, note=1, **fields)


def rename(world):
    """Out of what the page calls protected: then the keeper may say that it is not."""
    os.rename(world.lock, world.lock.parent / "renamed")


@pytest.mark.parametrize("verdict, error", [(fk.GRANTED, "ok"), (fk.REFUSED, "ENOLCK"), (fk.WOULD_BLOCK, "EAGAIN"), (fk.NOT_PROTECTED, "ok")])
@pytest.mark.parametrize("before, mode", [("un", "sh"), ("un", "ex"), ("sh", "ex")])
def test_flock_closed_meanwhile(world, script, closing, one, before, mode, verdict, error):
    """As the kernel does: a failed conversion has lost what was there."""
    if before != "un":
        have(script, one, f"flock 0 {before}")
    closing(fk.FLOCK)
    one.say(f"flock 0 {mode} nb")
    question = script.next(have=True)
    assert question.request.mode == (EX if mode == "ex" else SH) and len(one.locks(FLOCKED)) == 1
    if verdict == fk.NOT_PROTECTED:
        rename(world)
    question.send(verdict, until_ns=question.request.sent_ns, reason="no")
    one.hears(error)
    one.path = os.readlink(f"/proc/{one.pid}/fd/3")
    assert len(one.locks(FLOCKED)) == (error == "ok")


def test_flock_does_not_wait_for_a_local_holder_unknown_to_the_keeper(script, covered, one, lockers):
    other = lockers(preload=False)
    assert other.do("flock 0 ex") == "ok"
    for refused in (True, False):
        one.say("flock 0 ex")
        question = script.next(have=False)
        assert not question.request.nonblock
        if refused:
            question.refuse()
            one.hears("ENOLCK")
            assert not one.locks(FLOCKED)
    question.grant()
    one.waits_in(FLOCK_CALL)
    assert other.do("flock 0 un") == "ok"
    one.hears()
    assert one.locks(FLOCKED) == [(EX, 0, fk.EOF)]


SHAPES = {
    "nothing": [], "the same, shared": ["sh 10 10"], "the same, exclusive": ["ex 10 10"], "more, shared": ["sh 0 100"],
    "more, exclusive": ["ex 5 30"], "a part": ["sh 12 3"], "both ends": ["ex 8 4", "sh 18 10"], "around": ["sh 0 10", "ex 20 5"],
    "many": ["sh 0 11", "ex 12 1", "sh 14 2", "ex 16 4", "sh 20 0"],
}


# A thread with a descriptor table of its own locks a file, shared or exclusively; then the first thread asks for a shared lock, without waiting.
# Both have the same pid, and are two owners of POSIX locks. Says what the first one gets, and what is left when the other one has gone.
UNSHARED = """
import ctypes, errno, fcntl, os, sys, threading
taken, over = threading.Event(), threading.Event()
def lock(kind, command=fcntl.F_SETLK):
    fd = os.open(sys.argv[1], os.O_RDWR)
    return fd, fcntl.fcntl(fd, command, kind.to_bytes(2, "little") + bytes(30))
def other():
    assert ctypes.CDLL(None).unshare(0x400) == 0  # CLONE_FILES
    fd, _ = lock(fcntl.F_WRLCK if sys.argv[2] == "ex" else fcntl.F_RDLCK)
    taken.set()
    over.wait()
    os.close(fd)
thread = threading.Thread(target=other)
thread.start()
taken.wait()
try:
    lock(fcntl.F_RDLCK)
except OSError as e:
    print(errno.errorcode[e.errno])
over.set()
thread.join()
print(lock(fcntl.F_WRLCK, fcntl.F_OFD_GETLK)[1][0] == fcntl.F_UNLCK)
"""


@pytest.mark.parametrize("mode, verdict, error", [("sh", fk.REFUSED, "ENOLCK"), ("ex", fk.WOULD_BLOCK, "EAGAIN")])
def test_a_thread_with_descriptors_of_its_own_is_another_owner(world, leases, script, closer, mode, verdict, error):
    """Its lock is not taken for the caller's, though it has the same pid: nothing is left of a call that was refused."""
    leases.show(world.lock, fk.RECORD)
    world.shim = f"{SHIM}:{closer}"
    process = subprocess.Popen(["/usr/bin/python3", "-c", UNSHARED, world.lock, mode], env=world.environment(), stdout=subprocess.PIPE, text=True)
    # The other thread's was from the page; the first thread has to ask what it has.
    question = script.next(have=False)
    assert script.keeper.requests == 1
    question.send(verdict, reason="no")
    assert process.communicate(timeout=20)[0] == error + "\nTrue\n"


# A downgrade takes nothing before it is certain: there is no "meanwhile".
DOWNGRADES = [("the same, exclusive", "sh", PROCESS), ("more, exclusive", "sh", PROCESS)]


@pytest.mark.parametrize("shape, mode, owner", [
    (shape, mode, owner) for shape in SHAPES for mode in ("sh", "ex") for owner in (PROCESS, DESCRIPTION)
    if (shape, mode, owner) not in DOWNGRADES])
def test_records_closed_meanwhile(world, script, closing, one, shape, mode, owner):
    """Refused, would block, deadlock; then a wait that ends in a grant. Exactly what was there is there."""
    ofd = " ofd" if owner == DESCRIPTION else ""
    have(script, one, *(f"setlk 0 {lock}{ofd}" for lock in SHAPES[shape]))
    before = one.locks(owner)
    for wait, verdict, error in (("", fk.REFUSED, "ENOLCK"), ("", fk.WOULD_BLOCK, "EAGAIN"), (" w", fk.DEADLOCK, "EDEADLK")):
        closing(fk.RECORD)
        one.say(f"setlk 0 {mode} 10 10{wait}{ofd}")
        question = script.next()
        if not question.request.have:  # what was there could not be told without asking
            assert one.locks(owner) == before
        question.send(verdict, reason="no")
        one.hears(error)
        assert one.locks(owner) == before
    closing(fk.RECORD)
    one.say(f"setlk 0 {mode} 10 10 w{ofd}")
    question = script.next()
    question.send(fk.WAITING)
    wait_until(lambda: one.locks(owner) == before, "the waiting program has what it had")
    rename(world)
    question.send(fk.NOT_PROTECTED)
    one.hears()
    os.rename(world.lock.parent / "renamed", world.lock)
    had = one.locks(owner)
    assert sum(min(to, 20) - max(start, 10) for m, start, to in had if m == (mode == "ex") and start < 20 and to > 10) == 10
    # Beside the range nothing has changed.
    assert outside(had) == outside(before)


def outside(locks):
    """The bytes that are locked, up to a hundred, but those in question."""
    return {byte: mode for mode, start, to in locks for byte in range(start, min(to, 100)) if not 10 <= byte < 20}
