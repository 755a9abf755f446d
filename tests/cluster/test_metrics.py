"""
`dflock metrics`: each thing that is counted is caused, and its counter moves by exactly so much; and no other moves. What is an event, too:
test_events.py. Refusals: tests/faults/test_metrics_refusals.py.
"""
import os

import pytest
from harness import Job, wait_until
from harness.metrics import Since, ended, key_of, metrics, promtool, value

from jobs import SLOW_LEASE
from keepers import LONG, opened, waits

TAKE = {"flock": "flock 0 ex", "record": "setlk 0 ex 0 0 w"}
LEAVE = {"flock": "flock 0 un", "record": "setlk 0 un 0 0"}


def counts(**values):
    """{"handovers_total": 1} and the space, as Since.moved() has it."""
    space = values.pop("space")
    return {key_of(name, space=space): n for name, n in values.items()}


def granted_first(space):
    """A first lock of a name: a lease, and the caller's answer."""
    return counts(space=space, lease_grants_total=1, lock_wait_seconds_count=1)


@pytest.mark.parametrize("space", ["flock", "record"])
def test_a_grant_a_wait_and_a_hand_over(make_host, space):
    a, b = make_host("a", lease=LONG), make_host("b", lease=LONG)
    before, other = Since(a.wait_up()), Since(b.wait_up())
    holder, waiter = opened(a), opened(b)
    assert holder.do(TAKE[space]) == "ok"
    assert before.moved() == granted_first(space)
    assert value(a, "leases", space=space, state="held") == 1
    waiter.say(TAKE[space])
    waits(b)
    assert value(b, "waiters", space=space) == 1 and value(b, "leases", space=space, state="asking") == 1
    assert value(a, "stores_leases", store="default") == 1 and value(b, "stores_leases", store="default") == 0  # it has no deadline
    assert holder.do(LEAVE[space]) == "ok"
    assert waiter.heard()[0] == "ok"
    wait_until(lambda: value(a, "leases", space=space, state="releasing") == 0, "a has given it back")
    assert before.moved() == {**granted_first(space),
                              **counts(space=space, handovers_total=1, lease_hold_seconds_count=1, lease_recall_seconds_count=1)}
    assert other.moved() == granted_first(space)
    now = metrics(b)
    assert now[key_of("waiters", space=space)] == 0 and now[key_of("lock_wait_seconds_sum", space=space)] > 0
    held, recalled = (value(a, f"lease_{what}_seconds_sum", space=space) for what in ("hold", "recall"))
    assert held > recalled > 0


def test_a_shrink_is_a_hand_over(make_host):
    a, b = make_host("a", lease=LONG), make_host("b", lease=LONG)
    first, second = a.opened("f", "setlk 0 ex 0 0", "setlk 0 sh 0 0"), opened(b)
    before = Since(a.wait_up())
    assert second.do("setlk 0 sh 0 0 w") == "ok"
    assert before.moved() == counts(space="record", handovers_total=1, lease_recall_seconds_count=1)
    assert first.do("setlk 0 un 0 0") == "ok"


def test_other_ends_of_calls(make_host):
    """A lock by the page, which the keeper does not see; busy; a waiter that is killed; a deadlock."""
    a, b = make_host("a", lease=LONG), make_host("b", lease=LONG)
    agent, other, waiter = a.opened("f", "flock 0 ex"), opened(b), opened(b)
    before = Since(a.wait_up())
    for _ in range(10):
        assert agent.do("flock 0 un") == "ok" and agent.do("flock 0 ex") == "ok"
    assert before.moved() == {} and value(a, "page_leases") == 1
    before = Since(b.wait_up())
    assert other.do("flock 0 ex nb") == "EAGAIN"
    assert before.moved() == counts(space="flock", lock_busy_total=1)
    before = Since(b)
    waiter.say("flock 0 ex")
    waits(b)
    waiter.kill()
    wait_until(lambda: value(b, "waiters", space="flock") == 0, "the keeper has noticed")
    assert before.moved() == {"dflock_lock_abandoned_total": 1}
    first, second = a.opened("g", "setlk 0 sh 0 10"), b.opened("g", "setlk 0 sh 0 10")
    first.say("setlk 0 ex 0 10 w")
    waits(a, "g")
    before = Since(b)
    assert second.do("setlk 0 ex 0 10 w") == "EDEADLK"
    assert before.moved()["dflock_lock_deadlocks_total"] == 1
    assert second.do("setlk 0 un 0 10") == "ok" and first.heard()[0] == "ok"


