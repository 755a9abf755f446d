"""
`dflock run --require`, `dflock check --require`, and DFLOCK_REQUIRE for programs that are preloaded without `dflock run`: a job that would
not be protected does not start.
"""
import os
import signal
import subprocess
import sys

import pytest
from harness import BUILD, text_of, wait_until
from harness.host import CLI

from lines import changed

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../interpose"))
import fake_keeper as fk  # noqa: E402

FINE = ("ran\n", 0, "")
RULES = '{ path = "%s/f"; name = "t"; }'


def by_run(host, what, *words, **more):
    """What the job says, the exit status, and what dflock says."""
    done = host.cli("run", "--require" + ("" if what == "1" else "=" + what), *(words or ["echo", "ran"]), check=False, **more)
    return done.stdout, done.returncode, done.stderr


def by_variable(host, what, *words, env={}, **more):
    done = subprocess.run(words or ["echo", "ran"], env={**host.env(), "DFLOCK_REQUIRE": what, **env}, capture_output=True, text=True,
                          timeout=60, **more)
    return done.stdout, done.returncode, done.stderr


both = pytest.mark.parametrize("required", [by_run, by_variable])


@pytest.fixture
def host(make_host):
    return make_host("a", rules=RULES, lease="ttl_ms = 5000;")


def check_refused(said, *texts):
    out, status, err = said
    assert (out, status) == ("", 123) and err.count("\n") == 1, said
    assert err.startswith("dflock: not started: ") and all(text in err for text in texts), said


@both
def test_what_is_required(host, folder, required):
    """The file that a path leads to counts. A keeper that is not there is started."""
    os.symlink(host.files, os.path.join(folder, "elsewhere"))
    typo = host.path("typo")
    why = "no rule protects" if required == by_variable else " is not protected"
    for there_is_one in (False, True):
        assert required(host, "1") == required(host, host.path("f")) == required(host, os.path.join(folder, "elsewhere/f")) == FINE
        check_refused(required(host, typo), typo, why)
        check_refused(required(host, os.path.join(folder, "elsewhere/typo")), typo, why)
        if not there_is_one:
            open(host.path("f"), "w").close()
    wait_until(host.kill_keeper, "the keeper has ended")
    assert required(host, "1") == FINE and host.keeper_pids()


def test_children_that_are_ignored(host):
    """A parent may have left SIGCHLD ignored, as some servers do."""
    assert by_run(host, "1", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)) == FINE


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&- 2>&-", "<&- >&-"])
def test_without_standard_descriptors(host, old, closed):
    """A keeper that is not there is started, and the dynamic linker is heard, though the pipe to it has the number of one of these."""
    def run(*job):
        return subprocess.run(["sh", "-c", '"$@" ' + closed, "sh", CLI, "run", "--require", *job], env=host.plain_env(), timeout=60, check=False,
                              capture_output=True).returncode

    wait_until(host.kill_keeper, "the keeper has ended")
    assert run("sh", "-c", "exit 7") == 7 and host.keeper_pids()
    assert run(old) == 123


def test_what_the_variable_may_be(host, folder, redis):
    assert by_variable(host, "./f", cwd=host.files) == FINE
    check_refused(by_variable(host, "./typo", cwd=host.files), host.path("typo"))
    check_refused(by_variable(host, "/no/such/folder/f"), "cannot be found: /no/such/folder/f")
    check_refused(by_variable(host, "yes"), "must be 1, or a path with a slash: yes")
    assert not os.path.exists("/etc/dflock.conf"), "this test needs a machine without a configuration"
    check_refused(by_variable(host, "1", env={"DFLOCK_CONFIG": "", "HOME": folder}), "there is no configuration")
    redis.stop()
    assert by_variable(host, "0") == by_variable(host, "") == FINE


@both
def test_a_configuration_that_is_invalid(host, required):
    changed(host, "host =", "colour = 1; host =")
    if required == by_variable:
        wait_until(host.kill_keeper, "the keeper has ended")
        os.unlink(os.path.join(host.runtime, "config.kept"))
    check_refused(required(host, "1"), host.config, "unknown setting colour")


