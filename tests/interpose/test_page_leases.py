"""Leases in the page: what they cover costs no question and is as without the shim; what they do not is asked for."""
import os
import subprocess

import pytest

import fake_keeper as fk
import record_keeper as rk
from harness import wait_until
from record_keeper import DESCRIPTION, PROCESS
from record_world import FLOCK_CALL, have, lockers, one, script  # noqa: F401 (fixtures)
from world import ROOT, SHIM

SH, EX = fk.SHARED, fk.EXCLUSIVE


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
        return [(locker.do(call), locker.locks(owner), sum("FLOCK" in line for line in locks_of(locker))) for call in calls]

    plain = play(lockers(preload=False, path=world.folder / "plain"))
    assert play(lockers()) == plain and script.keeper.requests == 0
    assert {word for word, _, _ in plain} <= {"ok", "un"}


def locks_of(locker):
    for fd in os.listdir(f"/proc/{locker.pid}/fdinfo"):
        try:
            with open(f"/proc/{locker.pid}/fdinfo/{fd}") as info:
                yield from (line for line in info if line.startswith("lock:"))
        except FileNotFoundError:
            continue


CASES = [
    # A call asks if the kernel refuses it: that might be the keeper's own test.
    ("flock_calls", 3), ("fcntl_calls", None), ("record_calls", None),
    ("places threads", None), ("places threads-fork", None),
    *[(f"places {where}", 0) for where in ("constructor", "handler", "fork", "vfork", "cancel")],
    ("waits restart x", 0), ("waits interrupt sn", 0), ("waits held x", 0),
]


@pytest.mark.parametrize("case, asked", CASES, ids=[case for case, _ in CASES])
def test_programs_are_as_plain(world, case, asked):
    program, *words = case.split()
    more = [world.folder / "data"] if program == "flock_calls" else []
    world.lock.touch()
    plain = world.run(program, *words, world.lock, *more, env=world.environment(preload=False))
    world.lock.unlink(missing_ok=True)
    with world.keeper(rk.grant_all) as keeper:
        world.lock.touch()
        leases = fk.Leases(world.runtime)
        for space in (fk.FLOCK, fk.RECORD):
            leases.show(world.lock, space)
        done = world.run(program, *words, world.lock, *more)
    assert (done.stdout, done.stderr, done.returncode) == (plain.stdout, "", 0)
    assert asked is None or keeper.requests == asked


# --- what is not covered is asked for ---

def other_clock(leases, world):
    leases.clock(namespace=os.stat("/"))


NOT_COVERED = {
    "nothing is shown": lambda leases, world: None,
    "other space": lambda leases, world: leases.show(world.lock, fk.RECORD),
    "shared only": lambda leases, world: leases.show(world.lock, mode=SH),
    "other path": lambda leases, world: leases.show(world.lock, called=str(world.lock) + "x"),
    "other inode": lambda leases, world: leases.show(world.lock, ino=os.stat(world.lock.parent).st_ino),
    "being written": lambda leases, world: leases.show(world.lock, seq=3),
    "closed": lambda leases, world: leases.close(leases.show(world.lock)),
    "run out": lambda leases, world: (leases.show(world.lock), leases.clock(fk.boottime())),
    "another clock": lambda leases, world: (leases.show(world.lock), other_clock(leases, world)),
    "clock being written": lambda leases, world: (leases.show(world.lock), odd(leases)),
}


def odd(leases):
    leases.page[fk.LEASES_AT] |= 1


@pytest.mark.parametrize("how", NOT_COVERED)
def test_what_is_not_covered_is_asked_for(script, leases, world, one, how):
    NOT_COVERED[how](leases, world)
    one.say("flock 0 ex")
    question = script.next()
    question.grant()
    assert one.heard()[0] == "ok"


@pytest.mark.parametrize("start, to, asks", [(10, 20, False), (9, 20, True), (10, 21, True), (12, 13, False)])
def test_ranges(script, leases, world, one, start, to, asks):
    leases.show(world.lock, fk.RECORD, start=10, to=20)
    one.say(f"setlk 0 ex {start} {to - start}")
    if asks:
        script.next().grant()
    assert one.heard()[0] == "ok" and script.keeper.requests == asks and one.locks() == [(EX, start, to)]


def test_a_page_of_another_version(world, lockers):
    world.lock.touch()
    script = rk.Script()
    with world.keeper(script) as keeper:
        leases = fk.Leases(world.runtime)
        leases.show(world.lock)
        leases.page[8] += 1
        one = lockers()
        one.say("flock 0 ex")
        script.next().grant()
        assert one.heard()[0] == "ok" and keeper.requests == 1


