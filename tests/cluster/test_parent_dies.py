"""The keeper's parent is killed, alone or with the keeper: another parent comes, and the leases outlive both."""
import os
import shutil
import signal

import pytest
from harness import BUILD, wait_until
from harness.host import copy_engines
from harness.metrics import value
from jobs import state
from keepers import (LONG, both_anew, flock, identity, is_busy, opened, pair, parent_and_keeper, serving, wait_for_another,  # noqa: F401
                     waits)


@pytest.mark.parametrize("foreground", [False, True])
def test_the_parent_killed_alone(make_host, foreground):
    """The keeper makes room for a new parent and a new keeper. No program asks meanwhile."""
    b, a = make_host("b", lease=LONG), make_host("a", lease=LONG, foreground=foreground)
    holder, waiter = a.opened("f", "flock 0 ex"), opened(b).say("flock 0 ex")
    waits(b)
    before, old = identity(a), a.keeper_pids()
    os.kill(old[0], signal.SIGKILL)
    new = both_anew(a, old)
    assert identity(a) == before and is_busy(b)
    assert not foreground or "the keeper's parent was killed" in a.log()
    os.kill(new[0], signal.SIGKILL)  # and again
    both_anew(a, old + new)
    wait_until(a.kill_keeper, "both have ended")
    assert flock(a, "-n", name="other") == (0, "")  # a program starts the next two
    assert identity(a) == before and waiter.silent() and is_busy(b)
    holder.do("flock 0 un")
    assert waiter.heard()[0] == "ok"
    assert [lost for host in (a, b) for lost in host.status()["lost"]] == []


def test_the_parent_killed_after_a_cleaner(pair):
    """Its runtime directory was removed, or files in it: the keeper makes them anew for the next pair."""
    a, b = pair
    holder = a.opened("f", "flock 0 ex")
    before = identity(a)
    for names in (["leases"], ["leases.text", "calls"], ["."]):
        old = a.keeper_pids()
        for name in names:
            shutil.rmtree(a.runtime) if name == "." else os.remove(os.path.join(a.runtime, name))
        os.kill(old[0], signal.SIGKILL)
        both_anew(a, old)
        assert identity(a) == before and is_busy(b) and a.status()["twin"] == "", names
    holder.do("flock 0 un")
    assert not is_busy(b) and a.status()["lost"] == []


def test_the_parent_killed_after_its_directory_was_taken(make_host):
    """A program has started another keeper in it: the first one goes on without a parent."""
    b, a = make_host("b", lease=LONG), make_host("a", lease=LONG)
    holder = a.opened("f", "flock 0 ex")
    old = a.keeper_pids()
    shutil.rmtree(a.runtime)
    assert flock(a, name="other") == (0, "")
    os.kill(old[0], signal.SIGKILL)
    wait_until(lambda: "another keeper serves there" in a.log(), "it says that it has no parent")
    assert is_busy(b) and os.path.exists(f"/proc/{old[1]}")
    holder.do("flock 0 un")
    wait_until(lambda: not is_busy(b), "b gets the lock")


def test_the_keeper_killed_after_its_directory_was_removed(make_host):
    """No keeper can start there: the parent stops the holder before b gets the lock."""
    lease = "ttl_ms = 3000;"
    b, a = make_host("b", lease=lease), make_host("a", lease=lease, foreground=False)
    holder, other = a.opened("f", "flock 0 ex"), opened(b)
    shutil.rmtree(a.runtime)
    os.kill(a.keeper_pids()[1], signal.SIGKILL)
    assert other.do("flock 0 ex", 30) == "ok"
    assert state(holder.pid) in "tTZ"


def test_the_parent_killed_and_a_program_asks(pair):
    """At that very moment: it starts a keeper, too, and one of the two stays."""
    a, b = pair
    holder = a.opened("f", "flock 0 ex")
    before, old = identity(a), a.keeper_pids()
    for _ in range(5):
        os.kill(old[0], signal.SIGKILL)
        asking = [a.popen("flock", "-n", a.path("other%d" % i), "true") for i in range(4)]
        assert [p.communicate()[1] for p in asking] == [""] * 4 and [p.returncode for p in asking] == [0] * 4
        old = both_anew(a, old)
    assert identity(a) == before and is_busy(b)


def test_one_killed_soon_after_the_other(pair):
    """Soon is when the other one has noticed; before that it is both at once."""
    a, b = pair
    holder = a.opened("f", "flock 0 ex")
    before, old = identity(a), a.keeper_pids()
    os.kill(old[0], signal.SIGKILL)
    new = both_anew(a, old)
    os.kill(new[1], signal.SIGKILL)  # the keeper, when it has made room; a successor of either must come
    wait_for_another(a, new[1])
    assert identity(a) == before and is_busy(b)
    old = a.keeper_pids()
    os.kill(old[1], signal.SIGKILL)
    _, next_keeper = wait_until(lambda: parent_and_keeper(a, {old[1]}), "the next keeper is started")
    os.kill(old[0], signal.SIGKILL)  # the parent, when it has started another keeper
    both_anew(a, [*old, next_keeper])
    assert identity(a) == before and is_busy(b)
    assert a.status()["lost"] == []


def test_both_killed_at_once(make_host):
    """Beyond the promise, as dflockd(8) says: no process is left that could stop the holder, and b gets the lock after a ttl,
    unless a program starts a keeper before (test_the_parent_killed_alone)."""
    lease = "ttl_ms = 1500;"
    b, a = make_host("b", lease=lease), make_host("a", lease=lease, foreground=False)
    holder, other = a.opened("f", "flock 0 ex"), opened(b)
    wait_until(a.kill_keeper, "both have ended")
    assert other.do("flock 0 ex") == "ok"
    assert holder.do("pid") == "ok"
    flock(a, "-n", name="other")  # the next keeper finds the holder, whose lease is gone, and kills it
    wait_until(lambda: holder.process.poll() is not None, "the holder is killed")
    assert [lost["name"] for lost in a.status()["lost"]] == ["t/f"]


def test_no_new_parent_can_be_started(make_host, folder, monkeypatch):
    """It goes on unsupervised, says so, and tries again."""
    program = os.path.join(folder, "dflockd")
    shutil.copy(os.path.join(BUILD, "dflockd"), program)
    copy_engines(folder)
    monkeypatch.setattr("harness.host.KEEPER", program)
    a = make_host("a", lease=LONG)
    holder = a.opened("f", "flock 0 ex")
    before, old = identity(a), a.keeper_pids()
    os.chmod(program, 0o600)
    os.kill(old[0], signal.SIGKILL)
    wait_until(lambda: a.status()["unsupervised"], "that is noticed")
    assert value(a, "unsupervised") == 1
    assert "UNSUPERVISED" in a.cli("status").stdout and "no other can be started (Permission denied" in a.log()
    assert serving(a) == old[1] and flock(a, "-n", name="other") == (0, "")
    os.chmod(program, 0o700)
    both_anew(a, old)
    assert not a.status()["unsupervised"] and identity(a) == before and value(a, "unsupervised") == 0
