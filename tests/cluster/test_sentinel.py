"""
Redis with replicas and sentinels: a failover, to a replica that was behind as well, loses no lock and gives no lock to
two hosts, also while the old master lives on.
"""
import signal

import pytest
from harness import wait_until
from harness.crowd import Crowd
from harness.nodes import MASTER

from failover import SHORT, Work, reconnected
from jobs import is_frozen, size
from keepers import held, opened

pytestmark = pytest.mark.of_redis("is about Redis Sentinel")


@pytest.mark.long
@pytest.mark.parametrize("count,how", [(3, "kill"), (5, "kill two"), (3, "stop"), (5, "asked for")])
def test_failover(make_nodes, host_at, count, how):
    """The lease is put back, the job loses nothing, and the waiter gets the lock afterwards."""
    nodes = make_nodes(count)
    a, b = host_at(nodes.settings, "a").init(), host_at(nodes.settings, "b").wait_up()
    holder, other = Work(a), opened(b).say("flock 0 ex")
    wait_until(lambda: held(b, note="waits for another host"), "b is queued")
    old = nodes[0]
    if how == "asked for":
        nodes.sentinels[0].command("SENTINEL", "FAILOVER", MASTER)
    else:
        old.signal(signal.SIGSTOP if how == "stop" else signal.SIGKILL)
    if how == "kill two":  # of five: a majority is left
        nodes[4].stop()
    new = nodes.failed_over(old)
    for host in a, b:
        reconnected(host, new)
    holder.is_put_back()
    holder.goes_on()
    if how.startswith("kill"):
        old.restart()
    old.signal(signal.SIGCONT)
    wait_until(lambda: old.role() == "slave", "the old master follows the new one", 40)
    holder.hands_over(b, other)


@pytest.mark.long
def test_two_nodes_grant_only_together(make_nodes, host_at):
    """A majority of two is two: safe, but one alone is no store."""
    nodes = make_nodes(2)
    a, b = host_at(nodes.settings, "a", lease=SHORT).init(), host_at(nodes.settings, "b", lease=SHORT).wait_up()
    holder, other = Work(a), opened(b)
    nodes[0].stop()
    nodes.failed_over(nodes[0])
    wait_until(lambda: "are frozen" in a.log(), "the job is frozen", 20)
    wait_until(lambda: "0 replicas are connected to it, and 1 must acknowledge" in b.log(), "b says why", 20)
    assert other.do("flock 0 ex nb") == "ENOLCK"
    assert is_frozen(holder.path)
    last = size(holder.path)
    other.say("flock 0 ex")
    nodes[0].start()
    assert other.heard(60)[0] == "ok"
    # It had run out, and the new master cannot tell which host had it meanwhile.
    assert holder.process.wait(20) and size(holder.path) == last and a.status()["lost"]


def behind_is_first(i):
    """The master, one that will be promoted before any other, and the rest."""
    return ("--replica-priority", "1" if i == 1 else "100")


@pytest.mark.long
def test_failover_to_a_replica_that_was_behind(make_nodes, host_at):
    """That replica has never heard of the lease. The lease's host puts it back, and its key (redis_key), and until then nothing is granted."""
    nodes = make_nodes(3, options=behind_is_first)
    rules = '{ path = "%s/f"; name = "t/f"; redis_key = "key"; }'
    a, b = host_at(nodes.settings, "a", rules=rules).init(), host_at(nodes.settings, "b", rules=rules).wait_up()
    nodes[1].command("REPLICAOF", "127.0.0.1", "1")  # nobody is there
    holder, other = Work(a), opened(b)
    assert nodes[1].command("EXISTS", "dflock:{0}:lock:t/f") == nodes[1].command("EXISTS", "key") == 0
    nodes[0].stop()
    assert nodes.failed_over(nodes[0]) is nodes[1]
    assert other.do("flock 0 ex nb") in ("ENOLCK", "EAGAIN")
    reconnected(a, nodes[1])
    holder.is_put_back()
    wait_until(lambda: nodes[1].command("GET", "key") == holder.lease["token"], "the key is put back")
    holder.hands_over(b, other.say("flock 0 ex"))


