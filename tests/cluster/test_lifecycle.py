"""A keeper's life: programs start it; it ends when no program needs it, or when it is told to."""
import fcntl
import os
import signal
import subprocess

import pytest
from harness import Job, text_of, wait_until, write_text
from harness.host import CLI, KEEPER
import jobs as freezing
from jobs import state
from keepers import HOLD, LONG, connected, flock, identity, is_busy, kill_keeper, leases, opened, pair, socket_of, two_long, waits  # noqa: F401
from onbehalf import Asked, fk


# --- it starts ---


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


@pytest.mark.parametrize("foreground", [False, True])
def test_it_is_started_without_standard_descriptors(make_host, foreground):
    """None of its own files gets one of their numbers."""
    make_host("b", lease=LONG)
    a = make_host("a", lease=LONG, foreground=False)
    for closed in (0,), (1,), (2,), (0, 1, 2):
        started = subprocess.Popen([KEEPER, *["--foreground"] * foreground], env=a.plain_env(), preexec_fn=lambda: [os.close(fd) for fd in closed])
        assert foreground or started.wait(30) == 0, closed
        wait_until(lambda: started.poll() in (None, 0) and a.serves(), "it serves")
        files = {os.readlink(f"/proc/{pid}/fd/{fd}") for pid in a.keeper_pids() for fd in (closed if foreground else range(3))}
        assert files == {"/dev/null"}, closed
        assert flock(a)[0] == 0
        a.cli("stop")
        assert started.wait(30) == 0


def test_it_is_started_with_signals_ignored(make_host):
    """By a supervisor that ignores the ends of its children: the parent is told of the keeper's nevertheless."""
    a = make_host("a", lease=LONG, foreground=False)
    a.inside = ["env", "--ignore-signal=CHLD,USR1"]
    a.start()
    a.inside = []
    kill_keeper(a)
    assert "died (signal 9)" in a.log() and "hangs" not in a.log()


# --- it ends ---


def test_it_ends_when_idle(make_host):
    lease = "ttl_ms = 500; idle_ms = 200; linger_ms = 50;"
    make_host("b", lease=lease)
    a = make_host("a", lease=lease, foreground=False)
    for _ in range(2):
        assert flock(a)[0] == 0
        assert len(a.keeper_pids()) == 2
        wait_until(lambda: not a.keeper_pids(), "the idle keeper has ended")
        assert not os.path.exists(socket_of(a))


def test_it_does_not_end_while_something_is_held(make_host):
    """It outlives three keepers that are idle, each for twice ttl_ms. The parent ends with a keeper that is idle; it starts another one
    for a keeper that gets no processor for so long that leases would run out."""
    lease = "ttl_ms = 2000; idle_ms = 200; linger_ms = 50;"
    make_host("b", lease=lease)
    a, idle = make_host("a", lease=lease, foreground=False), make_host("idle", lease=lease, foreground=False)
    agent = a.opened("f", "flock 0 ex")
    parent = a.keeper_pids()[0]
    for _ in range(3):
        assert flock(idle, name="g")[0] == 0
        wait_until(lambda: not idle.keeper_pids(), "the idle keeper has ended")
        assert parent in a.keeper_pids() and len(leases(a)) == 1
    agent.do("flock 0 un")
    wait_until(lambda: not a.keeper_pids(), "the idle keeper has ended")


def test_ends_and_programs_meet(make_host):
    """Programs whose keeper ends just when they ask get the next one, and notice nothing."""
    lease = "ttl_ms = 20000; linger_ms = 0;"
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
    jobs = [Job(a, *words, a.path(name), how) for name, how in (("f", "2"), ("f", "2"), ("g", "6"))]
    ends = []
    wait_until(lambda: ends.append(a.cli("stop", check=False).returncode) or ends.count(0) >= 30, "it ended 30 times", 120)
    for job in jobs:
        assert job.process.poll() is None, list(job.lines.queue)
        job.kill()
    assert not is_busy(b)


@pytest.mark.parametrize("foreground", [False, True])
def test_stop(make_host, foreground):
    make_host("b", lease=LONG)
    a = make_host("a", lease=LONG, foreground=foreground)
    agent = a.opened("f", "flock 0 ex")
    before = identity(a)
    refused = a.cli("stop", check=False)
    assert refused.returncode == 1 and "t/f" in refused.stderr and "is locked by a program" in refused.stderr
    assert identity(a) == before
    agent.do("flock 0 un")
    done = a.cli("stop", check=False)
    assert done.returncode == 0, done.stderr
    assert "has ended" in done.stdout
    wait_until(lambda: a.keeper is None or a.keeper.poll() is not None, "the process has ended")
    wait_until(lambda: not a.keeper_pids(), "no process of it is left")
    assert not os.path.exists(socket_of(a))
    assert a.cli("stop").stdout == "no keeper runs\n"