def test_other_rules_elsewhere(make_host):
    """Compared when somebody asks, and there the next time."""
    make_host("b", rules='{ tree = "%s"; name = "other"; }')
    make_host("c", rules='{ tree = "/nothing/at/all"; name = "t"; }')
    a = make_host("a", rules='{ tree = "/nothing/at/all"; name = "t"; }').wait_up()
    metrics(a)
    wait_until(lambda: value(a, "rules_compared_timestamp_seconds"), "it is compared")
    assert [value(a, "rules_hosts", rules=r) for r in ("same", "different", "unknown")] == [1, 1, 0]


def test_configuration_that_is_refused(make_host):
    a = make_host("a")
    assert value(a, "config_refused") == 0
    with open(a.config, "a") as f:
        f.write("nonsense")
    wait_until(lambda: value(a, "config_refused") == 1, "the keeper has seen it")


def test_awkward_names(make_host):
    """No name of a lock, a file, a user or a process is in the text, so none can spoil it."""
    a = make_host("a")
    plain = metrics(a)
    names = [b'x"} 7\ndflock_up 2\n', b"\\", b"# HELP", b"\xff\xfe", "é\u202e".encode(), b"a" * 200, b"{}", b"\r\x1b[2J"]
    jobs = [Job(a, "flock", os.path.join(a.files.encode(), name), "sh", "-c", "echo held; read line") for name in names]
    assert all(job.line() == "held" for job in jobs)
    text = a.cli("metrics").stdout
    assert promtool(text) == (0, "")
    now = metrics(a)
    assert set(now) == set(plain) and now[key_of("leases", space="flock", state="held")] == len(names)
    assert text.isascii() and "job" not in text.replace("lock_", "")


def test_killed_because_another_host_got_it(make_host, proxy):
    b = make_host("b", lease=SLOW_LEASE)
    a = make_host("a", lease=SLOW_LEASE, server=proxy.address).wait_up()
    agent = a.opened("f", "flock 0 ex")
    before = Since(a)
    proxy.accepting = False
    proxy.cut()
    other = opened(b)
    assert other.do("flock 0 ex", seconds=30) == "ok"
    proxy.accepting = True
    agent.process.wait(30)
    before.moves({"dflock_freezes_total": 1, "dflock_store_connects_total": 1, "dflock_store_disconnects_total": 1,
                  key_of("leases_lost_total", reason="taken"): 1, ended("lost", "KILL"): 1,
                  key_of("lease_hold_seconds_count", space="flock"): 1})


def test_put_back_after_a_short_loss_and_broken(make_host, redis):
    a = make_host("a", lease=LONG)
    agent = a.opened("f", "flock 0 ex")
    before = Since(a)
    redis.restart()
    wait_until(lambda: value(a, "store_memory_losses_total"), "it is noticed", 30)
    back = {"dflock_store_connects_total": 1, "dflock_store_disconnects_total": 1, "dflock_store_memory_losses_total": 1,
            "dflock_store_grace": 1}
    before.moves(back)
    assert agent.do("pid") == "ok"
    assert a.cli("break", "--yes", a.path("f"), check=False).returncode == 0
    agent.process.wait(30)
    before.moves({**back, key_of("leases_lost_total", reason="broken"): 1, ended("broken", "KILL"): 1,
                  key_of("lease_hold_seconds_count", space="flock"): 1})
