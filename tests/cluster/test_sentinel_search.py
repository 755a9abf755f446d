"""Which server is the master: sentinels that do not answer, are wrong, talk nonsense or want a password; what the doctor says."""
import os
import signal

import pytest
from harness import wait_until, write_text
from harness.listener import Listener
from harness.nodes import MASTER

from failover import QUICK, attempt, reconnected
from keepers import opened

pytestmark = pytest.mark.of_redis("is about Redis Sentinel")


def test_an_idle_keeper_notices(make_nodes, host_at):
    """It has nothing to renew, and its connection stands: it asks the sentinels now and then."""
    nodes = make_nodes(3)
    host = host_at(nodes.settings, "a", lease="ttl_ms = 3000;", store="connect_ms = 60000;").init()
    nodes[0].signal(signal.SIGSTOP)
    new = nodes.failed_over(nodes[0])
    reconnected(host, new)
    assert f"the sentinels say that the master is 127.0.0.1:{new.port} now" in host.log()


def test_sentinels_that_do_not_answer(make_nodes, host_at):
    nodes = make_nodes(3)
    nodes.sentinels[0].stop()
    nodes.sentinels[1].signal(signal.SIGSTOP)
    host = host_at(nodes.settings, "a").init()
    nodes.sentinels[2].stop()
    agent = opened(host)
    assert agent.do("flock 0 ex nb") == "ok"  # they are not needed once the master is known
    nodes[0].restart()
    wait_until(lambda: "no sentinel says where it is. sentinel 127.0.0.1:%d: connection refused" % nodes.sentinels[0].port
               in host.log(), "it says so", 30)
    nodes.sentinels[1].signal(signal.SIGCONT)
    wait_until(lambda: host.status()["store"]["up"], "the one that is back is asked", 40)


def test_a_sentinel_that_knows_another_master(make_nodes, host_at, folder):
    """Cut off, it names a server that is none: the others are asked."""
    nodes, foreign = make_nodes(2), make_nodes(2, sentinels=1)
    foreign[0].stop()
    settings = nodes.settings.replace("( ", f'( "127.0.0.1:{foreign.sentinels[0].port}", ', 1)
    for name in "abcd":
        assert host_at(settings, name).wait_up().status()["store"]["server"] == f"{MASTER} at 127.0.0.1:{nodes[0].port}"


NONSENSE = {
    "an empty array": b"*0\r\n",
    "three words": b"*3\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n",
    "no name": b"*2\r\n$0\r\n\r\n$1\r\n1\r\n",
    "blanks": b"*2\r\n$3\r\na b\r\n$1\r\n1\r\n",
    "a NUL": b"*2\r\n$3\r\na\0b\r\n$1\r\n1\r\n",
    "a long name": b"*2\r\n$300\r\n" + b"a" * 300 + b"\r\n$1\r\n1\r\n",
    "port 0": b"*2\r\n$1\r\na\r\n$1\r\n0\r\n",
    "a large port": b"*2\r\n$1\r\na\r\n$5\r\n65536\r\n",
    "a negative port": b"*2\r\n$1\r\na\r\n$2\r\n-1\r\n",
    "a number": b":1\r\n",
    "no Redis": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an error": b"-ERR no\r\n",
    "two answers": b"*2\r\n$1\r\na\r\n$1\r\n1\r\n" * 2,
    "its end": b"",
}


class Impostor(Listener):
    """Answers everything that comes on its port."""

    def __init__(self, answer):
        self.answer, self.asked = answer, 0
        super().__init__(self.talk)

    def talk(self, connection):
        connection.recv(1000)
        connection.sendall(self.answer)
        self.asked += 1
        if self.answer:
            connection.recv(1000)


