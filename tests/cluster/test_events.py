"""on_event: each event as JSON on a command's standard input, in the log under the same name, and in the counters of `dflock metrics`."""
import json
import os
import pwd
import signal
import subprocess

import harness.host
import pytest
from harness import Job, text_of, wait_until, write_text
from harness.metrics import Since, ended, key_of, metrics, value
from harness.processes import children, pids_where, raw

from jobs import LEASE, SLOW_LEASE, end, grows, is_frozen, job, size
from keepers import both_anew, kill_keeper

PAST = os.path.join(harness.host.BUILD, "tests/agents/past")
TELL = '#!/bin/sh\ncat >>"$1"\necho >>"$1"\n'
RECONNECTED = {"dflock_freezes_total": 1, "dflock_store_connects_total": 1, "dflock_store_disconnects_total": 1}


class Told:
    """What the command was told."""

    def __init__(self, folder):
        self.path, self.script = os.path.join(folder, "told"), os.path.join(folder, "tell")
        write_script(self.script, TELL)
        self.top = f'on_event = [ "{self.script}", "{self.path}" ];'

    def all(self):
        try:
            return [json.loads(line) for line in text_of(self.path).splitlines() if line]
        except FileNotFoundError:
            return []

    def names(self):
        return [event["event"] for event in self.all()]

    def get(self, name, timeout=20):
        return wait_until(lambda: [e for e in self.all() if e["event"] == name], f"{name} is told", timeout)


def write_script(path, text):
    write_text(path, text)
    os.chmod(path, 0o755)


@pytest.fixture
def told(folder):
    return Told(folder)


def check_frame(host, event):
    """What every event has."""
    status = host.status()
    assert (event["host"], event["runtime_dir"]) == (status["host"], host.runtime)
    assert status["started"] <= event["time"] <= event["last"]
    assert event["count"] == len(event["others"]) + 1 or (event["count"] > 8 and len(event["others"]) == 7)
    assert f"event={event['event']}: {event['message']}\n" in host.log()


# --- each event ---

def test_the_store_is_away_and_back(make_host, redis, told):
    a = make_host("a", top=told.top)
    redis.stop()
    away, = told.get("store-away")
    assert "is not reachable" in away["message"] and away["reason"] and away["seconds"] > 0
    check_frame(a, away)
    redis.start()
    back, = told.get("store-back")
    check_frame(a, back)
    assert back["seconds"] >= away["seconds"] and (away["number"], back["number"]) == (1, 2)
    assert told.names() == ["store-away", "store-back"]


def test_frozen_and_thawed(make_host, redis, told):
    # A beat is sent before the connection counts as broken: a third of ttl_ms is shorter than connect_ms.
    a = make_host("a", lease=SLOW_LEASE, store="connect_ms = 6000;", top=told.top)
    holder = a.opened("f", "flock 0 ex")
    before = Since(a)
    redis.signal(signal.SIGSTOP)
    frozen, = told.get("holders-frozen", 30)
    assert (frozen["name"], frozen["path"], frozen["pids"], frozen["processes"]) == ("t/f", a.path("f"), [holder.pid], 1)
    assert value(a, "frozen_processes") == value(a, "freezes_total") == 1
    wait_until(lambda: value(a, "store_up") == 0, "the connection counts as broken", 30)
    redis.signal(signal.SIGCONT)
    thawed, = told.get("holders-thawed", 30)
    assert (thawed["name"], thawed["pids"]) == ("t/f", [holder.pid])
    check_frame(a, frozen)
    check_frame(a, thawed)
    before.moves(RECONNECTED)
    assert holder.do("flock 0 un") == "ok"
    assert value(a, "beats_total", result="unanswered") == 1
    kill_keeper(a)
    now = metrics(a)
    assert now["dflock_freezes_total"] == 1 and now["dflock_keeper_restarts_total"] == 1 and now["dflock_keeper_hangs_total"] == 0
    assert now["dflock_store_disconnects_total"] == 0  # the keeper's own begin again
    assert now["dflock_start_time_seconds"] >= before.first["dflock_start_time_seconds"]


