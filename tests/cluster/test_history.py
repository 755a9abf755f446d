"""
Workers on three hosts take locks at random; they and keepers are killed at random. A checker reads what they wrote down.

The random choices come from a seed, which is printed: DFLOCK_HISTORY_SEED=N makes the same choices again (when they
meet is up to the machine). DFLOCK_HISTORY_SECONDS=N is how long the workers run (default 10).
"""
import os
import random
import select

import harness.host
import pytest
from harness import history, wait_until
from harness.crowd import Crowd
from harness.mistakes import HISTORY
from harness.mutants import mutant

SECONDS = float(os.environ.get("DFLOCK_HISTORY_SECONDS", "10"))
SEED = int(os.environ.get("DFLOCK_HISTORY_SEED", str(random.SystemRandom().randrange(1 << 32))))
WORKERS = {"a": 30, "b": 10, "c": 0}  # host -> how many of its 100 calls are LOCK_NB
# Long: no host may seem dead because this machine is busy.
LEASE = "ttl_ms = 10000; linger_ms = 20;"


@pytest.fixture
def make_crowd(make_host, folder):
    crowds = []

    def make(crowd_options=None, **options):
        hosts = [make_host(n, lease=LEASE, **options) for n in WORKERS]
        crowd = Crowd(hosts, folder, SEED, WORKERS, **(crowd_options or {}))
        crowds.append(crowd)
        return crowd.start()

    yield make
    for crowd in crowds:
        crowd.abandon()
        crowd.recorder.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["flock", "record"])
def test_random_runs(make_crowd, redis, kind):
    crowd = make_crowd({"kind": kind})
    for _ in range(5):  # on a busy machine it takes longer to be a test
        crowd.run(SECONDS, redis)
        if crowd.history().handovers() > 3 * SECONDS:
            break
    crowd.stop()
    h = crowd.history()
    orders = sum(1 for _ in history.first_comers(h, crowd.samples))
    print(f"{h.summary()}; order watched for {orders} waiters in {len(crowd.samples)} samples")
    assert crowd.wrong() == []
    assert not set(h.failures) - {"EAGAIN", "EINTR"}, h.failures
    # It was a test at all.
    assert {c.host for c in h.calls} == set(WORKERS)
    assert h.handovers() > 3 * SECONDS and h.kills > SECONDS / 2 and orders > SECONDS


def in_turn(waiting, unlock):
    """Hears every agent of [(name, agent)] as it gets the lock, has it unlock, and returns the names in that order."""
    got = []
    while waiting:
        ready, _, _ = select.select([agent.process.stdout for _, agent in waiting], [], [], 20)
        assert ready, f"{[name for name, _ in waiting]} still wait"
        for name, agent in [w for w in waiting if w[1].process.stdout in ready]:
            word, when = agent.heard()
            assert word == "ok" and agent.do(unlock) == "ok"
            got.append((when, name))
            waiting.remove((name, agent))
    return [name for _, name in sorted(got)]


@pytest.mark.parametrize("lock, unlock", [("flock 0 ex", "flock 0 un"), ("setlk 0 ex 0 10 w", "setlk 0 un 0 10")])
def test_rounds_of_arrivals(make_host, redis, lock, unlock):
    """In each round hosts come one after the other, each when the store has seen the one before: they must get it in this order."""
    dice = random.Random(SEED)
    print(f"DFLOCK_HISTORY_SEED={SEED} repeats this")
    agents = {}
    for host in [make_host(n, lease=LEASE) for n in "abcd"]:
        agents[host.name] = [host.agent(), host.agent()]
        for agent in agents[host.name]:
            assert agent.do(f"open 0 {host.path('f')} rwc") == "ok"
    for _ in range(12):
        holder, *arrivals = dice.sample(sorted(agents), len(agents))
        assert agents[holder][0].do(lock) == "ok"
        waiting = []
        for name in arrivals:
            waiting.append((name, agents[name][0].say(lock)))
            wait_until(lambda: any(w.host == name for w in history.sample(redis, ["f"])[0].waiters), name + " is queued")
        for name in dice.sample(arrivals, 2):  # more of the same host change nothing
            waiting.append((name, agents[name][1].say(lock)))
        assert agents[holder][0].do(unlock) == "ok"
        assert list(dict.fromkeys(in_turn(waiting, unlock))) == arrivals


