"""What a service manager hears of a keeper, and how it replaces one (docs/operating.md)."""
import os
import shutil
import signal
import socket
import subprocess

import pytest
from harness import Job, text_of, wait_until, write_text
from harness.host import KEEPER

from keepers import HOLD, identity, is_busy, leases, socket_of, two_long  # noqa: F401


class Manager:
    """Reads what is sent to NOTIFY_SOCKET, and starts a host's keeper in its place."""

    def __init__(self, host):
        self.path = os.path.join(os.path.dirname(host.config), "notify-" + host.name)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(30)
        self.host = host

    def start(self, **more):
        env = self.host.env()
        env.pop("LD_PRELOAD")
        env.update(NOTIFY_SOCKET=self.path, **more)
        log = self.host.open_log()
        self.host.keeper = subprocess.Popen([KEEPER, "--foreground"], env=env, stderr=log, stdout=subprocess.DEVNULL, start_new_session=True)
        os.close(log)

    def hears(self, but=()):
        while (said := self.socket.recv(100).decode()) in but:
            pass
        return said

    def heard_nothing(self):
        self.socket.settimeout(0)
        try:
            return not self.socket.recv(100)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(30)


def test_it_hears_when_programs_are_served_and_when_they_are_no_longer(two_long):
    """A keeper that cannot start is never ready."""
    a, _ = two_long
    assert a.cli("stop").returncode == 0 and a.keeper.wait(20) == 0
    manager, text = Manager(a), text_of(a.config)
    write_text(a.config, text + "nonsense")
    manager.start()
    assert a.keeper.wait(20) == 1 and "syntax error" in a.log()
    assert manager.heard_nothing()
    write_text(a.config, text)
    manager.start(WATCHDOG_USEC="400000")
    assert manager.hears(but=("WATCHDOG=1",)) == "READY=1"
    assert a.serves()
    assert manager.hears() == "WATCHDOG=1"
    a.keeper.send_signal(signal.SIGTERM)
    assert manager.hears(but=("WATCHDOG=1",)) == "STOPPING=1"
    assert a.keeper.wait(20) == 0


@pytest.mark.parametrize("how", ["by a lock", "by hand"])
def test_a_keeper_that_another_service_has_started_says_nothing(make_host, how):
    """Else that service would count as ready."""
    a = make_host("a", foreground=False)
    manager = Manager(a)
    env = {**a.env(), "NOTIFY_SOCKET": manager.path}
    if how == "by hand":
        del env["LD_PRELOAD"]
    done = subprocess.run([KEEPER] if how == "by hand" else ["flock", a.path("f"), "true"], env=env, timeout=60)
    assert done.returncode == 0 and len(a.keeper_pids()) == 2
    wait_until(lambda: a.status()["store"]["up"], "it serves for a while")
    assert manager.heard_nothing()


@pytest.mark.parametrize("waits", [False, True], ids=["SIGQUIT", "SIGTERM before"])
def test_replaced_while_a_lock_is_held(two_long, waits):
    """SIGQUIT: it does not wait for the end of the lock, also if it does already. The next one has the same leases."""
    a, b = two_long
    used = a.opened("used", "flock 0 ex")
    before = identity(a, "used")
    if waits:
        a.keeper.send_signal(signal.SIGTERM)
        wait_until(lambda: "told to end: waits until" in a.log(), "it waits")
    a.keeper.send_signal(signal.SIGQUIT)
    assert a.keeper.wait(20) == 0
    assert os.path.exists(socket_of(a)) and not a.serves() and not a.keeper_pids()
    assert "1 leases are in use; the next keeper takes them up" in a.log()
    assert is_busy(b, "used")
    manager = Manager(a)
    manager.start()
    assert manager.hears() == "READY=1"
    wait_until(lambda: leases(a, "used", state="held"), "the lease was taken up")
    assert identity(a, "used") == before and is_busy(b, "used")
    used.do("flock 0 un")
    assert used.do("flock 0 ex nb") == "ok"


def test_a_user_who_asks_while_the_system_keeper_is_replaced(make_system):
    """The call waits for the next keeper, and starts none of the user's own: that would be another host."""
    host = make_system(lease="ttl_ms = 20000;")
    user = 54321
    own = f"/dev/shm/dflock-{user}"
    shutil.rmtree(own, ignore_errors=True)  # of a run that failed
    env = host.env()
    del env["DFLOCK_RUNTIME_DIR"]
    open(host.path("f"), "w").close()
    os.chmod(host.path("f"), 0o666)
    for _ in range(5):
        host.keeper.send_signal(signal.SIGQUIT)
        assert host.keeper.wait(20) == 0
        asks = subprocess.Popen([*host.inside, *host.as_user(user, "flock", "-n", host.path("f"), "true")], env=env,
                                stderr=subprocess.PIPE, text=True)
        host.start()
        assert asks.wait(60) == 0, asks.stderr.read()
        asks.stderr.close()
        assert len(host.keeper_pids()) == 2 and not os.path.exists(own)


def test_sighup_reloads(make_host):
    """As `dflock reload` does; a file that is invalid changes nothing, and takes down no keeper."""
    a = make_host("a", rules='{ path = "%s/f"; name = "f"; }, { path = "%s/g"; name = "g"; }')
    job = Job(a, "flock", a.path("f"), "sh", "-c", HOLD).held()
    pids = a.keeper_pids()
    text = text_of(a.config)
    fewer = text.replace('/g"; name', '/other"; name')
    assert fewer != text
    write_text(a.config, fewer)
    a.keeper.send_signal(signal.SIGHUP)
    wait_until(lambda: "was read again" in a.log(), "it is reloaded")
    assert a.status()["rules"]["file"] == "same"
    with open(a.config, "a") as f:
        f.write("nonsense")
    for pid in pids:  # as to a whole control group
        os.kill(pid, signal.SIGHUP)
    wait_until(lambda: "SIGHUP: not reloaded: " in a.log(), "it says why not")
    assert "syntax error" in a.log() and a.keeper_pids() == pids
    job.end()
