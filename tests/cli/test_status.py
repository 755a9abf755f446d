"""
`dflock status` for people: the holders and the waiters, here and elsewhere, and what threatens the locks. `--check`: the same in one line
and 0, 1 or 2, for monitoring systems; `--json`: docs/state.md.
"""
import json
import os
import re
import signal

import pytest
from harness import Proxy, wait_until
from harness.job import holder
from harness.host import CLI, ROOT

from lines import changed

WHEN = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
LONG = "ttl_ms = 20000;"
FIGURES = r" \| leases=(\d+) used=(\d+) waiting=(\d+) frozen=(\d+) lost=(\d+)\n"


def status(host, *words):
    done = host.cli("status", *words, check=False)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout


def says(host, pattern, *words):
    """Soon a line of the status matches the whole pattern."""
    seen = []

    def matches():
        seen[:] = status(host, *words).splitlines()
        return next((m for m in (re.fullmatch(pattern, line) for line in seen) if m), None)

    try:
        return wait_until(matches, f"status says {pattern}")
    except AssertionError as e:
        raise AssertionError("\n".join([str(e), *seen])) from None


def check(host):
    """(exit status, the line up to the figures, the figures)"""
    done = host.cli("status", "--check", check=False)
    assert done.stderr == "" and done.stdout.count("\n") == 1, done
    line, *figures = re.fullmatch(rf"(DFLOCK [^|]*?)(?:{FIGURES}|\n)", done.stdout).groups()
    return done.returncode, line, [int(n) for n in figures if n is not None]


def becomes(host, level, pattern):
    """Soon --check says so; its figures."""
    word = ("OK", "WARNING", "CRITICAL")[level]

    def so():
        found = check(host)
        return found if found[0] == level and re.fullmatch(f"DFLOCK {word}: {pattern}", found[1]) else None
    return wait_until(so, f"{word}: {pattern}")[2]


def paragraph(text, first):
    """The lines from the one that begins so to the next empty one."""
    part = text[text.index("\n" + first) + 1:]
    return part.split("\n\n")[0].splitlines()


def shell_of(job):
    """What flock(1) has started."""
    return next(p for p in job.processes() if p != job.pid)


def asked_by(job):
    return f"asked for by pid {job.pid} (flock), WHEN"


@pytest.fixture
def hosts(make_host):
    return make_host("a", lease=LONG), make_host("b", lease=LONG)


def test_no_keeper(host_of):
    a = host_of("unix:/none", foreground=False)
    assert status(a) == (f"no keeper runs for {a.runtime}: this host holds nothing\n"
                         "(the first program that locks a protected file starts one)\n")
    assert json.loads(status(a, "--json")) == {"running": False}
    assert check(a) == (0, f"DFLOCK OK: no keeper runs for {a.runtime}: this host holds nothing", [])
    done = a.cli("status", "--expect-keeper", check=False)
    assert (done.returncode, done.stdout) == (2, "DFLOCK CRITICAL: no keeper runs, and one should: --expect-keeper; see its log\n")
    for words in ("--check", "--json"), ("--html", "--json"):
        done = a.cli("status", *words, check=False)
        assert done.returncode == 2 and "one of --json, --html, --check and --watch" in done.stderr


def test_a_keeper_of_the_system_that_has_run(make_system):
    """Programs start none in its place that would protect other users' jobs."""
    host = make_system()

    def said(*change):
        done = host.cli("status", "--check", check=False, before=["env", *change])
        return done.returncode, done.stdout

    assert said("-u", "DFLOCK_RUNTIME_DIR")[0] == 0
    host.stop()
    assert said("DFLOCK_RUNTIME_DIR=") == said("-u", "DFLOCK_RUNTIME_DIR") == (
        2, "DFLOCK CRITICAL: no keeper runs, and one should: a keeper of the system has run since the machine was started; "
        "see its log\n")


