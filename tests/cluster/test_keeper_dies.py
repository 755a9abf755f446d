"""Keepers that are killed or hang: their leases outlive them, and programs notice nothing."""
import os
import random
import signal
import subprocess
import time

import pytest
from harness import THREADS, Job, bytes_of, text_of, wait_until, write_text
from harness.processes import state
from jobs import end, grows, job
from keepers import (HOLD, LONG, both_anew, connected, files_of, flock, held, identity, is_busy, kill_keeper, leases, opened, pair,  # noqa: F401
                     parent_and_keeper, serving, two_long, wait_for_another, waits)


def deleted(host, name, anew):
    """A holder of a lock of a file that no path leads to any more: the next keeper gets at it through a process that has it open."""
    holder = host.opened(name, "flock 0 ex")
    os.unlink(host.path(name))
    assert not anew or is_busy(host, name)  # another inode under the same name
    return holder


def test_killed_it_is_restarted_and_takes_up_what_is_there(make_host):
    """Leases in use, exclusive or shared, one that another host waits for, parts of a file, some of deleted files, and one that is not used."""
    lease = LONG + "linger_ms = 20000;"
    b, a = make_host("b", lease=lease), make_host("a", lease=lease, foreground=False)
    holder, waiter = a.opened("f", "flock 0 ex"), opened(b).say("flock 0 ex")
    waits(b)
    readers = [a.opened("shared", "flock 0 sh"), b.opened("shared", "flock 0 sh")]
    assert a.opened("unused", "flock 0 ex", "flock 0 un")
    gone, anew = deleted(a, "gone", False), deleted(a, "anew", True)
    names = ["f", "shared", "unused", "gone", "anew"]
    before, (parent, keeper) = {name: identity(a, name) for name in names}, a.keeper_pids()
    assert kill_keeper(a)[0] == parent
    wait_until(lambda: not held(a, state="unsure"), "they were taken up")
    assert {name: identity(a, name) for name in names} == before
    assert waiter.silent(0.3) and is_busy(b) and is_busy(b, "gone") and is_busy(a, "anew") and not is_busy(b, "unused")
    wait_until(lambda: leases(a, state="waiting"), "it is held, and recalled again")
    holder.do("flock 0 un")
    assert waiter.heard()[0] == "ok"
    writer = opened(b, "shared")
    assert writer.do("flock 0 ex nb") == "EAGAIN" and flock(b, "-n", "-s", name="shared")[0] == 0
    readers[1].do("flock 0 un")
    for agent, name, last in ((writer, "shared", readers[0]), (opened(b, "gone"), "gone", gone), (opened(b, "anew"), "anew", anew)):
        agent.say("flock 0 ex")
        wait_until(lambda: leases(a, name, note="wanted by another host"), f"the lease is recalled: {name}")
        assert agent.silent(0.1)
        last.do("flock 0 un")
        assert agent.heard()[0] == "ok", name
    assert [lost for host in (a, b) for lost in host.status()["lost"]] == []


@pytest.mark.parametrize("kind", ["", " ofd"], ids=["process", "description"])
def test_killed_it_takes_up_record_locks(pair, kind):
    """Two ranges of one file, and a third that a program of b waits for."""
    a, b = pair
    holder, other = opened(a), opened(b)
    assert [holder.do(f"setlk 0 ex {at} 10{kind}") for at in (0, 100)] == ["ok"] * 2
    other.say(f"setlk 0 ex 100 10 w{kind}")
    waits(b)
    wait_until(lambda: len(leases(a)) == 2, "the lease of both, and more, has given way to one for each")
    before = sorted((l["token"], l["fence"]) for l in leases(a))
    kill_keeper(a)
    wait_until(lambda: not leases(a, state="unsure"), "they were taken up")
    assert sorted((l["token"], l["fence"]) for l in leases(a)) == before
    third = opened(b)
    assert [third.do(f"setlk 0 ex {at} 5{kind}") for at in (0, 105)] == ["EAGAIN"] * 2
    assert third.do(f"setlk 0 ex 50 5{kind}") == "ok"
    assert holder.do(f"setlk 0 un 100 10{kind}") == "ok"
    assert other.heard()[0] == "ok"
    assert third.do(f"setlk 0 ex 0 5{kind}") == "EAGAIN"
    holder.kill()
    assert third.do(f"setlk 0 ex 0 5{kind}") == "ok"


