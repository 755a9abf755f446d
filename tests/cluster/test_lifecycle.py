"""A keeper's life: started by programs, ended when nobody needs it, killed, hung, restarted; its leases outlive it."""
import json
import os
import random
import signal
import time

import pytest
from harness import BUILD, Job, wait_until

LONG = "ttl_ms = 20000; probe_ms = 5000;"  # nothing runs out while a test looks
HOLD = "echo held; read line"


def opened(host, name="f"):
    agent = host.agent()
    assert agent.do(f"open 0 {host.path(name)} rwc") == "ok"
    return agent


def leases(host, name="f", **want):
    return [l for l in host.status().get("leases", [])
            if l["name"] == "t/" + name and all(l[k] == v for k, v in want.items())]


def identity(host, name="f"):
    """What must outlive a keeper: who holds, by which token, with which fence number."""
    lease, = leases(host, name)
    return host.status()["host"], lease["token"], lease["fence"]


def flock(host, *words, name="f"):
    """flock(1)'s exit status and what was said."""
    done = host.run("flock", "-E", "99", *words, host.path(name), "true")
    return done.returncode, done.stderr


def is_busy(host, name="f"):
    status, said = flock(host, "-n", name=name)
    assert status in (0, 99), said
    return status == 99


def socket_of(host):
    return os.path.join(host.runtime, "keeper.sock")


def kill_keeper(host):
    """kill -9 of the keeper, not of its parent; gives the parent's pid and the new keeper's when it serves."""
    parent, keeper = host.keeper_pids()
    os.kill(keeper, signal.SIGKILL)
    return parent, wait_for_another(host, keeper)


def serving(host):
    """The pid of the keeper that answers, if one does."""
    done = host.cli("status", "--json", check=False)  # fails if the keeper dies meanwhile
    return json.loads(done.stdout).get("pid") if done.returncode == 0 else None


def wait_for_another(host, keeper):
    return wait_until(lambda: {serving(host)} - {None, keeper}, "another keeper serves", 30).pop()


def waits(host, name="f"):
    wait_until(lambda: leases(host, name, note="waits for another host"), host.name + " is queued")


@pytest.fixture
def pair(make_host):
    """b, whose keeper runs, and a, whose keeper is started by its programs; the store is open."""
    b = make_host("b", lease=LONG)
    return make_host("a", lease=LONG, foreground=False), b


# --- it starts ---


def test_the_first_program_starts_it(pair):
    a, b = pair
    assert a.keeper_pids() == []
    agent = opened(a)
    assert agent.do("flock 0 ex nb") == "ok"
    assert len(a.keeper_pids()) == 2
    assert is_busy(b)


def test_fifty_programs_at_once_start_one(pair):
    a, b = pair
    jobs = [Job(a, "flock", "-s", a.path("f"), "sh", "-c", HOLD) for _ in range(50)]
    assert [job.line(60) for job in jobs] == ["held"] * 50
    wait_until(lambda: len(a.keeper_pids()) == 2, "one keeper and its parent are left")
    assert a.status()["pid"] in a.keeper_pids()
    assert len([host for host in b.status()["cluster"]["hosts"] if host.startswith("a-")]) == 1
    for job in jobs:
        job.end()


def test_a_second_one_in_the_foreground_refuses(pair):
    a, b = pair
    keepers = b.keeper_pids()
    with pytest.raises(RuntimeError, match="another keeper serves"):
        b.start()
    assert b.keeper_pids() == keepers
    assert flock(a)[0] == 0
    with pytest.raises(RuntimeError, match="another keeper serves"):
        a.start()


# --- it ends ---


def test_it_ends_when_idle(make_host):
    lease = "ttl_ms = 500; idle_ms = 200; linger_ms = 50; probe_ms = 5000;"
    make_host("b", lease=lease)
    a = make_host("a", lease=lease, foreground=False)
    for _ in range(2):
        assert flock(a)[0] == 0
        assert len(a.keeper_pids()) == 2
        wait_until(lambda: not a.keeper_pids(), "the idle keeper has ended")
        assert not os.path.exists(socket_of(a))


