"""on_event: each event as JSON on a command's standard input, and in the log under the same name."""
import json
import os
import signal
import subprocess

import harness.host
import pytest
from harness import text_of, wait_until, write_text
from harness.processes import pids_where, raw

from jobs import LEASE, SLOW_LEASE, end, grows, is_frozen, job, pid_of, size

PAST = os.path.join(harness.host.BUILD, "tests/agents/past")
TELL = '#!/bin/sh\ncat >>"$1"\necho >>"$1"\n'


class Told:
    """What the command was told."""

    def __init__(self, folder, name="a"):
        self.path, self.script = os.path.join(folder, "told-" + name), os.path.join(folder, "tell-" + name)
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
    a = make_host("a", lease=LEASE, top=told.top)
    process, path = job(a)
    shell = pid_of(path)
    redis.signal(signal.SIGSTOP)
    frozen, = told.get("holders-frozen")
    assert {process.pid, shell} <= set(frozen["pids"]) and frozen["processes"] >= 2
    assert (frozen["name"], frozen["path"]) == ("t/f", a.path("f"))
    assert is_frozen(path)
    redis.signal(signal.SIGCONT)
    thawed, = told.get("holders-thawed")
    grows(path)
    assert set(thawed["pids"]) == set(frozen["pids"]) and thawed["name"] == "t/f"
    check_frame(a, frozen)
    check_frame(a, thawed)
    assert told.names().index("holders-frozen") < told.names().index("holders-thawed")
    os.kill(shell, signal.SIGKILL)
    process.communicate(timeout=20)


@pytest.mark.parametrize("on_lost", ["freeze", "kill"])
def test_lost_and_killed(make_host, redis, told, on_lost):
    a = make_host("a", lease=LEASE + f'on_lost = "{on_lost}";', top=told.top)
    process, path = job(a)
    shell = pid_of(path)
    fence = a.status()["leases"][0]["fence"]
    redis.stop()
    wait_until(lambda: a.status()["leases"][0]["state"] == "unsure", "the deadline passes", 20)
    redis.start()
    killed = told.get("holders-killed")[0]
    process.communicate(timeout=20)
    assert shell in killed["pids"] and (killed["name"], killed["path"]) == ("t/f", a.path("f"))
    check_frame(a, killed)
    if on_lost == "freeze":
        lost, = told.get("lease-lost")
        assert (lost["name"], lost["path"], lost["fence"]) == ("t/f", a.path("f"), fence)
        assert (lost["space"], lost["mode"], lost["from"], lost["to"]) == ("flock", "exclusive", 0, None)
        assert "lost its memory" in lost["reason"] and lost["message"].startswith("LOST: ")
        check_frame(a, lost)
        wait_until(lambda: a.run("flock", "-n", a.path("f"), "true").returncode == 0, "the lock is free", 20)
        assert "holders-thawed" not in a.log()  # they were killed: none of them goes on


def test_frozen_ones_that_die_with_the_parent(make_host, redis, told):
    """EXITKILL; the keeper, which ends then, tells it."""
    a = make_host("a", lease=LEASE, top=told.top)
    process, path = job(a)
    redis.signal(signal.SIGSTOP)
    told.get("holders-frozen")
    old = a.keeper_pids()
    os.kill(old[0], signal.SIGKILL)
    process.communicate(timeout=20)
    killed, = told.get("holders-killed")
    redis.signal(signal.SIGCONT)
    assert killed["processes"] >= 2 and "died with it" in killed["message"]
    wait_until(lambda: len(a.keeper_pids()) == 2 and not set(a.keeper_pids()) & set(old), "the next keeper and parent")


def test_a_keeper_that_was_killed_meanwhile(make_host, redis, told):
    """What the parent did while there was no keeper, the next keeper tells."""
    a = make_host("a", lease=LEASE, top=told.top)
    process, path = job(a)
    shell = pid_of(path)
    parent, keeper = a.keeper_pids()
    redis.stop()
    os.kill(keeper, signal.SIGSTOP)  # the parent notices that it hangs, kills it and starts another one; meanwhile it freezes
    frozen, = told.get("holders-frozen", 40)
    assert shell in frozen["pids"]
    wait_until(lambda: a.status()["store"]["deadline_left_ms"] == 0, "the lease can no longer be put back")
    redis.start()
    told.get("holders-killed", 40)
    process.communicate(timeout=20)
    assert a.keeper_pids()[0] == parent and a.keeper_pids()[1] != keeper