def test_lost_and_killed(make_host, redis, told):
    a = make_host("a", lease="ttl_ms = 6000; freeze_margin_ms = 2500;", top=told.top)
    holder = a.opened("f", "flock 0 ex")
    fence, before = a.status()["leases"][0]["fence"], Since(a)
    redis.stop()
    wait_until(lambda: value(a, "deadline_left_seconds") == 0, "the deadline passes", 30)
    redis.start()
    killed, = told.get("holders-killed")
    assert holder.process.wait(20) == -signal.SIGKILL
    assert (killed["name"], killed["path"], killed["pids"]) == ("t/f", a.path("f"), [holder.pid])
    lost, = told.get("lease-lost")
    assert (lost["name"], lost["path"], lost["fence"]) == ("t/f", a.path("f"), fence)
    assert (lost["space"], lost["mode"], lost["from"], lost["to"]) == ("flock", "exclusive", 0, None)
    assert "lost its memory" in lost["reason"] and lost["message"].startswith("LOST: ")
    for event in killed, lost:
        check_frame(a, event)
    wait_until(lambda: value(a, "store_grace") == 0, "grace is over", 30)
    before.moves({**RECONNECTED, "dflock_store_memory_losses_total": 1, key_of("leases_lost_total", reason="forgotten"): 1,
                  ended("lost", "KILL"): 1, key_of("lease_hold_seconds_count", space="flock"): 1})
    assert "holders-thawed" not in a.log()  # they were killed: none of them goes on


def test_on_lost_kill(make_host, redis, told):
    """One ends by SIGTERM, the other one ignores it."""
    a = make_host("a", lease=LEASE + 'on_lost = "kill";', top=told.top)
    holder = a.opened("f", "flock 0 ex")
    other = Job(a, "bash", "-c", 'trap "" TERM; exec 9>"$1"; flock 9 && echo held; read line', "job", a.path("g")).held()
    before = Since(a)
    redis.signal(signal.SIGSTOP)
    assert [holder.process.wait(30), other.process.wait(30)] == [-signal.SIGTERM, -signal.SIGKILL]
    redis.signal(signal.SIGCONT)
    wait_until(lambda: value(a, "store_up") == 1, "the store is back", 30)
    now = before.moved()
    assert now[ended("expired", "TERM")] == 2 and now[ended("expired", "KILL")] == 1
    assert "dflock_freezes_total" not in now and ended("lost", "KILL") not in now
    assert {holder.pid, other.pid} <= {pid for event in told.get("holders-killed") for pid in event["pids"]}


def test_frozen_ones_that_die_with_the_parent(make_host, redis, told):
    """EXITKILL; the keeper, which ends then, tells it. The next parent's counts begin anew."""
    a = make_host("a", lease=LEASE, top=told.top)
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    told.get("holders-frozen")
    old = a.keeper_pids()
    wait_until(lambda: not children(old[1]), "the command has ended: a keeper that ends does not wait for it to tell the next event")
    os.kill(old[0], signal.SIGKILL)
    process.communicate(timeout=20)
    killed, = told.get("holders-killed")
    redis.signal(signal.SIGCONT)
    assert killed["processes"] >= 2 and "died with it" in killed["message"]
    both_anew(a, old)
    assert value(a, "keeper_restarts_total") == value(a, "freezes_total") == 0


def test_a_keeper_that_was_killed_meanwhile(make_host, redis, told):
    """What the parent did while there was no keeper, the next keeper tells."""
    a = make_host("a", lease=LEASE, top=told.top)
    holder = a.opened("f", "flock 0 ex")
    parent, keeper = a.keeper_pids()
    redis.stop()
    os.kill(keeper, signal.SIGSTOP)  # the parent notices that it hangs, kills it and starts another one; meanwhile it freezes
    frozen, = told.get("holders-frozen", 40)
    assert holder.pid in frozen["pids"]
    wait_until(lambda: a.status()["store"]["deadline_left_ms"] == 0, "the lease can no longer be put back")
    redis.start()
    told.get("holders-killed", 40)
    holder.process.wait(20)
    assert a.keeper_pids()[0] == parent and a.keeper_pids()[1] != keeper
    assert value(a, "keeper_hangs_total") == value(a, "keeper_restarts_total") == 1