def test_it_does_not_end_while_something_is_held(make_host):
    lease = "ttl_ms = 500; idle_ms = 200; linger_ms = 50; probe_ms = 5000;"
    make_host("b", lease=lease)
    a = make_host("a", lease=lease, foreground=False)
    agent = opened(a)
    assert agent.do("flock 0 ex") == "ok"
    keepers, start = a.keeper_pids(), time.monotonic()
    while time.monotonic() < start + 3:  # three times what an idle one lives
        assert a.keeper_pids() == keepers
        time.sleep(0.1)
    agent.do("flock 0 un")
    wait_until(lambda: not a.keeper_pids(), "the idle keeper has ended")


def test_ends_and_programs_meet(make_host):
    """Programs whose keeper ends just when they ask get the next one, and notice nothing."""
    lease = "ttl_ms = 20000; linger_ms = 0; probe_ms = 5000;"
    b = make_host("b", lease=lease)
    a = make_host("a", lease=lease, foreground=False)
    words = ["/usr/bin/python3", "-c", """
import fcntl, random, sys, time
how = int(sys.argv[2])
while sys.argv:
    with open(sys.argv[1], "a") as f:
        fcntl.flock(f, how)
    time.sleep(random.random() * 0.02)  # now and then nobody has a lock, so that the keeper may end
"""]
    jobs = [Job(a, *words, a.path(name), how) for name, how in (("f", "2"), ("f", "6"), ("g", "1"))]
    ends = []
    wait_until(lambda: ends.append(a.cli("stop", check=False).returncode) or ends.count(0) >= 30, "it ended 30 times", 120)
    for job in jobs:
        assert job.process.poll() is None, job.line()
        job.kill()
    assert not is_busy(b)


@pytest.mark.parametrize("foreground", [False, True])
def test_stop(make_host, foreground):
    make_host("b", lease=LONG)
    a = make_host("a", lease=LONG, foreground=foreground)
    agent = opened(a)
    assert agent.do("flock 0 ex") == "ok"
    before = identity(a)
    refused = a.cli("stop", check=False)
    assert refused.returncode == 1 and "t/f" in refused.stderr and "is locked by a program" in refused.stderr
    assert identity(a) == before
    agent.do("flock 0 un")
    done = a.cli("stop", check=False)
    assert done.returncode == 0, done.stderr
    assert "has ended" in done.stdout
    wait_until(lambda: a.keeper is None or a.keeper.poll() is not None, "the process has ended")
    assert not a.keeper_pids() and not os.path.exists(socket_of(a))
    assert a.cli("stop").stdout == "no keeper runs\n"


def test_stop_refuses_while_a_program_waits(two_long):
    a, b = two_long
    holder, waiter = opened(a), opened(b)
    assert holder.do("flock 0 ex") == "ok"
    waiter.say("flock 0 ex")
    waits(b)
    refused = b.cli("stop", check=False)
    assert refused.returncode == 1 and "a program waits for t/f" in refused.stderr
    holder.do("flock 0 un")
    assert waiter.heard()[0] == "ok"


@pytest.fixture
def two_long(make_host):
    return make_host("a", lease=LONG), make_host("b", lease=LONG)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("recalled", [False, True], ids=["nobody waits", "b waits"])
