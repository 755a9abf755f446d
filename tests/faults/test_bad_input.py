"""
What comes to the keeper's socket is hostile until checked: nonsense, too much of it, clients that stop, other versions.
The keeper disconnects or refuses, goes on serving, and keeps no descriptor. Every field: tests/unit/test_question_check.c; answers that no
keeper gives: tests/interpose/test_asking.py; other kinds of descriptors: test_hostile_descriptors.py.
"""
import array
import os
import resource
import select
import socket
import struct
import sys
import time

import pytest
from common import Alive, agent_with, attempt, gone, leases, opened, refused, works
from harness import BUILD, bytes_of, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../interpose"))
import fake_keeper as fk  # noqa: E402

EOF = (1 << 63) - 1
TEST, STATUS, RELOAD, STOP, INIT, PING, BEFORE = range(2, 9)


def question(host, op=fk.LOCK, magic=fk.MAGIC, version=fk.VERSION, size=fk.REQUEST.size, space=0, mode=fk.EXCLUSIVE, flags=0,
             owner=0, start=0, to=EOF, sent_ns=None, command=b""):
    sent_ns = fk.boottime() if sent_ns is None else sent_ns
    return fk.REQUEST.pack(magic, version, size, op, space, mode, flags, owner, start, to, sent_ns, *fk.config_id(host.config), fk.path_hash(host.config), command)


class Client:
    """Speaks to the keeper as no shim would."""

    def __init__(self, host):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Blocking, with a limit: one that may not block is turned away while the queue of the listening socket is full.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 20, 0))
        self.socket.connect(os.path.join(host.runtime, "keeper.sock"))
        self.socket.settimeout(20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data, *fds):
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([data], ancillary)
        return self

    def answer(self):
        """(verdict, reason), or None: disconnected."""
        try:
            data = self.socket.recv(4096)
        except ConnectionResetError:
            return None
        if not data:
            return None
        reply = fk.reply_of(data)
        assert reply[:3] == (fk.MAGIC, fk.VERSION, fk.REPLY.size)
        return reply.verdict, reply.reason

    def has_answer(self):
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(0))


def descriptors(host):
    """How many the keeper has open, after it has closed those that it was about to close."""
    return len(os.listdir(f"/proc/{host.keeper_pids()[1]}/fd"))


@pytest.fixture
def host(make_host):
    """At its end the keeper is the same process, has as many descriptors as before, and serves."""
    host = make_host("a")
    works(host)
    before = descriptors(host)
    with Alive(host):
        yield host
        works(host)
        wait_until(lambda: descriptors(host) <= before, "the keeper has closed what it was sent", 20)


def test_malformed(host):
    """With whatever number of descriptors it comes: disconnected without an answer. A question as it should be gets one."""
    whole = question(host)
    shapes = [b"", b"x", whole[:7], whole[:8], whole[:-1], whole + b"\0", whole + bytes(100000), bytes(fk.REQUEST.size)]
    fields = [{"magic": 0x12345678}, {"size": 1}, {"op": 0}, {"op": 200}, {"space": 9}, {"mode": 9}, {"flags": 0x80}, {"owner": 9},
              {"space": 1, "start": -5, "to": 7}, {"space": 1, "start": 5, "to": 5}, {"start": 1}, {"sent_ns": -1}, {"sent_ns": EOF}]
    with open(host.path("f")) as f:
        for data in shapes + [question(host, **each) for each in fields]:
            for count in 0, 1, 2, 250:
                with Client(host) as client:
                    assert client.send(data, *[f.fileno()] * count).answer() is None, (data[:80], count)
        for op, count in [(op, n) for op in (fk.LOCK, TEST) for n in (0, 2, 250)] + [(op, 1) for op in (PING, STATUS, STOP, BEFORE)]:
            with Client(host) as client:
                assert client.send(question(host, op=op), *[f.fileno()] * count).answer() is None, (op, count)
        with Client(host) as client:
            assert client.send(question(host), f.fileno()).answer() == (fk.GRANTED, "")
    with Client(host) as client:
        assert client.send(question(host, op=PING)).answer() == (fk.OK, "")
    with open(host.path("gone"), "w") as f, Client(host) as client:
        os.unlink(host.path("gone"))
        assert client.send(question(host), f.fileno()).answer() == (fk.GRANTED, ""), "a deleted file"


def test_library_of_another_version(host):
    """It can read the head of the answer, and that is the line to show."""
    for version in 0, fk.VERSION - 1, fk.VERSION + 1, 65535:
        whole = question(host, version=version)
        for data in (whole, whole[:12], whole + b"x" * 500):
            with Client(host) as client, open(host.path("f")) as f:
                verdict, reason = client.send(data, f.fileno()).answer()
                assert verdict == fk.REFUSED and "different versions: end the keeper with `dflock stop`" in reason


