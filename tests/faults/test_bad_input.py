"""
What comes to the keeper's socket is hostile until checked: nonsense, too much of it, clients that stop, other versions.
The keeper disconnects or refuses, goes on serving, and keeps no descriptor.
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
from harness import bytes_of, wait_until

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
        wait_until(lambda: descriptors(host) <= before, "the keeper has closed what it was sent", 10)


MALFORMED = {
    "empty": lambda h: b"",
    "one byte": lambda h: b"x",
    "less than the head": lambda h: question(h)[:7],
    "the head alone": lambda h: question(h)[:8],
    "cut short": lambda h: question(h)[:-1],
    "too long": lambda h: question(h) + b"\0",
    "much too long": lambda h: question(h) + bytes(100000),
    "zeros": lambda h: bytes(fk.REQUEST.size),
    "wrong magic": lambda h: question(h, magic=0x12345678),
    "wrong size": lambda h: question(h, size=1),
    "no operation": lambda h: question(h, op=0),
    "unknown operation": lambda h: question(h, op=200),
    "unknown space": lambda h: question(h, space=9),
    "unknown mode": lambda h: question(h, mode=9),
    "unknown flags": lambda h: question(h, flags=0x80),
    "unknown owner": lambda h: question(h, owner=9),
    "negative start": lambda h: question(h, space=1, start=-5, to=7),
    "empty range": lambda h: question(h, space=1, start=5, to=5),
    "range of a flock": lambda h: question(h, start=1),
    "a clock before its start": lambda h: question(h, sent_ns=-1),
    "a clock at its end": lambda h: question(h, sent_ns=EOF),
}


@pytest.mark.parametrize("count", [0, 1, 2, 250])
def test_malformed(host, count):
    """With whatever number of descriptors it comes: disconnected without an answer."""
    for what, make in MALFORMED.items():
        with open(host.path("f")) as f, Client(host) as client:
            client.send(make(host), *[f.fileno()] * count)
            assert client.answer() is None, what


@pytest.mark.parametrize("op,count", [(fk.LOCK, 0), (fk.LOCK, 2), (fk.LOCK, 250), (TEST, 0), (TEST, 2), (PING, 1),
                                      (STATUS, 1), (STOP, 1), (BEFORE, 1)])
def test_wrong_number_of_descriptors(host, op, count):
    with open(host.path("f")) as f, Client(host) as client:
        client.send(question(host, op=op), *[f.fileno()] * count)
        assert client.answer() is None


def test_right_after_all(host):
    """The control: a question as it should be."""
    with open(host.path("f")) as f, Client(host) as client:
        assert client.send(question(host), f.fileno()).answer() == (fk.GRANTED, "")
    with Client(host) as client:
        assert client.send(question(host, op=PING)).answer() == (fk.OK, "")


@pytest.mark.parametrize("version", [0, fk.VERSION - 1, fk.VERSION + 1, 65535])
def test_library_of_another_version(host, version):
    """It can read the head of the answer, and that is the line to show."""
    for data in (question(host, version=version), question(host, version=version)[:12], question(host, version=version) + b"x" * 500):
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


@pytest.mark.parametrize("answer,pattern", [
    ({"version": fk.VERSION + 1}, "the keeper is of another version than this library; end it with `dflock stop`"),
    ({"magic": 7}, "what listens on the keeper's socket is no keeper; end it"),
    ({"size": 5}, "the keeper's answer is malformed"),
])
def test_keeper_of_another_version(host_of, redis, answer, pattern):
    host = host_of(redis, foreground=False)

    def handler(connection):
        while connection.receive():
            connection.send(fk.OK, **answer)

    with fk.Keeper(host.runtime, host.config, [(fk.TREE, host.files)], handler):
        refused(attempt(host), pattern)
        refused(attempt(host, wait=True), pattern)


def of_configuration(state, path):
    return fk.REQUEST.pack(fk.MAGIC, fk.VERSION, fk.REQUEST.size, fk.LOCK, 0, 1, 0, 0, 0, EOF, 1, *state, fk.path_hash(path) if path else 0, b"")


def test_another_configuration(host):
    """A state that was never seen, of another path, or of this one long ago: also while the file is missing."""
    with open(host.path("f")) as f, Client(host) as client:
        for state, path in [((1, 2, 3, 4, 5), "/etc/other.conf"), ((1, 2, 3, 4, 5), host.config), (fk.NONE, "/etc/other.conf"),
                            (fk.NONE, None), ((1, 2, 3, 4, 5), None)]:
            verdict, reason = client.send(of_configuration(state, path), f.fileno()).answer()
            assert verdict == fk.REFUSED and "the keeper goes by another configuration" in reason and host.config in reason
            assert ("sees another file than the keeper" in reason) == (path == host.config)
        young = (1, 2, 3, 4, time.time_ns())
        for state, path in [(young, host.config), (fk.NONE, host.config), (fk.config_id(host.config), None)]:
            assert client.send(of_configuration(state, path), f.fileno()).answer() == (fk.GRANTED, ""), (state, path)


def test_goes_away_while_the_configuration_is_looked_at(host):
    for _ in range(50):
        with open(host.path("f")) as f, Client(host) as client:
            client.send(of_configuration((1, 2, 3, 4, 5), host.config), f.fileno())
    with open(host.path("f")) as f, Client(host) as client:
        assert client.send(question(host), f.fileno()).answer() == (fk.GRANTED, "")


def test_descriptors_of_no_use(host):
    """Descriptors of files that cannot be protected, or cannot be opened again."""
    read, write = os.pipe()
    opened_here = [read, write, os.open("/dev/null", os.O_RDWR), os.open("/dev/null", os.O_PATH),
                   os.open("/proc/self/stat", os.O_RDONLY), os.memfd_create("x"), os.open("/", os.O_RDONLY),
                   socket.socket().detach(), os.eventfd(0)]
    for fd in opened_here:
        with Client(host) as client:
            verdict, reason = client.send(question(host), fd).answer()
            assert verdict == fk.REFUSED and reason or verdict == fk.NOT_PROTECTED and reason.startswith("/"), (fd, reason)
        os.close(fd)


def test_deleted_file(host):
    with open(host.path("gone"), "w") as f, Client(host) as client:
        os.unlink(host.path("gone"))
        assert client.send(question(host), f.fileno()).answer() == (fk.GRANTED, "")


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


@pytest.mark.parametrize("how", ["closes", "is silent"])
def test_client_that_leaves_its_pin(host, make_host, how):
    """Granted, it never takes the kernel lock: a pin ends after pin_ms, or with the connection."""
    b = make_host("b")
    begun = time.monotonic()
    with open(host.path("f")) as f, Client(host) as client:
        assert client.send(question(host), f.fileno()).answer() == (fk.GRANTED, "")
        waiter = opened(b).say("flock 0 ex")
        if how == "closes":
            client.socket.close()
        else:
            wait_until(lambda: leases(host, state="draining"), "it is recalled and waits for the pin")
        assert waiter.heard()[0] == "ok"
        assert waiter.do("flock 0 un") == "ok"
        assert how == "closes" or time.monotonic() - begun >= 0.9


def test_client_that_does_not_read(host):
    """Answers that find no room are dropped, and all other clients are served meanwhile."""
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


def test_client_that_does_not_read_its_status(host):
    """Each answer carries a descriptor. A client that asks again before there is an answer is disconnected."""
    with Client(host) as client:
        try:
            for _ in range(50):
                client.send(question(host, op=STATUS))
                wait_until(lambda: has_answer(client), "there is an answer")
        except OSError:
            pass
        assert attempt(host).word == "ok"


# --- many ---


@pytest.fixture
def many_descriptors():
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (old[1], old[1]))
    yield min(old[1], 1 << 20) - 300
    resource.setrlimit(resource.RLIMIT_NOFILE, old)


def connect_all(host, count):
    """Connections that send nothing; fewer if the keeper turns them away."""
    clients = []
    for _ in range(count):
        clients.append(Client(host))
    return clients


def close_all(clients):
    for c in clients:
        c.socket.close()


def test_ten_thousand_connections(make_host, many_descriptors):
    host = make_host("a")
    works(host)
    before = descriptors(host)
    with Alive(host):
        clients = connect_all(host, min(10000, many_descriptors))
        try:
            outcome = attempt(host)
            if outcome.word != "ok":
                refused(outcome, "serves too many programs at once: raise its RLIMIT_NOFILE")
            told = [c.answer() for c in clients if has_answer(c)]
            assert all(t and "too many programs" in t[1] for t in told)
            assert len(clients) - len(told) >= min(9000, many_descriptors // 2 - 200)
        finally:
            close_all(clients)
        works(host)
        wait_until(lambda: descriptors(host) <= before, "the keeper has closed them all", 20)


def has_answer(client):
    poll = select.poll()
    poll.register(client.socket, select.POLLIN)
    return bool(poll.poll(0))


def test_a_thousand_waiters(make_host, many_descriptors, redis):
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


def test_no_descriptor_left(make_host):
    """The keeper has hardly any left: new clients are told, and when the others go, all is well."""
    host = make_host("a")
    works(host)
    keeper = host.keeper_pids()[1]
    old = resource.prlimit(keeper, resource.RLIMIT_NOFILE)
    before = descriptors(host)
    resource.prlimit(keeper, resource.RLIMIT_NOFILE, (before + 10, old[1]))
    clients = []
    with Alive(host):
        try:
            clients = connect_all(host, 50)
            wait_until(lambda: sum(map(has_answer, clients)) >= 30, "most are turned away")
            told = [c.answer() for c in clients if has_answer(c)]
            assert all(t and t[0] == fk.REFUSED and "raise its RLIMIT_NOFILE" in t[1] for t in told)
            # Files that the host has no lease for: the others can be locked without the keeper.
            refused(attempt(host, "g"), "no descriptor left: raise its RLIMIT_NOFILE")
            refused(attempt(host, "g", wait=True), "no descriptor left: raise its RLIMIT_NOFILE")
        finally:
            close_all(clients)
        works(host)
        # One connection fits, the descriptor that comes with its question does not.
        resource.prlimit(keeper, resource.RLIMIT_NOFILE, (max(map(int, os.listdir(f"/proc/{keeper}/fd"))) + 2, old[1]))
        outcome = attempt(host)
        assert outcome.word == "ok" or "RLIMIT_NOFILE" in outcome.line or "descriptor" in outcome.line, outcome
        resource.prlimit(keeper, resource.RLIMIT_NOFILE, old)
        works(host)


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
    assert host.status()["store"]["server"] == "(not UTF-8)" and host.status()["store"]["up"]
    works(host)