def test_told_to_end_it_gives_back_what_is_free(two_long, number, recalled):
    a, b = two_long
    used, free, waiter = opened(a, "used"), opened(a, "free"), opened(b, "used")
    assert used.do("flock 0 ex") == "ok" and free.do("flock 0 ex") == "ok" and free.do("flock 0 un") == "ok"
    before = identity(a, "used")
    assert leases(a, "free")
    if recalled:
        waiter.say("flock 0 ex")
        wait_until(lambda: leases(a, "used", note="wanted by another host"), "the lease is recalled")
    a.keeper.send_signal(number)
    assert a.keeper.wait(20) == 0
    assert not os.path.exists(socket_of(a)) and not a.keeper_pids()
    assert [l["name"] for l in b.status()["cluster"]["locks"]] == ["t/used"]
    assert is_busy(b, "used") and not is_busy(b, "free")
    a.start()
    wait_until(lambda: leases(a, "used", state="waiting" if recalled else "held"), "the lease was taken up")
    assert identity(a, "used") == before and is_busy(b, "used")
    used.do("flock 0 un")
    assert waiter.heard()[0] == "ok" if recalled else waiter.do("flock 0 ex") == "ok"


# --- it dies ---


def test_killed_it_is_restarted_and_takes_up_what_is_in_use(pair):
    a, b = pair
    holder, waiter = opened(a), opened(b)
    assert holder.do("flock 0 ex") == "ok"
    waiter.say("flock 0 ex")
    waits(b)
    before, (parent, keeper) = identity(a), a.keeper_pids()
    assert kill_keeper(a)[0] == parent
    assert identity(a) == before
    assert waiter.silent(0.3) and is_busy(b)
    wait_until(lambda: leases(a, state="waiting"), "it is held, and recalled again")
    holder.do("flock 0 un")
    assert waiter.heard()[0] == "ok"
    assert [lost for host in pair for lost in host.status()["lost"]] == []


def test_killed_it_takes_up_a_shared_lease(pair):
    a, b = pair
    readers, writer = [opened(a), opened(b)], opened(b)
    assert [reader.do("flock 0 sh") for reader in readers] == ["ok"] * 2
    before = identity(a)
    kill_keeper(a)
    wait_until(lambda: leases(a, state="held"), "the lease was taken up")
    assert identity(a) == before
    assert writer.do("flock 0 ex nb") == "EAGAIN" and flock(b, "-n", "-s")[0] == 0
    readers[1].do("flock 0 un")
    writer.say("flock 0 ex")
    wait_until(lambda: leases(a, note="wanted by another host"), "the lease is recalled")
    assert writer.silent()
    readers[0].do("flock 0 un")
    assert writer.heard()[0] == "ok"


def test_killed_it_takes_up_what_nobody_uses(make_host):
    lease = LONG + "linger_ms = 20000;"
    b, a = make_host("b", lease=lease), make_host("a", lease=lease, foreground=False)
    agent = opened(a)
    assert agent.do("flock 0 ex") == "ok" and agent.do("flock 0 un") == "ok"
    before = identity(a)
    kill_keeper(a)
    assert identity(a) == before
    assert not is_busy(b)


def test_killed_it_gives_back_what_is_gone(make_host):
    """The file was deleted, and nobody has it open: nobody can hold a lock on it. Nothing of it stays in the journal."""
    lease = LONG + "linger_ms = 20000;"
    b, a = make_host("b", lease=lease), make_host("a", lease=lease, foreground=False)
    agent = opened(a)
    assert agent.do("flock 0 ex") == "ok" and agent.do("flock 0 un") == "ok"
    agent.kill()
    os.unlink(a.path("f"))
    kill_keeper(a)
    wait_until(lambda: not a.status()["leases"] and not a.status()["cluster"]["locks"], "it was given back")
    journals = [os.path.getsize(os.path.join(host.runtime, "journal")) for host in (a, b)]
    assert journals[0] == journals[1]  # b has never had anything
    assert not is_busy(b)


def test_killed_while_its_program_waits(pair):
    """The program asks the next keeper, and notices nothing."""
    b, a = pair
    holder, waiter = opened(a), opened(b)
    assert holder.do("flock 0 ex") == "ok"
    waiter.say("flock 0 ex")
    waits(b)
    kill_keeper(b)
    waits(b)
    holder.do("flock 0 un")
    assert waiter.heard()[0] == "ok"
    waiter.do("flock 0 un")
    assert holder.do("flock 0 ex") == "ok"  # nothing is left of the old question