def test_stop_of_another_version(host_of, redis):
    """An operator has installed another version: its `dflock stop` ends this keeper, unless a lock is held, and disturbs nothing."""
    host = host_of(redis)
    host.init()
    data = question(host, op=STOP, version=fk.VERSION + 1)
    agent = agent_with(host)
    for message in (data, data[:9], data + b"x" * 100):
        with Client(host) as client:
            verdict, reason = client.send(message).answer()
            assert verdict == fk.REFUSED and "is locked by a program" in reason
    agent.kill()
    with Client(host) as client:
        assert client.send(data).answer() == (fk.OK, "")
    wait_until(lambda: not host.keeper_pids(), "the keeper has ended")


def test_a_keeper_of_another_version_is_told_to_stop(host_of, redis):
    """Of its answer counts what is the same in all versions; other commands say what to do."""
    host = host_of(redis, foreground=False)

    def handler(connection):
        while connection.receive():
            connection.send(fk.REFUSED, reason="something is held", version=fk.VERSION + 1)

    with fk.Keeper(host.runtime, host.config, [(fk.TREE, host.files)], handler):
        stop, status = host.cli("stop", check=False), host.cli("status", check=False)
    assert (stop.returncode, stop.stderr) == (1, "dflock: something is held\n")
    assert status.returncode == 1 and "`dflock stop` ends it" in status.stderr


def of_configuration(state, path):
    return fk.REQUEST.pack(fk.MAGIC, fk.VERSION, fk.REQUEST.size, fk.LOCK, 0, 1, 0, 0, 0, EOF, 1, *state, fk.path_hash(path) if path else 0, b"")


def test_another_configuration(host):
    """A state that was never seen, of another path, or of this one long ago: also while the file is missing. Some go away meanwhile."""
    seen_never, other = (1, 2, 3, 4, 5), "/etc/other.conf"
    for _ in range(50):
        with open(host.path("f")) as f, Client(host) as client:
            client.send(of_configuration(seen_never, host.config), f.fileno())
    with open(host.path("f")) as f, Client(host) as client:
        for state, path in [(seen_never, other), (seen_never, host.config), (fk.NONE, other), (fk.NONE, None), (seen_never, None)]:
            verdict, reason = client.send(of_configuration(state, path), f.fileno()).answer()
            assert verdict == fk.REFUSED and "the keeper goes by another configuration" in reason and host.config in reason
            assert ("sees another file than the keeper" in reason) == (path == host.config)
        young = (1, 2, 3, 4, time.time_ns())
        for state, path in [(young, host.config), (fk.NONE, host.config), (fk.config_id(host.config), None)]:
            assert client.send(of_configuration(state, path), f.fileno()).answer() == (fk.GRANTED, ""), (state, path)


def test_asks_again_before_it_has_its_answer(host, make_host, redis):
    b = make_host("b")
    holder = agent_with(b)
    with open(host.path("f")) as f, Client(host) as client:
        client.send(question(host), f.fileno())
        wait_until(lambda: leases(host, note="waits for another host"), "it waits")
        assert client.answer() == (fk.WAITING, "")
        client.send(question(host), f.fileno())
        assert client.answer() is None
    assert holder.do("flock 0 un") == "ok"
    gone(redis)


def test_client_that_leaves_its_pin(host, make_host):
    """Granted, it never takes the kernel lock: a pin ends after pin_ms, or with the connection."""
    waiter = opened(make_host("b"))
    for closes in True, False:
        works(host)
        begun = time.monotonic()
        with open(host.path("f")) as f, Client(host) as client:
            assert client.send(question(host), f.fileno()).answer() == (fk.GRANTED, "")
            waiter.say("flock 0 ex")
            if closes:
                client.socket.close()
            assert waiter.heard()[0] == "ok"
            assert waiter.do("flock 0 un") == "ok"
            assert closes or time.monotonic() - begun >= 0.9


def test_client_that_does_not_read(host):
    """Answers that find no room are dropped, and all other clients are served meanwhile. With descriptors: test_metrics_refusals.py."""
    with Client(host) as client:
        client.socket.settimeout(0.2)
        sent = 0
        try:
            while sent < 20000:
                client.send(question(host, op=PING))
                sent += 1
        except TimeoutError:
            pass
        assert sent > 100
        assert attempt(host).word == "ok"
        assert client.answer() == (fk.OK, "")


# --- late ---


PIN_MS = 5000
LATE_NS = 1_000_000_000


