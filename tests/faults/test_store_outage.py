"""
A store that is not there, stops in the middle, talks nonsense or loses its connections. A call that waits for it says so after a second; one
that waits for another host says nothing. What else a server may answer: tests/unit/test_store_nonsense.c.
"""
import os
import signal
import socket
import time

import pytest
from common import Alive, Waiting, agent_with, attempt, gone, is_busy, leases, opened, refused, works
from harness import Redis, wait_until
from harness.listener import Listener
from harness.ports import free_ports

SHORT = "connect_ms = 400;"
LINE = ": waiting: store "
AWAY = "store unix:.* (is not reachable|cannot be used): "


@pytest.fixture
def later(folder):
    """later(PORT) starts a server in the place where nothing is so far."""
    started, place = [], os.path.join(folder, "later")
    os.mkdir(place)

    def start(port=0):
        started.append(Redis(place, port=port))

    start.socket = os.path.join(place, "redis.sock")
    yield start
    for server in started:
        server.stop()


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_no_store(host_of, later, tcp):
    """A call that waits gets the lock when it comes up: after grace, nobody said `dflock init`."""
    port, = free_ports(1) if tcp else [0]
    address = f"127.0.0.1:{port}" if tcp else "unix:" + later.socket
    host, patient = (host_of(address, name, lease=f"ttl_ms = 1000; store_wait_ms = {ms};", store=SHORT) for name, ms in (("a", 700), ("b", 60000)))
    waiting = Waiting(patient)
    with Alive(host, patient):
        assert refused(attempt(host), "store " + address + " is not reachable").seconds < 5
        slow = refused(attempt(host, wait=True), "store " + address + r" is not reachable.*\(waited 700 ms\)")
        assert slow.seconds >= 0.65  # the loop's clock may be some ms behind
        wait_until(lambda: not patient.status()["store"]["up"] and patient.status()["store"]["error"], "the store was tried")
        assert waiting.waits()
        later(port)
        works(host)
        assert waiting.outcome().word == "ok"


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_call_that_waits_for_the_store_says_so(make_host, redis, how):
    """No connection, or one without answers. A lease that is here is sure: then the kernel alone decides, whatever the store does."""
    a, b = (make_host(n, lease="ttl_ms = 20000; linger_ms = 0; store_wait_ms = 4000;") for n in "ab")
    held = opened(a, "f"), opened(b, "mine")
    assert [agent.do("flock 0 ex nb") for agent in held] == ["ok", "ok"]

    def flock(name, *words):
        return b.popen("flock", "-E", "99", *words, b.path(name), "true")

    silent, queued = flock("f", "-w", "2"), flock("f")
    assert silent.communicate(timeout=20)[1] == "" and silent.returncode == 99
    wait_until(lambda: leases(b, note="waits for another host"), "b is queued")
    redis.stop() if how == "killed" else redis.signal(signal.SIGSTOP)
    began = time.monotonic()
    mine, brief, long = flock("mine", "-w", "3"), flock("new", "-w", "3"), flock("other")
    assert LINE in long.stderr.readline() and time.monotonic() - began > 0.9
    line, = brief.communicate(timeout=20)[1].splitlines()
    assert brief.returncode == 99 and time.monotonic() - began > 2.9  # its own end, not that of the 4 s
    assert line.startswith("dflock: " + b.path("new") + LINE) and "is not reachable" in line and "dflock doctor" in line, line
    assert LINE in queued.stderr.readline()
    assert mine.communicate(timeout=20)[1] == "" and mine.returncode == 99
    assert long.wait(30) != 0
    rest = long.stderr.read()
    assert LINE not in rest and "(waited 4000 ms)" in rest, rest
    queued.kill()
    queued.communicate()


# --- a server that stops for a while (SIGSTOP: connections stand, nothing is answered) ---