SLOT = 128


def test_killed_with_a_damaged_table(make_host):
    """The next keeper cannot read three leases, so no keeper can renew them: their holders are killed. The others go on."""
    b, a = make_host("b", lease=LONG), make_host("a", lease=LONG, foreground=False)
    other, *holders = [a.opened(name, "flock 0 ex") for name in ("g", "text", "range", "state")]
    before, = leases(a, "g")
    slots = os.path.getsize(os.path.join(a.runtime, "leases")) - 1024 * SLOT
    with open(os.path.join(a.runtime, "leases.text"), "rb") as f:
        text = f.read().index(os.fsencode(a.path("text")))
    for name, at in (("leases.text", text), ("leases", slots + 2 * SLOT + 56), ("leases", slots + 3 * SLOT)):
        with open(os.path.join(a.runtime, name), "r+b") as f:
            f.seek(at)
            f.write(b"\xff")
    kill_keeper(a)
    for holder, name in zip(holders, ("text", "range", "state")):
        holder.process.wait(20)
        assert opened(b, name).do("flock 0 ex", 30) == "ok", name
    wait_until(lambda: leases(a, "g", token=before["token"], fence=before["fence"], state="held"), "the other stands")
    assert other.do("flock 0 un") == "ok"


def spoil(host, config):
    """The configuration becomes invalid, or is gone; what it was."""
    good = text_of(host.config)
    os.remove(host.config)
    if config == "invalid":
        write_text(host.config, good + "nonsense")
    return good


@pytest.mark.parametrize("which, config", [(1, "invalid"), (0, "gone")], ids=["keeper", "parent"])
def test_killed_and_the_next_one_cannot_start(make_host, which, config):
    """There is no configuration, and no copy of it. The parent, or the next one, stays while programs hold locks, stops them when
    their leases run out, and tries again."""
    a = make_host("a", lease="ttl_ms = 4000;", foreground=False)
    holder = a.opened("f", "flock 0 ex")
    good = spoil(a, config)
    os.remove(os.path.join(a.runtime, "config.kept"))
    os.kill(a.keeper_pids()[which], signal.SIGKILL)
    wait_until(lambda: state(holder.pid) in "tT", "the holder is frozen", 20)
    write_text(a.config, good)
    wait_until(lambda: state(holder.pid) not in "tT", "a keeper has started, and the lease stands", 20)
    assert holder.do("flock 0 un") == "ok"


@pytest.mark.parametrize("which, config", [(1, "missing"), (0, "invalid")], ids=["keeper", "parent"])
def test_killed_and_the_next_one_goes_by_the_copy(make_host, which, config):
    """The configuration is invalid or gone at that moment: the leases stand, and their files stay protected."""
    b, a = make_host("b", lease="ttl_ms = 4000;"), make_host("a", lease="ttl_ms = 4000;", foreground=False)
    holder, other = a.opened("f", "flock 0 ex"), opened(b)
    before = identity(a)
    spoil(a, config)
    gone = set(a.keeper_pids()[which:])  # without its parent a keeper makes room for the next one
    os.kill(a.keeper_pids()[which], signal.SIGKILL)
    wait_until(lambda: a.keeper_pids() and gone.isdisjoint(a.keeper_pids()) and a.serves(), "another keeper serves")
    wait_until(lambda: leases(a, state="held"), "the lease was taken up")
    assert identity(a) == before and other.do("flock 0 ex nb") == "EAGAIN"
    wait_until(lambda: a.status()["rules"]["file"] == config, "status says so")
    assert holder.do("flock 0 un") == "ok"
    assert other.do("flock 0 ex") == "ok"


