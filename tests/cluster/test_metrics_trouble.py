"""`dflock metrics`, when the store, holders or keepers are in trouble; and which counts survive a keeper."""
import os
import signal

from harness import Job, wait_until
from harness.metrics import Since, key_of, metrics, value

from jobs import SLOW_LEASE
from keepers import LONG, both_anew, kill_keeper, opened

HOLD = 'exec 9>"$1"; flock 9 && echo held; read line'


def holding(host):
    agent = host.opened("f", "flock 0 ex")
    return agent


def ended(reason, number):
    return key_of("ended_processes_total", reason=reason, signal=number)


def died(agent):
    wait_until(lambda: agent.process.poll() is not None, "the holder has ended", 30)


def moves(since, want):
    """In the end exactly these have moved."""
    seen = {}

    def same():
        seen.clear()
        seen.update(since.moved())
        return {k: v for k, v in seen.items() if k in want} == want

    try:
        wait_until(same, "the counts have moved", 30)
    except AssertionError:
        raise AssertionError(f"{seen} instead of {want}") from None
    assert seen == want


def test_freeze_and_thaw_survive_a_keeper(make_host, redis):
    # A beat is sent before the connection counts as broken: a third of ttl_ms is shorter than connect_ms.
    a = make_host("a", lease=SLOW_LEASE, store="connect_ms = 6000;")
    agent = holding(a)
    before = Since(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: value(a, "frozen_processes"), "the holder is frozen", 30)
    now = metrics(a)
    assert now["dflock_frozen_processes"] == 1 and now["dflock_freezes_total"] == 1
    wait_until(lambda: value(a, "store_up") == 0, "the connection counts as broken", 30)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: value(a, "frozen_processes") == 0 and value(a, "store_up") == 1, "it goes on", 30)
    moves(before, {"dflock_freezes_total": 1, "dflock_store_connects_total": 1, "dflock_store_disconnects_total": 1})
    assert value(a, "beats_total", result="unanswered") == 1
    assert agent.do("flock 0 un") == "ok"
    kill_keeper(a)
    now = metrics(a)
    assert now["dflock_freezes_total"] == 1 and now["dflock_keeper_restarts_total"] == 1 and now["dflock_keeper_hangs_total"] == 0
    assert now["dflock_store_disconnects_total"] == 0  # the keeper's own begin again
    assert now["dflock_start_time_seconds"] >= before.first["dflock_start_time_seconds"]


def test_a_new_parent_begins_again(make_host, redis):
    a = make_host("a", lease=LONG)
    kill_keeper(a)
    assert value(a, "keeper_restarts_total") == 1
    old = a.keeper_pids()
    os.kill(old[0], signal.SIGKILL)
    both_anew(a, old)
    assert value(a, "keeper_restarts_total") == 0


def test_a_keeper_that_hangs(make_host, redis):
    a = make_host("a", lease=SLOW_LEASE)
    keeper = a.keeper_pids()[1]
    os.kill(keeper, signal.SIGSTOP)
    wait_until(lambda: "hangs: it is killed" in a.log(), "the parent has noticed", 60)
    wait_until(a.serves, "the next one serves", 30)
    now = metrics(a)
    assert now["dflock_keeper_hangs_total"] == 1 and now["dflock_keeper_restarts_total"] == 1


def test_killed_because_another_host_got_it(make_host, redis, proxy):
    b = make_host("b", lease=SLOW_LEASE)
    a = make_host("a", lease=SLOW_LEASE, server=proxy.address).wait_up()
    agent = holding(a)
    before = Since(a)
    proxy.accepting = False
    proxy.cut()
    other = opened(b)
    assert other.do("flock 0 ex", seconds=30) == "ok"
    proxy.accepting = True
    died(agent)
    moves(before, {"dflock_freezes_total": 1, "dflock_store_connects_total": 1, "dflock_store_disconnects_total": 1,
                   key_of("leases_lost_total", reason="taken"): 1, ended("lost", "KILL"): 1,
                   key_of("lease_hold_seconds_count", space="flock"): 1})


def test_killed_because_the_store_forgot(make_host, redis):
    a = make_host("a", lease=SLOW_LEASE)
    agent = holding(a)
    before = Since(a)
    redis.stop()
    wait_until(lambda: value(a, "deadline_left_seconds") == 0, "the deadline passes", 30)
    redis.start()
    died(agent)
    wait_until(lambda: value(a, "store_grace") == 0, "grace is over", 30)
    moves(before, {"dflock_freezes_total": 1, "dflock_store_connects_total": 1, "dflock_store_disconnects_total": 1,
                   "dflock_store_memory_losses_total": 1, key_of("leases_lost_total", reason="forgotten"): 1,
                   ended("lost", "KILL"): 1, key_of("lease_hold_seconds_count", space="flock"): 1})


def test_put_back_after_a_short_loss(make_host, redis):
    a = make_host("a", lease=LONG)
    agent = holding(a)
    before = Since(a)
    redis.restart()
    wait_until(lambda: value(a, "store_memory_losses_total"), "it is noticed", 30)
    moves(before, {"dflock_store_connects_total": 1, "dflock_store_disconnects_total": 1, "dflock_store_memory_losses_total": 1,
                   "dflock_store_grace": 1})
    assert agent.do("pid") == "ok"


def test_on_lost_kill(make_host, redis):
    """One ends by SIGTERM, the other one ignores it."""
    a = make_host("a", lease=SLOW_LEASE, rules='{ tree = "%s"; name = "t"; on_lost = "kill"; }')
    agent = holding(a)
    job = Job(a, "bash", "-c", 'trap "" TERM; ' + HOLD, "job", a.path("g")).held()
    before = Since(a)
    redis.signal(signal.SIGSTOP)
    died(agent)
    job.process.wait(30)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: value(a, "store_up") == 1, "the store is back", 30)
    now = before.moved()
    assert now[ended("expired", "TERM")] == 2 and now[ended("expired", "KILL")] == 1
    assert "dflock_freezes_total" not in now and ended("lost", "KILL") not in now


def test_broken(make_host):
    a = make_host("a", lease=LONG)
    agent = holding(a)
    before = Since(a)
    assert a.cli("break", "--yes", a.path("f"), check=False).returncode == 0
    died(agent)
    moves(before, {key_of("leases_lost_total", reason="broken"): 1, ended("broken", "KILL"): 1,
                   key_of("lease_hold_seconds_count", space="flock"): 1})


def test_kill_after_ms(make_host):
    a = make_host("a", lease="ttl_ms = 6000; freeze_margin_ms = 600; pin_ms = 50; linger_ms = 100;",
                  rules='{ tree = "%s"; name = "t"; kill_after_ms = 1000; }')
    jobs = [Job(a, "bash", "-c", trap + HOLD, "job", a.path(name)) for name, trap in (("f", ""), ("g", 'trap "" TERM; '))]
    before = Since(a)
    assert [job.line() for job in jobs] == ["held", "held"]
    for job in jobs:
        job.process.wait(60)
    moved = before.moved()
    assert moved[ended("held_too_long", "TERM")] == 2 and moved[ended("held_too_long", "KILL")] == 1


