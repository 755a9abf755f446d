"""A store in ZooKeeper: what is about that engine alone. The rest of tests/cluster runs with it where DFLOCK_TEST_STORE=zookeeper."""
import pytest
from harness import Zookeeper, wait_until

from keepers import held


@pytest.fixture
def redis(folder):
    """What hosts of make_host are hosts of."""
    server = Zookeeper(folder, servers=3)
    yield server
    server.stop()


def test_lock_is_held_over_the_end_of_a_leader(make_host, redis):
    """Nobody is stopped, nothing begins anew, and numbers go on."""
    lease = "ttl_ms = 30000; linger_ms = 1; store_wait_ms = 300000;"  # two elections may take long
    a, b = make_host("a", lease=lease), make_host("b", lease=lease)
    holder = a.opened("f", "flock 0 ex")
    before, was = a.status()["store"]["incarnation"], held(a)[0]["fence"]
    waiter = b.opened("f").say("flock 0 ex")
    wait_until(lambda: held(a, state="waiting"), "the lease is recalled")
    for _ in range(2):
        wait_until(lambda: redis.leader() is not None, "a leader", 30)
        first = redis.leader()
        redis.stop_server(first)
        wait_until(lambda: redis.leader() not in (None, first), "another leader", 60)
        wait_until(lambda: a.status()["store"]["up"] and b.status()["store"]["up"], "both hosts reach it", 60)
        redis.start_server(first)
        wait_until(redis.answers, "it is back", 60)
    assert holder.do("flock 0 un") == "ok"
    assert waiter.heard(30)[0] == "ok"
    assert held(b)[0]["fence"] > was
    for host in (a, b):
        assert host.status()["store"]["incarnation"] == before
        assert "frozen" not in host.log() and "stopped" not in host.log()
