"""
dflock break --host: what a host that is off has in the store is released at once.

What must not be: a host that lives, and was given up, goes on with its leases. Without --force the keeper that gives it up has
watched its silence for a whole ttl, so its deadline has passed; with --force its next beat tells it.
"""
import os
import signal

from harness import wait_until
from harness.host import CLI

from breaking import runs, taker
from jobs import end, grows, is_frozen, job, pid_of, state

LEASE = "ttl_ms = 3000; freeze_margin_ms = 800; probe_ms = 200;"
LONG = "ttl_ms = 12000; freeze_margin_ms = 3000;"
RARE = "ttl_ms = 600000; freeze_margin_ms = 3000;"


def own(host):
    return host.status()["host"]


def test_a_host_that_is_off(make_host):
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE)
    process, path = job(a)
    b.wait_up()
    name = own(a)
    wait_until(a.kill_all, "a is off")
    process.communicate(timeout=20)
    a.keeper.wait()
    early = b.cli("break", "--yes", "--host", name, check=False)
    assert early.returncode == 1 and "may be given up when it has been silent for 3000 ms" in early.stderr, early.stderr
    assert b.run("flock", "-n", b.path("f"), "true").returncode == 1
    wait_until(lambda: b.status()["cluster"]["hosts"][name]["age_ms"] > 3000, "it was silent for long", 20)
    done = b.cli("break", "--yes", "--host", name)
    assert f"given up: {name}" in done.stdout and "t/f, exclusive, fence" in done.stdout
    assert b.run("flock", "-n", b.path("f"), "true").returncode == 0
    assert name not in b.status()["cluster"]["hosts"]


def test_one_that_is_heard_of_while_it_is_watched(make_host, redis):
    """The store's clock says that it was silent for long (it has stepped); the host lives."""
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE)
    process, path = job(a)
    b.wait_up()
    name = own(a)
    pids = a.keeper_pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    redis.command("HSET", "dflock:{0}:hosts", name, str(int(redis.command("HGET", "dflock:{0}:hosts", name)) - 60000))
    command = b.popen("sh", "-c", f'unset LD_PRELOAD; exec "$0" break --yes --host {name}', CLI)
    wait_until(lambda: "it is watched" in command.stdout.readline(), "it is watched")
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert command.wait(20) == 1
    assert "lives: it was heard of while it was watched" in command.stderr.read()
    grows(path)
    command.communicate()
    end(process, path)


def test_forced_and_it_lives(make_host):
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE)
    process, path = job(a)
    b.wait_up()
    done = b.cli("break", "--yes", "--force", "--host", own(a))
    assert "given up" in done.stdout and "run at the same time" in done.stdout
    got = taker(b, "-n")
    assert got.stdout.readline() == "got\n"
    assert process.wait(20) != 0  # by its next beat
    wait_until(lambda: not runs(pid_of(path)), "all that it started has ended")
    assert "given up by `dflock break --host`" in a.log()
    assert a.run("flock", "-n", a.path("f"), "true").returncode == 1
    wait_until(lambda: b.kill(b.program_pids()), "b's job has ended")
    got.communicate(timeout=20)
    assert a.run("flock", a.path("f"), "true").returncode == 0  # it goes on as a host


def test_forced_and_nothing_was_given_to_others(make_host):
    """The host that was given up has other leases, which it got since: these stand, and their holders go on."""
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE)
    b.wait_up()
    a.run("flock", a.path("g"), "true")
    wait_until(lambda: own(a) in b.status()["cluster"]["hosts"], "a is known")
    b.cli("break", "--yes", "--force", "--host", own(a))
    process, path = job(a)
    wait_until(lambda: "given up by `dflock break --host`" in a.log(), "it has heard of that", 20)
    grows(path)
    assert state(pid_of(path)) not in ("gone", "Z")
    end(process, path)


def test_forced_it_stops_its_holders_until_it_knows(make_host, proxy):
    """Until the store has said which of its leases still are."""
    a, b = make_host("a", lease=LONG), make_host("b", server=proxy.address, lease=LONG).wait_up()
    process, path = job(b)
    late = proxy.fault("confirm", "late")
    a.cli("break", "--yes", "--force", "--host", own(b))
    assert late.happened.wait(20)
    wait_until(lambda: "are frozen" in b.log(), "its holders are stopped")
    assert is_frozen(path)
    proxy.release()
    assert process.wait(20) != 0
    wait_until(lambda: not runs(pid_of(path)), "all that it started has ended")
    process.communicate()


def test_forced_and_it_asks_for_another_lock_before_its_next_beat(make_host):
    """Then the answer to that tells it. Its next beat is minutes away, and no other answer may count as one before it has heard."""
    a, b = make_host("a", lease=RARE), make_host("b", lease=RARE).wait_up()
    process, path = job(b)
    a.cli("break", "--yes", "--force", "--host", own(b))
    assert b.run("flock", b.path("g"), "true").returncode == 0
    assert process.wait(20) != 0
    wait_until(lambda: not runs(pid_of(path)), "all that it started has ended")
    assert "given up by `dflock break --host`" in b.log()
    process.communicate()


def test_hosts_that_are_refused(make_host):
    """One that lives, one that nobody knows, and this host."""
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE).wait_up()
    process, path = job(a)
    done = b.cli("break", "--yes", "--host", own(a), check=False)
    assert done.returncode == 1 and "was heard of" in done.stderr
    assert a.cli("break", "--yes", "--host", "nowhere", check=False).returncode == 3
    done = a.cli("break", "--yes", "--host", own(a), check=False)
    assert done.returncode == 1 and "that is this host" in done.stderr
    grows(path)
    end(process, path)