def test_killed_it_gives_back_what_is_gone(make_host):
    """The file was deleted, and no process has it open, so none can hold a lock on it. Nothing of it stays in the table of
    leases."""
    lease = LONG + "linger_ms = 20000;"
    b, a = make_host("b", lease=lease), make_host("a", lease=lease, foreground=False)
    agent = a.opened("f", "flock 0 ex", "flock 0 un")
    agent.kill()
    os.unlink(a.path("f"))
    kill_keeper(a)
    wait_until(lambda: not a.status()["leases"] and not a.status()["cluster"]["locks"], "it was given back")
    slots = bytes_of(os.path.join(a.runtime, "leases"))[-1024 * 128:]
    assert {slots[at] for at in range(0, len(slots), 128)} == {0}  # all are free
    assert not is_busy(b)


def test_killed_while_its_file_is_elsewhere(make_host, redis):
    """The next one finds no way to the file, which nobody has open, and keeps its lease until the store has confirmed it. Then the file
    is back, and is locked again."""
    lease = "ttl_ms = 4000; linger_ms = 20000;"
    b, a = make_host("b", lease=lease), make_host("a", lease=lease, foreground=False)
    holder = a.opened("f", "flock 0 ex")
    holder.kill()
    redis.signal(signal.SIGSTOP)
    os.rename(a.path("f"), a.path("elsewhere"))
    kill_keeper(a)
    assert leases(a, state="unsure")
    os.rename(a.path("elsewhere"), a.path("f"))
    holder, waiter = opened(a), opened(b)
    holder.say("flock 0 ex")
    wait_until(lambda: connected(holder.pid), "it asks")
    redis.signal(signal.SIGCONT)
    assert holder.heard(20)[0] == "ok"
    waiter.say("flock 0 ex")
    wait_until(lambda: leases(a, state="waiting"), "the kernel says that it is in use")
    assert holder.do("flock 0 un") == "ok"
    assert waiter.heard()[0] == "ok"


def test_killed_while_its_program_waits(pair):
    """The program asks the next keeper, and notices nothing."""
    b, a = pair
    holder, waiter = a.opened("f", "flock 0 ex"), opened(b).say("flock 0 ex")
    waits(b)
    kill_keeper(b)
    waits(b)
    holder.do("flock 0 un")
    assert waiter.heard()[0] == "ok"
    waiter.do("flock 0 un")
    assert holder.do("flock 0 ex") == "ok"  # nothing is left of the old question


@pytest.mark.long
def test_killed_at_any_system_call(make_host, folder):
    """The keeper, or its parent, at the nth system call that it makes from now on."""
    b, a = make_host("b", lease=LONG), make_host("a", lease=LONG, foreground=False)
    holder, other = a.opened("f", "flock 0 ex"), opened(b)
    before = identity(a)
    for n in [*range(1, 16), 20, 30, 40, 60]:
        pids = a.keeper_pids()
        victim = pids[0] if n % 5 == 0 else pids[1]
        inject = f"inject=all:signal=SIGKILL:when={n if victim == pids[1] else n % 4 + 1}"
        trace = subprocess.Popen(["strace", "-qq", "-f", "-o", "/dev/null", "-e", inject, "-p", str(victim)],
                                 stderr=subprocess.PIPE, text=True)
        wait_until(lambda: tracer_of(victim) in (trace.pid, None), "it is traced, or killed already")
        while victim in a.keeper_pids():  # every call and every beat brings it nearer to its end
            assert flock(a, "-w", "30", name="other")[0] == 0
        trace.communicate(timeout=30)
        both_anew(a, [victim]) if victim == pids[0] else wait_for_another(a, victim)
        assert identity(a) == before, n
    assert is_busy(b) and a.status()["lost"] == []
    holder.do("flock 0 un")
    assert other.do("flock 0 ex") == "ok"


