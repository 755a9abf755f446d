"""`dflock run --net=on`: a thread of a supervisor hangs in a file system that does not answer, which no signal ends."""
import os
import signal
from types import SimpleNamespace

import pytest
from common import leases
from harness import hanging, wait_until
from harness.host import Agent
from harness.netted import STATIC, both, opened
from harness.view import View

LEASE = "ttl_ms = 20000; probe_ms = 5000;"


@pytest.fixture
def two(make_host):
    return make_host("a", shim=False, lease=LEASE), make_host("b", shim=False, lease=LEASE)


@pytest.fixture
def view(two, folder):
    view = View(os.path.join(folder, "view"), hanging.FLUSH)
    yield view
    view.end()
    for agent in two[1].agents:
        agent.kill()


class Beside(Agent):
    """Another agent below the same net as `words`, which start it."""

    def __init__(self):
        inner, outer = os.pipe(), os.pipe()
        self.fds = inner[0], outer[1]
        self.process = SimpleNamespace(stdin=os.fdopen(inner[1], "wb", buffering=0), stdout=os.fdopen(outer[0], "rb", buffering=0))
        self.words = ["bash", "-c", f'"$0" <&{inner[0]} >&{outer[1]} & exec "$0" {inner[0]}<&- {outer[1]}>&-', STATIC]

    def started(self):
        for fd in self.fds:
            os.close(fd)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_the_next_one_takes_over_at_once(two, view):
    """A call that waits goes on, and so do new ones; only that on the hanging file waits until the file system answers."""
    beside = Beside()
    a, b = opened(two[0]), opened(two[1], *beside.words, pass_fds=beside.fds)
    beside.started()
    assert beside.do(f"open 0 {view.path}/h rw") == "ok"
    assert a.do("flock 0 ex") == "ok"
    b.say("flock 0 ex")
    wait_until(lambda: leases(two[0], note="wanted by another host"), "the lease is recalled")
    view.do("hold")
    beside.say("flock 0 ex")
    first, second = both(two[1])
    hanging_thread = f"/proc/{first}/task/{int(view.hears('held').split()[2])}"
    assert os.path.exists(hanging_thread)
    os.kill(first, signal.SIGKILL)
    assert both(two[1], [first])[0] == second
    assert a.do("flock 0 un") == "ok"
    assert b.heard()[0] == "ok" and a.do("flock 0 ex nb") == "EAGAIN"
    assert b.do("flock 0 un") == "ok" and b.do("setlk 0 ex 0 10") == "ok"
    assert os.path.exists(hanging_thread) and beside.silent(0.1)
    view.do("let")
    assert beside.heard()[0] == "ok"
    wait_until(lambda: not os.path.exists(hanging_thread), "the thread ends")
    assert beside.do("flock 0 un") == "ok" and beside.do("flock 0 ex nb") == "ok"
    beside.end()