def test_taken_past(make_host, told):
    a = make_host("a", lease="ttl_ms = 3000; past_look_ms = 50;", top=told.top)
    before = Since(a.wait_up())
    past = Job(a, PAST, "flock", a.path("f")).held()
    event, = told.get("taken-past", 60)
    assert (event["pids"], event["name"], event["path"], event["mode"]) == ([past.pid], "t/f", a.path("f"), "exclusive")
    assert event["command"].startswith(PAST)
    check_frame(a, event)
    before.moves({"dflock_locks_past": 1, "dflock_taken_past_total": 1})
    past.kill()
    wait_until(lambda: value(a, "locks_past") == 0, "it has gone", 60)
    assert before.moved() == {"dflock_taken_past_total": 1}


def test_held_too_long(make_host, told):
    """First it is only reported, and then its holder is ended."""
    a = make_host("a", rules='{ tree = "%s"; name = "t"; warn_after_ms = 300; kill_after_ms = 1500; }', top=told.top)
    before = Since(a.wait_up())
    held = a.popen("flock", a.path("f"), "sh", "-c", "echo held; sleep 100")
    assert held.stdout.readline() == "held\n"
    event, = told.get("held-too-long")
    assert (event["name"], event["path"], event["pids"], event["processes"]) == ("t/f", a.path("f"), [held.pid], 1)
    assert event["seconds"] >= 0.3 and event["command"].startswith("flock ")
    check_frame(a, event)
    event, = told.get("holders-killed")
    assert held.wait(20) == -signal.SIGTERM
    assert (event["reason"], event["processes"]) == ("held for longer than kill_after_ms", 3)
    assert held.pid in event["pids"] and len(event["pids"]) == 3 and event["seconds"] >= 1.5
    check_frame(a, event)
    now = before.moved()
    assert now["dflock_held_too_long_total"] == 1 and now[ended("held_too_long", "TERM")] == 3


def test_names_of_any_bytes(make_host, told):
    a = make_host("a", rules='{ tree = "%s"; name = "t"; warn_after_ms = 100; }', top=told.top)
    held = a.popen("flock", os.path.join(a.files.encode(), b'n\xff"\n\x1b$(touch x)\xc3\xa4'), "sleep", "60")
    event, = told.get("held-too-long")
    assert event["path"] == a.path('n?"\n\x1b$(touch x)??') and event["name"].startswith("t/n?")
    assert "\n" not in event["message"] and "\x1b" not in event["message"]
    held.kill()
    held.wait()


@pytest.mark.parametrize("where", ["another host", "this host"])
def test_waited_too_long(make_host, told, where):
    rules = '{ path = "%s/quiet"; name = "quiet"; }, { tree = "%s"; name = "t"; wait_warn_ms = 300; }'
    a = make_host("a", rules=rules, top=told.top)
    b = make_host("b", rules=rules) if where == "another host" else a
    holders = [b.popen("flock", b.path(name), "sh", "-c", "echo held; read line", stdin=subprocess.PIPE) for name in ("f", "quiet")]
    assert [holder.stdout.readline() for holder in holders] == ["held\n"] * 2
    waiting = [a.popen("flock", a.path(name), "true") for name in ("quiet", "f")]
    event, = told.get("waited-too-long")
    assert (event["pids"], event["name"], event["path"]) == ([waiting[1].pid], "t/f", a.path("f"))
    assert event["holder"] == b.status()["host"] and event["seconds"] > 0
    assert ("has it" in event["reason"]) and event["count"] == 1
    assert value(a, "waited_too_long_total") == 1
    check_frame(a, event)
    for holder in holders:
        holder.communicate("\n")
    assert [w.wait(20) for w in waiting] == [0, 0]
    assert len(told.all()) == 1  # once, and none for the file whose rule has no limit


# --- the command ---

