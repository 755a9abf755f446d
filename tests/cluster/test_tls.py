"""The store by TLS: a real redis-server, replicas and sentinels with certificates of the test; renewed ones; cut connections."""
import os
import re
import signal
import subprocess
import time

import pytest
from harness import Cutter, Nodes, wait_until
from harness.nodes import here

from failover import LONG, attempt, reconnected
from keepers import opened
from tls import reasons, refused, settings

pytestmark = pytest.mark.of_redis("is about TLS to Redis")


def test_locks_exclude(serve, ca, host_at):
    server = serve(clients=True)
    own = ca.issue("host", "DNS:host-a")
    a = host_at(settings(server.tls_port, ca, own=own), "a").init()
    b = host_at(settings(server.tls_port, ca, "localhost", own=own), "b").wait_up()
    holder, waiter = a.opened("f", "flock 0 ex"), opened(b)
    assert waiter.do("flock 0 ex nb") == "EAGAIN"
    waiter.say("flock 0 ex")
    assert holder.do("flock 0 un") == "ok"
    assert waiter.heard()[0] == "ok"
    assert a.status()["store"]["server"] == f"rediss://127.0.0.1:{server.tls_port}"
    doctor = a.cli("doctor", check=False).stdout
    assert re.search(rf"127.0.0.1:{server.tls_port} is reached by TLSv1.3, and its certificate expires in [12] days; renew it", doctor)
    assert re.search(r"this host's certificate \(tls_certificate_file\) expires in [12] days; renew it", doctor)
    assert not reasons(a) + reasons(b)


def test_tls_1_2(serve, ca, host_at):
    server = serve(more=["--tls-protocols", "TLSv1.2"])
    a = host_at(settings(server.tls_port, ca), "a").init()
    assert attempt(a)
    assert "is reached by TLSv1.2" in a.cli("doctor", check=False).stdout


@pytest.mark.long
@pytest.mark.parametrize("sentinels", ["TLS", "plain"])
def test_the_whole_cluster(folder, ca, host_at, sentinels):
    """Server, replicas and sentinels, each with a certificate for its address, and one of the host that all want; a failover. Plain: sentinels
    want TLS of each other, and hosts ask them on a port without it."""
    server, own = ca.issue("server"), ca.issue("host", "DNS:a")

    def options(place, sentinel):
        if not sentinel or sentinels == "TLS":
            return ca.server_options(server, place.port, clients=True, sentinel=sentinel)
        lines = ca.server_options(server, here(1)[0].port, clients=True, sentinel=True)
        return [f"port {place.port}" if line == "port 0" else line for line in lines]

    nodes = Nodes(os.path.join(folder, "nodes"), 3, 3, tls=options)
    try:
        plain, files = nodes.settings, settings(0, ca, own=own).split(";", 1)[1]
        where = plain.replace('"127', '"rediss://127') if sentinels == "TLS" else plain.replace('master = "', 'master = "rediss://')
        a = host_at(where + files, "a", lease=LONG).init()
        assert attempt(a)
        assert a.status()["store"]["server"] == f"themaster at rediss://127.0.0.1:{nodes[0].port}"
        found = a.cli("doctor", check=False).stdout
        assert found.count("says that themaster is") == 3 and "2 of 2 replicas are connected" in found, found
        nodes[0].signal(signal.SIGKILL)
        new = nodes.failed_over(nodes[0])
        reconnected(a, new)
        assert attempt(a)
    finally:
        nodes.stop()


def test_renewed_certificates(serve, ca, host_at):
    """Both sides' certificates are replaced while the keeper runs. The server is told; the keeper looks by itself."""
    own = ca.issue("host", "DNS:a")
    server = serve(ca.issue("server"), clients=True)
    a = host_at(settings(server.tls_port, ca, own=own), "a").init()
    ca.issue("host", "DNS:a", days=-1)
    server.command("CLIENT", "KILL", "TYPE", "normal")
    refused(a, "the server does not accept the certificate of this host (certificate expired): renew tls_certificate_file")
    ca.issue("host", "DNS:a")
    a.wait_up()
    renewed = ca.issue("server", days=-1)
    server.command("CONFIG", "SET", "tls-cert-file", renewed.path, "tls-key-file", renewed.key)
    server.command("CLIENT", "KILL", "TYPE", "normal")
    refused(a, "the server's certificate expired on 20")
    renewed = ca.issue("server")
    server.command("CONFIG", "SET", "tls-cert-file", renewed.path, "tls-key-file", renewed.key)
    a.wait_up()
    assert attempt(a)