def test_a_configuration_that_is_not_in_force(host):
    """It is valid, but takes the protection away from a file."""
    changed(host, '/f"', '/g"')
    wait_until(lambda: by_variable(host, "1")[1] == 123, "it was judged")
    check_refused(by_variable(host, "1"), host.config + " is not in force")


@both
def test_a_store_that_is_not_well(host, redis, required):
    """It says so at once where the keeper knows, and in about a second where the keeper has just started. Nothing is asked of those that do not
    require it."""
    redis.command("CONFIG", "SET", "maxmemory", "1")
    check_refused(required(host, "1"), "takes no new locks", "out of memory")
    redis.command("CONFIG", "SET", "maxmemory", "0")
    wait_until(host.kill_keeper, "the keeper has ended")
    redis.command("FLUSHALL")
    check_refused(required(host, "1"), "is in grace")
    redis.stop()
    wait_until(lambda: not host.status()["store"]["up"], "the keeper has noticed")
    check_refused(required(host, "1"), "is not reachable", "dflock doctor")
    wait_until(host.kill_keeper, "the keeper has ended")
    done = host.cli("run", "echo", "ran")
    assert (done.stdout, done.stderr) == ("ran\n", "") and not host.keeper_pids()
    check_refused(required(host, "1"), "is not reachable", "dflock doctor")


def test_a_program_that_is_not_reached(host, built):
    """Of cron the library reaches its own lock, which is what is required, but not its jobs."""
    check_refused(by_run(host, "1", built("static", "-static")), "is statically linked")
    cron = built("cron")
    out, status, err = by_run(host, host.path("f"), cron)
    assert (out, status) == ("", 7) and err.count("\n") == 1 and err.startswith(f"dflock: warning: {cron}: the preload reaches it, but ")
    out, status, err = by_run(host, host.path("typo"), cron)
    assert (out, status) == ("", 123) and f"dflock: not started: {host.path('typo')} is not protected" in err


def test_what_the_job_starts_may_lock_past_dflock(make_host):
    """--require looks before the start, and becomes the job: nothing is left that could say more. What covers this: --require=taken at the
    job's end, the keeper while the lock is held, and the net."""
    host = make_host("a", rules=RULES, lease="ttl_ms = 5000; past_look_ms = 50;")
    path = host.path("f")

    def locks(*options):
        """The job says that it has the lock, and keeps it until it reads a line."""
        job = subprocess.Popen([CLI, "run", "--require=" + path, *options, "sh", "-c", f"env -i flock -n {path} sh -c 'echo held; read line'"],
                               env=host.plain_env(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
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


def test_the_job_has_no_child_that_it_does_not_know(host):
    """`dflock run` has started the keeper, and becomes the job."""
    wait_until(host.kill_keeper, "the keeper has ended")
    look = "import os\ntry: print(os.waitpid(-1, os.WNOHANG))\nexcept ChildProcessError: print('none')"
    assert by_run(host, "1", "--", "/usr/bin/python3", "-c", look) == ("none\n", 0, "")
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
        assert by_run(host, "1") == FINE
    assert len(connections) == 2


def test_only_the_first_process_asks(host, redis):
    """An outage must not end a job's commands half-way, and none of them is asked for."""
    job = subprocess.Popen(["sh", "-c", 'echo started; read line; env | grep REQUIRE; cat "$0"; /bin/echo ran', host.config],
                           env={**host.env(), "DFLOCK_REQUIRE": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert job.stdout.readline() == "started\n"
    redis.stop()
    wait_until(lambda: not host.status()["store"]["up"], "the keeper has noticed")
    assert job.communicate("go\n", timeout=30) == (text_of(host.config) + "ran\n", None) and job.returncode == 0


def test_the_program_notices_nothing(host):
    """No descriptor, no signal, no limit; and a lock in a constructor."""
    for words in [["sh", "-c", "ls /proc/$$/fd; ulimit -a; umask; pwd"], ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]]:
        plain = subprocess.run(words, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True).stdout
        assert plain and by_variable(host, "1", *words) == (plain, 0, "")
    places = os.path.join(BUILD, "tests", "interpose", "places")
    out, status, err = by_variable(host, "1", places, "constructor", host.path("f"))
    assert status == 0 and err == "" and "constructor: 0 -" in out and "open: 0 1 2\n" in out