def test_sentinels_that_talk_nonsense(make_nodes, host_at):
    """The next one is asked, and the keeper lives. A host for each kind of nonsense."""
    nodes = make_nodes(2, sentinels=1)
    impostors = {what: Impostor(answer) for what, answer in NONSENSE.items()}
    try:
        hosts = {what: host_at(nodes.settings.replace("( ", f'( "{impostor.address}", ', 1), f"h{i}", lease="ttl_ms = 600;")
                 for i, (what, impostor) in enumerate(impostors.items())}
        pids = {what: host.keeper_pids() for what, host in hosts.items()}
        for what, host in hosts.items():
            host.wait_up()
            assert attempt(host), what
            asked = impostors[what].asked
            wait_until(lambda: impostors[what].asked > asked, f"the one that says {what} is asked again while the store is up")
            assert host.keeper_pids() == pids[what], what
    finally:
        for impostor in impostors.values():
            impostor.stop()


def test_wrong_name_and_password(make_nodes, host_at, folder):
    nodes = make_nodes(2, sentinels=1)
    sentinel = nodes.sentinels[0]
    wrong = host_at(nodes.settings.replace(MASTER, "nobody"), "a")
    wait_until(lambda: 'it knows no master "nobody"' in wrong.log(), "it says so")
    path = os.path.join(folder, "password")
    write_text(path, "secret\n")
    os.chmod(path, 0o600)
    sentinel.command("ACL", "SETUSER", "me", "on", ">secret", "+@all")
    sentinel.command("ACL", "SETUSER", "default", "resetpass", ">secret")
    without = host_at(nodes.settings, "b")
    wait_until(lambda: "see sentinel_user and sentinel_password_file" in without.log(), "it says so")
    for name, user in ("c", ""), ("d", 'sentinel_user = "me";'):
        host_at(nodes.settings, name, store=QUICK + f'{user} sentinel_password_file = "{path}";').wait_up()


def test_a_keeper_ends(make_nodes, host_at):
    """Whether the store is up, or a sentinel is being asked."""
    nodes = make_nodes(2, sentinels=1)
    up = host_at(nodes.settings, "a").init()
    nodes.sentinels[0].signal(signal.SIGSTOP)
    asking = host_at(nodes.settings, "b")
    for host in up, asking:
        host.cli("stop")
        assert host.keeper.wait(20) == 0, host.log()


def doctor(host):
    return host.cli("doctor", check=False).stdout


def test_doctor(make_nodes, host_at):
    nodes = make_nodes(3)
    good = host_at(nodes.settings, "a").init()
    said = doctor(good)
    for sentinel in nodes.sentinels:
        assert f"ok:      sentinel 127.0.0.1:{sentinel.port} says that {MASTER} is 127.0.0.1:{nodes[0].port}" in said
    assert f"ok:      2 of 2 replicas are connected to 127.0.0.1:{nodes[0].port}, and locks need 1 of them" in said
    assert "min-replicas-to-write" not in said and "\n0 problems" in said
    wrong = doctor(host_at(nodes.by_sentinels(1), "b"))
    assert "knows 2 replicas, and the configuration says replicas = 1" in wrong
    assert "problem: 2 replicas are connected" in wrong and "with replicas = 1 locks are refused" in wrong
    single = doctor(host_at(nodes.at(0, 0), "c"))
    assert "warning: 127.0.0.1:%d has 2 replicas, and the configuration says replicas = 0" % nodes[0].port in single
    nodes[0].command("CONFIG", "SET", "min-replicas-to-write", 2)
    nodes.sentinels[1].stop()
    nodes[2].stop()
    wait_until(lambda: nodes[0].has_replicas(1), "one is gone")
    said = doctor(good)
    assert f"warning: sentinel 127.0.0.1:{nodes.sentinels[1].port} is of no use: Connection refused" in said
    assert "warning: 1 of 2 replicas are connected" in said and "if it has fewer than 2 replicas, it refuses all writes, too: dflock needs 1" in said
    assert opened(good).do("flock 0 ex nb") == "ENOLCK"
    assert "bring its replicas back, or lower its min-replicas-to-write" in good.log()
    nodes[1].stop()
    wait_until(lambda: nodes[0].has_replicas(0), "both are gone")
    assert "problem: 0 of 2 replicas are connected" in doctor(good)