def test_taken_past(make_host, told):
    a = make_host("a", lease="ttl_ms = 3000; past_look_ms = 50;", top=told.top)
    open(a.path("f"), "w").close()
    past = subprocess.Popen([PAST, "flock", a.path("f")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert past.stdout.readline() == "held\n"
    event, = told.get("taken-past", 60)
    past.communicate("\n")
    assert (event["pids"], event["name"], event["path"], event["mode"]) == ([past.pid], "t/f", a.path("f"), "exclusive")
    assert event["command"].startswith(PAST)
    check_frame(a, event)


def test_held_too_long(make_host, told):
    """First it is only reported, and then its holder is ended."""
    a = make_host("a", rules='{ tree = "%s"; name = "t"; warn_after_ms = 300; kill_after_ms = 1500; }', top=told.top)
    held = a.popen("flock", a.path("f"), "sh", "-c", "echo held; sleep 100")
    assert held.stdout.readline() == "held\n"
    event, = told.get("held-too-long")
    assert (event["name"], event["path"], event["pids"], event["processes"]) == ("t/f", a.path("f"), [held.pid], 1)
    assert 0.3 <= event["seconds"] < 1.5 and event["command"].startswith("flock ")
    check_frame(a, event)
    event, = told.get("holders-killed")
    assert held.wait(20) == -signal.SIGTERM
    assert (event["name"], event["reason"], event["processes"]) == ("t/f", "held for longer than kill_after_ms", 3)
    assert held.pid in event["pids"] and len(event["pids"]) == 3 and event["seconds"] >= 1.5
    check_frame(a, event)


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
    check_frame(a, event)
    for holder in holders:
        holder.communicate("\n")
    assert [w.wait(20) for w in waiting] == [0, 0]
    assert len(told.all()) == 1  # once, and none for the file whose rule has no limit


# --- many at once ---

def test_many_lost_at_once_are_few_commands(make_host, redis, told):
    """300 leases are lost: no command for each, and none is left out of the count."""
    a = make_host("a", lease=LEASE, top=told.top)
    many = a.popen(os.path.join(harness.host.BUILD, "tests/agents/many"), a.path("m"), "300", "2", a.path("stamps"), stdin=subprocess.PIPE)
    assert many.stdout.readline() == "held\n"
    redis.stop()
    wait_until(lambda: "unsure" in {lease["state"] for lease in a.status()["leases"]}, "the deadline passes", 20)
    redis.start()
    wait_until(lambda: sum(e["count"] for e in told.all() if e["event"] == "lease-lost") == 300, "all are told", 30)
    lost = [e for e in told.all() if e["event"] == "lease-lost"]
    assert len(lost) < 30 and all(len(e["others"]) <= 7 for e in lost)
    assert len({e["path"] for event in lost for e in [event, *event["others"]]}) == sum(1 + len(e["others"]) for e in lost)
    many.kill()
    many.communicate(timeout=20)


def test_names_of_any_bytes(make_host, redis, told):
    a = make_host("a", lease=LEASE, top=told.top)
    name = b'n\xff"\n\x1b$(touch x)\xc3\xa4'
    process = a.popen("flock", os.path.join(a.files.encode(), name), "sh", "-c", "echo held; sleep 60", stderr=subprocess.DEVNULL)
    assert process.stdout.readline() == "held\n"
    redis.stop()
    wait_until(lambda: a.status()["leases"][0]["state"] == "unsure", "the deadline passes", 20)
    redis.start()
    lost, = told.get("lease-lost")
    assert lost["path"] == a.path('n?"\n\x1b$(touch x)??') and lost["name"].startswith("t/n?")
    assert "\n" not in lost["message"] and "\x1b" not in lost["message"]
    process.kill()
    process.communicate(timeout=20)


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
    assert {"DFLOCK_EVENT=store-away", f"DFLOCK_CONFIG={a.config}", f"DFLOCK_RUNTIME_DIR={a.runtime}", "HOME=/root", "USER=root",
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


@pytest.mark.parametrize("kind, said", [
    ("missing", "ended with status 127: cannot be run: No such file or directory"),
    ("no program", "ended with status 127: cannot be run: Exec format error"),
    ("not executable", "ended with status 127: cannot be run: Permission denied"),
    ("fails", "ended with status 3: sorry: ?[1mred?[0m"),
    ("killed", "was killed by signal 9"),
    ("reads nothing", None),
    ("closes everything", None),
    ("writes much", None),
])
def test_commands_of_all_kinds(make_host, redis, folder, kind, said):
    """The log says what is wrong, once; the keeper goes on, and leaves no zombie."""
    script = os.path.join(folder, "command")
    texts = {"no program": "x" * 100, "not executable": TELL, "fails": '#!/bin/sh\nprintf "sorry: \\033[1mred\\033[0m\\n" >&2\nexit 3\n',
             "killed": "#!/bin/sh\nkill -9 $$\n", "reads nothing": "#!/bin/sh\ntrue\n", "closes everything": "#!/bin/sh\nexec <&- >&- 2>&-\n",
             "writes much": "#!/bin/sh\nhead -c 10000000 /dev/zero\n"}
    if kind in texts:
        write_script(script, texts[kind])
    if kind == "not executable":
        os.chmod(script, 0o644)
    a = make_host("a", top=f'on_event = [ "{script}" ];')
    checked = a.cli("check", check=False)
    assert (checked.returncode == 1) == (kind in ("missing", "not executable"))
    if checked.returncode:
        assert f"{a.config}: on_event {script} cannot be run: " in checked.stderr
    a.cli("log-level", "debug")  # all lines
    for turn in range(2):
        redis.stop()
        wait_until(lambda: a.log().count("event=store-away") == turn + 1, "an event", 20)
        redis.start()
        wait_until(lambda: a.log().count("event=store-back") == turn + 1, "another one", 20)
    keeper = a.keeper_pids()[-1]

    def at_rest():
        return not [p for p in open(f"/proc/{keeper}/task/{keeper}/children").read().split()]

    wait_until(at_rest, "no process is left", 20)
    lines = [line for line in a.log().splitlines() if "on_event" in line]
    if checked.returncode:  # said when the keeper started, too
        assert "cannot be run" in lines.pop(0)
    assert lines == ([f"dflockd: on_event: {script} {said}"] if said else [])


def test_a_user_of_the_keeper_cannot_make_it_run_anything(make_host, told):
    """Only root and the keeper's user may be able to write the file."""
    a = make_host("a")
    text = open(a.config).read()
    for mode, owner in ((0o664, 0), (0o646, 0), (0o644, 65534)):
        write_text(a.config, told.top + "\n" + text)
        os.chmod(a.config, mode)
        os.chown(a.config, owner, 0)
        done = a.cli("reload", check=False)
        assert done.returncode != 0 and "on_event is a command that the keeper runs" in done.stderr, done
        assert a.cli("check", check=False).returncode == 1
    os.chown(a.config, 0, 0)
    os.chmod(a.config, 0o644)
    a.cli("check")


def test_reload_takes_and_changes_it(make_host, redis, told, folder):
    a = make_host("a")
    text = open(a.config).read()
    other = Told(folder, "b")
    a.cli("log-level", "debug")  # all lines
    for top, now in ((told.top, told), (other.top, other)):
        write_text(a.config, top + "\n" + text)
        a.cli("reload")
        redis.stop()
        now.get("store-away")
        redis.start()
        now.get("store-back")
    assert told.names() == other.names() == ["store-away", "store-back"]
    write_text(a.config, text)
    a.cli("reload")
    redis.stop()
    wait_until(lambda: a.log().count("event=store-away") == 3, "an event", 20)
    redis.start()
    wait_until(lambda: a.log().count("event=store-back") == 3, "another one", 20)
    assert told.names() == other.names() == ["store-away", "store-back"]


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
