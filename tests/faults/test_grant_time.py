"""A grant names a moment on the caller's clock, which is never later than the end of the host's promise."""
import os

from common import opened
from harness import BUILD, wait_until
from test_bad_input import Client, question

import fake_keeper as fk

PIN_MS = 5000
LATE_NS = 1_000_000_000


def keeper_that_is_late(make_host, folder):
    """A host whose keeper waits within recvmsg() while the file exists, which it removes then."""
    late = os.path.join(folder, "late")
    host = make_host("a", lease=f"ttl_ms = 60000; pin_ms = {PIN_MS}; linger_ms = 60000;", foreground=False)
    host.inside = ["env", "LD_PRELOAD=" + os.path.join(BUILD, "tests/preload/held.so"), "DFLOCK_TEST_LATE=" + late]
    host.start()
    host.inside = []
    host.init()
    return host, late


def test_a_question_that_comes_after_the_keeper_has_looked_at_the_clock(make_host, folder):
    """The pin ends at the latest pin_ms after the grant; the caller must not be told a later moment."""
    host, late = keeper_that_is_late(make_host, folder)
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
