"""A store in ZooKeeper: what is about that engine alone. The rest of tests/cluster runs with it where DFLOCK_TEST_STORE=zookeeper."""
import base64
import hashlib
import os
import struct
import time

import pytest
from harness import Zookeeper, wait_until, write_text

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


CREATE, SET_ACL, AUTH = 1, 7, 100


def acl(client, passwords):
    """That of who has one of them."""
    words = [base64.b64encode(hashlib.sha1(f"dflock:{password}".encode()).digest()) for password in passwords]
    return struct.pack(">i", len(words)) + b"".join(struct.pack(">i", 31) + client.text(b"digest") + client.text(b"dflock:" + w) for w in words)


def give(client, *passwords):
    for path in ("/dflock", *client.all_below("/dflock")):
        client.ask(SET_ACL, client.text(path.encode()) + acl(client, passwords) + struct.pack(">i", -1))  # a message may have gone


def makes_with_both(client, host):
    """A new name is a new node."""
    name = f"new-{time.monotonic_ns()}"
    host.opened(name, "flock 0 ex nb", "flock 0 un")
    path, = (path for path in client.all_below("/dflock/locks") if path.endswith(name))
    return struct.unpack(">i", client.ask(client.GET_ACL, client.text(path.encode()))[:4])[0] == 2


@pytest.mark.parametrize("both", [False, True], ids=["at once", "beside the first"])
def test_another_password(host_of, redis, both):
    """All nodes have an ACL with another password while a lock is held: a reload takes it over, and the holder goes on."""
    client = redis.client()
    for password in ("first", "other"):
        client.send(struct.pack(">iii", -4, AUTH, 0) + client.text(b"digest") + client.text(f"dflock:{password}".encode()))
        client.receive()
    assert client.ask(CREATE, client.text(b"/dflock") + client.text(b"") + acl(client, ["first"]) + struct.pack(">i", 0)) is not None
    secret = os.path.join(redis.folder, "secret")
    write_text(secret, "first\n")
    os.chmod(secret, 0o600)
    host = host_of(redis, lease="ttl_ms = 24000;", store=f'password_file = "{secret}";').init()
    agent = host.opened("f", "flock 0 ex nb")
    if both:
        give(client, "first", "other")
        agent.do("flock 0 un")
        wait_until(lambda: makes_with_both(client, host), "what is made from now on has both")
        other = host.opened("g", "flock 0 ex nb")
    else:
        give(client, "other")
        wait_until(lambda: "forbids what dflock needs" in host.status()["store"]["error"], "the ensemble refuses it", 30)
    write_text(secret, "other\n")
    host.cli("reload")
    if both:
        give(client, "other")
        assert other.do("flock 0 un") == "ok" and agent.do("flock 0 ex") == "ok"
    wait_until(lambda: host.status()["store"]["up"], "it is used")
    assert agent.do("flock 0 un") == "ok" and not host.status()["lost"] and "frozen" not in host.log()
    client.close()