def two_masters(make_nodes, host_at, replicas):
    """
    Host a's master still feeds one replica of five. The others, among them b's master, have left it. All by hand: no sentinel brings the two
    together. The holder of the lock at a, and a caller for it at b.
    """
    nodes = make_nodes(5, sentinels=0)
    old, new, _, *leaving = nodes.all
    for node in leaving:  # as many replicas as the wrong configuration says are left
        node.command("REPLICAOF", "127.0.0.1", "1")
    wait_until(lambda: old.has_replicas(2), "some have left before")
    a = host_at(nodes.at(0, replicas), "a", lease=SHORT).init()
    holder = Work(a)
    new.promote()
    for node in leaving:
        node.follow(new)
    wait_until(lambda: new.has_replicas(2), "the rest follows the new master")
    assert old.role() == new.role() == "master" and old.has_replicas(1)
    b = host_at(nodes.at(1, replicas), "b", lease=SHORT)
    return a, holder, opened(b)


def test_a_master_that_is_cut_off_grants_and_renews_nothing(make_nodes, host_at):
    a, holder, other = two_masters(make_nodes, host_at, 4)
    another = a.opened("g")
    wait_until(lambda: "are frozen" in a.log(), "the job is frozen", 20)
    assert another.do("flock 0 ex nb") == "ENOLCK"
    assert other.do("flock 0 ex", seconds=30) == "ok"
    last = size(holder.path)
    assert is_frozen(holder.path) and size(holder.path) == last


def test_with_too_few_acknowledgements_both_hold(make_nodes, host_at):
    """Shows that the test above can fail: a wrong number of replicas in the configuration."""
    a, holder, other = two_masters(make_nodes, host_at, 2)
    assert other.do("flock 0 ex", seconds=30) == "ok"
    holder.goes_on()
    assert holder.stands()


def test_grace_counts_from_the_acknowledgement(make_nodes, host_at):
    """
    The replica that was promoted has no replica yet: the old master still has one, and goes on. Only when that one
    follows the new master does grace begin there.
    """
    nodes = make_nodes(3, sentinels=0)
    old, new, third = nodes.all
    a = host_at(nodes.at(0, 2), "a", lease=SHORT).init()
    holder = Work(a)
    new.promote()
    wait_until(lambda: old.has_replicas(1), "one replica is left")
    b = host_at(nodes.at(1, 2), "b", lease=SHORT)
    other = opened(b).say("flock 0 ex")
    wait_until(lambda: "0 replicas are connected" in b.log(), "b says what is missing")
    beat = nodes[0].command("HGET", "dflock:{0}:hosts", a.status()["host"])
    wait_until(lambda: int(nodes[0].command("HGET", "dflock:{0}:hosts", a.status()["host"])) > int(beat) + 4000,
               "more than a ttl passes")
    holder.goes_on()
    assert other.silent(0.1) and "are frozen" not in a.log()
    third.follow(new)
    assert other.heard(30)[0] == "ok"
    assert "are frozen" in a.log() and is_frozen(holder.path)


def test_hand_over_counts_when_it_is_acknowledged(make_nodes, host_at):
    """The script that released has granted it to b, but no replica has that: b must not use it yet."""
    nodes = make_nodes(3, sentinels=0)
    a, b = host_at(nodes.at(0, 2), "a").init(), host_at(nodes.at(0, 2), "b").wait_up()
    one, other = a.opened("f", "flock 0 ex"), opened(b).say("flock 0 ex")
    wait_until(lambda: held(b, note="waits for another host"), "b is queued")
    for node in nodes[1], nodes[2]:
        node.signal(signal.SIGSTOP)
    assert one.do("flock 0 un") == "ok"
    count = "return #cmsgpack.unpack(redis.call('GET', KEYS[1])).q"
    wait_until(lambda: nodes[0].command("EVAL", count, 1, "dflock:{0}:lock:t/f") == 0, "the master has granted it", 30)
    assert other.silent(0.5)
    wait_until(lambda: "0 of the 1 replicas that must have acknowledged" in b.log(), "b says why", 20)
    assert other.silent(0.5)
    for node in nodes[1], nodes[2]:
        node.signal(signal.SIGCONT)
    assert other.heard(30)[0] == "ok"