@pytest.mark.of_redis("it is cut off from one")
def test_the_next_one_has_a_shorter_ttl(make_host, redis, folder):
    """What the earlier one had until when is no time of its leases: another host gets them after the ttl of now."""
    long, short = "ttl_ms = 600000; freeze_margin_ms = 1300;", "ttl_ms = 3000; freeze_margin_ms = 1300;"
    way = os.path.join(folder, "way.sock")
    os.symlink(redis.socket, way)
    a = make_host("a", lease=long, server="unix:" + way).init()
    assert not is_busy(a)
    a.cli("stop")
    a.keeper.wait()
    write_text(a.config, text_of(a.config).replace(long, short))
    a.start()
    wait_until(lambda: a.cli("init", "--force", check=False).returncode == 0, "the store has it, too")
    job = freezing.Job(a, "f")
    b = make_host("b", lease=short)
    os.unlink(way)
    for kind in "normal", "pubsub":
        redis.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    assert b.run("flock", b.path("f"), "true").returncode == 0
    assert state(job.pid()) in "tTXZ"


def test_stop_refuses_while_a_program_waits(two_long):
    a, b = two_long
    holder, waiter = a.opened("f", "flock 0 ex"), opened(b).say("flock 0 ex")
    waits(b)
    refused = b.cli("stop", check=False)
    assert refused.returncode == 1 and "a program waits for t/f" in refused.stderr
    holder.do("flock 0 un")
    assert waiter.heard()[0] == "ok"