@pytest.mark.parametrize("offset", [-1000, 1000])
def test_a_program_with_another_clock(world, covered, script, offset):
    """In a time namespace of its own; its CLOCK_BOOTTIME may be behind for ever."""
    process = subprocess.Popen(["unshare", "--time", "--boottime", str(offset), "--fork",
                                *world.command("waits", "restart", "x", world.lock)],
                               env=world.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    question = script.next()
    question.grant()
    assert process.communicate(timeout=20)[0].startswith("flock: 0 -\n")


def test_a_renamed_file_is_another(world, script, covered, leases, one):
    assert one.do("flock 0 ex") == one.do("flock 0 un") == "ok" and script.keeper.requests == 0
    os.rename(world.lock, f"{world.lock}2")
    one.say("flock 0 ex")
    question = script.next()
    assert question.request.fds == [f"{world.lock}2"] and not question.request.have
    question.grant()
    assert one.heard()[0] == "ok"


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


ENDS = [(fk.GRANTED, "ok"), (fk.REFUSED, "ENOLCK"), (fk.WOULD_BLOCK, "EAGAIN"), (fk.NOT_PROTECTED, "ok")]


def rename(world):
    """Out of what the page calls protected: then the keeper may say that it is not."""
    os.rename(world.lock, world.lock.parent / "renamed")


@pytest.mark.parametrize("verdict, error", ENDS)
@pytest.mark.parametrize("before", ["un", "sh"])
@pytest.mark.parametrize("mode", ["sh", "ex"])
def test_flock_closed_meanwhile(world, script, closing, one, before, mode, verdict, error):
    """As the kernel does: a failed conversion has lost what was there."""
    if before != "un":
        one.say(f"flock 0 {before}")
        script.next().grant()
        assert one.heard()[0] == "ok"
    closing(fk.FLOCK)
    one.say(f"flock 0 {mode} nb")
    question = script.next()
    assert question.request.have and question.request.mode == (EX if mode == "ex" else SH)
    assert len(list(locks_of(one))) == 1
    if verdict == fk.NOT_PROTECTED:
        rename(world)
    question.send(verdict, until_ns=question.request.sent_ns, reason="no")
    assert one.heard()[0] == error
    assert len(list(locks_of(one))) == (error == "ok")


@pytest.mark.parametrize("answer", ["grant", "refuse"])
def test_flock_does_not_wait_for_a_local_holder_unknown_to_the_keeper(script, covered, one, lockers, answer):
    other = lockers(preload=False)
    assert other.do("flock 0 ex") == "ok"
    one.say("flock 0 ex")
    question = script.next()
    assert not question.request.have and not question.request.nonblock
    if answer == "refuse":
        question.send(fk.REFUSED, reason="no")
        assert one.heard()[0] == "ENOLCK" and not list(locks_of(one))
        return
    question.grant()
    one.waits_in(FLOCK_CALL)
    assert other.do("flock 0 un") == "ok"
    assert one.heard()[0] == "ok" and len(list(locks_of(one))) == 1


SHAPES = {
    "nothing": [], "the same, shared": ["sh 10 10"], "the same, exclusive": ["ex 10 10"], "more, shared": ["sh 0 100"],
    "more, exclusive": ["ex 5 30"], "a part": ["sh 12 3"], "both ends": ["ex 8 4", "sh 18 10"], "around": ["sh 0 10", "ex 20 5"],
    "many": ["sh 0 11", "ex 12 1", "sh 14 2", "ex 16 4", "sh 20 0"],
}


def test_a_thread_with_descriptors_of_its_own_is_another_owner(world, closer):
    """Its lock is not taken for the caller's, though it has the same pid: nothing is left of a call that was refused."""
    for words, result in (([], "-1 ENOLCK"), (["x"], "-1 EAGAIN")):
        world.lock.touch()
        script = rk.Script()
        with world.keeper(script) as keeper:
            leases = fk.Leases(world.runtime)
            leases.show(world.lock, fk.RECORD)
            world.shim = f"{SHIM}:{closer}"
            process = world.start("unshared", world.lock, *words)
            # The other thread's was from the page; the first thread has to ask what it has.
            question = script.next()
            assert not question.request.have and keeper.requests == 1
            question.send(fk.REFUSED if not words else fk.WOULD_BLOCK, reason="no")
            out, _ = process.communicate(timeout=20)
        assert out == f"unshare: 0 -\nother thread: 0 -\nfirst thread: {result}\nleft: nothing\n"


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
        assert one.heard()[0] == error
        assert one.locks(owner) == before
    closing(fk.RECORD)
    one.say(f"setlk 0 {mode} 10 10 w{ofd}")
    question = script.next()
    question.send(fk.WAITING)
    wait_until(lambda: one.locks(owner) == before, "the waiting program has what it had")
    rename(world)
    question.send(fk.NOT_PROTECTED)
    assert one.heard()[0] == "ok"
    os.rename(world.lock.parent / "renamed", world.lock)
    had = one.locks(owner)
    assert sum(min(to, 20) - max(start, 10) for m, start, to in had if m == (mode == "ex") and start < 20 and to > 10) == 10
    # Beside the range nothing has changed.
    assert outside(had) == outside(before)


def outside(locks):
    """The bytes that are locked, up to a hundred, but those in question."""
    return {byte: mode for mode, start, to in locks for byte in range(start, min(to, 100)) if not 10 <= byte < 20}
