"""A lease that cannot be renewed: its holders, and all that they started, are stopped in time, and go on or are killed."""
import os
import signal

import pytest
from harness import Redis, wait_until

from jobs import JOB, LEASE, end, frozen, grows, is_frozen, job, let_go, pid_of, size, state
from keepers import held, opened


def shell(host):
    """It has the lock, and never called flock(); its children, and theirs, go on by its side."""
    path = host.path("job.shell")
    script = f'exec 9>"$1"; flock 9; (bash -c "$2" job "$3") & bash -c "$2" job "$3" & wait'
    process = host.popen("bash", "-c", script, "shell", host.path("shell"), JOB, path)
    wait_until(lambda: size(path + ".pid") and len(open(path + ".pid").read().split()) == 2, "both children run")
    return path, [int(pid) for pid in open(path + ".pid").read().split()] + [process.pid]


def test_frozen_through_an_outage_and_nothing_lost(make_host, redis):
    """Whatever kind of lock it is, and by whichever process: one that execs, one that closes its descriptor, a shell with children, and one
    that was stopped before, which stays so."""
    a = make_host("a", lease="ttl_ms = 6000; freeze_margin_ms = 2500;")
    jobs = [job(a, *how, out=f"out{i}", names=[f"f{i}"]) for i, how in enumerate(((), ("-o",), ("-s",)))]
    inherited, pids = shell(a)
    stopped_job, stopped = job(a, out="stopped", names=["stopped"])
    os.kill(pid_of(stopped), signal.SIGSTOP)
    wait_until(lambda: state(pid_of(stopped)) == "T", "it is stopped")
    agents = [a.opened("r", "setlk 0 ex 0 10"), a.opened("r", "setlk 0 ex 20 10 ofd"), a.opened("agent", "flock 0 ex")]
    child = agents[2].say("fork").heard()[1]
    paths = [path for _, path in jobs] + [inherited, stopped]
    pids += [pid_of(path) for path in paths] + [agent.pid for agent in agents]
    frozen(a, redis)
    assert {pid: state(pid) for pid in pids if state(pid) not in "tT"} == {}
    for path in paths[:3]:
        os.kill(pid_of(path), signal.SIGCONT)  # does not wake it
    assert [path for path in paths if not is_frozen(path)] == []
    assert a.status()["frozen"] >= len(pids)
    os.kill(child, signal.SIGKILL)  # its parent is told, and the others go on
    wait_until(lambda: state(child) in ("Z", "gone"), "the child ends")
    wait_until(lambda: not a.status()["store"]["up"], "the store counts as down", 20)
    stop = a.cli("stop", check=False)  # that would end them
    assert stop.returncode != 0 and "not reachable" in stop.stderr
    let_go(a, redis)
    for path in paths[:4]:
        grows(path)
    assert [agent.do("pid") for agent in agents] == ["ok"] * 3
    wait_until(lambda: state(pid_of(stopped)) == "T", "it is stopped as before")
    assert is_frozen(stopped)
    os.kill(pid_of(stopped), signal.SIGCONT)
    grows(stopped)
    assert not a.status()["lost"] and [process.poll() for process, _ in jobs] == [None] * 3


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


@pytest.fixture
def cut_off(make_host, proxy):
    """(host b, host a, which is behind the proxy, cut(), come_back())"""
    def cut():
        proxy.accepting = False
        proxy.cut()

    def come_back():
        proxy.accepting = True

    b = make_host("b", lease=LEASE)
    return b, make_host("a", lease=LEASE + "pin_ms = 200;", server=proxy.address).wait_up(), cut, come_back


def test_killed_when_another_host_got_it(cut_off):
    """Host a is cut off; b takes over after a ttl. When a is back, its job must not run one more instruction."""
    b, a, cut, come_back = cut_off
    process, path = job(a)
    cut()
    other = opened(b)
    assert other.do("flock 0 ex", seconds=20) == "ok"  # after the ttl ...
    assert state(pid_of(path)) in "tT"  # ... and after a's job was stopped
    last = size(path)
    come_back()
    wait_until(lambda: process.poll() is not None, "the job is killed", 20)
    assert size(path) == last
    assert a.status()["lost"]
    assert "is killed" in a.log()


def test_a_keeper_that_dies_while_they_are_frozen(make_host, redis):
    """So does the next one. It is told to end, and waits until the leases stand and their locks end, since they would end with it."""
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    frozen(a, redis)
    old = a.keeper_pids()[-1]
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: len(a.keeper_pids()) == 2 and a.keeper_pids()[-1] != old and a.serves(), "the next keeper")
    assert is_frozen(path)
    told_to_end(a)
    assert is_frozen(path) and process.poll() is None
    redis.signal(signal.SIGCONT)
    grows(path)
    assert a.keeper.poll() is None
    end(process, path)
    assert a.keeper.wait(20) == 0


