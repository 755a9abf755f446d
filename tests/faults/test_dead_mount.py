"""A file system that does not answer: calls on its files wait, and are refused; all other calls are served."""
import os
import signal
import subprocess

import pytest
from harness import wait_until
from harness.processes import files_of


class View:
    """A FUSE file system of its own, which the kernel asks for nothing but to open files, below a host's files. stop() and go(): its server hangs."""

    def __init__(self, host, name):
        self.path = host.path(name)
        data = host.path("data-" + name)
        os.mkdir(self.path)
        os.mkdir(data)
        self.server = subprocess.Popen(["bindfs", "-f", "-o", "attr_timeout=3600,entry_timeout=3600", data, self.path])
        wait_until(lambda: os.path.ismount(self.path), "it is mounted")

    def stop(self):
        self.server.send_signal(signal.SIGSTOP)

    def go(self):
        self.server.send_signal(signal.SIGCONT)

    def end(self):
        subprocess.run(["umount", "-l", self.path], check=False)
        self.server.terminate()
        self.server.wait(20)


@pytest.fixture
def viewed(make_host):
    """viewed(NAMES, ...): a host that is not started, and its views."""
    hosts, views = [], []

    def make(*names, **options):
        hosts.append(make_host("a", foreground=False, **options))
        views.extend(View(hosts[0], name) for name in names)
        return hosts[0], *views

    yield make
    for view in views:
        view.go()
    for agent in hosts[0].agents:
        agent.kill()
    for view in views:
        view.end()


def opened(host, view, name):
    agent = host.agent()
    assert agent.do(f"open 0 {os.path.join(view.path, name)} rwc") == "ok"
    return agent


def test_others_are_served(viewed):
    """More calls than the keeper has threads hang on one mount. Those for another, which is not local either, do not. A program that is killed
    while it waits leaves nothing: when the mount answers again, the keeper has no descriptor that would keep its lock."""
    host, dead, well = viewed("dead", "well", lease="ttl_ms = 3000; probe_ms = 2000;")
    host.start()
    host.init()
    keeper = host.keeper_pids()[1]
    hanging = [opened(host, dead, "f%d" % i) for i in range(20)]
    other = opened(host, well, "g")
    dead.stop()
    for agent in hanging:
        agent.say("flock 0 ex")
    assert other.do("flock 0 ex") == "ok" and other.do("flock 0 un") == "ok"
    assert [agent.heard()[0] for agent in hanging] == ["ENOLCK"] * len(hanging)
    assert other.do("flock 0 ex") == "ok"
    dead.go()
    for agent in hanging:
        wait_until(lambda: agent.do("flock 0 ex nb") == "ok", "it is served again")

    def queued():
        return sum(path.startswith(dead.path) for path in files_of(keeper))

    agents = [opened(host, dead, "k%d" % i) for i in range(6)]
    before = queued()
    dead.stop()
    for agent in agents:
        agent.say("flock 0 ex")
    wait_until(lambda: queued() == before + 6, "all are in the keeper")
    for agent in agents + hanging:
        agent.process.kill()
    assert opened(host, well, "h").do("flock 0 ex") == "ok"
    dead.go()
    wait_until(lambda: queued() == 0, "nothing is left")
    assert host.keeper_pids()[1] == keeper


def test_a_second_signal_while_files_are_open_there(viewed):
    """Workers close the files, before the memory that workers need is freed."""
    host, view = viewed("well", lease="ttl_ms = 20000; linger_ms = 20000;")
    host.inside = ["env", "MALLOC_PERTURB_=165", "ASAN_OPTIONS=detect_leaks=0"]  # what was freed is nonsense
    host.start()
    host.inside = []
    host.init()
    agents = [opened(host, view, "f%d" % i) for i in range(8)]
    assert [agent.do("flock 0 ex nb") for agent in agents] == ["ok"] * 8
    wait_until(lambda: host.keeper.send_signal(signal.SIGTERM) or host.keeper.poll() is not None, "it ends at once")
    assert host.keeper.poll() == 0
    log = host.log()
    assert "ends: terminated" in log and "died" not in log and "Sanitizer" not in log, log
