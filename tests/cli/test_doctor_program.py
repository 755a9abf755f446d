"""`dflock doctor PROGRAM`: will the preload reach it? If the doctor says yes, the test runs the program to see whether that is
true."""
import os
import shutil
import subprocess

import pytest
from harness import write_text
from harness.host import CLI, SHIM

from lines import Doctor, written

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs a program of another user, and so root")


@pytest.fixture
def host(host_of):
    """Without a valid configuration nothing is started, and programs are looked at all the same."""
    a = host_of("unix:/none", foreground=False)
    written(a, "colour = 1;\n")
    return a


def about(host, program):
    found = Doctor(host, program).found
    return found[-1]


def is_reached(program, *words):
    """Does the dynamic linker load a preload into it?"""
    done = subprocess.run([program, *words], env={"PATH": os.environ["PATH"], "LD_PRELOAD": SHIM, "LD_DEBUG": "files"},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    return f"file={SHIM}" in done.stderr


def test_found_in_path(host):
    level, line = about(host, "flock")
    path = shutil.which("flock")
    assert level == "ok" and line.startswith(f"{path} is dynamically linked (/lib")
    assert line.endswith("): the preload reaches it; system calls without libc, and what it starts, do not show in its file: "
                         "`dflock run --report` and `--require=taken` tell")
    assert is_reached(path, "--version")


def test_not_found(host, folder):
    assert about(host, "no-such-program") == (
        "problem", "no-such-program: no such program (PATH was searched if there is no / in the name)")
    assert about(host, folder + "/none") == (
        "problem", f"{folder}/none: no such program (PATH was searched if there is no / in the name)")
    assert about(host, "")[0] == "problem"


def test_not_executable(host, compiled):
    path = compiled("seven")
    os.chmod(path, 0o644)
    assert about(host, path) == ("problem", f"{path}: Permission denied; is it a file, and executable (chmod +x)?")
    assert about(host, os.path.dirname(path))[0] == "problem"


def test_static(host, compiled):
    path = compiled("static", "-static")
    assert about(host, path) == (
        "problem", f"{path} is statically linked, so nothing can be preloaded into it: its locks are not protected; start it "
                   "with `dflock run --net=on`, use a dynamically linked build, or take the lock with flock(1) around it")
    assert not is_reached(path)


def test_static_pie(host, compiled):
    path = compiled("pie", "-static-pie", "-fPIE")
    assert about(host, path)[0] == "problem" and "is statically linked" in about(host, path)[1]
    assert not is_reached(path)


def test_dynamic(host, compiled):
    path = compiled("dynamic")
    assert about(host, path)[0] == "ok" and is_reached(path)


def script(folder, first, name="script"):
    path = os.path.join(folder, name)
    write_text(path, first + "\nexit 0\n")
    os.chmod(path, 0o755)
    return path


def test_a_script_is_its_interpreter(host, programs, compiled):
    path = script(programs, "#! /bin/sh -e")
    level, line = about(host, path)
    assert level == "ok" and line.startswith(f"{path} runs by its interpreter: /bin/sh is dynamically linked")
    static = compiled("static", "-static")
    path = script(programs, "#!" + static, "of-static")
    level, line = about(host, path)
    assert level == "problem" and line.startswith(f"{path} runs by its interpreter: {static} is statically linked")
    path = script(programs, "#!" + path, "of-script")
    assert about(host, path)[0] == "problem" and "is statically linked" in about(host, path)[1]


def test_a_script_without_its_interpreter(host, programs):
    path = script(programs, "#!/none/python")
    level, line = about(host, path)
    assert level == "problem"
    assert line == f"{path} runs by its interpreter: /none/python cannot be examined: No such file or directory"


def test_a_script_without_a_first_line(host, programs):
    path = script(programs, "exit 0")
    level, line = about(host, path)
    assert level == "ok" and f"{path} runs by its interpreter: /bin/sh is dynamically" in line


def test_scripts_in_a_circle(host, programs):
    path = script(programs, "#!" + os.path.join(programs, "script"))
    assert about(host, path)[0] == "problem"


@needs_root
def test_setuid(host, compiled):
    """On a file system of its own, which may be mounted nosuid or not."""
    path = compiled("seven")
    text = 'mount -t tmpfs -o "$3" tmpfs "$1" && cp "$2" "$1/x" && chown 65534 "$1/x" && chmod 4755 "$1/x" && "$4" doctor "$1/x"'
    for options, level, what in [("suid", "problem", "is setuid, so the dynamic linker ignores the preload: its locks are not "
                                                     "protected; start it with `dflock run --net=on` as root, or take the lock before it is started"),
                                 ("nosuid", "ok", "the preload reaches it")]:
        env = {k: v for k, v in host.env().items() if k != "LD_PRELOAD"}
        done = subprocess.run(["unshare", "--mount", "sh", "-c", text, "-", host.files, path, options, CLI], env=env,
                              capture_output=True, text=True, timeout=60)
        found = Doctor(host, done=done).found[-1]
        assert found[0] == level and what in found[1], done


def test_made_with_go(host, compiled):
    """A note in the file marks them."""
    note = '.pushsection .note.go.buildid, "a", @note\\n.long 4, 4, 4\\n.ascii "Go\\\\0\\\\0", "none"\\n.popsection'
    path = compiled("go", text="__asm__(\"%s\");\n" % note.replace('"', '\\"'))
    level, line = about(host, path)
    assert level == "warning"
    assert "is made with Go, whose programs make system calls without libc: the locks that it takes itself are not protected; " \
           "start it with `dflock run --net=on`, or take the lock with flock(1) around it" in line


def test_of_another_architecture(host, compiled):
    """The header alone tells it."""
    path = compiled("seven")
    with open(path, "r+b") as f:
        f.seek(18)
        f.write(b"\x28\x00")  # Arm
    level, line = about(host, path)
    assert level == "problem"
    assert "is of another architecture (64 bit, machine 40) than libdflock.so (64 bit, machine" in line
    assert "its locks are not protected; start it with `dflock run --net=on`, or build libdflock.so for it" in line


def test_a_damaged_file(host, programs):
    path = os.path.join(programs, "damaged")
    with open(path, "wb") as f:
        f.write(b"\x7fELF" + b"\xff" * 200)
    os.chmod(path, 0o755)
    assert about(host, path)[0] == "problem"
