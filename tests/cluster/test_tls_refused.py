"""
The store by TLS, when something is wrong: each cause is one line that says what to do, in log, status and doctor. All that can be wrong with
certificates and in the handshake: tests/unit/test_tls_certificates.c, tests/unit/test_tls_hostile.c.
"""
import os

import pytest
from harness import Authority
from harness.listener import Listener

from failover import QUICK, attempt
from tls import reasons, refused, settings

pytestmark = pytest.mark.of_redis("is about TLS to Redis")


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