def told_to_end(host):
    host.keeper.send_signal(signal.SIGTERM)
    wait_until(lambda: "told to end: waits" in host.log(), "it says what it waits for")


def test_told_twice_to_end_while_they_are_frozen(make_host, redis):
    """It ends at once."""
    a = make_host("a", lease=LEASE)
    process, path = job(a)
    frozen(a, redis)
    told_to_end(a)
    wait_until(lambda: a.keeper.send_signal(signal.SIGTERM) or a.keeper.poll() is not None, "it ends at once")
    wait_until(lambda: process.poll() is not None, "the holder ends with it")
    assert "end with the keeper's parent" in a.log()
    redis.signal(signal.SIGCONT)


# --- the process that gets the kernel lock after a holder was lost: it has not been told that it holds the lock ---

def holder_pids(host):
    return [h["pid"] for lease in host.status()["leases"] for h in lease["holders"]]


def test_waiters_in_the_kernel_are_no_holders(cut_off, proxy):
    """The holder of a lost lease is killed; the kernel then gives the lock to a process that waits for it on this host. That
    process goes on waiting, and gets the lock when its turn has come."""
    b, a, cut, come_back = cut_off
    holder, waiters = opened(a), [opened(a) for _ in range(3)]
    assert holder.do("flock 0 ex") == "ok"
    for w in waiters:
        w.say("flock 0 ex")
        assert w.silent(0.1)
    cut()
    other = b.opened("f", "flock 0 ex")
    answer = proxy.fault("acquire", "late")  # until then the next one has the kernel lock, and no lease
    come_back()
    wait_until(lambda: holder.process.poll() is not None, "the holder is killed")
    wait_until(answer.happened.is_set, "the next one asks")
    assert all(w.silent(0.1) for w in waiters)
    proxy.release()
    assert other.do("flock 0 un") == "ok"
    for _ in waiters:
        wait_until(lambda: any(not w.silent(0.05) for w in waiters), "one of the waiters gets it")
        first = next(w for w in waiters if not w.silent(0))
        assert first.heard()[0] == "ok"
        waiters.remove(first)
        assert first.do("flock 0 un") == "ok"


def test_the_next_holder_after_a_frozen_one(cut_off):
    """The frozen holder is killed by another process. The next one is neither frozen nor killed, though the lease is gone."""
    b, a, cut, come_back = cut_off
    holder, waiter = a.opened("f", "flock 0 ex"), opened(a).say("flock 0 ex")
    assert waiter.silent(0.5)
    cut()
    wait_until(lambda: "are frozen" in a.log(), "frozen", 10)
    other = b.opened("f", "flock 0 ex")
    holder.kill()
    wait_until(lambda: holder_pids(a) == [waiter.pid], "the next one has the kernel lock")
    assert state(waiter.pid) not in "tT"
    come_back()
    wait_until(lambda: a.status()["lost"], "the lease is gone")
    wait_until(lambda: held(a, note="waits for another host"), "the next one asks for another")
    assert waiter.process.poll() is None
    assert other.do("flock 0 un") == "ok"
    assert waiter.heard()[0] == "ok"


def test_the_next_holder_is_not_taken_for_the_lost_one(make_host, redis, proxy):
    """A lease that no process used is lost; a caller gets a new one at once, and is not killed for the old one."""
    lease = "ttl_ms = 2000; freeze_margin_ms = 600; linger_ms = 60000;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, server=proxy.address).wait_up()
    one, other = a.opened("f", "flock 0 ex", "flock 0 un"), opened(b)
    proxy.accepting = False
    proxy.cut()
    assert other.do("flock 0 ex") == "ok"
    assert other.do("close 0") == "ok"
    one.say("flock 0 ex")
    proxy.accepting = True
    assert one.heard()[0] == "ok"
    assert held(a, state="held")
    wait_until(lambda: a.status()["lost"], "the old lease is lost")
    assert one.do("flock 0 un") == "ok"


def test_on_lost_kill_spares_the_next_holder(make_host, redis):
    """The holder ends at SIGTERM, and the kernel gives the lock to a process that waits for it on this host. It has the kernel lock when
    holders that have not ended get SIGKILL, after half of the margin; only after a second it is told that it waits for the store."""
    a = make_host("a", lease='ttl_ms = 4000; freeze_margin_ms = 1500; pin_ms = 200; on_lost = "kill";')
    holder, waiter = a.opened("f", "flock 0 ex"), opened(a).say("flock 0 ex")
    assert waiter.silent(0.5)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: holder.process.poll() is not None, "the holder is ended")
    wait_until(lambda: held(a, state="unsure"), "its time is over")
    assert waiter.process.poll() is None
    redis.signal(signal.SIGCONT)
    assert waiter.heard()[0] == "ok"
