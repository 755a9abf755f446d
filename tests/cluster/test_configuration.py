"""The configuration while keepers and programs run: changed, invalid, deleted, mended, not there at all."""
import os
import re
import sys
import time

import pytest
from harness import BUILD, Job, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../interpose"))
import fake_keeper as fk  # noqa: E402

CLI = os.path.join(BUILD, "dflock")
LEASE = "ttl_ms = 20000; probe_ms = 5000;"
STALE = r"^dflock: .*configuration.*not the one that the keeper has read.*`dflock reload`$"


def flock(host, name="f", before=()):
    """flock -n's exit status (1: busy, 71: refused by the system) and what was said."""
    done = host.run(*before, "flock", "-n", host.path(name), "true")
    return done.returncode, done.stderr


def works(host, name="f"):
    return flock(host, name) == (0, "")


def is_busy(host, name="f"):
    status, said = flock(host, name)
    assert status in (0, 1) and said == "", said
    return status == 1


def check_refused(host, line, name="f"):
    """ENOLCK, and one line that says why."""
    status, said = flock(host, name)
    ours = [l for l in said.splitlines() if l.startswith("dflock:")]
    assert status == 71 and "No locks available" in said, said
    assert len(ours) == 1 and re.search(line, ours[0]), said
    agent = host.agent()
    assert agent.do(f"open 0 {host.path(name)} rwc") == "ok"
    assert [agent.do("flock 0 " + how) for how in ("ex nb", "sh", "ex")] == ["ENOLCK"] * 3
    assert agent.do("flock 0 un") == "ok"  # needs nobody


def eventually(agent, answer):
    """A program that has just seen that its file was not protected believes it for up to a second."""
    def matches():
        said = agent.do("flock 0 ex nb")
        assert said in ("ok", answer)
        agent.do("flock 0 un")
        return said == answer
    wait_until(matches, f"flock() answers {answer}")


def read(host):
    with open(host.config) as f:
        return f.read()


def write(host, text):
    """In the way of an editor: a new file over the old one."""
    with open(host.config + ".new", "w") as f:
        f.write(text)
    os.rename(host.config + ".new", host.config)


def holder(host, name="f"):
    job = Job(host, "flock", host.path(name), "sh", "-c", "echo held; read line")
    assert job.line() == "held"
    return job


@pytest.fixture
def pair(make_host):
    """Only the file f is protected."""
    rules = '{ path = "%s/f"; name = "f"; }'
    return make_host("a", lease=LEASE, rules=rules), make_host("b", lease=LEASE, rules=rules)


def add_rule(host):
    write(host, read(host).replace("protect = (", f'protect = ( {{ path = "{host.path("g")}"; name = "g"; }},'))


def test_reload_of_changed_rules(pair):
    a, b = pair
    held = [holder(a, "f"), holder(a, "g")]
    running = b.agent()
    assert running.do(f"open 0 {b.path('g')} rwc") == "ok" and running.do("flock 0 ex nb") == "ok"
    running.do("flock 0 un")
    assert is_busy(b, "f") and not is_busy(b, "g")
    for host in pair:
        add_rule(host)
        for name in ("f", "g", "h"):
            check_refused(host, STALE, name)
        done = host.cli("reload")
        assert "has read its configuration again" in done.stdout and done.stderr == ""
    assert is_busy(b, "f")
    # Whoever had it before it was protected has it in its own kernel alone: nobody asked the store for it.
    assert works(b, "g")
    held[1].end()
    held[1] = holder(a, "g")
    assert is_busy(b, "g") and works(b, "h")
    eventually(running, "EAGAIN")  # started before the change
    for job in held:
        job.end()
    assert running.do("flock 0 ex nb") == "ok" and works(b, "f")


def open_slots(host):
    """How many leases the page shows."""
    with open(os.path.join(host.runtime, "page"), "rb") as f:
        page = f.read()
    slots = page[fk.LEASES_AT + 128:fk.LEASES_AT + 128 + fk.BUCKETS * fk.IN_BUCKET * fk.SLOT.size]
    return sum(slot[9] for slot in fk.SLOT.iter_unpack(slots))  # entry.open


def test_the_leases_of_old_names_are_closed_before_new_rules_are_shown(make_host, folder):
    """The keeper stands still while it writes them: no program may find the new rules, and a lease by the old ones."""
    a = make_host("a", lease=LEASE + "linger_ms = 60000;", rules='{ path = "%s/f"; name = "f"; }')
    a.cli("stop")
    sign = os.path.join(folder, "sign")
    a.inside = ["env", "LD_PRELOAD=" + os.path.join(BUILD, "tests/preload/late.so"), "DFLOCK_TEST_ROOT=" + sign]
    a.start()
    a.inside = []
    assert works(a.wait_up()) and open_slots(a) == 1
    write(a, read(a).replace('name = "f"', 'name = "another"'))
    open(sign, "w").close()
    reload = a.popen("env", "-u", "LD_PRELOAD", CLI, "reload")
    wait_until(lambda: not os.path.exists(sign), "the keeper writes the rules")
    shown = open_slots(a)
    open(sign, "w").close()
    out, err = reload.communicate(timeout=20)
    assert reload.returncode == 0, err
    assert shown == 0