def asks_to_stop(host):
    """The operator's question wakes the keeper; once it sleeps again, it has looked at it."""
    stop = subprocess.Popen([CLI, "stop"], env=host.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    keeper = host.keeper_pids()[1]
    wait_until(lambda: stop.poll() is not None or ("skb" in text_of(f"/proc/{stop.pid}/wchan") and state(keeper) != "R"), "the operator has asked")
    return stop


def test_stop_waits_for_callers_of_a_keeper_that_died(make_host, redis):
    """A caller was told that it may take the lock, and has not done so yet; the store is away, so the next keeper knows no more."""
    a = make_host("a", lease=LONG + "pin_ms = 60000;")
    asked = Asked(a, 0, 0)
    assert asked.answer()[0] == fk.GRANTED
    redis.stop()
    kill_keeper(a)
    pids = a.keeper_pids()
    stop = asks_to_stop(a)
    with open(a.path("f"), "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        said = stop.communicate(timeout=20)[1]
        assert stop.returncode == 1 and "t/f" in said and a.keeper_pids() == pids
    asked.end()


def test_stop_waits_for_those_that_have_just_asked(make_host, redis):
    """A program has asked a new keeper, which has no connection to the store so far, and hence no lease for it. Were the keeper to end
    now, the program would ask the next one, and be refused after some of these. If the store does not answer for two seconds, the
    keeper ends: then this is tried again."""
    lease = "ttl_ms = 20000; linger_ms = 0;"
    make_host("b", lease=lease)
    a = make_host("a", lease=lease, foreground=False)

    def refused():
        agent = opened(a)
        redis.signal(signal.SIGSTOP)
        agent.say("flock 0 ex")
        wait_until(lambda: len(a.keeper_pids()) == 2 and a.serves() and connected(agent.pid), "the program has asked")
        pids = a.keeper_pids()
        stop = asks_to_stop(a)
        redis.signal(signal.SIGCONT)
        assert agent.heard()[0] == "ok"
        said = stop.communicate(timeout=20)[1]
        is_refused = stop.returncode == 1 and "t/f" in said
        assert not is_refused or a.keeper_pids() == pids
        agent.kill()
        wait_until(lambda: a.cli("stop", check=False).returncode == 0 and not a.keeper_pids(), "no keeper is left")
        return is_refused

    wait_until(refused, "the stop was refused", 60)


def told_to_end(host, number=signal.SIGTERM):
    host.keeper.send_signal(number)
    wait_until(lambda: "told to end: waits until" in host.log(), "it says what it waits for")


@pytest.mark.parametrize("number, recalled", [(signal.SIGTERM, False), (signal.SIGINT, True)], ids=["nobody waits", "b waits"])
def test_told_to_end_it_waits_for_what_is_in_use(make_host, number, recalled):
    """It gives back leases that are not in use."""
    a, b = make_host("a", lease=LONG + "linger_ms = 20000;"), make_host("b", lease=LONG)
    used, free, waiter = opened(a, "used"), opened(a, "free"), opened(b, "used")
    assert used.do("flock 0 ex") == "ok" and free.do("flock 0 ex") == "ok" and free.do("flock 0 un") == "ok"
    before = identity(a, "used")
    assert leases(a, "free")
    if recalled:
        waiter.say("flock 0 ex")
        wait_until(lambda: leases(a, "used", note="wanted by another host"), "the lease is recalled")
    for pid in a.keeper_pids():  # as pkill does: it counts as one
        os.kill(pid, number)
    told_to_end(a, number)
    assert "among them t/used" in a.log()
    assert a.status()["ending"] and "told to end" in a.cli("status").stdout
    assert not is_busy(b, "free") and identity(a, "used") == before
    assert recalled or is_busy(b, "used")
    assert free.do("flock 0 ex nb") == "ok" and free.do("flock 0 un") == "ok"  # all are served meanwhile
    used.do("flock 0 un")
    assert a.keeper.wait(20) == 0
    assert not os.path.exists(socket_of(a)) and not a.keeper_pids()
    assert waiter.heard()[0] == "ok" if recalled else waiter.do("flock 0 ex") == "ok"
    assert [l["name"] for l in b.status()["cluster"]["locks"]] == ["t/used"]


def test_signals_to_end_reach_the_first_thread_alone(two_long):
    """Another one could take a signal when nothing hears it any more, and end the keeper as if it had failed."""
    a, _ = two_long
    assert flock(a) == (0, "")
    a.cli("status")  # a thread works for it
    keeper = a.keeper_pids()[1]
    threads = [int(t) for t in os.listdir(f"/proc/{keeper}/task")]
    assert len(threads) > 16  # the first one, and all that work for it
    for thread in set(threads) - {keeper}:
        blocked = int(text_of(f"/proc/{keeper}/task/{thread}/status").split("SigBlk:")[1].split()[0], 16)
        assert all(blocked >> (number - 1) & 1 for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)), thread


def test_told_twice_while_another_host_waits_and_no_keeper_can_start(make_host):
    """A probe waits for the end of the lock when the keeper ends. Its last answer must not free the slot in the fence: the
    next parent, whose keepers cannot start, stops the holder at the deadline."""
    a, b = (make_host(name, lease="ttl_ms = 5000;") for name in "ab")
    used, waiter = a.opened("f", "flock 0 ex"), opened(b).say("flock 0 ex")
    wait_until(lambda: leases(a, state="waiting"), "the lease is recalled, and in use")
    told_to_end(a)
    wait_until(lambda: a.keeper.send_signal(signal.SIGTERM) or a.keeper.poll() is not None, "it ends at once")
    assert a.keeper.poll() == 0 and not os.path.exists(socket_of(a)) and not a.keeper_pids() and waiter.silent(0.1) and state(used.pid) not in "tT"
    with open(a.config, "a") as f:
        f.write("nonsense")
    os.remove(os.path.join(a.runtime, "config.kept"))
    env = a.env()
    env.pop("LD_PRELOAD")
    a.keeper = subprocess.Popen([KEEPER, "--foreground"], env=env, stderr=subprocess.DEVNULL, start_new_session=True)
    wait_until(lambda: state(used.pid) in "tT", "the holder is stopped")
    assert waiter.silent(0)


def test_told_to_end_and_killed(two_long):
    """The next keeper goes on waiting, and ends."""
    a, b = two_long
    used = a.opened("used", "flock 0 ex")
    before = identity(a, "used")
    told_to_end(a)
    kill_keeper(a)
    wait_until(lambda: a.status()["ending"], "the next one waits as well")
    assert identity(a, "used") == before and is_busy(b, "used")
    used.do("flock 0 un")
    assert a.keeper.wait(20) == 0 and not is_busy(b, "used")


def test_told_to_end_while_the_store_is_down(make_host, redis):
    """Nothing is in use: it does not wait for an answer. The next host that wants the lease finds it dead."""
    a = make_host("a", lease=LONG + "linger_ms = 20000;")
    agent = a.opened("f", "flock 0 ex", "flock 0 un")
    redis.stop()
    wait_until(lambda: not a.status()["store"]["up"], "the store is down")
    a.keeper.send_signal(signal.SIGTERM)
    assert a.keeper.wait(20) == 0
