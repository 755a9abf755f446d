"""The configuration while keepers and programs run: changed, invalid, deleted, mended, not there at all."""
import os
import re
import sys
import time

import pytest
from harness import BUILD, Job, bytes_of, wait_until, write_text

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../interpose"))
import fake_keeper as fk  # noqa: E402

from editing import LEASE, flock, works, is_busy, check_refused, eventually, read, write, holder, file_state, settled

CLI = os.path.join(BUILD, "dflock")
OTHER = r"^dflock: the keeper goes by another configuration than this program: by .*DFLOCK_CONFIG.*DFLOCK_RUNTIME_DIR.*$"


@pytest.fixture
def pair(make_host):
    """Only the file f is protected."""
    rules = '{ path = "%s/f"; name = "f"; }'
    return make_host("a", lease=LEASE, rules=rules), make_host("b", lease=LEASE, rules=rules)


def add_rule(host):
    write(host, read(host).replace("protect = (", f'protect = ( {{ path = "{host.path("g")}"; name = "g"; }},'))


def remove_rule(host):
    write(host, read(host).replace(f'{{ path = "{host.path("g")}"; name = "g"; }},', ""))


def test_reload_of_changed_rules(pair, redis):
    """The new rules are in force at once. The keeper finds the store again with the settings that it had read: these are still in memory."""
    a, b = pair
    held = [holder(a, "f"), holder(a, "g")]
    running = b.opened("g", "flock 0 ex nb")
    running.do("flock 0 un")
    assert is_busy(b, "f") and not is_busy(b, "g")
    for host in pair:
        add_rule(host)
        done = host.cli("reload")
        assert "has read its configuration again" in done.stdout and done.stderr == ""
    assert is_busy(b, "f")
    # A holder from before it was protected has it in its own kernel alone: no keeper asked the store for it.
    assert works(b, "g")
    held[1].end()
    held[1] = holder(a, "g")
    assert is_busy(b, "g") and works(b, "h")
    eventually(running, "EAGAIN")  # started before the change
    for host in pair:
        host.cli("log-level", "debug")  # all lines
    before = [host.log().count("is reachable") for host in pair]
    redis.command("CLIENT", "KILL", "TYPE", "normal")
    for host, count in zip(pair, before):
        wait_until(lambda: host.log().count("is reachable") > count, host.name + " has connected again")
    assert is_busy(b, "f") and is_busy(b, "g")
    for job in held:
        job.end()
    assert running.do("flock 0 ex nb") == "ok" and works(b, "f")


def open_slots(host):
    """How many leases the page shows."""
    page = bytes_of(os.path.join(host.runtime, "page"))
    slots = page[fk.LEASES_AT + 128:fk.LEASES_AT + 128 + fk.BUCKETS * fk.IN_BUCKET * fk.SLOT.size]
    return sum(slot[9] for slot in fk.SLOT.iter_unpack(slots))  # entry.open


def test_the_leases_of_old_names_are_closed_before_new_rules_are_shown(make_host, folder):
    """The keeper stands still while it writes them: no program may find the new rules, and a lease by the old ones."""
    a = make_host("a", lease=LEASE + "linger_ms = 60000;", rules='{ path = "%s/f"; name = "f"; }')
    a.cli("stop")
    sign = os.path.join(folder, "sign")
    a.inside = ["env", "LD_PRELOAD=" + os.path.join(BUILD, "tests/preload/held.so"), "DFLOCK_TEST_ROOT=" + sign]
    a.start()
    a.inside = []
    assert works(a.wait_up()) and open_slots(a) == 1
    write(a, read(a).replace('name = "f"', 'name = "another"'))
    open(sign, "w").close()
    reload = a.popen("env", "-u", "LD_PRELOAD", CLI, "reload", "--force")
    wait_until(lambda: not os.path.exists(sign), "the keeper writes the rules")
    shown = open_slots(a)
    open(sign, "w").close()
    out, err = reload.communicate(timeout=20)
    assert reload.returncode == 0, err
    assert shown == 0


def test_a_rule_that_is_added_is_taken_over(pair):
    a, b = pair
    for host in pair:
        add_rule(host)
    for host in pair:
        wait_until(lambda: host.status()["rules"]["count"] == 2, "it was taken over")
        assert file_state(host) == "same" and f"{host.config} was changed and taken over: 2 rules" in host.log()
        rules = host.status()["rules"]
        assert rules["in_force_since"] >= host.status()["started"] and "OLDER RULES" not in host.cli("status").stdout
    held = holder(a, "g")
    assert is_busy(b, "g")
    held.end()
    assert works(b, "g")


def test_reload_of_fewer_rules(pair):
    """Refused while one of their locks is held, unless it is forced."""
    for host in pair:
        add_rule(host)
        host.cli("reload")
    a, b = pair
    held = [holder(a, "f"), holder(a, "g")]
    assert is_busy(b, "f") and is_busy(b, "g")
    for host in pair:
        remove_rule(host)
    refused = a.cli("reload", check=False)
    assert refused.returncode == 1 and re.search(rf"^dflock: g \({a.path('g')}\) is locked.*would not be protected any more.*"
                                                 "`dflock reload --force`$", refused.stderr)
    settled(a, "waits")
    assert is_busy(b, "f") and is_busy(b, "g")
    a.cli("reload", "--force")
    wait_until(lambda: b.cli("reload", check=False).returncode == 0, "nothing is held there")
    assert is_busy(b, "f") and works(b, "g")
    for job in held:
        job.end()
    assert works(b, "f")