def test_the_keeper_was_killed(make_host):
    """Until its parent has started the next one, "no keeper runs: this host holds nothing" would be wrong."""
    a = make_host("a", lease="ttl_ms = 60000;")
    job = holder(a)
    parent, keeper = a.keeper_pids()
    os.kill(parent, signal.SIGSTOP)
    try:
        os.kill(keeper, signal.SIGKILL)
        wait_until(lambda: not a.serves(), "no process listens")
        done = a.cli("status", check=False)
        assert (done.returncode, done.stdout, done.stderr) == (
            1, "", f"dflock: the keeper for {a.runtime} has ended, and its parent has started no other one for 3 s; its log may say why\n")
        asked = a.popen(CLI, "status", "--json")
        wait_until(lambda: open(f"/proc/{asked.pid}/wchan").read() == "hrtimer_nanosleep", "it waits")
    finally:
        os.kill(parent, signal.SIGCONT)
    assert len(json.loads(asked.communicate(timeout=20)[0])["leases"]) == 1
    assert job.end() == 0


def test_nothing_is_held(make_host, redis):
    a = make_host("a")
    version = redis.command("INFO", "server").split("redis_version:")[1].split()[0]
    assert re.fullmatch(
        rf"keeper  pid {a.keeper_pids()[1]}, uid {os.geteuid()}, host a-[0-9a-f]+, since {WHEN}, configuration {a.config}\n"
        rf"        in {a.runtime}\n"
        rf"store   unix:{redis.socket}, up, version {version}\n"
        r"\nthis host has no leases\n"
        r"\ncluster: 0 active hosts, 0 lock names\n", status(a))
    assert check(a) == (0, "DFLOCK OK: the store is up, 0 of 0 leases in use, 0 waiting", [0] * 5)


KINDS = {"t": str, "n": int, "b": bool, "l": list, "o": dict}


def described(title):
    """docs/state.md: {part: {field: its types}} of this section."""
    parts = {}
    with open(os.path.join(ROOT, "docs/state.md")) as f:
        text = f.read().split(f"## {title}")[1].split("```")[1]
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            part = parts.setdefault(line.split()[0], {})
        part.update(word.split(":") for word in line.split() if ":" in word)
    return parts


def fits(parts, row, part="."):
    """The row has the fields that are described, of their types, and no other ones."""
    fields = parts[part]
    assert {f for f in fields if f[0] != "*"} <= set(row) <= {f.lstrip("*") for f in fields}, (part, row)
    for name, value in row.items():
        kind = fields.get(name) or fields["*" + name]
        assert type(value) is KINDS[kind[0]] or (value is None and kind[1:] == "?"), (part, name, value)
        below = name if part == "." else f"{part}.{name}"
        rows = [("", value)]
        rows += [("[]", v) for v in value] if kind[0] == "l" else [("{}", v) for v in value.values()] if isinstance(value, dict) else []
        for mark, each in rows:
            if below + mark in parts and each is not None:
                fits(parts, each, below + mark)


