"""Help, versions and command lines that make no sense; `dflock run`, which gives its job's exit status."""
import os
import re
import shutil
import signal
import subprocess

import pytest
from harness import BUILD, Job, text_of, write_text
from harness.host import CLI, ROOT, SHIM

COMMANDS = ("run", "lock", "status", "top", "metrics", "who", "fence", "break", "check", "doctor", "wrap", "reload", "stop", "init", "version")


def dflock(*words, program=CLI, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DFLOCK_", "LD_PRELOAD"))}
    env.update(more.pop("env", {}))
    return subprocess.run([program, *words], env=env, capture_output=True, text=True, timeout=60, **more)


def test_help():
    overview = dflock("--help")
    assert overview.returncode == 0 and overview.stderr == ""
    listed = re.findall(r"^  ([a-z]+) +\S", overview.stdout.partition("Commands:\n")[2], re.M)
    assert sorted(listed) == sorted((*COMMANDS, "help"))
    assert "`dflock COMMAND --help' tells more" in overview.stdout
    for words in ("help", ), ("-h", ), ("help", "help"), ("help", "--help"):
        done = dflock(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, overview.stdout, ""), words
    done = dflock()
    assert (done.returncode, done.stdout) == (2, "") and done.stderr == overview.stdout
    for command in COMMANDS:
        done = dflock(command, "--help")
        assert done.returncode == 0 and done.stderr == ""
        assert done.stdout.startswith(f"Usage: dflock {command} [OPTION...]")
        assert max(map(len, done.stdout.splitlines())) < 80
        assert command == "version" or "The exit status is" in " ".join(done.stdout.split())
        assert dflock(command, "--usage").stdout.startswith(f"Usage: dflock {command} ")
        assert command == "run" or dflock("help", command).stdout == dflock(command, "-h").stdout == done.stdout
    assert dflock("help", "nothing").returncode == 2


def test_no_such_command():
    for word, meant in {"statsu": "status", "staus": "status", "hwo": "who", "stopp": "stop", "doctr": "doctor"}.items():
        done = dflock(word)
        assert done.returncode == 2 and f"there is no command {word}; did you mean {meant}?" in done.stderr
    for word in "frobnicate", "x" * 100, "":
        done = dflock(word)
        assert done.returncode == 2 and f"there is no command {word}; `dflock help' lists them" in done.stderr


COMPLETE = r"""
_init_completion() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
_filedir() { :; }
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_dflock
printf '%s\n' "${COMPREPLY[@]}"
"""


def completed(*words, env=None):
    done = subprocess.run(["bash", "-c", COMPLETE, "-", os.path.join(ROOT, "packaging/bash-completion/dflock"), "dflock", *words],
                          env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_completion(make_host):
    assert completed("st") == ["status", "stop"] and completed("help", "f") == ["fence"]
    assert completed("status", "--e") == ["--expect-keeper"]
    assert completed("check", "--r") == ["--require"] and completed("doctor", "--r") == []
    a = make_host("a")
    env = a.plain_env(PATH=os.path.dirname(CLI) + ":" + os.environ["PATH"])
    job = Job(a, CLI, "lock", "nightly", "sh", "-c", "echo held; read line; true").held()
    for command in "who", "fence", "break":
        assert completed(command, "lock", env=env) == ["lock:nightly"], command
    assert completed("break", "--host", "a", env=env) == [a.status()["host"]]
    made = a.path("made")
    other = Job(a, "flock", a.path("$(touch${IFS}%s)" % made.replace("/", "${PWD:0:1}")), "sh", "-c", "echo held; read line; true").held()
    assert len(a.status()["leases"]) == 2
    assert completed("who", "", env=env) == ["lock:nightly"] and not os.path.exists(made)
    assert other.end() == 0 and job.end() == 0


def linked(name):
    return subprocess.run(["ldd", os.path.join(BUILD, name)], capture_output=True, text=True).stdout


def test_each_program_maps_what_it_needs_only():
    """A job's start waits for it."""
    assert "libconfig" in linked("dflock-commands") and "libssl" not in linked("dflock-commands")
    assert not any(name in linked("dflock") for name in ("libconfig", "libjansson", "libssl"))


def copied(programs, name, *files):
    """An installation of its own that has only these files."""
    where = os.path.join(programs, name)
    os.mkdir(where)
    for file in files:
        shutil.copy(os.path.join(BUILD, file), where)
    return os.path.join(where, "dflock")


def test_a_missing_program_is_named(programs):
    alone, beside = copied(programs, "alone", "dflock"), copied(programs, "beside", "dflock", "dflock-commands")
    for own, words, program in ((alone, ["status"], "commands"), (alone, ["check"], "commands"), (alone, ["run", "--require", "true"], "commands"),
                                (beside, ["doctor"], "doctor")):
        done = dflock(*words, program=own)
        assert done.returncode == (125 if words[0] == "run" else 1) and done.stdout == ""
        assert re.fullmatch(rf"dflock: cannot run /\S+/libexec/dflock-{program}: No such file or directory; install it\n", done.stderr)
    done = dflock("check", program=os.path.join(BUILD, "dflock-doctor"))
    assert done.returncode == 2 and done.stderr.endswith("dflock-doctor is no command: use `dflock check' or its like\n")


def test_version():
    expected = "dflock " + text_of(os.path.join(ROOT, "VERSION"))
    for words in (["version"], ["--version"], ["-V"], ["status", "--version"]):
        done = dflock(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    with open("/dev/full", "w") as full:
        done = subprocess.run([CLI, "version"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr == "dflock: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("words, status, said", [
    ("latch", 2, "dflock: there is no command latch"),
    ("--colour status", 2, "dflock: unrecognized option '--colour'"),
    *((command + " x", 2, f"dflock {command}: it takes no arguments, but got x") for command in ("status", "init", "reload", "stop", "version")),
    ("status --colour", 2, "dflock status: unrecognized option '--colour'"),
    ("check --config", 2, "dflock check: option '--config' requires an argument"),
    ("doctor a b", 2, "dflock doctor: it takes one PROGRAM, but got b as well"),
    ("fence f g", 2, "dflock fence: it takes one LOCK, but got g as well"),
    ("who ", 2, "dflock who: the LOCK is empty"),
    ("break ", 2, "dflock break: the LOCK is empty"),
    ("run", 125, "Usage: dflock run "),
    ("run --", 125, "Usage: dflock run "),
    ("run --colour true", 125, "dflock run: unrecognized option '--colour'"),
], ids=lambda v: v if isinstance(v, str) and "dflock" not in v else None)
def test_what_makes_no_sense(words, status, said):
    """And where there is more about it."""
    words = words.split(" ")
    done = dflock(*words)
    assert done.returncode == status and done.stdout == ""
    assert done.stderr.startswith(said)
    assert f"Try `dflock{' ' + words[0] if words[0] in COMMANDS else ''} --help'" in done.stderr


def test_run_gives_the_status_of_the_job():
    """It becomes the job: no process stands in between that a signal or a waiting parent would meet."""
    for job, status in ((["true"], 0), (["sh", "-c", "exit 7"], 7), (["--", "sh", "-c", "exit 125"], 125), (["--", "echo", "--help"], 0),
                        (["--", "sh", "-c", "kill -TERM $$"], -signal.SIGTERM)):
        done = dflock("run", *job)
        assert done.returncode == status and done.stderr == ""


def test_run_puts_the_library_before_other_preloads():
    for others, all_of_them in ((None, SHIM), ("", SHIM), ("libc.so.6", SHIM + ":libc.so.6"), (SHIM, SHIM),
                                ("libc.so.6 " + SHIM, "libc.so.6 " + SHIM)):
        done = dflock("run", "sh", "-c", 'echo "$LD_PRELOAD"', env={} if others is None else {"LD_PRELOAD": others})
        assert (done.returncode, done.stdout) == (0, all_of_them + "\n"), (others, done)


def test_run_says_why_it_did_not(folder, programs):
    """It must not run a job unprotected. The library may be installed on this machine besides: then that one is taken."""
    missing, plain = os.path.join(folder, "missing"), os.path.join(folder, "plain")
    write_text(plain, "no program\n")
    for path, status, why in ((missing, 127, "No such file or directory"), ("no-such-program", 127, "No such file or directory"),
                              (plain, 126, "Permission denied"), (folder, 126, "Permission denied")):
        done = dflock("run", "--", path, "x")
        assert (done.returncode, done.stderr) == (status, f"dflock: cannot run {path}: {why}\n")
    for own, why in (
            (copied(programs, "alone", "dflock"), r"\S*/libdflock.so: No such file or directory; without it locks would not be protected: install it"),
            (copied(programs, "a b", "dflock", "libdflock.so"), ".* a path with a space or a colon cannot be preloaded; install dflock elsewhere.*")):
        if own.endswith("alone/dflock") and os.path.exists("/usr/local/lib/libdflock.so"):
            continue
        done = dflock("run", "echo", "ran", program=own)
        assert (done.returncode, done.stdout) == (125, "") and re.fullmatch(f"dflock: {why}\n", done.stderr), done


def test_run_starts_no_process_but_the_job(tmp_path):
    """To look at the job's libraries takes longer than the job's start. `--require` takes that time."""
    log = tmp_path / "log"
    subprocess.run(["strace", "-f", "-o", log, "-e", "trace=clone,clone3,fork,vfork", CLI, "run", "true"], check=True, timeout=60)
    assert "clone" not in log.read_text() and "fork" not in log.read_text()