def test_reload_while_a_call_waits(pair):
    """It would get the lock by its old name, beside hosts that go by the new one."""
    a, b = pair
    held, waiter = holder(a, "f"), b.opened("f")
    waiter.say("flock 0 ex")
    wait_until(lambda: [l for l in b.status()["leases"] if l["note"] == "waits for another host"], "b is queued")
    write(b, read(b).replace('name = "f"', 'name = "another"'))
    refused = b.cli("reload", check=False)
    assert refused.returncode == 1 and "is waited for, and would have the name another" in refused.stderr, refused
    held.end()
    assert waiter.heard()[0] == "ok" and is_busy(a, "f")
    waiter.kill()
    wait_until(lambda: b.cli("reload", check=False).returncode == 0, "nothing is held there")


@pytest.mark.parametrize("state", ["invalid", "missing"])
def test_old_rules_stay_in_force(pair, state):
    """While the keeper runs, and, if there is a file, for the next one; what is wrong is said in the log, in status, and by reload."""
    a, b = pair
    held, valid, running = holder(a), read(a), a.opened("g", "flock 0 ex")
    if state == "invalid":
        write(a, valid + "colour = 7;\n")
        line = rf"{a.config}:{valid.count(chr(10)) + 1}: unknown setting colour"
    else:
        os.unlink(a.config)
        line = a.config
    refused = a.cli("reload", check=False)
    assert refused.returncode == 1 and re.search(line, refused.stderr) and "goes on with what it had read" in refused.stderr
    settled(a, state)
    assert is_busy(a) and is_busy(b) and is_busy(a, "g") and works(a, "h") and running.do("flock 0 sh") == "ok"
    assert re.search("OLDER RULES ARE IN FORCE, since .*: .*" + line, a.cli("status").stdout)
    if state == "invalid":
        assert re.search(line + ".*; the old rules stay in force", a.log())
        held.end()
        assert running.do("flock 0 un") == "ok"
        a.cli("stop")
        a.keeper.wait()
        held = holder(b)
        assert is_busy(a) and works(a, "h")  # the next one goes by the copy
        assert file_state(a) in ("changed", state)
    write(a, valid)
    settled(a, "same")
    assert running.do("flock 0 ex") == "ok"
    held.end()
    assert works(b) and works(a)


@pytest.mark.parametrize("change", [("ttl_ms = 20000", "ttl_ms = 30000"), ('host = "a"', 'host = "x"')], ids=["ttl", "host"])
def test_what_reload_cannot_change(pair, change):
    a, _ = pair
    write(a, read(a).replace(*change))
    refused = a.cli("reload", check=False)
    assert refused.returncode == 1 and "`dflock stop`" in refused.stderr
    settled(a, "stop")
    assert works(a)
    a.cli("stop")
    a.keeper.wait()
    status, said = flock(a)  # the next one has read it
    assert status == 0 or "ttl" in said, said
    assert file_state(a) == "same"


def test_another_file(pair, folder):
    """A program with a configuration of its own and the keeper of another."""
    a, _ = pair
    own = os.path.join(folder, "own.conf")
    write_text(own, read(a))
    for name in ("f", "g"):
        status, said = flock(a, name, ["env", "DFLOCK_CONFIG=" + own])
        assert status == 71 and re.search(OTHER, said, re.M) and a.config in said
    link = os.path.join(folder, "link.conf")
    os.symlink(a.config, link)
    held = holder(a)
    write(a, read(a) + "// changed\n")
    assert [flock(a, name, ["env", "DFLOCK_CONFIG=" + link]) for name in ("f", "g")] == [(1, ""), (0, "")]
    held.end()


def test_two_configurations_take_turns(make_host, folder):
    """With one runtime directory: the keeper goes by the one that it was started with, also after it was killed."""
    b = make_host("b", lease=LEASE, rules='{ path = "%s/f"; name = "f"; }')
    a = make_host("a", lease=LEASE, rules='{ path = "%s/f"; name = "f"; }', foreground=False)
    own = os.path.join(folder, "own.conf")
    with open(own, "w") as f:
        f.write(read(a).replace('/f"; name = "f"', '/g"; name = "f"'))
    other = ["env", "DFLOCK_CONFIG=" + own]
    held = holder(b)
    assert is_busy(a, "f") and flock(a, "g") == (0, "")
    for name in ("f", "g"):
        assert flock(a, name, other)[0] == 71
    wait_until(a.kill_keeper, "it is killed")
    assert flock(a, "g", other) == (1, "") and flock(a, "f", other) == (0, "")
    assert flock(a, "f")[0] == 71
    wait_until(a.kill_keeper, "it is killed")
    assert is_busy(a, "f") and flock(a, "g") == (0, "")
    held.end()


