"""A lease that cannot be renewed: its holders, and all that they started, are stopped in time, and go on or are killed."""
import os
import signal

import pytest
from harness import Redis, wait_until

from jobs import JOB, LEASE, end, grows, is_frozen, job, pid_of, size, state
from keepers import opened


@pytest.mark.parametrize("how", [(), ("-o",), ("-s",)])
def test_frozen_through_an_outage_and_nothing_lost(make_host, redis, how):
    a = make_host("a", lease=LEASE)
    process, path = job(a, *how)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "the job is frozen", 40)
    assert is_frozen(path)
    pid = pid_of(path)
    assert state(pid) in "tT"
    os.kill(pid, signal.SIGCONT)  # does not wake it
    assert is_frozen(path)
    assert a.status()["frozen"] >= 1
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in a.log(), "the job is let go", 20)
    grows(path)
    assert process.poll() is None
    assert not a.status()["lost"]
    end(process, path)


@pytest.fixture
def saving(folder):
    """A server that saves, into a folder that is removed later."""
    place, away = os.path.join(folder, "saving"), os.path.join(folder, "away")
    os.mkdir(place)
    os.mkdir(away)
    server = Redis(place, "--dir", away, "--save", "3600 1")
    os.rmdir(away)
    yield server
    server.stop()


def fails_to_save(server):
    server.command("BGSAVE")
    wait_until(lambda: "rdb_last_bgsave_status:err" in server.command("INFO", "persistence"), "it cannot save")


def test_a_store_that_cannot_save_freezes_unless_it_is_told_not_to(make_host, saving):
    """docs/store.md, "A server that cannot write": it is warned of that before, and the setting ends it."""
    a = make_host("a", lease=LEASE, server=saving)
    process, path = job(a)
    assert "renewals of leases too" in a.cli("doctor", check=False).stdout
    fails_to_save(saving)
    wait_until(lambda: "are frozen" in a.log(), "the job is frozen", 40)
    assert is_frozen(path) and "CONFIG SET stop-writes-on-bgsave-error no ends that" in a.log()
    saving.command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
    wait_until(lambda: "go on" in a.log(), "the job is let go", 20)
    grows(path)
    fails_to_save(saving)
    before = a.status()["cluster"]["hosts"][a.status()["host"]]["beat"]
    wait_until(lambda: a.status()["cluster"]["hosts"][a.status()["host"]]["beat"] > before, "leases are renewed", 20)
    assert "renewals" not in a.cli("doctor", check=False).stdout and not a.status()["lost"]
    end(process, path)


def test_killed_when_another_host_got_it(make_host, redis, proxy):
    """Host a is cut off; b takes over after a ttl. When a is back, its job must not run one more instruction."""
    b = make_host("b", lease=LEASE)
    a = make_host("a", lease=LEASE, server=proxy.address).wait_up()
    process, path = job(a)
    proxy.accepting = False
    proxy.cut()
    other = opened(b)
    assert other.do("flock 0 ex", seconds=20) == "ok"  # after the ttl ...
    assert state(pid_of(path)) in "tT"  # ... and after a's job was stopped
    last = size(path)
    proxy.accepting = True
    wait_until(lambda: process.poll() is not None, "the job is killed", 20)
    assert size(path) == last
    assert a.status()["lost"]
    assert "is killed" in a.log()


def test_stop_is_refused_while_they_are_frozen(make_host, redis):
    """Ending the keeper would end them."""
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "frozen", 40)
    wait_until(lambda: not a.status()["store"]["up"], "the store counts as down", 20)
    stop = a.cli("stop", check=False)
    assert stop.returncode != 0 and "not reachable" in stop.stderr
    redis.signal(signal.SIGCONT)
    grows(path)
    end(process, path)