def test_a_question_that_comes_after_the_keeper_has_looked_at_the_clock(make_host, folder):
    """A grant names a moment on the caller's clock: the pin ends at the latest pin_ms after it, and the caller must not be told a later one. The
    keeper waits within recvmsg() while the file exists, which it removes then."""
    late = os.path.join(folder, "late")
    host = make_host("a", lease=f"ttl_ms = 60000; pin_ms = {PIN_MS}; linger_ms = 60000;", foreground=False)
    host.inside = ["env", "LD_PRELOAD=" + os.path.join(BUILD, "tests/preload/held.so"), "DFLOCK_TEST_LATE=" + late]
    host.start()
    host.inside = []
    host.init()
    assert opened(host).do("flock 0 ex nb") == "ok"  # the lease is there: the next answer comes at once
    open(late, "w").close()
    with open(host.path("f")) as f, Client(host) as client:
        wait_until(lambda: not os.path.exists(late), "the keeper is about to receive the question")
        begun = fk.boottime()
        wait_until(lambda: fk.boottime() - begun > LATE_NS, "time has passed since")
        sent = fk.boottime()
        client.send(question(host, sent_ns=sent), f.fileno())
        reply = fk.reply_of(client.socket.recv(4096))
        answered = fk.boottime()
    assert reply.verdict == fk.GRANTED and answered - sent < LATE_NS / 2
    assert sent < reply.until_ns <= answered + PIN_MS * 1_000_000


# --- many ---


@pytest.fixture
def many_descriptors():
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (old[1], old[1]))
    yield min(old[1], 1 << 20) - 300
    resource.setrlimit(resource.RLIMIT_NOFILE, old)


def connect_all(host, count):
    """Connections that send nothing."""
    return [Client(host) for _ in range(count)]


def close_all(clients):
    for c in clients:
        c.socket.close()


def test_ten_thousand_connections(host, many_descriptors):
    clients = connect_all(host, min(10000, many_descriptors))
    try:
        outcome = attempt(host)
        if outcome.word != "ok":
            refused(outcome, "serves too many programs at once: raise its RLIMIT_NOFILE")
        told = [c.answer() for c in clients if c.has_answer()]
        assert all(t and "too many programs" in t[1] for t in told)
        assert len(clients) - len(told) >= min(9000, many_descriptors // 2 - 200)
    finally:
        close_all(clients)


def test_a_thousand_waiters(make_host, many_descriptors):
    """They wait for another host, and are all granted when it leaves; half of them have gone by then."""
    a, b = make_host("a"), make_host("b")
    holder = agent_with(b)
    clients = connect_all(a, min(1000, many_descriptors))
    with Alive(a), open(a.path("f"), "w") as f:
        for c in clients:
            c.send(question(a), f.fileno())
        for c in clients:
            assert c.answer() == (fk.WAITING, "")
        close_all(clients[::2])
        assert holder.do("flock 0 un") == "ok"
        for c in clients[1::2]:
            assert c.answer() == (fk.GRANTED, "")
        close_all(clients)
        works(b)
        works(a)


def test_no_descriptor_left(host):
    """The keeper has hardly any left: new clients are told, and when the others go, all is well."""
    keeper = host.keeper_pids()[1]
    old = resource.prlimit(keeper, resource.RLIMIT_NOFILE)
    resource.prlimit(keeper, resource.RLIMIT_NOFILE, (descriptors(host) + 10, old[1]))
    clients = connect_all(host, 50)
    try:
        wait_until(lambda: sum(c.has_answer() for c in clients) >= 30, "most are turned away")
        told = [c.answer() for c in clients if c.has_answer()]
        assert all(t and t[0] == fk.REFUSED and "raise its RLIMIT_NOFILE" in t[1] for t in told)
        # Files that the host has no lease for: the others can be locked without the keeper.
        for wait in False, True:
            refused(attempt(host, "g", wait=wait), "no descriptor left: raise its RLIMIT_NOFILE")
    finally:
        close_all(clients)
    works(host)
    # One connection fits, the descriptor that comes with its question does not.
    resource.prlimit(keeper, resource.RLIMIT_NOFILE, (max(map(int, os.listdir(f"/proc/{keeper}/fd"))) + 2, old[1]))
    outcome = attempt(host)
    assert outcome.word == "ok" or "RLIMIT_NOFILE" in outcome.line or "descriptor" in outcome.line, outcome
    resource.prlimit(keeper, resource.RLIMIT_NOFILE, old)


# --- from the store ---


def test_a_malformed_message_is_in_the_log(host, redis):
    """Another client publishes on the keeper's channel."""
    for text in ("nonsense", "recall x", "granted"):
        redis.command("PUBLISH", "dflock:{0}:host:" + host.status()["host"], text)
    wait_until(lambda: "a malformed message came through the store and was ignored" in host.log(), "the log has it")
    assert host.log().count("malformed message") == 1


def test_a_store_socket_whose_path_is_no_utf8(host_of, redis, folder):
    """Status and doctor report the real error, and not that there is no memory."""
    path = os.fsencode(folder) + b"/\xe9.sock"
    os.symlink(redis.socket, path)
    host = host_of(redis, foreground=False)
    text = bytes_of(host.config).replace(os.fsencode(redis.socket), path)
    with open(host.config, "wb") as f:
        f.write(text)
    host.start()
    host.init()
    assert host.status()["store"]["server"] == f"unix:{folder}/\\xe9.sock" and host.status()["store"]["up"]
    works(host)