# --- the checker finds what it is for ---


def until_wrong(crowd, what, redis, disturb=None):
    """A crowd in which the checker must soon find a violation."""
    def found():
        crowd.run(0.3, redis, disturb)
        return [line for line in crowd.wrong() if line.startswith(what)]
    return wait_until(found, f"the checker reports: {what}", 30)


def test_without_shim_it_overlaps(make_crowd, redis):
    """The control: the same run with the kernel alone, for which the hosts' files are different ones."""
    assert until_wrong(make_crowd(shim=False), "overlap", redis)


@pytest.mark.parametrize("name", HISTORY)
def test_mutants(name, make_crowd, redis, monkeypatch):
    """A keeper or store with a mistake: the run must fail, with the line that fits the mistake."""
    what, changes = HISTORY[name]
    with mutant(changes, harness.host.BUILD, "dflockd") as made:
        # With the shim beside it, since programs start a keeper from there when both of its processes were killed.
        monkeypatch.setattr(harness.host, "SHIM", os.path.join(made, "libdflock.so"))
        monkeypatch.setattr(harness.host, "KEEPER", os.path.join(made, "dflockd"))
        options = {"overtaken": {"per_host": 1}, "overlap after kill": {"hold_us": [200000]}}  # where it shows soon
        crowd = make_crowd(options.get(what))
        assert until_wrong(crowd, what.split()[0], redis, crowd.kill_a_keeper if "kill" in what else None)


def lines(text):
    return history.History(line.strip() + "\n" for line in text.strip().splitlines())


def test_checker_on_overlaps():
    """Intervals that touch do not overlap; shared ones may; a kill ends what was certain; a child goes on."""
    good = """
        call 1 a 1 1 f exclusive wait
        got 2 a 1 1 f exclusive
        end 5 a 1 1
        call 1 b 2 1 f shared wait
        got 5 b 2 1 f shared
        call 6 c 3 1 f shared nb
        got 7 c 3 1 f shared
        kill 8 c 3
        end 9 b 2 1
        call 6 a 1 2 g exclusive wait
        got 7 a 1 2 g exclusive"""
    assert history.check(lines(good)) == []
    assert len(history.check(lines(good + "\ncall 3 d 4 1 f shared nb\ngot 4 d 4 1 f shared"))) == 1
    assert len(history.check(lines(good + "\ncall 3 d 4 1 f exclusive wait\ngot 8 d 4 1 f exclusive"))) == 1
    assert len(history.check(lines(good + "\ncall 3 d 4 1 f exclusive wait\ngot 9 d 4 1 f exclusive"))) == 0
    h = lines(good)
    assert (h.begun, h.kills, h.handovers(), dict(h.failures)) == (4, 1, 0, {})


def test_checker_on_order():
    waits = history.Entry("a", "t1", "exclusive")
    holds = history.Entry("c", "t0", "exclusive")
    samples = [history.Sample("f", 10, 11, [holds], [waits]), history.Sample("f", 20, 21, [], [waits])]
    late = "call {} {} 2 1 f exclusive wait\ngot {} {} 2 1 f exclusive"
    assert len(history.check(lines(late.format(12, "b", 19, "b")), samples)) == 1
    for fine in (late.format(10, "b", 19, "b"),  # it may have come first
                 late.format(12, "b", 21, "b"),  # the waiter may have gone
                 late.format(12, "c", 19, "c"),  # it had a lease
                 late.format(12, "b", 19, "b") + "\ncall 13 a 1 1 f shared nb",
                 "call 12 b 2 1 f shared wait\ngot 19 b 2 1 f shared"):
        assert history.check(lines(fine), samples) == []