def test_holders_and_waiters_on_two_hosts(hosts):
    a, b = hosts
    job = holder(a)
    assert check(a) == (0, "DFLOCK OK: the store is up, 1 of 1 leases in use, 0 waiting", [1, 1, 0, 0, 0])
    waiting = b.popen("flock", b.path("f"), "true")
    says(a, "    wanted by another host")
    assert becomes(b, 0, "the store is up, 0 of 0 leases in use, 1 waiting") == [0, 0, 1, 0, 0]
    inside, outside = paragraph(status(a), "NAME"), paragraph(status(b), "NAME")
    fence = a.status()["leases"][0]["fence"]
    ids = a.status()["host"], b.status()["host"]
    assert re.fullmatch(r"NAME +SPACE +MODE +RANGE +STATE +FENCE +HELD SINCE", inside[0])
    assert re.fullmatch(rf"t/f +flock +exclusive +whole file +held, wanted elsewhere +{fence} +after {WHEN}", inside[1])
    assert inside[2:4] == [f"    file {a.path('f')}", "    wanted by another host"]
    commands = {job.pid: f"flock {a.path('f')} sh -c echo held; read line; true", shell_of(job): "sh -c echo held; read line; true"}
    inside[4:] = sorted(inside[4:], key=lambda line: f"by pid {job.pid}," not in line)  # which of the two is found first is not promised
    for line, (pid, command) in zip(inside[4:], commands.items(), strict=True):
        assert re.fullmatch(rf"    held by pid {pid}, exclusive, locked after {WHEN}, running since {WHEN}: {command}", line)
    assert re.fullmatch(r"t/f +flock +exclusive +whole file +waiting +- +-", outside[1])
    assert outside[2:4] == [f"    file {b.path('f')}", "    waits for another host"]
    assert re.fullmatch(rf"    pid {waiting.pid} waits for it, exclusive, since {WHEN}", outside[4]) and len(outside) == 5
    for host, marks in ((a, (" (this host)", "")), (b, ("", " (this host)"))):
        cluster = [[re.sub(WHEN, "WHEN", word.strip()) for word in line.split("  ") if word] for line in paragraph(status(host), "cluster:")]
        assert cluster == [
            ["cluster: 2 active hosts, 1 lock name"], ["t/f"],
            ["held", ids[0] + marks[0], "flock exclusive, whole file", f"fence {fence}", asked_by(job)],
            ["waits (1.)", ids[1] + marks[1], "flock exclusive, whole file", asked_by(waiting)],
        ]
        # What programs read is written down, and no field is missing there.
        document, lock = host.status(), json.loads(host.cli("who", "--json", host.path("f")).stdout)
        assert document["schema"] == lock["schema"] == 1
        assert document["leases"] and lock["hosts"][0]["holders"] and lock["waiting"] and document["metrics"]["leases_max"]
        fits(described("One host and its cluster"), document)
        fits(described("One lock, on all hosts"), lock)
    job.end()
    waiting.communicate(timeout=20)
    says(a, rf"    held +{ids[1]} +flock exclusive, whole file +fence \d+ +asked for by pid {waiting.pid} \(flock\), {WHEN}")
    assert b.status()["leases"][0]["fence"] > fence


def test_shared_and_unused(make_host, redis):
    a = make_host("a", lease=LONG + "linger_ms = 20000;")
    jobs = [holder(a, "-s"), holder(a, "-s")]
    assert a.run("flock", a.path("idle"), "true").returncode == 0
    lines = paragraph(status(a), "NAME")
    assert re.fullmatch(rf"t/f +flock +shared +whole file +held +\d+ +after {WHEN}", lines[1])
    assert sorted(int(re.match(r"    held by pid (\d+), shared, ", line)[1]) for line in lines[3:7]) == \
        sorted([*(j.pid for j in jobs), *(shell_of(j) for j in jobs)])
    assert re.fullmatch(r"t/idle +flock +exclusive +whole file +held +\d+ +-", lines[7])
    assert lines[8:] == [f"    file {a.path('idle')}"]  # held by nobody: it lingers

    def scans():
        return redis.command("INFO", "commandstats").count("cmdstat_scan:")

    # Each host may ask each minute: the store is not asked for what it has.
    redis.command("CONFIG", "RESETSTAT")
    assert check(a)[0] == 0 and scans() == 0
    assert status(a) and scans() == 1


