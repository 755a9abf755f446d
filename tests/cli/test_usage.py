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


def dflock(*words, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DFLOCK_", "LD_PRELOAD"))}
    env.update(more.pop("env", {}))
    return subprocess.run([CLI, *words], env=env, capture_output=True, text=True, timeout=60, **more)


def test_help_lists_every_command():
    done = dflock("--help")
    assert done.returncode == 0 and done.stderr == ""
    listed = re.findall(r"^  ([a-z]+) +\S", done.stdout.partition("Commands:\n")[2], re.M)
    assert sorted(listed) == sorted((*COMMANDS, "help"))
    assert "`dflock COMMAND --help' tells more" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each(command):
    done = dflock(command, "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith(f"Usage: dflock {command} [OPTION...]")
    assert max(map(len, done.stdout.splitlines())) < 80
    text = " ".join(done.stdout.split())
    if command != "version":
        assert "The exit status is" in text
    assert dflock(command, "--usage").stdout.startswith(f"Usage: dflock {command} ")


def test_help_in_other_words():
    overview = dflock("--help").stdout
    for words in ("help", ), ("-h", ), ("help", "help"), ("help", "--help"):
        done = dflock(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, overview, ""), words
    done = dflock()
    assert (done.returncode, done.stdout) == (2, "") and done.stderr == overview
    for command in COMMANDS[1:]:
        assert dflock("help", command).stdout == dflock(command, "-h").stdout == dflock(command, "--help").stdout
    assert dflock("help", "nothing").returncode == 2


@pytest.mark.parametrize("word, meant", [("statsu", "status"), ("staus", "status"), ("hwo", "who"), ("stopp", "stop"), ("doctr", "doctor")])
def test_a_command_that_is_misspelt(word, meant):
    done = dflock(word)
    assert done.returncode == 2 and f"there is no command {word}; did you mean {meant}?" in done.stderr


def test_a_command_like_no_other():
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
    env = {**a.env(), "PATH": os.path.dirname(CLI) + ":" + os.environ["PATH"]}
    env.pop("LD_PRELOAD", None)
    job = Job(a, CLI, "lock", "nightly", "sh", "-c", "echo held; read line; true").held()
    for command in "who", "fence", "break":
        assert completed(command, "lock", env=env) == ["lock:nightly"], command
    assert completed("break", "--host", "a", env=env) == [a.status()["host"]]
    made = a.path("made")
    other = Job(a, "flock", a.path("$(touch${IFS}%s)" % made.replace("/", "${PWD:0:1}")), "sh", "-c", "echo held; read line; true")
    assert other.line() == "held" and len(a.status()["leases"]) == 2
    assert completed("who", "", env=env) == ["lock:nightly"] and not os.path.exists(made)
    assert other.end() == 0 and job.end() == 0


def linked(name):
    return subprocess.run(["ldd", os.path.join(BUILD, name)], capture_output=True, text=True).stdout


def test_each_program_maps_what_it_needs_only():
    """A job's start waits for it."""
    assert "libconfig" in linked("dflock-commands") and "libssl" not in linked("dflock-commands")
    assert not any(name in linked("dflock") for name in ("libconfig", "libjansson", "libssl"))


def test_a_missing_program_is_named(programs):
    alone = shutil.copy(CLI, programs)
    for words, program in ((["status"], "commands"), (["check"], "commands"), (["run", "--require", "true"], "commands"), (["doctor"], "doctor")):
        if program == "doctor":
            shutil.copy(os.path.join(BUILD, "dflock-commands"), programs)
        done = subprocess.run([alone, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == (125 if words[0] == "run" else 1) and done.stdout == ""
        assert re.fullmatch(rf"dflock: cannot run /\S+/libexec/dflock-{program}: No such file or directory; install it\n", done.stderr)


def test_doctor_is_started_by_dflock_only():
    done = subprocess.run([os.path.join(BUILD, "dflock-doctor"), "check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.endswith("dflock-doctor is no command: use `dflock check' or its like\n")


def test_version():
    expected = "dflock " + text_of(os.path.join(ROOT, "VERSION"))
    for words in (["version"], ["--version"], ["-V"], ["status", "--version"]):
        done = dflock(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


@pytest.mark.parametrize("words, status, said", [
    (["latch"], 2, "dflock: there is no command latch"),
    (["--colour", "status"], 2, "dflock: unrecognized option '--colour'"),
    (["status", "f"], 2, "dflock status: it takes no arguments, but got f"),
    (["status", "--colour"], 2, "dflock status: unrecognized option '--colour'"),
    (["check", "--config"], 2, "dflock check: option '--config' requires an argument"),
    (["doctor", "a", "b"], 2, "dflock doctor: it takes one PROGRAM, but got b as well"),
    (["init", "now"], 2, "dflock init: it takes no arguments, but got now"),
    (["reload", "x"], 2, "dflock reload: it takes no arguments, but got x"),
    (["stop", "x"], 2, "dflock stop: it takes no arguments, but got x"),
    (["version", "x"], 2, "dflock version: it takes no arguments, but got x"),
    (["fence", "f", "g"], 2, "dflock fence: it takes one LOCK, but got g as well"),
    (["who", ""], 2, "dflock who: the LOCK is empty"),
    (["break", ""], 2, "dflock break: the LOCK is empty"),
    (["run"], 125, "Usage: dflock run "),
    (["run", "--"], 125, "Usage: dflock run "),
    (["run", "--colour", "true"], 125, "dflock run: unrecognized option '--colour'"),
], ids=lambda v: " ".join(v) if isinstance(v, list) else None)
def test_what_makes_no_sense(words, status, said):
    """And where there is more about it."""
    done = dflock(*words)
    assert done.returncode == status and done.stdout == ""
    assert done.stderr.startswith(said)
    command = ["dflock", *words[:1]] if words[:1] and words[0] in COMMANDS else ["dflock"]
    assert f"Try `{' '.join(command)} --help'" in done.stderr


def test_output_that_cannot_be_written():
    with open("/dev/full", "w") as full:
        done = subprocess.run([CLI, "version"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr == "dflock: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("job, status", [
    (["true"], 0), (["sh", "-c", "exit 7"], 7), (["--", "sh", "-c", "exit 125"], 125), (["--", "echo", "--help"], 0),
])
def test_run_gives_the_status_of_the_job(job, status):
    done = dflock("run", *job)
    assert done.returncode == status and done.stderr == ""


def test_run_becomes_the_job():
    """No process stands in between that a signal or a waiting parent would meet."""
    done = dflock("run", "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == -signal.SIGTERM


@pytest.mark.parametrize("others, list_of", [
    (None, lambda shim: shim),
    ("", lambda shim: shim),
    ("libc.so.6", lambda shim: shim + ":libc.so.6"),
    (SHIM, lambda shim: shim),
    ("libc.so.6 " + SHIM, lambda shim: "libc.so.6 " + SHIM),
], ids=["none", "empty", "another", "twice", "twice, behind another"])
def test_run_puts_the_library_before_other_preloads(others, list_of):
    done = dflock("run", "sh", "-c", 'echo "$LD_PRELOAD"', env={} if others is None else {"LD_PRELOAD": others})
    assert (done.returncode, done.stdout) == (0, list_of(SHIM) + "\n"), done.stderr


def test_run_says_why_it_did_not(folder):
    missing = os.path.join(folder, "missing")
    plain = os.path.join(folder, "plain")
    write_text(plain, "no program\n")
    done = dflock("run", "--", missing, "x")
    assert (done.returncode, done.stderr) == (127, f"dflock: cannot run {missing}: No such file or directory\n")
    done = dflock("run", "--", "no-such-program")
    assert done.returncode == 127 and "cannot run no-such-program: No such file or directory" in done.stderr
    for path in (plain, folder):
        done = dflock("run", "--", path)
        assert (done.returncode, done.stderr) == (126, f"dflock: cannot run {path}: Permission denied\n")


def copied(programs, name, files):
    """An installation of its own that has only these files."""
    where = os.path.join(programs, name)
    os.mkdir(where)
    for file in files:
        shutil.copy(os.path.join(BUILD, file), where)
    return os.path.join(where, "dflock")


def test_run_without_the_library(programs):
    """It must not run a job unprotected. The library may be installed on this machine besides: then that one is taken."""
    if os.path.exists("/usr/local/lib/libdflock.so"):
        pytest.skip("dflock is installed here")
    own = copied(programs, "alone", ["dflock"])
    done = subprocess.run([own, "run", "echo", "ran"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (125, "")
    assert re.fullmatch(r"dflock: \S*/libdflock.so: No such file or directory; without it locks would not be protected: "
                        r"install it\n", done.stderr)


def test_run_from_a_path_that_cannot_be_preloaded(programs):
    own = copied(programs, "a b", ["dflock", "libdflock.so"])
    done = subprocess.run([own, "run", "echo", "ran"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (125, "")
    assert "a path with a space or a colon cannot be preloaded; install dflock elsewhere" in done.stderr


def test_run_starts_no_process_but_the_job(tmp_path):
    """To look at the job's libraries takes longer than the job's start. `--require` takes that time."""
    log = tmp_path / "log"
    subprocess.run(["strace", "-f", "-o", log, "-e", "trace=clone,clone3,fork,vfork", CLI, "run", "true"], check=True, timeout=60)
    assert "clone" not in log.read_text() and "fork" not in log.read_text()


def test_run_warns_and_goes_on(compiled):
    static = compiled("static", "-static")
    done = dflock("run", static)
    assert done.returncode == 7
    assert re.fullmatch(rf"dflock: warning: {static} is statically linked, so .* take the lock with flock\(1\) "
                        r"around it\n", done.stderr)