LOOK = r"""#!/bin/sh
{ env; echo "cwd $(pwd)"; for fd in /proc/$$/fd/*; do echo "fd $(readlink $fd)"; done; while read -r line; do echo "$line"; done </proc/$$/status; echo "oom $(cat /proc/$$/oom_score_adj)"; cat /proc/$$/limits; cut -d' ' -f1-7,19 /proc/$$/stat; echo "words $# $1 $2"; } >"$1.new"
mv "$1.new" "$1"
"""


def test_what_the_command_inherits(make_host, redis, folder, monkeypatch):
    """Nothing of the keeper's: not its preload, descriptors, limits, signals; and no shell looks at its words."""
    out, script = os.path.join(folder, "out"), os.path.join(folder, "look")
    write_script(script, LOOK)
    monkeypatch.setenv("TEST_SECRET", "x")
    spared = ["choom", "-n", "-500", "--"]
    if subprocess.run([*spared, "true"], capture_output=True).returncode:  # a container's root may not
        spared = []
    a = make_host("a", top=f'on_event = ( "{script}", "{out}", "$(id) *" );', inside=spared)
    redis.stop()
    wait_until(lambda: os.path.exists(out), "the command has run", 20)
    text = open(out).read()
    lines = text.splitlines()
    me = pwd.getpwuid(os.geteuid())
    assert {"DFLOCK_EVENT=store-away", f"DFLOCK_CONFIG={a.config}", f"DFLOCK_RUNTIME_DIR={a.runtime}", f"HOME={me.pw_dir}", f"USER={me.pw_name}",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "cwd /", "words 2 " + out + " $(id) *"} <= set(lines)
    assert "LD_PRELOAD" not in text and "SECRET" not in text
    fds = {line[3:].split(":")[0] for line in lines if line.startswith("fd ")}
    assert fds <= {"/memfd", "pipe", script, out + ".new", ""}, fds  # the last one: of the shell's $(...)
    said = {line.split(":")[0]: line.split(":")[1].strip() for line in lines if line.startswith("Sig")}
    # 32 and 33 are the C library's own; its posix_spawn() leaves them ignored.
    assert int(said["SigBlk"], 16) == 0 and int(said["SigIgn"], 16) & ~(3 << 31) == 0
    assert not spared or "oom 0" in lines
    files, = (line.split() for line in lines if line.startswith("Max open files"))
    assert int(files[3]) <= 1024
    stat, = (line for line in lines if "(look)" in line or "(sh)" in line)
    pid, _, _, parent, group, session, _, nice = stat.split()
    assert pid == group == session and nice == "0"
    redis.start()


def alive(mark):
    """Processes whose environment has the mark."""
    return pids_where(lambda pid: mark.encode() in raw(f"/proc/{pid}/environ"))


# Does not read its input, leaves a daemon of its own session and a background job, and does not end. $2: a protected file that a job has.
HANG = r"""#!/bin/bash
[ $DFLOCK_EVENT = holders-frozen ] || exec /bin/sh "$3" "$1"
export HANGS=$1
setsid sh -c 'trap "" TERM HUP; (sleep 600)& sleep 600' </dev/null >/dev/null 2>&1 &
trap "" TERM HUP INT
echo started >"$1.started"
exec flock "$2" true
"""


@pytest.mark.long
def test_a_command_that_hangs(make_host, redis, told, folder):
    """It waits for a protected lock that a frozen job has: freezing, thawing and callers do not wait for it, and it ends with all it started."""
    hang = os.path.join(folder, "hang")
    write_script(hang, HANG)
    # Long leases: a second outage, by a machine that has too much to do, would be told before the end of the first.
    a = make_host("a", lease=SLOW_LEASE, top=f'on_event = [ "{hang}", "{told.path}", "{os.path.join(folder, "files-a", "f")}", "{told.script}" ];')
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: os.path.exists(told.path + ".started"), "the command runs", 20)
    assert is_frozen(path)
    redis.signal(signal.SIGCONT)
    grows(path)
    assert len(alive("HANGS=" + told.path)) >= 4  # flock(1), and the daemon's three
    assert a.run("flock", "-n", a.path("other"), "true").returncode == 0
    told.get("holders-thawed", 60)
    assert not alive("HANGS=" + told.path)  # all that it started has ended before the next one began
    assert "on_event: " + hang + " was killed: it had not ended after 10000 ms" in a.log()
    assert process.poll() is None
    grows(path)
    end(process, path)


