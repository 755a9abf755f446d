"""`dflock doctor PROGRAM` against what the library really sees. What no file shows, `--require=taken` tells."""
import os
import random
import shutil
import subprocess

import pytest
from harness import write_text
from harness.host import CLI, SHIM

from lines import Doctor
from test_doctor_program import about, host, needs_root  # noqa: F401 (fixture)

# Each takes one lock on standard input.
BY_LIBC = "#include <sys/file.h>\nint main(void) { return flock(0, LOCK_SH) ? 9 : 0; }\n"
BY_SYSCALL = """#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) { return syscall(SYS_flock, 0, LOCK_SH) ? 9 : 0; }
"""
# As Rust's rustix: the number is a constant in front of the instruction.
INLINE = """static long lock(void)
{
	long rc;
#ifdef __x86_64__
	__asm__ volatile("syscall" : "=a"(rc) : "0"(73L), "D"(0L), "S"(1L) : "rcx", "r11", "memory");
#else
	register long x8 __asm__("x8") = 32; register long x0 __asm__("x0") = 0; register long x1 __asm__("x1") = 1;
	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
	rc = x0;
#endif
	return rc;
}
"""
MAIN = "int main(void) { return (int)lock(); }\n"

@pytest.fixture
def built(programs):
    """built(NAME, TEXT, *OPTIONS): a program, or with -shared a library; compiler: another cc."""
    def make(name, text, *options, compiler="cc"):
        source, path = os.path.join(programs, name + ".c"), os.path.join(programs, name)
        write_text(source, text)
        # Before the library, whose symbols are resolved then.
        subprocess.run([compiler, "-O2", "-w", "-o", path, source, *options], check=True)
        os.chmod(path, 0o755)
        return path

    os.chmod(programs, 0o755)
    return make


def environment(**more):
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LD_PRELOAD": SHIM, **more}


def is_seen(*command, user=None, folder=None):
    """Did the library see the lock? It says that there is no configuration. And was there one?"""
    log = os.path.join(folder, "strace.log")
    with open(os.path.join(folder, "locked"), "w+") as locked:
        seen = subprocess.run(command, env=environment(), stdin=locked, capture_output=True, text=True, timeout=60, user=user,
                              group=user, extra_groups=None if user is None else [])
        if user is None:
            subprocess.run(["strace", "-f", "-o", log, "-e", "trace=flock,fcntl", *command], env={"PATH": os.environ["PATH"]},
                           stdin=locked, capture_output=True, timeout=60, check=False)
            with open(log) as f:
                assert any("flock(" in line or "F_SETLK" in line or "F_OFD_SETLK" in line for line in f), command
    return "no configuration" in seen.stderr


def check(host, path, level, pattern, seen, folder, user=None):
    found = about(host, path)
    assert (found[0], pattern in found[1]) == (level, True), found
    assert is_seen(path, folder=folder, user=user) == seen


def test_by_libc(host, built, programs):
    check(host, built("libc", BY_LIBC), "ok", "the preload reaches it", True, programs)
    check(host, built("syscall", BY_SYSCALL), "ok", "the preload reaches it", True, programs)


def test_by_number(host, built):
    assert "the preload reaches it, and sees locks by syscall(), which it imports; " in about(host, built("syscall", BY_SYSCALL))[1]
    assert "syscall()" not in about(host, built("libc", BY_LIBC))[1]


def test_what_no_file_shows(make_host, host, built, programs):
    """A system call of its own, in the program or in its library."""
    library, locker = built("libinline.so", INLINE + "long take(void) { return lock(); }\n", "-shared", "-fPIC"), make_host("b")
    for path in (built("inline", INLINE + MAIN),
                 built("user", "long take(void);\nint main(void) { return (int)take(); }\n", library, f"-Wl,-rpath,{programs}")):
        check(host, path, "ok", "`--require=taken` tell", False, programs)
        with open(locker.path("f"), "w") as file:
            done = subprocess.run([CLI, "run", "--require=taken", path], env=locker.env(), stdin=file, capture_output=True, text=True,
                                  timeout=60)
        assert done.returncode == 122 and "took no lock on a protected file" in done.stderr, done


def test_static(host, built, programs):
    for options in (["-static"], ["-static-pie", "-fPIE"]):
        check(host, built("static", BY_LIBC, *options), "problem", "is statically linked", False, programs)


def test_musl(host, built, programs):
    check(host, built("musl", BY_LIBC, "-static", compiler="musl-gcc"), "problem", "is statically linked", False, programs)
    check(host, built("dynamic", BY_LIBC, compiler="musl-gcc"), "ok", "is dynamically linked (/lib/ld-musl-", True, programs)


def as_nobody(host, path):
    """The same as another user: what the kernel does with a setuid or capable program depends on the user that runs it."""
    done = subprocess.run([CLI, "doctor", path],
                          env={"PATH": os.environ["PATH"], "DFLOCK_CONFIG": host.config}, user=65534, group=65534,
                          extra_groups=[], capture_output=True, text=True, timeout=60)
    return Doctor(host, done=done).found[-1]


