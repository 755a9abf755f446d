"""
`dflock doctor PROGRAM`: will the preload reach it? Compared with what the library really sees, and with the dynamic linker. What no file
shows, `--require=taken` tells.
"""
import os
import random
import shutil
import struct
import subprocess

import pytest
from harness import text_of, write_text
from harness.host import CLI, SHIM

from lines import Doctor

needs_root = pytest.mark.root("needs a program of another user, and so root")
NET = "start it with `dflock run --net=on`"
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
START = INLINE + "void _start(void) { lock(); for (;;); }\n"


def about(host, program):
    return Doctor(host, program).found[-1]


def expect(host, program, level, *parts):
    """The level, and texts that stand in what is said."""
    found = about(host, program)
    assert found[0] == level and all(part in found[1] for part in parts), found
    return found[1]


def is_seen(*command, user=None, folder=None):
    """Did the library see the lock? It says that there is no configuration. And was there one?"""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    log = os.path.join(folder, "strace.log")
    with open(os.path.join(folder, "locked"), "w+") as locked:
        seen = subprocess.run(command, env={**env, "LD_PRELOAD": SHIM}, stdin=locked, capture_output=True, text=True, timeout=60, user=user,
                              group=user, extra_groups=None if user is None else [])
        if user is None:
            subprocess.run(["strace", "-f", "-o", log, "-e", "trace=flock,fcntl", *command], env=env, stdin=locked, capture_output=True,
                           timeout=60, check=False)
            assert any(call in text_of(log) for call in ("flock(", "F_SETLK", "F_OFD_SETLK")), command
    return "no configuration" in seen.stderr


def test_dynamically_linked(unable, built, programs):
    path = shutil.which("flock")
    line = about(unable, "flock")[1]
    assert line.startswith(f"{path} is dynamically linked (/lib")
    assert line.endswith("): the preload reaches it; system calls without libc, and what it starts, do not show in its file: "
                         "`dflock run --report` and `--require=taken` tell")
    for name, text in ("libc", BY_LIBC), ("syscall", BY_SYSCALL):
        path = built(name, text=text)
        said = expect(unable, path, "ok", "the preload reaches it")
        assert ("and sees locks by syscall(), which it imports; " in said) == (name == "syscall")
        assert is_seen(path, folder=programs)
    path = built("musl", text=BY_LIBC, compiler="musl-gcc")
    expect(unable, path, "ok", "is dynamically linked (/lib/ld-musl-")
    assert is_seen(path, folder=programs)


@pytest.mark.parametrize("options, compiler", [(["-static"], "cc"), (["-static-pie", "-fPIE"], "cc"), (["-static"], "musl-gcc")],
                         ids=["static", "PIE", "musl"])
def test_statically_linked(unable, built, programs, options, compiler):
    path = built("static", *options, text=BY_LIBC, compiler=compiler)
    assert about(unable, path) == (
        "problem", f"{path} is statically linked, so nothing can be preloaded into it: its locks are not protected; {NET}, use a dynamically "
                   "linked build, or take the lock with flock(1) around it")
    assert not is_seen(path, folder=programs)
    done = unable.cli("run", path, check=False, stdin=subprocess.DEVNULL)  # it warns, and goes on
    assert done.returncode == 0 and done.stderr.startswith(f"dflock: warning: {path} is statically linked, so ") and done.stderr.count("\n") == 1


def test_no_program(unable, built, programs):
    nothing = "no such program (PATH was searched if there is no / in the name)"
    for name in "no-such-program", programs + "/none":
        assert about(unable, name) == ("problem", f"{name}: {nothing}")
    path = built("seven")
    os.chmod(path, 0o644)
    assert about(unable, path) == ("problem", f"{path}: Permission denied; is it a file, and executable (chmod +x)?")
    damaged = os.path.join(programs, "damaged")
    with open(damaged, "wb") as f:
        f.write(b"\x7fELF" + b"\xff" * 200)
    os.chmod(damaged, 0o755)
    for name in "", programs, damaged:
        expect(unable, name, "problem")


