"""
`dflock metrics`: each thing that is counted is caused, and its counter moves by exactly so much; and no other moves. What goes
wrong with the store, with holders and with keepers: test_metrics_trouble.py. Refusals: tests/faults/test_metrics_refusals.py.
"""
import os

import harness.host
import pytest
from harness import Job, wait_until
from harness.metrics import Since, key_of, metrics, promtool, value

from keepers import LONG, opened, waits

PAST = os.path.join(harness.host.BUILD, "tests/agents/past")
TAKE = {"flock": "flock 0 ex", "record": "setlk 0 ex 0 0 w"}
SHARE = {"flock": "flock 0 sh", "record": "setlk 0 sh 0 0 w"}
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


@pytest.mark.parametrize("space", ["flock", "record"])
def test_a_shrink_is_a_hand_over(make_host, space):
    a, b = make_host("a", lease=LONG), make_host("b", lease=LONG)
    first, second = opened(a), opened(b)
    assert first.do(TAKE[space]) == "ok" and first.do(SHARE[space]) == "ok"
    before = Since(a.wait_up())
    assert second.do(SHARE[space]) == "ok"
    assert before.moved() == counts(space=space, handovers_total=1, lease_recall_seconds_count=1)


def test_a_lock_by_the_page_is_not_seen(make_host):
    a = make_host("a", lease=LONG)
    agent = a.opened("f", "flock 0 ex")
    before = Since(a.wait_up())
    for _ in range(10):
        assert agent.do("flock 0 un") == "ok" and agent.do("flock 0 ex") == "ok"
    assert before.moved() == {}
    assert value(a, "page_leases") == 1


@pytest.mark.parametrize("space,call", [("flock", "flock 0 ex nb"), ("record", "setlk 0 ex 0 0")])
def test_busy(make_host, space, call):
    a, b = make_host("a", lease=LONG), make_host("b", lease=LONG)
    holder, other = opened(a), opened(b)
    assert holder.do(TAKE[space]) == "ok"
    before = Since(b.wait_up())
    assert other.do(call) == "EAGAIN"
    assert before.moved() == counts(space=space, lock_busy_total=1)


def test_abandoned(make_host):
    a, b = make_host("a", lease=LONG), make_host("b", lease=LONG)
    holder, waiter = a.opened("f", "flock 0 ex"), opened(b)
    before = Since(b.wait_up())
    waiter.say("flock 0 ex")
    waits(b)
    waiter.kill()
    wait_until(lambda: value(b, "waiters", space="flock") == 0, "the keeper has noticed")
    assert before.moved() == {"dflock_lock_abandoned_total": 1}


def test_deadlock(make_host):
    a, b = make_host("a", lease=LONG), make_host("b", lease=LONG)
    first, second = a.opened("f", "setlk 0 sh 0 10"), b.opened("f", "setlk 0 sh 0 10")
    first.say("setlk 0 ex 0 10 w")
    waits(a)
    before = Since(b.wait_up())
    assert second.do("setlk 0 ex 0 10 w") == "EDEADLK"
    assert before.moved()["dflock_lock_deadlocks_total"] == 1
    assert second.do("setlk 0 un 0 10") == "ok" and first.heard()[0] == "ok"


def test_taken_past(make_host):
    a = make_host("a", lease="ttl_ms = 3000; past_look_ms = 50;")
    before = Since(a.wait_up())
    job = Job(a, PAST, "flock", a.path("f")).held()
    wait_until(lambda: value(a, "locks_past") == 1, "it is reported", 60)
    assert before.moved() == {"dflock_locks_past": 1, "dflock_taken_past_total": 1}
    job.kill()
    wait_until(lambda: value(a, "locks_past") == 0, "it has gone", 60)
    assert before.moved() == {"dflock_taken_past_total": 1}


def test_waited_and_held_too_long(make_host):
    rule = '{ tree = "%s"; name = "t"; warn_after_ms = 1000; wait_warn_ms = 1000; }'
    a, b = make_host("a", lease=LONG, rules=rule), make_host("b", lease=LONG, rules=rule)
    holder, waiter = opened(a), opened(b)
    before, other = Since(a.wait_up()), Since(b.wait_up())
    assert holder.do("flock 0 ex") == "ok"
    waiter.say("flock 0 ex")
    wait_until(lambda: value(a, "held_too_long_total") and value(b, "waited_too_long_total"), "both are reported")
    assert before.moved() == {**granted_first("flock"), "dflock_held_too_long_total": 1}
    assert other.moved() == {"dflock_waited_too_long_total": 1}


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