@needs_root
@pytest.mark.parametrize("prepare, what", [(lambda p: os.chmod(p, 0o4755), "is setuid"),
                                           (lambda p: os.chmod(p, 0o2755), "is setgid"),
                                           (lambda p: subprocess.run(["setcap", "cap_net_raw=ep", p], check=True),
                                            "is given file capabilities")], ids=["setuid", "setgid", "capabilities"])
def test_with_rights_of_its_own(host, built, programs, prepare, what):
    path = built("rights", BY_LIBC)
    assert as_nobody(host, path)[0] == "ok" and is_seen(path, folder=programs, user=65534)
    prepare(path)
    found = as_nobody(host, path)
    assert found[0] == "problem" and what in found[1], found
    assert not is_seen(path, folder=programs, user=65534)


def test_an_older_libc(host, built, programs):
    """No program of the distribution has one; the dynamic linker says that it has not what the preload needs."""
    built("libc.so.6", '#include <stddef.h>\nconst char versions[] = "GLIBC_2.2.5\\0GLIBC_2.17\\0GLIBC_2.27";\nint seven(void) { return 7; }\n',
          "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libc.so.6")
    path = built("old", "int seven(void);\nvoid _start(void) { seven(); for (;;); }\n", "-nostdlib", "-L" + programs, "-l:libc.so.6",
                 f"-Wl,-rpath,{programs}")
    level, line = about(host, path)
    assert level == "problem" and f"{path}: the dynamic linker does not load the preload into it: " in line, line
    assert f"{programs}/libc.so.6" in line


def test_another_dynamic_linker(host, built, programs):
    with open(about(host, "flock")[1].split("(")[1].split(")")[0], "rb") as f, open(os.path.join(programs, "ld.so"), "wb") as to:
        to.write(f.read())
    os.chmod(os.path.join(programs, "ld.so"), 0o755)
    path = built("own", BY_LIBC, f"-Wl,--dynamic-linker={programs}/ld.so")
    level, line = about(host, path)
    assert level == "warning" and f"has a dynamic linker of its own ({programs}/ld.so): it cannot be told" in line


def test_without_libc(host, built):
    path = built("alone", INLINE + "void _start(void) { lock(); for (;;); }\n", "-nostdlib", "-pie", "-fPIE", "-Wl,--no-dynamic-linker")
    assert about(host, path)[0] == "problem"
    path = built("linked", INLINE + "void _start(void) { lock(); for (;;); }\n", "-nostdlib", "-pie", "-fPIE")
    level, line = about(host, path)
    assert level == "warning" and "is not linked with libc" in line


def test_a_library_that_is_missing(host, built, programs):
    library = built("libgone.so", "int gone(void) { return 0; }\n", "-shared", "-fPIC", "-Wl,-soname,libgone.so")
    path = built("lost", "int gone(void);\nint main(void) { return gone(); }\n", library, f"-Wl,-rpath,{programs}")
    os.unlink(library)
    level, line = about(host, path)
    assert level == "warning" and "will not start: its library" in line and "libgone.so cannot be loaded" in line


# What the distribution has: programs that take a lock at once, and what to start them with.
LOCKERS = [
    ("flock", ["-s", "{file}", "true"]),
    ("perl", ["-e", "use Fcntl ':flock'; open(F, '>>', '{file}'); flock(F, LOCK_EX) or die"]),
    ("/usr/bin/python3", ["-c", "import fcntl; fcntl.flock(open('{file}', 'a'), 2)"]),
    ("/usr/bin/python3", ["-c", "import fcntl; fcntl.lockf(open('{file}', 'a'), 2)"]),
    ("php", ["-r", "flock(fopen('{file}', 'a'), LOCK_EX);"]),
    ("ruby", ["-e", "File.open('{file}', 'a') {{ |f| f.flock(File::LOCK_EX) }}"]),
    ("sqlite3", ["{file}.db", "create table a (b)"]),
]


@pytest.mark.parametrize("program, arguments", LOCKERS, ids=lambda v: v if isinstance(v, str) else "")
def test_programs_of_the_distribution(host, programs, program, arguments):
    path = shutil.which(program)
    if not path:
        pytest.skip(f"there is no {program}")
    words = [word.format(file=os.path.join(programs, "file")) for word in arguments]
    level, line = about(host, program)
    seen = is_seen(path, *words, folder=programs)
    assert (level == "ok") == seen, (level, line, seen)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_programs(host, built, seed):
    """It says something, and ends."""
    path = built("damaged", INLINE + MAIN)
    rng = random.Random(seed)
    with open(path, "r+b") as f:
        data = bytearray(f.read())
        for _ in range(rng.randrange(1, 8)):
            # Headers, and anything else.
            at = rng.choice([rng.randrange(16, 64), rng.randrange(64, 64 + 13 * 56), rng.randrange(len(data))])
            data[at] = rng.choice([0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)])
        if rng.randrange(4) == 0:
            del data[rng.randrange(64, len(data)):]
        f.seek(0)
        f.truncate()
        f.write(data)
    found = Doctor(host, path)
    assert found.done.returncode in (0, 1) and path in found.found[-1][1]
