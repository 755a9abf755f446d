"""
The store by TLS: a real redis-server, replicas and sentinels with certificates of the test; renewed ones; cut connections. When something is
wrong, each cause is one line that says what to do, in log, status and doctor: all that can be wrong with certificates and in the handshake is in
tests/unit/test_tls.c.
"""
import os
import re
import signal
import subprocess

import pytest
from harness import Authority, Cutter, Nodes, wait_until
from harness.listener import Listener
from harness.nodes import here

from failover import LONG, QUICK, attempt, reconnected
from keepers import opened

pytestmark = pytest.mark.of_redis("is about TLS to Redis")


def settings(port, ca, host="127.0.0.1", own=None, more=""):
    """Of the group `store`; ca None: what the system trusts."""
    trusted = f'tls_ca = "{ca.path}";' if ca else ""
    client = f'tls_certificate_file = "{own.path}"; tls_key_file = "{own.key}";' if own else ""
    return f'server = "rediss://{host}:{port}"; {trusted} {client} {more}'


def reasons(host):
    """The lines of the log that say why the store is away: one whenever the reason is another one. (After a while an event says
    that it is away for long.)"""
    return [line for line in host.log().splitlines()
            if (" is not reachable: " in line or " cannot be used: " in line) and "leases run out if this lasts" not in line]


def refused(host, why):
    """It stands in log, status and doctor. Returns what doctor says."""
    wait_until(lambda: why in host.status()["store"]["error"], f"status says: {why}")
    assert not host.status()["store"]["up"]
    assert any(why in line for line in reasons(host)), host.log()
    doctor = host.cli("doctor", check=False).stdout
    assert why in doctor, doctor
    return doctor


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


def test_connections_that_end_in_the_handshake(serve, ca, host_at):
    """After some bytes of the server's part: one line says why, and the keeper comes back by itself when the way is free. Each byte:
    tests/unit/test_tls_stream.c."""
    server = serve()
    cutter = Cutter(server.tls_port)
    a = host_at(settings(cutter.port, ca), "a", store="connect_ms = 300;").init()
    assert attempt(a)
    for cutter.then, cutter.limit, why in (("cut", 128, "the server closed the connection in the TLS handshake: its log says why"),
                                           ("stop", 0, "no answer to TLS"), ("stop", 700, "no end of the TLS handshake within")):
        reached = cutter.reached
        server.command("CLIENT", "KILL", "TYPE", "normal")
        wait_until(lambda: cutter.reached > reached, f"connections met the limit of {cutter.limit} bytes")
        wait_until(lambda: why in a.status()["store"]["error"], f"it says {why}")
    cutter.limit = None
    a.wait_up()
    assert attempt(a)
    cutter.stop()


@pytest.mark.root("unmounts what does not answer, and so needs root")
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


# --- what is refused ---


class Talker(Listener):
    """A server that sends something, and reads what comes."""

    def __init__(self, text):
        self.text = text
        super().__init__(self.talk)

    def talk(self, client):
        client.recv(65536)
        client.sendall(self.text)
        while client.recv(65536):
            pass


def once(host):
    assert len(reasons(host)) == 1, reasons(host)


def test_wrong_name(serve, ca, host_at):
    server = serve(ca.issue("server", "DNS:other.example,IP:10.1.2.3"))
    a = host_at(settings(server.tls_port, ca), "a")
    refused(a, "the server's certificate is for other.example, 10.1.2.3, not for 127.0.0.1: correct the address, set tls_server_name")
    once(a)
    b = host_at(settings(server.tls_port, ca, more='tls_server_name = "other.example";'), "b").init()
    assert attempt(b)


def test_the_systems_authorities_do_not_do(serve, host_at):
    a = host_at(settings(serve().tls_port, None), "a")
    refused(a, "is from an authority that is not trusted here (CN=Authority ca): set tls_ca")


def test_certificate_of_this_host_is_missing(serve, ca, host_at):
    a = host_at(settings(serve(clients=True).tls_port, ca), "a")
    refused(a, "the server wants a certificate of this host: set tls_certificate_file and tls_key_file")
    once(a)


@pytest.mark.parametrize("how,answer,why", [
    # Redis waits for the rest of what it takes for a command.
    ("rediss", b"", "no answer to TLS (does the server speak it on this port?) within 400 ms"),
    ("redis", None, "before its first answer: if it wants TLS, write rediss:// before its address"),
    ("redis", bytes([21, 3, 1, 0, 2, 2, 70]), "the server speaks TLS: write rediss:// before its address")],
    ids=["silent", "a server of TLS", "an alert"])
def test_tls_on_one_side(serve, ca, host_at, how, answer, why):
    talker = Talker(answer or b"")
    port = serve().tls_port if answer is None else talker.port
    where = settings(port, ca) if how == "rediss" else f'server = "redis://127.0.0.1:{port}";'
    refused(host_at(where, "a", store="connect_ms = 400;" if answer == b"" else QUICK), why)
    talker.stop()


@pytest.mark.parametrize("mode,why", [
    (0o644, "can be read or written by everybody; run chmod o-rw on it"),
    (None, "cannot be read: No such file or directory")])
def test_key_file(serve, ca, host_at, mode, why):
    own = ca.issue("host", "DNS:a")
    if mode:
        os.chmod(own.key, mode)
    else:
        os.unlink(own.key)
    a = host_at(settings(serve(clients=True).tls_port, ca, own=own), "a")
    refused(a, f"tls_key_file {own.key} {why}")
    once(a)
    check = a.cli("check", check=False)
    assert check.returncode == 1 and f"store.tls_key_file {own.key} {why}" in check.stderr
    # It is mended, and counts at the next attempt.
    ca.issue("host", "DNS:a")
    a.init()
    assert a.cli("check").returncode == 0


def test_key_of_another_certificate(serve, ca, host_at):
    own, other = ca.issue("host", "DNS:a"), ca.issue("other", "DNS:a")
    own.key = other.key
    a = host_at(settings(serve(clients=True).tls_port, ca, own=own), "a")
    refused(a, f"tls_key_file {own.key} is not the key of tls_certificate_file {own.path}")


def test_authorities_in_a_directory(serve, ca, host_at, folder):
    place = os.path.join(folder, "authorities")
    os.makedirs(os.path.join(place, "folder.pem"))
    os.symlink("/nowhere", os.path.join(place, "gone.crt"))
    server = serve()
    here = Authority(os.path.join(folder, "tls"), "ignored")
    here.path = place
    a = host_at(settings(server.tls_port, here), "a")
    refused(a, f"tls_ca {place} has no file NAME.pem, NAME.crt or NAME.cer")
    os.symlink(ca.path, os.path.join(place, "mine.crt"))
    a.init()
    assert attempt(a)