def test_more_replicas_than_configured(make_nodes, host_at):
    """Half of fewer would not be a majority."""
    nodes = make_nodes(3, sentinels=0)
    host = host_at(nodes.at(0, 1), "a")
    wait_until(lambda: "2 replicas are connected to it, and the configuration says replicas = 1" in host.log(), "it says so")
    host.cli("log-level", "debug")  # all lines
    nodes[2].promote()
    agent = opened(host.init())
    assert agent.do("flock 0 ex nb") == "ok"
    nodes[2].follow(nodes[0])
    wait_until(lambda: nodes[0].has_replicas(2), "it is back")
    wait_until(lambda: host.log().count("2 replicas are connected to it") == 2, "it is noticed")


def test_beats_count_only_when_acknowledged(make_nodes, host_at):
    """Replicas that are connected but do not answer: the job is frozen in time, and goes on, since no other host got the lock."""
    nodes = make_nodes(3, sentinels=0)
    a, b = (host_at(nodes.at(0, 2), n, lease=SHORT) for n in "ab")
    a.init()
    holder, other = Work(a), opened(b).say("flock 0 ex")
    wait_until(lambda: held(b, note="waits for another host"), "b is queued")
    for node in nodes[1], nodes[2]:
        node.signal(signal.SIGSTOP)
    wait_until(lambda: held(a, state="unsure"), "the lease has run out", 20)
    assert is_frozen(holder.path) and other.silent(0.1)
    nodes[2].signal(signal.SIGCONT)
    wait_until(lambda: "go on" in a.log(), "the job is let go", 20)
    holder.goes_on()
    holder.end()
    assert other.heard(30)[0] == "ok"


class Unwatched:
    """No samples of the store: it moves."""

    def command(self, *words):
        return []


@pytest.mark.long
def test_many_workers_and_failovers(make_nodes, host_at, folder):
    """Two failovers while workers on three hosts lock and are killed: no two ever had a lock at once, and all go on."""
    nodes = make_nodes(3)
    names = {"a": 20, "b": 10, "c": 0}
    hosts = [host_at(nodes.settings, n, lease="ttl_ms = 20000; linger_ms = 20;") for n in names]
    hosts[0].init()
    for host in hosts:
        host.wait_up()
    crowd = Crowd(hosts, folder, 7, names).start()
    try:
        got = 0
        for how in signal.SIGSTOP, signal.SIGKILL:
            old = nodes.master()
            crowd.run(1, Unwatched(), crowd.kill_a_worker)
            old.signal(how)
            new = nodes.failed_over(old)
            if how == signal.SIGKILL:
                old.restart()
            old.signal(signal.SIGCONT)
            for host in hosts:
                reconnected(host, new)
            wait_until(lambda: old.role() == "slave" and new.has_replicas(2), "the old master follows", 40)
            before = len(crowd.history().calls)
            wait_until(lambda: len(crowd.history().calls) > before + 20, "locks are granted again", 40)
            got += 1
        crowd.stop()
        h = crowd.history()
        print(h.summary())
        assert crowd.wrong() == []
        assert not set(h.failures) - {"EAGAIN", "EINTR", "ENOLCK"}, h.failures
        assert got == 2 and not any(host.status()["lost"] for host in hosts)
    finally:
        crowd.abandon()
        crowd.recorder.close()