def script(folder, first, name="script"):
    path = os.path.join(folder, name)
    write_text(path, first + "\nexit 0\n")
    os.chmod(path, 0o755)
    return path


def test_a_script_is_its_interpreter(unable, programs, built):
    static = built("static", "-static")
    for first, level, what in [("#! /bin/sh -e", "ok", "/bin/sh is dynamically linked"), ("exit 0", "ok", "/bin/sh is dynamically linked"),
                               ("#!" + static, "problem", f"{static} is statically linked"),
                               ("#!" + script(programs, "#!" + static, "inner"), "problem", f"{static} is statically linked"),
                               ("#!/none/python", "problem", "/none/python cannot be examined: No such file or directory"),
                               ("#!/usr/bin/env no-such-program", "problem", ""),
                               ("#!" + os.path.join(programs, "script"), "problem", "")]:  # a circle
        path = script(programs, first)
        assert what in expect(unable, path, level, f"{path} runs by its interpreter: " if what else "")


def as_nobody(host, path):
    """As another user: what the kernel does with a setuid or capable program depends on the user that runs it."""
    before = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    return Doctor(host, path, before=before, env={"DFLOCK_RUNTIME_DIR": ""}).found[-1]


@needs_root
@pytest.mark.parametrize("prepare, what", [(["chmod", "4755"], "is setuid"), (["chmod", "2755"], "is setgid"),
                                           (["setcap", "cap_net_raw=ep"], "is given file capabilities")], ids=["setuid", "setgid", "capabilities"])
def test_with_rights_of_its_own(unable, built, programs, prepare, what):
    path = built("rights", text=BY_LIBC)
    assert as_nobody(unable, path)[0] == "ok" and is_seen(path, folder=programs, user=65534)
    subprocess.run([*prepare, path], check=True)
    found = as_nobody(unable, path)
    assert found[0] == "problem" and what in found[1], found
    assert not is_seen(path, folder=programs, user=65534)


@needs_root
def test_setuid_where_that_does_not_count(unable, built):
    """On a file system of its own, which may be mounted nosuid or not."""
    path = built("seven")
    text = 'mount -t tmpfs -o "$3" tmpfs "$1" && cp "$2" "$1/x" && chown 65534 "$1/x" && chmod 4755 "$1/x" && "$4" doctor "$1/x"'
    for options, level, what in [("suid", "problem", "is setuid, so the dynamic linker ignores the preload: its locks are not protected; "
                                                     f"{NET} as root, or take the lock before it is started"),
                                 ("nosuid", "ok", "the preload reaches it")]:
        done = subprocess.run(["unshare", "--mount", "sh", "-c", text, "-", unable.files, path, options, CLI], env=unable.plain_env(),
                              capture_output=True, text=True, timeout=60)
        found = Doctor(unable, done=done).found[-1]
        assert found[0] == level and what in found[1], done


def test_made_with_go(unable, built):
    """A note in the file marks them."""
    note = '.pushsection .note.go.buildid, "a", @note\\n.long 4, 4, 4\\n.ascii "Go\\\\0\\\\0", "none"\\n.popsection'
    path = built("go", text="__asm__(\"%s\");\nint main(void) { return 7; }\n" % note.replace('"', '\\"'))
    expect(unable, path, "warning", "is made with Go, whose programs make system calls without libc: the locks that it takes itself are not "
                                    f"protected; {NET}, or take the lock with flock(1) around it")


def test_of_another_architecture(unable, built):
    """The header alone tells it."""
    path = built("seven")
    with open(path, "r+b") as f:
        f.seek(18)
        f.write(b"\x28\x00")  # Arm
    expect(unable, path, "problem", "is of another architecture (64 bit, machine 40) than libdflock.so (64 bit, machine",
           f"its locks are not protected; {NET}, or build libdflock.so for it")