def test_reload_of_fewer_rules(pair):
    for host in pair:
        add_rule(host)
        host.cli("reload")
    a, b = pair
    held = [holder(a, "f"), holder(a, "g")]
    assert is_busy(b, "f") and is_busy(b, "g")
    for host in pair:
        write(host, read(host).replace(f'{{ path = "{host.path("g")}"; name = "g"; }},', ""))
        host.cli("reload")
    assert is_busy(b, "f") and works(b, "g")
    for job in held:
        job.end()
    assert works(b, "f")


def test_the_store_is_found_again_after_a_reload(pair, redis):
    """The keeper connects with what it had read, and that is still there."""
    a, b = pair
    for host in pair:
        add_rule(host)
        host.cli("reload")
        host.wait_up()
    held = holder(a)
    before = [host.log().count("is reachable") for host in pair]
    redis.command("CLIENT", "KILL", "TYPE", "normal")
    for host, count in zip(pair, before):
        wait_until(lambda: host.log().count("is reachable") > count, host.name + " has connected again")
    assert is_busy(b)
    held.end()
    assert works(b)


def test_reload_of_an_invalid_one_changes_nothing(pair):
    a, b = pair
    held, valid = holder(a), read(a)
    write(a, valid + "colour = 7;\n")
    line = rf"{a.config}:{valid.count(chr(10)) + 1}: unknown setting colour"
    refused = a.cli("reload", check=False)
    assert refused.returncode == 1 and re.search(line, refused.stderr) and "goes on with what it had read" in refused.stderr
    check_refused(a, STALE)
    assert is_busy(b)
    write(a, valid)
    check_refused(a, STALE)  # the same words, but who knows that? It is another file
    a.cli("reload")
    held.end()
    assert works(b) and works(a)


@pytest.mark.parametrize("change", [("ttl_ms = 20000", "ttl_ms = 30000"), ('host = "a"', 'host = "x"')], ids=["ttl", "host"])
def test_what_reload_cannot_change(pair, change):
    a, _ = pair
    write(a, read(a).replace(*change))
    refused = a.cli("reload", check=False)
    assert refused.returncode == 1 and "`dflock stop`" in refused.stderr


def test_another_file(pair, folder):
    """A program with a configuration of its own and the keeper of another."""
    a, _ = pair
    own = os.path.join(folder, "own.conf")
    with open(own, "w") as f:
        f.write(read(a))
    status, said = flock(a, "f", ["env", "DFLOCK_CONFIG=" + own])
    assert status == 71 and re.search(STALE, said, re.M)


INVALID = [
    ("misspelt", lambda text: text.replace("protect =", "\nprotekt ="), 5, "unknown setting protekt; did you mean protect"),
    ("syntax", lambda text: text.replace("protect =", "protect"), 4, "syntax error"),
    ("out of range", lambda text: text.replace("ttl_ms = 20000", "\nttl_ms = 7"), 4, "lease.ttl_ms is 7; expected 100 to"),
]


@pytest.mark.parametrize("change,line,what", [case[1:] for case in INVALID], ids=[case[0] for case in INVALID])
def test_invalid_from_the_start(make_host, change, line, what):
    """No keeper starts, and every lock is refused with the place of the mistake: also on files that no rule names."""
    b = make_host("b", lease=LEASE)
    a = make_host("a", lease=LEASE, foreground=False)
    valid = read(a)
    write(a, change(valid))
    where = re.escape(f"{a.config}:{line}: {what}")
    for name in ("f", "/../unnamed"):
        check_refused(a, where, name)
    assert re.search(where, a.cli("check", check=False).stderr)
    wait_until(lambda: not a.keeper_pids(), "none runs")
    with pytest.raises(RuntimeError, match=where):
        a.start()
    write(a, valid)
    held = holder(a)
    assert is_busy(b)
    held.end()


def test_invalid_while_a_keeper_runs_and_after_its_end(pair):
    a, b = pair
    held, valid = holder(a), read(a)
    write(a, valid.replace("lease =", "leese ="))
    check_refused(a, STALE)
    assert is_busy(b)
    held.end()
    a.cli("stop")
    a.keeper.wait()
    check_refused(a, rf"{a.config}:\d+: unknown setting leese; did you mean lease")
    write(a, valid)
    assert works(a)


def test_no_configuration(make_host, folder):
    """One line that says so, and locks as ever: on this machine alone."""
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


def test_deleted_and_put_back(pair):
    a, b = pair
    held, running, text = holder(a), a.agent(), read(a)
    assert running.do(f"open 0 {a.path('g')} rwc") == "ok" and running.do("flock 0 ex") == "ok"
    os.unlink(a.config)
    for name in ("f", "g", "h"):
        check_refused(a, re.escape(f"the configuration cannot be read; put it back, or start the program without it: "
                                   f"{a.config}: No such file or directory"), name)
    eventually(running, "ENOLCK")
    refused = a.cli("reload", check=False)
    assert refused.returncode == 1 and a.config in refused.stderr
    assert is_busy(b)  # what was held stays held
    write(a, text)
    check_refused(a, STALE)
    a.cli("reload")
    assert running.do("flock 0 ex") == "ok"
    held.end()
    assert works(b) and works(a)


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