def test_record_locks(make_host):
    """Each is shown under the lease of its range, and with its own."""
    a, b = (make_host(name, lease=LONG + "linger_ms = 20000;") for name in "ab")
    one = a.opened("r", "setlk 0 ex 10 5", "setlk 0 sh 100 0")
    b.opened("r", "setlk 0 ex 50 10")  # the only host of a file has all of it until then

    def complete():  # on a busy machine a command line may not be read in time: its program's name stands there
        lines = paragraph(status(a), "NAME")
        return lines if sum(line.endswith("/agent") for line in lines) == 2 else None

    lines = wait_until(complete, "both command lines are shown")
    assert re.fullmatch(rf"t/r +record +exclusive +0-49 +held +\d+ +after {WHEN}", lines[1])
    assert re.fullmatch(rf"t/r +record +exclusive +60-end +held +\d+ +after {WHEN}", lines[4])
    for line, what in ((lines[3], "exclusive 10-14"), (lines[6], "shared 100-end")):
        assert re.fullmatch(rf"    held by pid {one.pid}, {what}, locked after {WHEN}, running since {WHEN}: .*/agent", line)
    assert len(lines) == 7
    held = [re.fullmatch(r"    held +([ab])-[0-9a-f]+( \(this host\))? +record exclusive, (\S+) +fence \d+ +asked for by .*", line).groups()
            for line in paragraph(status(b), "cluster:")[2:]]
    assert held == [("a", None, "0-49"), ("a", None, "60-end"), ("b", " (this host)", "50-59")]


def test_in_grace(host_of, redis):
    a = host_of(redis, lease="ttl_ms = 60000;")
    a.wait_up()
    says(a, r"        in grace: it is new or lost its memory, and nothing new is granted for another \d+ s")
    says(a, "cluster: [01] active hosts?, in grace, 0 lock names")
    becomes(a, 1, "the store is in grace and grants no new locks")
    a.init()
    assert "grace" not in status(a)


def test_the_store_takes_no_locks(make_host, redis):
    """What could stop all jobs is a note, since it would be a warning for ever. What comes of it is critical."""
    a = make_host("a")
    redis.command("CONFIG", "SET", "save", "3600 1")
    becomes(a, 0, "the store is up, .*; note: if it cannot save to disk, it refuses all writes, renewals of leases too.*")
    redis.command("CONFIG", "SET", "min-replicas-to-write", "1")
    becomes(a, 2, "no new locks: .*NOREPLICAS.* it refuses renewals, too: bring its replicas back.*")
    redis.command("CONFIG", "SET", "min-replicas-to-write", "0")
    changed(a, "protect", "protekt")
    becomes(a, 1, "older rules are in force: .*unknown setting protekt.*")
    redis.command("CONFIG", "SET", "maxmemory", "1mb")
    says(a, "        NO NEW LOCKS: the store says \"OOM .*\": the store is out of memory: raise its maxmemory or remove "
            "other data")
    becomes(a, 2, "no new locks: .*out of memory.*; older rules are in force: .*unknown setting protekt.*")
    redis.command("CONFIG", "SET", "maxmemory", "0")
    assert "NO NEW LOCKS" not in status(a)


def test_no_store(host_of, redis):
    """The bar is for the figures: a monitoring system would take what follows one in a path for them."""
    becomes(host_of("127.0.0.1:1"), 2, "the store 127.0.0.1:1 is not reachable: connection refused")
    becomes(host_of("unix:/none|x", "b"), 2, "the store unix:/none/x is not reachable: .*")
    redis.command("CONFIG", "SET", "requirepass", "secret")
    becomes(host_of(redis, "c"), 2, "the store unix:.* cannot be used: the store says .NOAUTH.*")


def test_other_names_elsewhere(make_host):
    a, _ = (make_host(name, rules='{ path = "/srv/f"; name = "%s"; }' % (name, )) for name in "ab")
    becomes(a, 1, r"1 rule is named differently on other hosts \(dflock doctor\)")


def test_a_lock_that_an_operator_took_away(make_host):
    a = make_host("a")
    job = holder(a)
    a.cli("break", "--yes", "t/f")
    job.process.wait(20)
    wait_until(lambda: a.status()["lost"], "status shows it")
    assert check(a)[0] == 0


@pytest.fixture
def proxy(redis, folder):
    proxy = Proxy(redis, folder)
    yield proxy
    proxy.stop()


