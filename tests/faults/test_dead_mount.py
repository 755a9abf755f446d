"""A file system that does not answer: calls on its files wait, and are refused; all other calls are served."""
import os
import signal
import subprocess

import pytest
from harness import wait_until

LEASE = "ttl_ms = 3000; probe_ms = 2000;"


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
        self.go()
        subprocess.run(["umount", "-l", self.path], check=False)
        self.server.terminate()
        self.server.wait(20)


@pytest.fixture
def views(make_host):
    host = make_host("a", lease=LEASE)
    views = [View(host, "dead"), View(host, "well")]
    yield host, views[0], views[1]
    for view in views:
        view.go()
    for agent in host.agents:
        agent.kill()
    for view in views:
        view.end()


def opened(host, view, name):
    agent = host.agent()
    assert agent.do(f"open 0 {os.path.join(view.path, name)} rwc") == "ok"
    return agent


def test_others_are_served(views):
    """More calls than the keeper has threads hang on one mount. Those for another, which is not local either, do not."""
    host, dead, well = views
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


def test_a_program_killed_while_it_waits_leaves_nothing(views):
    """When the mount answers again, the keeper has no descriptor that would keep the program's lock."""
    host, dead, well = views
    keeper = host.keeper_pids()[1]
    agents = [opened(host, dead, "f%d" % i) for i in range(6)]

    def queued():
        links = [os.path.join(f"/proc/{keeper}/fd", fd) for fd in os.listdir(f"/proc/{keeper}/fd")]
        return sum(os.readlink(link).startswith(dead.path) for link in links if os.path.lexists(link))
    dead.stop()
    for agent in agents:
        agent.say("flock 0 ex")
    wait_until(lambda: queued() == 6, "all are in the keeper")
    for agent in agents:
        agent.process.kill()
    assert opened(host, well, "g").do("flock 0 ex") == "ok"
    dead.go()
    wait_until(lambda: queued() == 0, "nothing is left")
    assert host.keeper_pids()[1] == keeper


def test_a_second_signal_while_files_are_open_there(make_host):
    """Workers close the files, before the memory that workers need is freed."""
    host = make_host("a", lease="ttl_ms = 20000; linger_ms = 20000;", foreground=False)
    host.inside = ["env", "MALLOC_PERTURB_=165", "ASAN_OPTIONS=detect_leaks=0"]  # what was freed is nonsense
    host.start()
    host.inside = []
    host.init()
    view = View(host, "well")
    try:
        agents = [opened(host, view, "f%d" % i) for i in range(8)]
        assert [agent.do("flock 0 ex nb") for agent in agents] == ["ok"] * 8
        wait_until(lambda: host.keeper.send_signal(signal.SIGTERM) or host.keeper.poll() is not None, "it ends at once")
        assert host.keeper.poll() == 0
        log = host.log()
        assert "ends: terminated" in log and "died" not in log and "Sanitizer" not in log, log
    finally:
        for agent in host.agents:
            agent.kill()
        view.end()
