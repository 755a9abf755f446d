"""`dflock run --require` and `dflock check --require`: a job that would not be protected does not start."""
import os
import subprocess
import sys

import pytest
from harness import wait_until
from harness.host import CLI

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../interpose"))
import fake_keeper as fk  # noqa: E402


@pytest.fixture
def host(make_host):
    return make_host("a", rules='{ path = "%s/f"; name = "t"; }', lease="ttl_ms = 5000;")


def required(host, *words):
    """What the job says, the exit status, and what dflock says."""
    done = host.cli("run", *words, *([] if words[-1:] and not words[-1].startswith("-") else ["echo", "ran"]), check=False)
    return done.stdout, done.returncode, done.stderr


def test_all_is_there(host):
    file = "--require=" + host.path("f")
    assert required(host, "--require") == ("ran\n", 0, "")
    assert required(host, file) == ("ran\n", 0, "")


def check_refused(said, *texts):
    out, status, err = said
    assert (out, status) == ("", 123) and err.count("\n") == 1, said
    assert err.startswith("dflock: not started: ") and all(text in err for text in texts), said


def test_a_file_that_is_not_protected(host):
    check_refused(required(host, "--require=" + host.path("typo")), host.path("typo") + " is not protected")


def test_a_file_by_another_path(host, folder):
    """The file that the path leads to counts."""
    os.symlink(host.files, os.path.join(folder, "elsewhere"))
    assert required(host, "--require=" + os.path.join(folder, "elsewhere/f")) == ("ran\n", 0, "")


def test_an_invalid_configuration(host):
    with open(host.config, "a") as f:
        f.write("colour = 1;\n")
    check_refused(required(host, "--require"), host.config, "unknown setting colour")


def test_no_store(host, redis):
    """It says so at once where the keeper knows, and in about a second where the keeper has just started."""
    wait_until(host.kill_keeper, "the keeper has ended")
    redis.stop()
    check_refused(required(host, "--require"), "is not reachable", "dflock doctor")


def test_a_store_in_grace(host, redis):
    wait_until(host.kill_keeper, "the keeper has ended")
    redis.command("FLUSHALL")
    check_refused(required(host, "--require"), "is in grace")


def test_a_keeper_is_started(host):
    wait_until(host.kill_keeper, "the keeper has ended")
    assert required(host, "--require") == ("ran\n", 0, "")
    assert host.keeper_pids()


def test_a_program_that_is_not_reached(host, compiled):
    static = compiled("static", "-static")
    check_refused(required(host, "--require", static), "is statically linked")


def test_what_the_job_starts_may_lock_past_dflock(make_host):
    """--require looks before the start, and becomes the job: nothing is left that could say more. What covers this: --require=taken at the
    job's end, the keeper while the lock is held, and the net."""
    host = make_host("a", rules='{ path = "%s/f"; name = "t"; }', lease="ttl_ms = 5000; past_look_ms = 50;")
    path, env = host.path("f"), {k: v for k, v in host.env().items() if k != "LD_PRELOAD"}

    def locks(*options):
        """The job says that it has the lock, and keeps it until it reads a line."""
        job = subprocess.Popen([CLI, "run", "--require=" + path, *options, "sh", "-c", f"env -i flock -n {path} sh -c 'echo held; read line'"],
                               env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert job.stdout.readline() == "held\n"
        return job

    def ends(job):
        return job.communicate("\n", timeout=60)[1], job.returncode

    job = locks()
    wait_until(lambda: "PAST DFLOCK" in host.cli("status").stdout, "the keeper has found the lock")
    assert ends(job) == ("", 0)
    said, status = ends(locks("--require=taken"))
    assert status == 122 and said.startswith(f"dflock: sh took no lock on {path} that dflock has seen")
    job = locks("--require=taken", "--net=on")
    assert [lease["name"] for lease in host.status()["leases"]] == ["t"]
    assert ends(job) == ("", 0)


def test_a_program_that_is_reached_and_its_jobs_are_not(host, compiled):
    """cron's own lock is what is required."""
    cron = compiled("cron")
    out, status, err = required(host, "--require=" + host.path("f"), cron)
    assert (out, status) == ("", 7) and err.count("\n") == 1 and err.startswith(f"dflock: warning: {cron}: the preload reaches it, but ")
    out, status, err = required(host, "--require=" + host.path("typo"), cron)
    assert (out, status) == ("", 123) and f"dflock: not started: {host.path('typo')} is not protected" in err


def test_without_require_nothing_is_asked(host, redis):
    wait_until(host.kill_keeper, "the keeper has ended")
    redis.stop()
    assert required(host) == ("ran\n", 0, "")
    assert not host.keeper_pids()


def test_check(host):
    fine, typo = host.path("f"), host.path("typo")
    assert host.cli("check", "--require", fine, check=False).returncode == 0
    assert host.cli("check", fine, typo, check=False).returncode == 0
    done = host.cli("check", "--require", fine, typo, check=False)
    assert done.returncode == 1 and typo + ": not protected" in done.stdout
    assert host.cli("check", "--require", check=False).returncode == 2


def test_the_job_has_no_child_that_it_does_not_know(host):
    """`dflock run` has started the keeper, and becomes the job."""
    wait_until(host.kill_keeper, "the keeper has ended")
    look = "import os\ntry: print(os.waitpid(-1, os.WNOHANG))\nexcept ChildProcessError: print('none')"
    assert required(host, "--require", "--", "/usr/bin/python3", "-c", look) == ("none\n", 0, "")
    assert host.keeper_pids()


@pytest.mark.parametrize("read", [True, False])
def test_a_keeper_that_ends_just_now(host_of, redis, read):
    """Idle keepers end by themselves, and one may do so between the connection and the answer."""
    host, connections = host_of(redis, foreground=False), []

    def handler(connection):
        connections.append(connection)
        while (len(connections) > 1 or read) and connection.receive() and len(connections) > 1:
            connection.send(fk.OK)

    with fk.Keeper(host.runtime, host.config, [(fk.TREE, host.files)], handler):
        assert required(host, "--require") == ("ran\n", 0, "")
    assert len(connections) == 2