@pytest.mark.parametrize("on_lost, what", [("freeze", "are frozen until it answers"), ("kill", "are ended"),
                                           ("warn", "go on unprotected")])
def test_the_store_is_down_and_time_runs(make_host, proxy, on_lost, what):
    a = make_host("a", server=proxy.address, lease=f'ttl_ms = 60000; on_lost = "{on_lost}";')
    job = holder(a)
    proxy.accepting = False
    proxy.cut()
    said = says(a, rf"        leases cannot be renewed: in (\d+) s their holders {what} \(on_lost\)")
    # Nine tenths of a ttl; less the margin, if holders must be stopped before.
    assert int(said[1]) <= (54 if on_lost == "warn" else 44)
    says(a, rf"store   {proxy.address}, DOWN: .*")
    says(a, "the rest of the cluster cannot be shown: .*")
    says(a, rf"    held by pid {job.pid}, exclusive, .*")


def test_frozen(make_host, redis):
    a = make_host("a", lease="ttl_ms = 4000; freeze_margin_ms = 1700;")
    job = holder(a)
    shell = shell_of(job)
    redis.signal(signal.SIGSTOP)
    said = "        FROZEN until it answers: 2 processes (holders of locks, and what they started); "
    wait_until(lambda: "are frozen" in a.log(), "they are frozen")
    says(a, re.escape(said) + r"(no other host can have the locks for another \d+ m?s|they are killed if .*)")
    says(a, re.escape(said) + r"they are killed if another host has had the locks, or if it comes back without its memory \(a restart, "
            r"a failover\): then it cannot be known which host had them")
    says(a, "    ran out: its holders are frozen; they go on if the store still has it, and are killed if .*")
    for pid in (job.pid, shell):
        says(a, rf"    held by pid {pid}, exclusive, .*")
    assert becomes(a, 2, r"2 processes are frozen until the store unix:\S+ answers(; the store unix:\S+ .*)?")[3] == 2
    redis.signal(signal.SIGCONT)
    says(a, r"        this host's leases are sure for another .* \(ttl 4 s\)")
    assert "FROZEN" not in status(a) and "LOST" not in status(a)
    becomes(a, 0, "the store is up, 1 of 1 leases in use, 0 waiting")
    assert job.end() == 0


def test_lost(make_host, proxy):
    b = make_host("b", lease="ttl_ms = 2000;")
    a = make_host("a", server=proxy.address, lease='ttl_ms = 2000; on_lost = "warn";').wait_up()
    job = holder(a)
    fence = a.status()["leases"][0]["fence"]
    proxy.accepting = False
    proxy.cut()
    assert b.run("flock", b.path("f"), "true").returncode == 0
    proxy.accepting = True
    says(a, "LOST: what the holders did after these times was not protected")
    says(a, rf"t/f \({a.path('f')}\), exclusive, fence {fence}, lost {WHEN}: it was not renewed in time, .*")
    says(a, rf"    held by pid {job.pid}, exclusive, .*running since .*")
    done = a.cli("doctor", check=False)
    assert "warning: leases were lost; `dflock status` shows which and why\n" in done.stdout and done.returncode == 0


def test_a_silent_host_and_its_leftovers(make_host):
    a, b = (make_host(name, lease="ttl_ms = 600; linger_ms = 60000;") for name in "ab")
    assert a.run("flock", a.path("f"), "true").returncode == 0 and b.run("flock", b.path("g"), "true").returncode == 0
    name = a.status()["host"]
    assert a.kill_keeper() is False
    wait_until(a.kill_keeper, "the keeper is dead")
    says(b, r"\(--all shows 1 more, which only silent hosts have: until another host wants them\)")
    assert "t/f" not in status(b)
    says(b, rf"    held +{name} \(silent for .*\) +flock exclusive, whole file +fence \d+ +asked for by .*", "--all")
    says(b, rf"    {name} +\d.*", "--all")
    says(b, r"    b-[0-9a-f]+ \(this host\) +\d.*", "--all")