def tracer_of(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            return int(next(line.split()[1] for line in f if line.startswith("TracerPid")))
    except OSError:
        return None


def test_stopped_it_is_killed_and_restarted(two_long):
    """A keeper whose loop does not turn is as good as dead. A program that asks meanwhile waits, and is served then."""
    a, b = two_long
    holder = a.opened("f", "flock 0 ex")
    before, (parent, keeper) = identity(a), a.keeper_pids()
    os.kill(keeper, signal.SIGSTOP)
    asking = a.popen("flock", "-n", a.path("other"), "true")
    assert asking.wait(30) == 0
    assert wait_for_another(a, keeper) and a.keeper_pids()[0] == parent
    assert identity(a) == before and is_busy(b)
    assert "hangs: it is killed" in a.log()


@pytest.mark.parametrize("seed,parent_too", [(1, False), (3, True)], ids=["keeper", "parent too"])
def test_killed_at_random_moments(pair, folder, seed, parent_too):
    """Sixteen threads on two hosts lock all the time, and never two have the lock, whenever a keeper dies."""
    rnd, witness = random.Random(seed), os.path.join(folder, "witness")
    jobs, killed = [], set()
    for host in pair:
        open(host.path("f"), "w").close()
        jobs.append(Job(host, *THREADS, host.path("f"), witness, "1000000000", "500"))
    wait_until(lambda: all(leases(host) for host in pair), "both have asked")
    names = [host.status()["host"] for host in pair]
    for _ in range(10):
        victim = rnd.choice(pair)
        parent, keeper = wait_until(lambda: parent_and_keeper(victim, killed), "it was restarted")
        time.sleep(rnd.random() * 0.3)  # any moment will do: that is the test
        for pid in (parent, keeper) if parent_too else (keeper,):
            os.kill(pid, signal.SIGKILL)
        killed.add(keeper)
    for host in pair:
        wait_until(lambda: serving(host) in host.keeper_pids(), "it serves again")
    os.mkdir(witness + ".end")
    said = [job.line() for job in jobs]
    assert [job.end() for job in jobs] == [0, 0], said
    assert not os.path.exists(witness + ".overlap") and all(int(line) > 0 for line in said)
    assert [host.status()["host"] for host in pair] == names
    assert [lost for host in pair for lost in host.status()["lost"]] == []
    assert not is_busy(pair[0]) and not is_busy(pair[1])


def test_the_pins_of_a_killed_keeper_count(make_host):
    """A program was granted its lock and has not taken the kernel lock yet: its lease must not be given away."""
    b = make_host("b", lease=LONG + "pin_ms = 3000;")
    a = make_host("a", lease=LONG + "pin_ms = 3000;", foreground=False)
    slow = ["strace", "-qqo", "/dev/null", "-e", "inject=flock:delay_enter=1000000"]
    job = Job(a, *slow, "flock", a.path("f"), "sh", "-c", HOLD)
    wait_until(lambda: leases(a, state="held"), "it was granted")
    kill_keeper(a)
    waiter = opened(b).say("flock 0 ex")
    assert job.line() == "held"
    wait_until(lambda: leases(a, state="waiting"), "the kernel was asked, and said that it is in use")
    assert waiter.silent()
    job.end()
    assert waiter.heard()[0] == "ok"


def test_it_survives_that_all_waiting_callers_go(make_host, redis):
    """Two callers of a file without a lease, which end one after the other: with the second one the file goes, too."""
    a = make_host("a", lease=LONG)
    keeper, = a.keeper_pids()[1:]
    redis.stop()
    wait_until(lambda: not a.status()["store"]["up"], "the store is down")
    for name in ("f", "g", "h"):
        agents = [opened(a, name), opened(a, name)]
        for agent in agents:
            agent.say("flock 0 ex")
            wait_until(lambda: connected(agent.pid), "it asks")
        wait_until(lambda: a.path(name) in files_of(keeper), "the keeper has looked at the file")
        assert all(agent.silent() for agent in agents)
        for agent in agents:
            agent.kill()
        wait_until(lambda: a.path(name) not in files_of(keeper), "the keeper has closed the file")
    assert a.keeper_pids()[1:] == [keeper] and "died" not in a.log()


@pytest.fixture
def shrinking(make_host, proxy):
    """A lease of a, which is behind the proxy, is to become a shared one. The request may be executed after a keeper's death, so the lease
    never is exclusive again."""
    b = make_host("b", lease=LONG)
    a = make_host("a", lease=LONG, server=proxy.address).wait_up()
    return a, b, a.opened("f", "flock 0 ex", "flock 0 sh"), opened(b)


def test_killed_while_it_shares_its_lease_and_the_store_forgets(shrinking, redis, proxy):
    """Another host has it shared by then: only a shared lease may be put back."""
    a, b, here, there = shrinking
    answer = proxy.fault("shrink", "no answer")
    there.say("flock 0 sh")
    wait_until(answer.happened.is_set, "a makes its lease a shared one")
    assert there.heard()[0] == "ok"
    keeper = a.keeper_pids()[1]
    proxy.accepting = False
    proxy.cut()
    os.kill(keeper, signal.SIGKILL)
    redis.command("FLUSHALL")
    wait_until(lambda: "lost its memory" in b.log() and leases(b, state="held"), "b has put its lease back")
    proxy.accepting = True
    wait_until(lambda: "lost its memory" in a.log() and not leases(a, state="unsure"), "a knows about its lease")
    assert [l["mode"] for l in leases(a, state="held")] == ["shared"]
    assert here.do("pid") == "ok" and not a.status()["lost"] + b.status()["lost"]


def test_killed_while_it_shares_its_lease_and_the_request_arrives_later(shrinking, proxy):
    """The store tells the next keeper that the lease is exclusive. It must shrink the lease again: the request of the keeper that died may
    still arrive."""
    a, b, here, there = shrinking
    promise = proxy.fault("shrink", "lost")
    there.say("flock 0 sh")
    wait_until(promise.happened.is_set, "a makes its lease a shared one")
    kill_keeper(a)
    wait_until(lambda: leases(a, state="held"), "the next keeper has taken it up")
    assert proxy.arrives(promise) == [b"OK"]
    assert there.heard()[0] == "ok"
    assert here.do("flock 0 un") == "ok"
    assert here.do("flock 0 ex nb") == "EAGAIN"


# --- one whose loop stands still is replaced early enough for the next one to renew: its holders need not be frozen ---

@pytest.mark.alone  # it is about being in time
@pytest.mark.parametrize("ttl,margin", [(2000, 300), (8000, 1300)])
def test_the_next_one_renews_in_time(make_host, ttl, margin):
    a = make_host("a", lease=f"ttl_ms = {ttl}; freeze_margin_ms = {margin};")
    process, path = job(a)
    keeper = a.keeper_pids()[1]
    os.kill(keeper, signal.SIGSTOP)
    wait_until(lambda: "hangs: it is killed" in a.log(), "it is found to hang")
    wait_until(lambda: serving(a) and leases(a, state="held"), "the next one has the lease")
    grows(path)
    assert a.keeper_pids()[1] != keeper
    assert "frozen" not in a.log()
    assert process.poll() is None
    end(process, path)


@pytest.mark.alone  # as above
def test_one_that_wants_for_a_processor_is_left_alone(make_host):
    """With a long ttl_ms it has five seconds."""
    a = make_host("a", lease="ttl_ms = 60000;")
    process, path = job(a)
    keeper = a.keeper_pids()[1]
    os.kill(keeper, signal.SIGSTOP)
    with pytest.raises(AssertionError):
        wait_until(lambda: "hangs" in a.log(), "it is found to hang", 3)
    os.kill(keeper, signal.SIGCONT)
    wait_until(a.serves, "it serves")
    assert serving(a) == keeper and "hangs" not in a.log()
    end(process, path)