@pytest.mark.parametrize("old,new,line,what", [("protect =", "\nprotekt =", 5, "unknown setting protekt; did you mean protect"),
                                               ("protect =", "protect", 4, "syntax error")], ids=["misspelt", "syntax"])
def test_invalid_from_the_start(make_host, old, new, line, what):
    """No keeper starts, and every lock is refused with the place of the mistake: also on files that no rule names."""
    b = make_host("b", lease=LEASE)
    a = make_host("a", lease=LEASE, foreground=False)
    valid = read(a)
    write(a, valid.replace(old, new))
    where = re.escape(f"{a.config}:{line}: {what}")
    for name in ("f", "../unnamed"):
        check_refused(a, where, name)
    assert re.search(where, a.cli("check", check=False).stderr)
    wait_until(lambda: not a.keeper_pids(), "none runs")
    with pytest.raises(RuntimeError, match=where):
        a.start()
    write(a, valid)
    held = holder(a)
    assert is_busy(b)
    held.end()


def test_no_configuration(make_host, folder):
    """One line says so, and locks work as without dflock: on this machine only."""
    assert not os.path.exists("/etc/dflock.conf"), "this test needs a machine without a configuration"
    a = make_host("a", foreground=False)
    text = 'import fcntl, sys\nf = open(sys.argv[1], "a")\n' \
           'for op in (fcntl.LOCK_SH, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN, fcntl.LOCK_EX): fcntl.flock(f, op)\n' \
           'print("held", flush=True)\nsys.stdin.readline()\n'
    without = ["env", "-u", "DFLOCK_CONFIG", "HOME=" + folder]
    job = Job(a, *without, "/usr/bin/python3", "-c", text, a.path("f"))
    said = [job.line(), job.line()]
    assert re.match("dflock: no configuration .*: nothing is protected, locks hold on this machine only$", said[0])
    assert said[1] == "held"
    status, said = flock(a, "f", without)
    assert status == 1 and said.startswith("dflock: no configuration") and said.count("\n") == 1
    job.end()
    assert flock(a, "f", without)[0] == 0
    assert not a.keeper_pids()


def test_a_directory_is_renamed_into_a_protected_tree(make_host, folder):
    """A program may go by the old path for a second, and no longer."""
    a = make_host("a", lease=LEASE + "linger_ms = 0;")
    elsewhere = os.path.join(folder, "elsewhere")
    os.mkdir(elsewhere)
    agent = a.agent()
    assert agent.do(f"open 0 {elsewhere}/f rwc") == "ok"
    age = lambda: time.time_ns() - os.stat(elsewhere + "/f").st_ctime_ns
    wait_until(lambda: age() > 100_000_000, "the file is old enough to be remembered")
    for _ in range(3):  # the first one maps the page, the next ones go by it
        assert agent.do("flock 0 ex nb") == "ok" and agent.do("flock 0 un") == "ok"
    assert not a.status()["leases"]
    os.rename(elsewhere, a.path("sub"))
    renamed, unprotected = time.monotonic(), []
    while time.monotonic() - renamed < 2.5:
        begun = time.monotonic() - renamed
        assert agent.do("flock 0 ex nb") == "ok"
        if not [l for l in a.status()["leases"] if l["name"] == "t/sub/f"]:
            unprotected.append(begun)
        assert agent.do("flock 0 un") == "ok"
    assert unprotected, "if it was seen at once, the manual says too little"
    assert max(unprotected) <= 1.05


def test_a_program_that_starts_while_it_is_missing(make_host, folder):
    """Where the configuration is found without being named, its absence must not mean that there is none: an editor may be
    replacing it. `dflock stop` ends that."""
    assert not os.path.exists("/etc/dflock.conf"), "this test needs a machine without a configuration"
    rules = '{ path = "%s/f"; name = "f"; }'
    b, a = make_host("b", lease=LEASE, rules=rules), make_host("a", lease=LEASE, rules=rules, foreground=False)
    home = os.path.join(folder, "home")
    os.makedirs(home + "/.config")
    os.rename(a.config, home + "/.config/dflock.conf")
    a.config = home + "/.config/dflock.conf"
    as_found = ["env", "-u", "DFLOCK_CONFIG", "HOME=" + home]
    held, text = holder(b), read(a)
    assert flock(a, "f", as_found) == (1, "") and flock(a, "g", as_found) == (0, "")
    os.unlink(a.config)
    for _ in range(2):
        assert flock(a, "f", as_found) == (1, "") and flock(a, "g", as_found) == (0, "")
        a.kill_keeper()
    held.end()
    wait_until(lambda: flock(a, "f", as_found) == (0, ""), "its keeper has found it free")
    settled(a, "missing")
    a.cli("stop")
    wait_until(lambda: not a.keeper_pids(), "it has ended")
    status, said = flock(a, "f", as_found)
    assert status == 0 and said.startswith("dflock: no configuration")
    write(a, text)
    held = holder(b)
    assert flock(a, "f", as_found) == (1, "")
    held.end()