def test_what_no_file_shows(make_host, unable, built, programs):
    """A system call of its own, in the program or in its library."""
    library, locker = built("libinline.so", "-shared", "-fPIC", text=INLINE + "long take(void) { return lock(); }\n"), make_host("b")
    for path in (built("inline", text=INLINE + MAIN),
                 built("user", library, f"-Wl,-rpath,{programs}", text="long take(void);\nint main(void) { return (int)take(); }\n")):
        expect(unable, path, "ok", "`--require=taken` tell")
        assert not is_seen(path, folder=programs)
        with open(locker.path("f"), "w") as file:
            done = locker.cli("run", "--require=taken", path, check=False, stdin=file)
        assert done.returncode == 122 and "took no lock on a protected file" in done.stderr, done


def test_an_older_libc(unable, old, programs):
    """The dynamic linker says that it has not what the preload needs."""
    expect(unable, old, "problem", f"{old}: the dynamic linker does not load the preload into it: ", f"{programs}/libc.so.6")


def test_unusual_links(unable, built, programs):
    linker = os.path.join(programs, "ld.so")
    shutil.copy(about(unable, "flock")[1].split("(")[1].split(")")[0], linker)
    os.chmod(linker, 0o755)
    expect(unable, built("own", f"-Wl,--dynamic-linker={linker}", text=BY_LIBC), "warning",
           f"has a dynamic linker of its own ({linker}): it cannot be told")
    expect(unable, built("alone", "-nostdlib", "-pie", "-fPIE", "-Wl,--no-dynamic-linker", text=START), "problem")
    expect(unable, built("linked", "-nostdlib", "-pie", "-fPIE", text=START), "warning", "is not linked with libc")
    library = built("libgone.so", "-shared", "-fPIC", "-Wl,-soname,libgone.so", text="int gone(void) { return 0; }\n")
    path = built("lost", library, f"-Wl,-rpath,{programs}", text="int gone(void);\nint main(void) { return gone(); }\n")
    os.unlink(library)
    expect(unable, path, "warning", "will not start: its library", "libgone.so cannot be loaded")


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
def test_programs_of_the_distribution(unable, programs, program, arguments):
    path = shutil.which(program)
    if not path:
        pytest.skip(f"there is no {program}")
    words = [word.format(file=os.path.join(programs, "file")) for word in arguments]
    found, seen = about(unable, program), is_seen(path, *words, folder=programs)
    assert (found[0] == "ok") == seen, found


def test_programs_that_were_made_to_be_looked_at_for_long(unable, programs):
    """An interpreter that is a pipe, which nobody writes; as many notes as a head can name, each as long as the file."""
    pipe, script, notes = (os.path.join(programs, name) for name in ("pipe", "script", "notes"))
    os.mkfifo(pipe, 0o755)
    write_text(script, f"#!{pipe}\n")
    os.chmod(script, 0o755)
    expect(unable, script, "problem", f"{pipe} cannot be examined: Permission denied")
    done = unable.cli("run", script, check=False)
    assert done.returncode == 126 and f"cannot run {script}: Permission denied" in done.stderr, done
    with open("/proc/self/exe", "rb") as own, open(notes, "wb") as f:
        head = bytearray(own.read(64))
        head[32:40], head[54:56], head[56:58] = struct.pack("<Q", 64), struct.pack("<H", 56), struct.pack("<H", 0xffff)
        size = 1 << 30
        f.write(head + struct.pack("<IIQQQQQQ", 4, 4, 4 << 20, 0, 0, size, size, 4) * 0xffff)
        f.truncate(size)
    os.chmod(notes, 0o755)
    expect(unable, notes, "problem", "is statically linked")


def test_damaged_programs(unable, built):
    """It says something, and ends."""
    path = built("damaged", text=INLINE + MAIN)
    with open(path, "rb") as f:
        whole = f.read()
    for seed in range(20):
        rng, data = random.Random(seed), bytearray(whole)
        for _ in range(rng.randrange(1, 8)):
            # Headers, and anything else.
            at = rng.choice([rng.randrange(16, 64), rng.randrange(64, 64 + 13 * 56), rng.randrange(len(data))])
            data[at] = rng.choice([0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)])
        if rng.randrange(4) == 0:
            del data[rng.randrange(64, len(data)):]
        with open(path, "wb") as f:
            f.write(data)
        assert path in about(unable, path)[1], seed