def test_stopped_while_held_and_waiting_and_released(make_host, redis):
    """Leases that outlast it."""
    a, b = (make_host(n, lease="ttl_ms = 12000; linger_ms = 0;", store=SHORT) for n in "ab")
    held, given = agent_with(a), agent_with(a, name="g")
    waiting = opened(b).say("flock 0 ex")
    wait_until(lambda: leases(b, note="waits for another host"), "b is queued")
    redis.signal(signal.SIGSTOP)
    with Alive(a, b):
        assert held.do("flock 0 ex nb") == "ok"  # the lease is here, and sure
        assert given.do("flock 0 un") == "ok"
        refused(attempt(b, "new"), "not reachable|no answer")
        wait_until(lambda: leases(a, name="t/g", state="releasing"), "a gives it back", 40)
        assert given.do("close 0") == "ok"
        wait_until(lambda: "not reachable" in a.log() and "not reachable" in b.log(), "both notice", 40)
        assert waiting.silent(0.1)
        redis.signal(signal.SIGCONT)
        gone(redis, "g")
        is_busy(b)
        works(b, "g")
        assert held.do("flock 0 un") == "ok"
        assert waiting.heard()[0] == "ok"
        assert attempt(a).word == "busy"


def test_a_short_outage_does_not_end_a_long_wait(make_host, make_proxy):
    """store_wait_ms counts while the store is away, and ends when it is back."""
    proxy = make_proxy()
    lease = "ttl_ms = 6000; store_wait_ms = 800;"
    a = make_host("a", lease=lease)
    b = make_host("b", lease=lease, server=proxy.address).wait_up()
    one, other = a.opened("f", "flock 0 ex"), opened(b).say("flock 0 ex")
    wait_until(lambda: leases(a, note="wanted by another host"), "b waits for a")
    proxy.accepting = False
    proxy.cut()
    wait_until(lambda: "is not reachable" in b.log(), "the outage is noticed")
    proxy.accepting = True
    b.wait_up()
    assert other.silent(1.2)
    assert one.do("flock 0 un") == "ok"
    assert other.heard()[0] == "ok"


# --- something else answers ---


class Impostor(Listener):
    """Answers everything that comes with the same bytes."""

    def __init__(self, path, answer):
        self.path, self.answer, self.asked = path, answer, 0
        super().__init__(self.talk, path)

    def talk(self, connection):
        while connection.recv(65536):
            self.asked += 1
            connection.sendall(self.answer)

    def stop(self):
        super().stop()
        os.unlink(self.path)


def test_something_else_answers(host_of, later):
    """One after the other, and then a server."""
    impostor = Impostor(later.socket, b"")
    host = host_of("unix:" + later.socket, lease="ttl_ms = 500; store_wait_ms = 200;", store="connect_ms = 200;")
    with Alive(host):
        for answer in b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR " + b"x" * 100000, b"*1\r\n" * 5000, b"\0" * 10000:
            impostor.answer = answer
            before = impostor.asked
            wait_until(lambda: impostor.asked > before + 1, "it is asked, and asked again")
            assert refused(attempt(host), AWAY).seconds < 5
            refused(attempt(host, wait=True), AWAY)
        impostor.stop()
        later()
        works(host)


def test_no_room_at_the_server(make_host, redis):
    """maxclients: Redis says why, and closes. Only the connection that this test keeps stays."""
    host = make_host("a", lease="ttl_ms = 5000; linger_ms = 0;", store=SHORT)
    works(host)
    with socket.socket(socket.AF_UNIX) as only, Alive(host):
        only.connect(redis.socket)
        for command in (b"CONFIG SET maxclients 1", b"CLIENT KILL TYPE normal SKIPME yes", b"CLIENT KILL TYPE pubsub"):
            only.sendall(command + b"\r\n")
            assert only.recv(100)[:1] in b"+:"
        wait_until(lambda: "max number of clients" in attempt(host).line, "the line says why")
        only.sendall(b"CONFIG SET maxclients 1000\r\n")
        assert only.recv(100) == b"+OK\r\n"
        works(host)