@pytest.mark.parametrize("text, mode, said", [
    (None, 0, "ended with status 127: cannot be run: No such file or directory"),
    ("x" * 100, 0o755, "ended with status 127: cannot be run: Exec format error"),
    pytest.param(TELL, 0o644, "ended with status 127: cannot be run: Permission denied", marks=pytest.mark.root("a user's check only warns of it")),
    ('#!/bin/sh\nprintf "sorry: \\033[1mred\\033[0m\\n" >&2\nexit 3\n', 0o755, "ended with status 3: sorry: ?[1mred?[0m"),
], ids=["missing", "no program", "not executable", "fails"])
def test_commands_that_fail(make_host, redis, folder, text, mode, said):
    """The log says what is wrong, once; the keeper goes on, and leaves no zombie. How commands end: tests/unit/test_event.c."""
    script = os.path.join(folder, "command")
    if text:
        write_script(script, text)
        os.chmod(script, mode)
    a = make_host("a", top=f'on_event = [ "{script}" ];')
    checked = a.cli("check", check=False)
    assert (checked.returncode == 1) == (mode != 0o755)
    if checked.returncode:
        assert f"{a.config}: on_event {script} cannot be run: " in checked.stderr
    a.cli("log-level", "debug")  # all lines
    redis.stop()
    wait_until(lambda: "event=store-away" in a.log(), "an event", 20)
    redis.start()
    wait_until(lambda: "event=store-back" in a.log(), "another one", 20)
    keeper = a.keeper_pids()[-1]
    wait_until(lambda: not children(keeper), "no process is left", 20)
    lines = [line for line in a.log().splitlines() if "on_event" in line]
    if checked.returncode:  # said when the keeper started, too
        assert "cannot be run" in lines.pop(0)
    assert lines == [f"dflockd: on_event: {script} {said}"]


def test_a_user_of_the_keeper_cannot_make_it_run_anything(make_host, told):
    """Only root and the keeper's user may be able to write the file."""
    a = make_host("a")
    text = text_of(a.config)
    for mode, owner in ((0o664, None), (0o646, None), (0o644, 65534))[:3 if os.geteuid() == 0 else 2]:  # only root gives files away
        write_text(a.config, told.top + "\n" + text)
        os.chmod(a.config, mode)
        if owner:
            os.chown(a.config, owner, 0)
        done = a.cli("reload", check=False)
        assert done.returncode != 0 and "on_event is a command that the keeper runs" in done.stderr, done
        assert a.cli("check", check=False).returncode == 1
    os.chown(a.config, os.geteuid(), -1)
    os.chmod(a.config, 0o644)
    a.cli("check")


def test_reload_takes_and_changes_it(make_host, redis, told):
    a = make_host("a")
    text = text_of(a.config)
    a.cli("log-level", "debug")  # all lines
    for count, top in (1, told.top + "\n"), (2, ""):
        write_text(a.config, top + text)
        a.cli("reload")
        redis.stop()
        wait_until(lambda: a.log().count("event=store-away") == count, "an event", 20)
        redis.start()
        wait_until(lambda: a.log().count("event=store-back") == count, "another one", 20)
        wait_until(lambda: told.names() == ["store-away", "store-back"], "it is told")


def test_the_keeper_ends_while_a_command_runs(make_host, redis, told, folder):
    slow = os.path.join(folder, "slow")
    write_script(slow, f'#!/bin/sh\necho >>{slow}.began\nuntil [ -e {slow}.go ]; do sleep 0.02; done\nexec /bin/sh {told.script} "$1"\n')
    a = make_host("a", top=f'on_event = [ "{slow}", "{told.path}" ];')
    redis.stop()
    wait_until(lambda: size(slow + ".began"), "the command runs", 20)
    keeper, a.keeper = a.keeper, None
    keeper.send_signal(signal.SIGTERM)
    assert keeper.wait(20) == 0
    assert told.names() == []
    open(slow + ".go", "w").close()
    told.get("store-away")
    redis.start()
