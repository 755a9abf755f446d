"""`dflock init`, `reload` and `stop`: what they say and when they are refused. More of each is in tests/cluster."""
import os
import re
import signal

import pytest
from harness import Proxy, text_of, wait_until
from harness.job import holder
from harness.host import CLI
from harness.processes import waits_for_lock

from lines import Doctor, changed, refusal

LONG = "ttl_ms = 20000;"


def asked(host, command):
    return host.cli(command, check=False)


def done(host, command):
    """What a command that succeeds says: one line."""
    p = asked(host, command)
    assert p.returncode == 0 and p.stderr == "" and p.stdout.count("\n") == 1, p
    return p.stdout[:-1]


def is_refused(host, said="t/f ({}) is locked by a program: see `dflock status`"):
    assert refusal(asked(host, "stop")) == said.format(host.path("f"))


def test_init(host_of, redis):
    """Without `init` a new store grants nothing for as long as a forgotten host could hold something."""
    a = host_of(redis, lease="ttl_ms = 6000;", foreground=False)
    refused = a.run("flock", "-n", a.path("f"), "true")
    assert refused.returncode == 71 and "in grace" in refused.stderr and "dflock init" not in refused.stderr
    for _ in range(2):  # the second time it is open
        assert done(a, "init") == "the store is open: locks are granted"
    assert a.run("flock", "-n", a.path("f"), "true").returncode == 0
    b = host_of("127.0.0.1:1", "b", foreground=False)
    assert refusal(asked(b, "init")) == "store 127.0.0.1:1 is not reachable: connection refused; see `dflock doctor`"
    c = host_of("127.0.0.1:1", "c", foreground=False)
    changed(c, "protect", "protekt")
    assert refusal(asked(c, "init")) == f"{c.config}:4: unknown setting protekt; did you mean protect?"


def test_reload(make_host):
    a = make_host("a")
    _, keeper = a.keeper_pids()
    assert done(a, "reload") == f"the keeper (pid {keeper}) has read its configuration again"
    changed(a, "ttl_ms = 3000", "ttl_ms = 4000")
    assert refusal(asked(a, "reload")) == (f"{a.config}: host, store, ttl_ms or sweep_ms have changed: end the keeper with "
                                           "`dflock stop`, the next one reads them")
    changed(a, "protect", "protekt")
    assert refusal(asked(a, "reload")) == (f"{a.config}:4: unknown setting protekt; did you mean protect?; "
                                           "the keeper goes on with what it had read")


def test_stop(make_host):
    """Cached leases are given back. Then there is nothing to stop or reload."""
    a, b = make_host("a", lease="ttl_ms = 60000; linger_ms = 60000;"), make_host("b", lease="ttl_ms = 60000;")
    assert a.run("flock", a.path("f"), "true").returncode == 0
    _, keeper = a.keeper_pids()
    assert done(a, "stop") == f"the keeper (pid {keeper}) has ended"
    wait_until(lambda: not a.keeper_pids(), "its parent has ended, too")
    assert b.run("flock", "-n", b.path("f"), "true").returncode == 0
    assert done(a, "reload") == "no keeper runs; the next one reads the configuration when it starts"
    assert done(a, "stop") == "no keeper runs"
    assert not a.keeper_pids()


def test_stop_while_a_program_holds_or_waits(make_host):
    """Also while the lease is closed already, and the probe has not answered: a local program may have got the lock."""
    a, b = make_host("a", lease="ttl_ms = 20000; pin_ms = 3000;"), make_host("b", lease=LONG)
    job = holder(a)
    for _ in range(2):
        is_refused(a)
    waiting = [a.popen("flock", a.path("f"), "true")]
    wait_until(lambda: waits_for_lock(waiting[0].pid), "it has its pin and waits for the kernel lock")
    waiting.append(b.popen("flock", b.path("f"), "true"))
    wait_until(lambda: a.status()["leases"][0]["state"] == "draining", "it is recalled")
    is_refused(b, "a program waits for t/f: see `dflock status`")
    for _ in range(2):
        is_refused(a)
    assert job.end() == 0
    for process in waiting:
        process.communicate(timeout=20)
        assert process.returncode == 0
    wait_until(lambda: asked(a, "stop").returncode == 0, "nothing is held")


def test_stop_while_the_store_is_down(make_host, redis):
    a = make_host("a", lease="ttl_ms = 60000;")
    job = holder(a)
    redis.stop()
    wait_until(lambda: not a.status()["store"]["up"], "the keeper notices")
    assert re.fullmatch("leases cannot be given back: store unix:.* is not reachable: .*; see `dflock doctor`",
                        refusal(asked(a, "stop")))
    redis.start()
    job.end()
    wait_until(lambda: asked(a, "stop").returncode == 0, "it ends when the store is back")


def test_stop_while_a_lease_is_unsure(make_host, redis):
    """The server hangs, and is not called unreachable yet: stop is answered before the command gives up."""
    a = make_host("a", lease="ttl_ms = 2000;", store="connect_ms = 60000;")
    job = holder(a)
    redis.process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: "leases are unsure" in a.log(), "the lease is unsure")
        asking = [a.popen("env", "-u", "LD_PRELOAD", CLI, "stop") for _ in range(2)]
        said = [p.communicate(timeout=20)[1] for p in asking]
        assert [p.returncode for p in asking] == [1, 1]
    finally:
        redis.process.send_signal(signal.SIGCONT)
    for line in said:
        assert line.startswith(f"dflock: t/f ({a.path('f')}) could not be given back within 5 s: it was not renewed in time"), line
    job.end()


@pytest.mark.long
def test_a_keeper_that_does_not_answer(make_host, folder):
    """The parent, which would kill it and start the next one, is stopped as well."""
    a = make_host("a")
    parent, keeper = a.keeper_pids()
    for pid in parent, keeper:
        os.kill(pid, signal.SIGSTOP)
    try:
        asking = [a.popen("env", "-u", "LD_PRELOAD", CLI, *command.split())
                  for command in ("status", "stop", "reload", "init", "metrics", f"metrics --textfile {folder}")]
        Doctor(a).only(rf"the keeper \(pid {keeper}\).*has not answered for \d+ s; its log may say why$")
        required = a.run("env", "DFLOCK_REQUIRE=1", "echo", "ran")
        assert (required.stdout, required.returncode) == ("", 123) and "the keeper does not answer" in required.stderr
        for p in asking:
            out, err = p.communicate(timeout=40)
            assert p.returncode == 1
            assert re.fullmatch(rf"dflock: the keeper \(pid {keeper}\) has not answered for \d+ s; its log may say why\n", err), err
            assert out == "" or p.args[-1] == "metrics"
        assert "\ndflock_up 0\n" in text_of(os.path.join(folder, "dflock.prom"))
    finally:
        for pid in keeper, parent:
            os.kill(pid, signal.SIGCONT)


def test_a_store_that_has_just_come_back(make_host, redis, folder):
    """An operator asks as soon as the store is mended, and the keeper tries every two seconds."""
    proxy = Proxy(redis, folder)
    try:
        a = make_host("a", server=proxy.address)
        proxy.accepting = False
        proxy.cut()
        wait_until(lambda: proxy.turned_away >= 6, "the keeper has tried for a while")
        proxy.accepting = True
        assert done(a, "init") == "the store is open: locks are granted"
    finally:
        proxy.stop()