@pytest.mark.parametrize("name", ["setlk 0 ex 0 10", "setlk 0 ex 0 10 ofd"])
def test_record_holders_too(make_host, redis, name):
    a = make_host("a", lease=LEASE)
    agent = opened(a)
    assert agent.do(name) == "ok"
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: state(agent.pid) in "tT", "the holder is frozen", 10)
    redis.signal(signal.SIGCONT)
    assert agent.do("pid") == "ok"


def test_threads_and_inherited_descriptors(make_host, redis):
    """The holder is a shell that never called flock(); its children, and theirs, are stopped with it."""
    a = make_host("a", lease=LEASE)
    path = a.path("job.out")
    script = f'exec 9>"$1"; flock 9; (bash -c "$2" job "$3") & bash -c "$2" job "$3" & wait'
    process = a.popen("bash", "-c", script, "shell", a.path("f"), JOB, path)
    wait_until(lambda: size(path + ".pid") and len(open(path + ".pid").read().split()) == 2, "both children run")
    pids = [int(p) for p in open(path + ".pid").read().split()] + [process.pid]
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: all(state(p) in "tT" for p in pids), "all are frozen", 10)
    assert is_frozen(path)
    redis.signal(signal.SIGCONT)
    grows(path)
    for p in pids:
        os.kill(p, signal.SIGKILL)
    process.communicate(timeout=20)


def test_a_holder_that_was_stopped_before_stays_so(make_host, redis):
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    pid = pid_of(path)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state(pid) == "T", "it is stopped")
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "frozen", 40)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in a.log(), "let go", 20)
    wait_until(lambda: state(pid) == "T", "it is stopped as before")
    assert is_frozen(path)
    os.kill(pid, signal.SIGCONT)
    grows(path)
    end(process, path)


def test_one_of_the_frozen_is_killed(make_host, redis):
    """Another process kills it: its parent is told, and the others go on."""
    a = make_host("a", lease=LEASE)
    agent = a.opened("f", "flock 0 ex")
    child = agent.say("fork").heard()[1]
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "frozen", 40)
    assert state(child) in "tT"
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: state(child) in ("Z", "gone"), "the child ends")
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in a.log(), "let go", 20)
    assert agent.do("pid") == "ok"


def test_on_lost_kill(make_host, redis):
    a = make_host("a", lease=LEASE + ' on_lost = "kill";')
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: process.poll() is not None, "the job is ended", 10)
    redis.signal(signal.SIGCONT)
    assert "SIGTERM" in a.log()


def test_on_lost_warn(make_host, redis):
    a = make_host("a", lease=LEASE + ' on_lost = "warn";')
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "run out" in a.log(), "the warning", 10)
    wait_until(lambda: a.status()["leases"][0]["state"] == "unsure", "the deadline has passed", 10)
    grows(path)
    redis.signal(signal.SIGCONT)
    end(process, path)


def test_a_keeper_that_dies_while_they_are_frozen(make_host, redis):
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "frozen", 40)
    old = a.keeper_pids()[-1]
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: len(a.keeper_pids()) == 2 and a.keeper_pids()[-1] != old, "the next keeper")
    assert is_frozen(path)
    redis.signal(signal.SIGCONT)
    grows(path)
    end(process, path)


@pytest.mark.parametrize("again", [False, True])
def test_told_to_end_while_they_are_frozen(make_host, redis, again):
    """It waits until the leases stand and their locks end, since they would end with it. If it is told twice, it ends at once."""
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "frozen", 40)
    a.keeper.send_signal(signal.SIGTERM)
    wait_until(lambda: "told to end: waits" in a.log(), "it says what it waits for")
    assert is_frozen(path) and process.poll() is None
    if again:
        wait_until(lambda: a.keeper.send_signal(signal.SIGTERM) or a.keeper.poll() is not None, "it ends at once")
        wait_until(lambda: process.poll() is not None, "the holder ends with it")
        assert "end with the keeper's parent" in a.log()
        redis.signal(signal.SIGCONT)
        return
    redis.signal(signal.SIGCONT)
    grows(path)
    assert a.keeper.poll() is None
    end(process, path)
    assert a.keeper.wait(20) == 0