def test_parent_and_keeper_killed(pair):
    a, b = pair
    holder, waiter = opened(a), opened(b)
    assert holder.do("flock 0 ex") == "ok"
    waiter.say("flock 0 ex")
    waits(b)
    before = identity(a)
    wait_until(a.kill_keeper, "both have ended")
    assert flock(a, "-n", name="other") == (0, "")
    assert identity(a) == before
    assert waiter.silent() and is_busy(b)
    holder.do("flock 0 un")
    assert waiter.heard()[0] == "ok"


def test_stopped_it_is_killed_and_restarted(two_long):
    """A keeper whose loop does not turn is as good as dead. A program that asks meanwhile waits, and is served then."""
    a, b = two_long
    holder = opened(a)
    assert holder.do("flock 0 ex") == "ok"
    before, (parent, keeper) = identity(a), a.keeper_pids()
    os.kill(keeper, signal.SIGSTOP)
    asking = a.popen("flock", "-n", a.path("other"), "true")
    assert asking.wait(30) == 0
    assert wait_for_another(a, keeper) and a.keeper_pids()[0] == parent
    assert identity(a) == before and is_busy(b)
    assert "hangs: it is killed" in a.log()


@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "made anew"])
def test_a_deleted_lock_file_and_a_killed_keeper(pair, anew):
    """No path leads to the file any more: the next keeper gets at it through whoever has it open."""
    a, b = pair
    holder = opened(a)
    assert holder.do("flock 0 ex") == "ok"
    before = identity(a)
    os.unlink(a.path("f"))
    if anew:
        assert is_busy(a)  # another inode under the same name
    kill_keeper(a)
    wait_until(lambda: leases(a, state="held", token=before[1]), "the lease was taken up")
    assert is_busy(b) and (not anew or is_busy(a))
    waiter = opened(b)
    waiter.say("flock 0 ex")
    wait_until(lambda: leases(a, note="wanted by another host"), "the lease is recalled")
    holder.do("flock 0 un")
    assert waiter.heard()[0] == "ok"


@pytest.mark.parametrize("seed,parent_too", [(1, False), (2, False), (3, True)], ids=["1", "2", "parent too"])
def test_killed_at_random_moments(pair, folder, seed, parent_too):
    """Sixteen threads on two hosts lock all the time, and never two have the lock, whenever a keeper dies."""
    rnd, witness = random.Random(seed), os.path.join(folder, "witness")
    jobs = []
    for host in pair:
        open(host.path("f"), "w").close()
        jobs.append(Job(host, os.path.join(BUILD, "tests/agents/threads"), host.path("f"), witness, "1000000000"))
    wait_until(lambda: [leases(host) for host in pair], "both have asked")
    names = [host.status()["host"] for host in pair]
    for _ in range(10):
        victim = rnd.choice(pair)
        wait_until(lambda: len(victim.keeper_pids()) == 2, "it was restarted")
        time.sleep(rnd.random() * 0.3)  # any moment will do: that is the test
        for pid in victim.keeper_pids()[0 if parent_too else -1:]:
            os.kill(pid, signal.SIGKILL)
    for host in pair:
        wait_until(lambda: serving(host) in host.keeper_pids(), "it serves again")
    os.mkdir(witness + ".end")
    said = [job.line() for job in jobs]
    assert [job.end() for job in jobs] == [0, 0], said
    assert not os.path.exists(witness + ".overlap") and all(int(line) > 0 for line in said)
    assert [host.status()["host"] for host in pair] == names
    assert [lost for host in pair for lost in host.status()["lost"]] == []
    assert not is_busy(pair[0]) and not is_busy(pair[1])
