"""
A Redis Cluster as the store: hosts find the node that has dflock's slot, and follow it. While the slot moves to another node,
key by key, and after a failover, no lock has two holders (store/sentinel.c has the argument), and a job that holds one goes on.
"""
import re

import pytest
from harness import wait_until
from harness.cluster import SLOT, TAG
from harness.crowd import Crowd
from harness.history import overlaps

from failover import Work, attempt, reconnected
from keepers import held, opened

pytestmark = pytest.mark.of_redis("is about a Redis Cluster")


LEASE = "ttl_ms = 6000; linger_ms = 0;"  # a move takes less


def refused(host, line):
    wait_until(lambda: line in host.status()["store"]["error"], f"{host.name} says: {line}", 20)


def tries(node):
    """How often keepers have asked it whether it has the whole slot."""
    stats = node.command("INFO", "commandstats")
    found = re.search(r"cmdstat_exists:calls=(\d+),.*rejected_calls=(\d+)", stats)
    return sum(map(int, found.groups())) if found else 0


def test_hosts_exclude_each_other(make_cluster, host_at):
    """One node is named, and it is not the one that has the slot; messages come through the cluster."""
    cluster = make_cluster()
    owner = cluster.all[2]
    assert owner.command("CLUSTER", "KEYSLOT", TAG + "store") == SLOT and cluster.owner() is owner
    a = host_at(cluster.settings(nodes=cluster.all[:1]), "a").init()
    b = host_at(cluster.settings(nodes=cluster.all[1:]), "b").wait_up()
    assert a.status()["store"]["server"] == f"the cluster at 127.0.0.1:{owner.port}"
    mine, other = a.opened("f", "flock 0 ex"), opened(b)
    assert other.do("flock 0 ex nb") in ("EAGAIN", "EWOULDBLOCK")
    other.say("flock 0 ex")
    wait_until(lambda: held(b, note="waits for another host"), "b is queued")
    assert mine.do("flock 0 un") == "ok"
    assert other.heard(10)[0] == "ok"
    assert owner.has() > 0 and all(n.command("DBSIZE") == 0 for n in cluster.all[:2])
    found = a.cli("doctor", check=False).stdout
    assert found.count("of the cluster answers") == 1 and "problem" not in found.replace("0 problems", "")


def test_a_node_that_is_down_is_passed_over(make_cluster, host_at):
    cluster = make_cluster()
    settings = cluster.settings()
    cluster.all[0].stop()
    a = host_at(settings, "a").wait_up()
    found = a.cli("doctor", check=False).stdout
    assert f"node 127.0.0.1:{cluster.all[0].port} of the cluster is of no use: Connection refused" in found


def test_settings_that_do_not_fit_the_server(make_cluster, host_at, redis, folder):
    cluster = make_cluster(masters=1, replicas=1)
    refused(host_at(f'server = "127.0.0.1:{cluster.all[0].port}";', "a"),
            "it is a node of a Redis Cluster: name nodes of it in cluster, instead of server")
    refused(host_at(cluster.settings(replicas=0), "b"), "1 replicas are connected to it, and the configuration says replicas = 0")
    redis.stop()
    redis.port = cluster.all[1].port
    cluster.all[1].stop()
    redis.start()
    refused(host_at(f'cluster = ( "127.0.0.1:{redis.port}" ); replicas = 0;', "c"),
            "cluster support disabled\": is it a node of a Redis Cluster?")


@pytest.mark.parametrize("first", ["store", "hosts", "lock:t/f"])
def test_the_slot_moves_key_by_key(make_cluster, host_at, first):
    """Whichever key goes first: nothing is granted meanwhile, the holder's lease is put back at the new node, and goes on."""
    cluster = make_cluster()
    source, to = cluster.all[2], cluster.all[0]
    a, b = (host_at(cluster.settings(), name, lease="ttl_ms = 10000; linger_ms = 0;") for name in "ab")
    a.init()
    b.wait_up()
    holder, other = Work(a), opened(b)
    before = a.status()["cluster"]["incarnation"]
    cluster.begin_move(source, to)
    assert cluster.move_key(source, to, TAG + first)
    assert other.do("flock 0 ex nb") != "ok"
    refused(b, "dflock's slot is moving to another node of the cluster: wait")
    ups, tried = b.log().count("is reachable"), tries(source)
    wait_until(lambda: tries(source) > tried + 2, "b tries again")
    assert b.log().count("is reachable") == ups  # and does not take what is there for the store
    cluster.move_keys(source, to)
    assert other.do("flock 0 ex nb") != "ok"
    cluster.end_move(source, to)
    for host in a, b:
        reconnected(host, to)
    holder.is_put_back()
    assert a.status()["cluster"]["incarnation"] != before and a.status()["store"]["grace"]
    holder.hands_over(b, other.say("flock 0 ex"))


@pytest.mark.long
def test_two_hosts_work_while_the_slot_moves_to_and_fro(make_cluster, host_at, folder):
    """No lock overlaps another one, and between the moves locks are had again."""
    cluster = make_cluster()
    hosts = [host_at(cluster.settings(), name, lease=LEASE) for name in "ab"]
    hosts[0].init()
    hosts[1].wait_up()
    crowd = Crowd(hosts, folder, seed=1, nonblocking={"a": 30, "b": 30}).start()
    try:
        for turn in range(3):
            source = wait_until(cluster.owner, "the nodes agree")
            to = cluster.all[turn % 2] if cluster.all[turn % 2] is not source else cluster.all[2]
            cluster.begin_move(source, to)
            for key in source.keys():
                cluster.move_key(source, to, key)
            cluster.move_keys(source, to)
            cluster.end_move(source, to)
            wait_until(lambda: cluster.owner() is to, "the nodes agree")
            for host in hosts:
                reconnected(host, to)
                assert attempt(host)
    finally:
        crowd.stop()
    calls = crowd.history().calls
    assert len(calls) > 20 and not overlaps(calls), overlaps(calls)


@pytest.mark.long
def test_failover(make_cluster, host_at):
    """A replica of the node with the slot is promoted: as with sentinels."""
    cluster = make_cluster(replicas=2)
    old = cluster.owner()
    a, b = host_at(cluster.settings(2), "a").init(), host_at(cluster.settings(2), "b").wait_up()
    holder, other = Work(a), opened(b).say("flock 0 ex")
    wait_until(lambda: held(b, note="waits for another host"), "b is queued")
    old.stop()
    new = wait_until(lambda: cluster.owner(), "a replica was promoted", 40)
    assert new is not old
    for host in a, b:
        reconnected(host, new)
    holder.is_put_back()
    holder.hands_over(b, other)