SILENT = {0: "no answer to TLS", 700: "no end of the TLS handshake within"}  # after so many bytes


@pytest.mark.parametrize("then", ["cut", "stop"])
def test_connections_that_end_in_the_handshake(serve, ca, host_at, then):
    """At many bytes of the server's part: one line, and the keeper comes back by itself when the way is free."""
    server = serve()
    cutter = Cutter(server.tls_port)
    a = host_at(settings(cutter.port, ca), "a", store="connect_ms = 300;").init()
    assert attempt(a)
    cutter.then = then
    whys = set()
    for limit in [0, 5, 128, 700] if then == "cut" else SILENT:
        cutter.limit = limit
        reached = cutter.reached
        server.command("CLIENT", "KILL", "TYPE", "normal")
        wait_until(lambda: cutter.reached > reached, f"connections met the limit of {limit} bytes")
        wait_until(lambda: not a.status()["store"]["up"], "the store is away")
        if then == "stop":  # before, it says that the connections were closed, or what the limit before led to
            wait_until(lambda: SILENT[limit] in a.status()["store"]["error"], f"it says {SILENT[limit]}")
        whys.add(a.status()["store"]["error"])
    end = {"cut": "the server closed the connection in the TLS handshake: its log says why", "stop": "no end of the TLS handshake within"}
    assert any(end[then] in why for why in whys), whys
    assert all("TLS" in why or "closed the connection" in why for why in whys), whys
    cutter.limit = None
    a.wait_up()
    assert attempt(a)
    cutter.stop()


def test_large_answers(serve, ca, host_at):
    """A MB in one answer: many records, and reads that end anywhere."""
    server = serve()
    a = host_at(settings(server.tls_port, ca), "a", store="connect_ms = 30000;").init()
    now = int(time.time() * 1000)
    for i in range(0, 10000, 1000):
        words = [word for j in range(i, i + 1000) for word in (f"host-{j}-{'x' * 60}-{j:016x}", str(now + j))]
        server.command("HSET", "dflock:{0}:hosts", *words)
    said = a.cli("break", "--yes", "--host", f"host-9999-{'x' * 60}-{9999:016x}", check=False)
    assert "was heard of" in said.stderr, said
    said = a.cli("break", "--yes", "--host", "nobody", check=False)
    assert "the store knows no host nobody" in said.stderr, said
    assert attempt(a)
    assert not reasons(a)


def test_a_file_system_that_does_not_answer(serve, ca, host_at, folder):
    """The keeper goes on, says what it waits for, and comes back by itself."""
    server, place = serve(), os.path.join(folder, "view")
    os.mkdir(place)
    view = subprocess.Popen(["bindfs", "-f", ca.folder, place])
    try:
        wait_until(lambda: os.path.ismount(place), "it is mounted")
        through = f'server = "rediss://127.0.0.1:{server.tls_port}"; tls_ca = "{place}/ca.pem";'
        a = host_at(through, "a").init()
        view.send_signal(signal.SIGSTOP)
        server.command("CLIENT", "KILL", "TYPE", "normal")
        why = "the files of TLS (tls_ca, tls_certificate_file, tls_key_file) cannot be read within 1200 ms"
        wait_until(lambda: why in a.status()["store"]["error"], "status says so")
        assert any(why in line for line in reasons(a))
        view.send_signal(signal.SIGCONT)
        a.wait_up()
        assert attempt(a)
    finally:
        view.send_signal(signal.SIGCONT)
        a.stop()
        subprocess.run(["umount", "-l", place], check=False)
        view.kill()
        view.wait()
