"""A store that is not there, stops in the middle, talks nonsense or loses its connections."""
import os
import signal
import socket

import pytest
from common import Alive, Waiting, agent_with, attempt, gone, is_busy, leases, opened, refused, works
from harness import Redis, wait_until
from harness.listener import Listener

SHORT = "connect_ms = 400;"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def start_redis():
    started = []

    def start(folder, **options):
        started.append(Redis(folder, **options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(params=["unix", "tcp"])
def nowhere(request, folder, start_redis):
    """An address where a server may be later: (address, function that starts it there)."""
    later = os.path.join(folder, "later")
    os.mkdir(later)
    port = free_port() if request.param == "tcp" else 0
    return f"127.0.0.1:{port}" if port else f"unix:{later}/redis.sock", lambda: start_redis(later, port=port)


def test_no_store(host_of, nowhere):
    address, start = nowhere
    host = host_of(address, lease="ttl_ms = 1000; store_wait_ms = 700;", store=SHORT)
    with Alive(host):
        quick = refused(attempt(host), "store " + address + " is not reachable")
        assert quick.seconds < 5
        slow = refused(attempt(host, wait=True), "store " + address + r" is not reachable.*\(waited 700 ms\)")
        assert slow.seconds >= 0.65  # the loop's clock may be some ms behind
        start()
        works(host)  # after grace: nobody said `dflock init`


def test_store_comes_up_while_a_call_waits(host_of, nowhere):
    address, start = nowhere
    host = host_of(address, lease="ttl_ms = 1000; store_wait_ms = 60000;", store=SHORT)
    waiting = Waiting(host)
    wait_until(lambda: not host.status()["store"]["up"] and host.status()["store"]["error"], "the store was tried")
    assert waiting.waits()
    start()
    assert waiting.outcome().word == "ok"


# --- a server that stops for a while (SIGSTOP: connections stand, nothing is answered) ---


@pytest.fixture
def slow_two(make_host):
    """Leases that outlast what the tests here do to the store."""
    return tuple(make_host(n, lease="ttl_ms = 9000; linger_ms = 0;", store=SHORT) for n in "ab")


def test_stopped_while_held(slow_two, redis):
    a, b = slow_two
    held = agent_with(a)
    redis.signal(signal.SIGSTOP)
    with Alive(a, b):
        assert held.do("flock 0 ex nb") == "ok"  # the lease is here, and sure
        refused(attempt(b), "not reachable|no answer")
        redis.signal(signal.SIGCONT)
        is_busy(b)
        assert held.do("flock 0 un") == "ok"
        works(b)
        gone(redis)


def test_stopped_while_waiting(slow_two, redis):
    a, b = slow_two
    held = agent_with(a)
    waiting = opened(b).say("flock 0 ex")
    wait_until(lambda: leases(b, note="waits for another host"), "b is queued")
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "not reachable" in a.log() and "not reachable" in b.log(), "both notice", 40)
    assert held.do("flock 0 un") == "ok"
    assert waiting.silent(0.1)
    redis.signal(signal.SIGCONT)
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


def test_stopped_during_release(slow_two, redis):
    a, b = slow_two
    held = agent_with(a)
    redis.signal(signal.SIGSTOP)
    assert held.do("flock 0 un") == "ok"
    wait_until(lambda: leases(a, state="releasing"), "a gives it back", 40)
    assert held.do("close 0") == "ok"
    redis.signal(signal.SIGCONT)
    gone(redis)
    works(b)


def test_stopped_for_longer_than_the_lease(make_host, redis):
    """No host could take the lease meanwhile, so it still stands: the holder has lost nothing."""
    a, b = (make_host(n, lease='ttl_ms = 1000; on_lost = "warn";', store=SHORT) for n in "ab")
    held = agent_with(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "cannot be renewed" in a.log(), "the log warns")
    wait_until(lambda: leases(a, state="unsure"), "it has run out")
    redis.signal(signal.SIGCONT)
    wait_until(lambda: leases(a, state="held"), "the store confirms it")
    is_busy(b)
    assert not a.status()["lost"]
    assert held.do("flock 0 un") == "ok"
    works(b)


# --- something else answers ---


ANSWERS = {
    "silence": b"",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "OK to all": b"+OK\r\n" * 40,
    "numbers": b":1\r\n" * 40,
    "nil": b"$-1\r\n" * 40,
    "nothing but errors": b"-ERR no\r\n" * 40,
    "errors without a line's end": b"-ERR " + b"x" * 100000,
    "a huge string": b"$99999999999\r\nabc",
    "a negative array": b"*-7\r\n",
    "deep arrays": b"*1\r\n" * 5000,
    "many arrays": b"*1000000000\r\n",
    "zeros": b"\0" * 10000,
}


class Impostor(Listener):
    """Answers everything that comes with the same bytes."""

    def __init__(self, path, answer):
        self.path, self.answer = path, answer
        super().__init__(self.talk, path)

    def talk(self, connection):
        while connection.recv(65536):
            connection.sendall(self.answer)

    def stop(self):
        super().stop()
        os.unlink(self.path)


@pytest.mark.parametrize("what", ANSWERS)
def test_something_else_answers(host_of, folder, start_redis, what):
    later = os.path.join(folder, "later")
    os.mkdir(later)
    path = os.path.join(later, "redis.sock")
    impostor = Impostor(path, ANSWERS[what])
    host = host_of("unix:" + path, lease="ttl_ms = 500; store_wait_ms = 200;", store="connect_ms = 200;")
    with Alive(host):
        assert refused(attempt(host), "store unix:.* (is not reachable|cannot be used): ").seconds < 5
        refused(attempt(host, wait=True), "store unix:.* (is not reachable|cannot be used): ")
        impostor.stop()
        start_redis(later)
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
