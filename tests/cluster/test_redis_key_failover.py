"""redis_key and sentinels: what a failover does to a key, where the new master has it, and where it lost the last writes."""
import signal

import pytest
from harness import wait_until

from failover import attempt, reconnected
from keepers import opened
from redis_keys import KEY, Client, rule, token, value
from test_sentinel import Work, behind_is_first

pytestmark = [pytest.mark.long, pytest.mark.of_redis("is about redis_key")]


@pytest.fixture
def failed_over(make_nodes, host_at):
    """failed_over(behind, meanwhile): hosts a and b, what holds the lock at a, and the new master. behind: it has never heard of the
    lease; meanwhile(node) is done there before."""
    def make(behind, meanwhile=lambda node: None):
        nodes = make_nodes(3, options=behind_is_first)
        a, b = host_at(nodes.settings, "a", rules=rule()).init(), host_at(nodes.settings, "b", rules=rule()).wait_up()
        if behind:
            nodes[1].command("REPLICAOF", "127.0.0.1", "1")  # nobody is there
        holder = Work(a)
        assert value(nodes[0]) == holder.lease["token"]
        if behind:
            assert not value(nodes[1])
        else:
            wait_until(lambda: value(nodes[1]) == holder.lease["token"], "the replica has the key")
        meanwhile(nodes[1])
        nodes[0].stop()
        assert nodes.failed_over(nodes[0]) is nodes[1]
        return a, b, holder, nodes[1]

    return make


def stands(a, b, holder, new):
    """The lock is still one for both worlds: the job goes on, no client and no host has it, and both can have it afterwards."""
    reconnected(a, new)
    holder.is_put_back()
    wait_until(lambda: value(new) == holder.lease["token"], "the key is there")
    client, other = Client(new), opened(b)
    assert not client.takes()
    other.say("flock 0 ex")
    wait_until(lambda: not b.status()["store"]["grace"], "grace is over", 60)
    holder.goes_on()
    assert other.silent(0.2) and not client.takes() and value(new) == holder.lease["token"]
    holder.end()
    assert other.heard(30)[0] == "ok"
    assert value(new) == token(b) and not client.takes()
    assert other.do("flock 0 un") == "ok"
    wait_until(client.takes, "a client has it")


def test_the_new_master_has_it(failed_over):
    a, b, holder, new = failed_over(behind=False)
    assert not Client(new).takes()  # at no moment was it free
    stands(a, b, holder, new)


def test_the_new_master_lost_it(failed_over):
    """The lease is put back, and the key with it."""
    stands(*failed_over(behind=True))


def test_a_client_is_faster_at_the_new_master(failed_over):
    """It has the lock that the new master has forgotten, as among clients alone. The holder ends."""
    clients = []

    def take(node):
        node.command("CONFIG", "SET", "replica-read-only", "no")
        clients.append(Client(node))
        assert clients[0].takes()

    a, b, holder, new = failed_over(behind=True, meanwhile=take)
    wait_until(lambda: holder.process.poll() is not None, "the holder ends", 40)
    assert holder.process.returncode == -signal.SIGKILL
    assert "could not be put back" in holder.process.communicate(timeout=20)[1]
    assert value(new) == clients[0].token
    reconnected(b, new)
    wait_until(lambda: not b.status()["store"]["grace"], "grace is over", 60)
    assert opened(b).do("flock 0 ex nb") == "EAGAIN"
    assert clients[0].gives_back()
    assert attempt(b)
    wait_until(lambda: not new.command("EXISTS", KEY), "the key is free")
