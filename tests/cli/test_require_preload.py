"""DFLOCK_REQUIRE: the same as `dflock run --require`, for programs that are preloaded without it."""
import os
import signal
import subprocess

import pytest
from harness import BUILD, text_of, wait_until


@pytest.fixture
def host(make_host):
    return make_host("a", rules='{ path = "%s/f"; name = "t"; }', lease="ttl_ms = 5000;")


def required(host, value, *words, **more):
    env = {**host.env(), "DFLOCK_REQUIRE": value, **more.pop("env", {})}
    done = subprocess.run(words or ["echo", "ran"], env=env, capture_output=True, text=True, timeout=60, **more)
    return done.stdout, done.returncode, done.stderr


def check_refused(said, *texts):
    out, status, err = said
    assert (out, status) == ("", 123) and err.count("\n") == 1, said
    assert err.startswith("dflock: not started: ") and all(text in err for text in texts), said


FINE = ("ran\n", 0, "")


def test_all_is_there(host):
    assert required(host, "1") == required(host, host.path("f")) == FINE
    assert required(host, "./f", cwd=host.files) == FINE
    open(host.path("f"), "w").close()
    assert required(host, host.path("f")) == FINE


def test_a_file_that_is_not_protected(host, folder):
    check_refused(required(host, host.path("typo")), "no rule protects", host.path("typo"))
    check_refused(required(host, "./typo", cwd=host.files), host.path("typo"))
    check_refused(required(host, "/no/such/folder/f"), "cannot be found: /no/such/folder/f")
    os.symlink(host.files, os.path.join(folder, "elsewhere"))
    assert required(host, os.path.join(folder, "elsewhere/f")) == FINE
    check_refused(required(host, os.path.join(folder, "elsewhere/typo")), host.path("typo"))


def test_what_it_may_be(host, redis):
    check_refused(required(host, "yes"), "must be 1, or a path with a slash: yes")
    redis.stop()
    assert required(host, "0") == required(host, "") == FINE


def test_without_a_configuration(host, folder):
    if os.path.exists("/etc/dflock.conf"):
        pytest.skip("this machine has a configuration")
    check_refused(required(host, "1", env={"DFLOCK_CONFIG": "", "HOME": folder}), "there is no configuration")


def test_an_invalid_configuration(host):
    wait_until(host.kill_keeper, "the keeper has ended")
    os.unlink(os.path.join(host.runtime, "config.kept"))
    with open(host.config, "a") as f:
        f.write("colour = 1;\n")
    check_refused(required(host, "1"), "unknown setting colour")


def test_a_configuration_that_is_not_in_force(host):
    """It is valid, but takes the protection away from a file."""
    text = text_of(host.config)
    with open(host.config, "w") as f:
        f.write(text.replace("/f\"", "/g\""))
    wait_until(lambda: required(host, "1")[1] == 123, "it was judged")
    check_refused(required(host, "1"), host.config + " is not in force")


def test_no_store(host, redis):
    redis.stop()
    wait_until(lambda: not host.status()["store"]["up"], "the keeper has noticed")
    check_refused(required(host, "1"), "is not reachable", "dflock doctor")
    wait_until(host.kill_keeper, "the keeper has ended")
    check_refused(required(host, "1"), "is not reachable")


def test_a_store_in_grace(host, redis):
    wait_until(host.kill_keeper, "the keeper has ended")
    redis.command("FLUSHALL")
    check_refused(required(host, "1"), "is in grace")


def test_a_store_that_takes_nothing(host, redis):
    redis.command("CONFIG", "SET", "maxmemory", "1")
    check_refused(required(host, "1"), "takes no new locks", "out of memory")


def test_a_keeper_is_started(host):
    wait_until(host.kill_keeper, "the keeper has ended")
    assert required(host, "1") == FINE
    assert host.keeper_pids()


def test_a_keeper_that_does_not_answer(host):
    keeper = host.keeper_pids()
    for pid in keeper:
        os.kill(pid, signal.SIGSTOP)
    check_refused(required(host, "1"), "the keeper does not answer")
    for pid in keeper:
        os.kill(pid, signal.SIGCONT)


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
        assert plain and required(host, "1", *words) == (plain, 0, "")
    places = os.path.join(BUILD, "tests", "interpose", "places")
    out, status, err = required(host, "1", places, "constructor", host.path("f"))
    assert status == 0 and err == "" and "constructor: 0 -" in out and "open: 0 1 2\n" in out
