"""A file system that does not answer: calls on its files wait, and are refused; all other calls are served."""
import re
import signal
import subprocess

import pytest
from harness import hanging, text_of, wait_until
from harness.host import CLI
from harness.processes import files_of


def test_others_are_served(make_host, make_view):
    """More calls than the keeper has threads hang on one mount. Those for another, which is not local either, do not. A program that is killed
    while it waits leaves nothing: when the mount answers again, the keeper has no descriptor that would keep its lock."""
    host = make_host("a", lease="ttl_ms = 3000; probe_ms = 2000;")
    keeper = host.keeper_pids()[1]
    dead, _ = make_view(host.path("dead"), hanging.OPEN), make_view(host.path("well"), hanging.OPEN)
    waiting = [host.opened("dead/f%d" % i) for i in range(20)]
    other = host.opened("well/g")
    dead.do("hold")
    for agent in waiting:
        agent.say("flock 0 ex")
    assert other.do("flock 0 ex") == "ok" and other.do("flock 0 un") == "ok"
    assert [agent.heard()[0] for agent in waiting] == ["ENOLCK"] * len(waiting)
    assert other.do("flock 0 ex") == "ok"
    dead.do("let")
    for agent in waiting:
        wait_until(lambda: agent.do("flock 0 ex nb") == "ok", "it is served again")

    def queued():
        return sum(path.startswith(dead.path) for path in files_of(keeper))

    killed = [host.opened("dead/k%d" % i) for i in range(6)]
    before = queued()
    dead.do("hold")
    for agent in killed:
        agent.say("flock 0 ex")
    wait_until(lambda: queued() == before + 6, "all are in the keeper")
    for agent in killed + waiting:
        agent.process.kill()
    assert host.opened("well/h").do("flock 0 ex") == "ok"
    dead.do("let")
    wait_until(lambda: queued() == 0, "nothing is left")
    assert host.keeper_pids()[1] == keeper


def test_a_second_signal_while_files_are_open_there(make_host, make_view):
    """Workers close the files, before the memory that workers need is freed."""
    host = make_host("a", lease="ttl_ms = 20000; linger_ms = 20000;", foreground=False)
    host.inside = ["env", "MALLOC_PERTURB_=165", "ASAN_OPTIONS=detect_leaks=0"]  # what was freed is nonsense
    host.start()
    host.inside = []
    host.init()
    make_view(host.path("well"), hanging.OPEN)
    agents = [host.opened("well/f%d" % i) for i in range(8)]
    assert [agent.do("flock 0 ex nb") for agent in agents] == ["ok"] * 8
    wait_until(lambda: host.keeper.send_signal(signal.SIGTERM) or host.keeper.poll() is not None, "it ends at once")
    assert host.keeper.poll() == 0
    log = host.log()
    assert "ends: terminated" in log and "died" not in log and "Sanitizer" not in log, log


@pytest.mark.parametrize("words", [["who", "PATH"], ["fence", "PATH"], ["break", "PATH"], ["check", "PATH"], ["doctor"]], ids=lambda words: words[0])
def test_the_command_line_says_what_it_waits_for(make_host, make_view, words):
    """It goes on when the file system answers."""
    host = make_host("a")
    view = make_view(host.path("dead"), f"{hanging.LOOKUP} {hanging.GETATTR}", valid=0)
    path = host.path("dead/f")
    view.do("hold")
    with open(host.path("said"), "w") as said:
        asked = host.popen(CLI, *[path if word == "PATH" else word for word in words], stderr=said, stdout=subprocess.DEVNULL)
    line = wait_until(lambda: "\n" in text_of(host.path("said")) and text_of(host.path("said")), "it says what it waits for")
    assert re.match(f"dflock: {host.files}.*: its file system has not answered for 5 s, and is waited for\n", line), line
    view.do("let")
    assert asked.wait(60) >= 0
