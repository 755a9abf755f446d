"""`dflock status` for people: the holders and the waiters, here and elsewhere, and what threatens the locks."""
import json
import os
import re
import signal

import pytest
from harness import Proxy, wait_until
from harness.job import holder
from harness.host import CLI, ROOT

WHEN = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


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


def paragraph(text, first):
    """The lines from the one that begins so to the next empty one."""
    part = text[text.index("\n" + first) + 1:]
    return part.split("\n\n")[0].splitlines()


def shell_of(job):
    """What flock(1) has started."""
    return next(p for p in job.processes() if p != job.pid)


def asked_by(job):
    return f"asked for by pid {job.pid} (flock), WHEN"


def test_no_keeper(host_of):
    a = host_of("unix:/none", foreground=False)
    assert status(a) == (f"no keeper runs for {a.runtime}: this host holds nothing\n"
                         "(the first program that locks a protected file starts one)\n")
    assert json.loads(status(a, "--json")) == {"running": False}


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


def test_holders_and_waiters_on_two_hosts(make_host):
    a, b = (make_host(name, lease="ttl_ms = 20000;") for name in "ab")
    job = holder(a)
    waiting = b.popen("flock", b.path("f"), "true")
    says(a, "    wanted by another host")
    inside, outside = paragraph(status(a), "NAME"), paragraph(status(b), "NAME")
    fence = a.status()["leases"][0]["fence"]
    hosts = a.status()["host"], b.status()["host"]
    assert re.fullmatch(r"NAME +SPACE +MODE +RANGE +STATE +FENCE +HELD SINCE", inside[0])
    assert re.fullmatch(rf"t/f +flock +exclusive +whole file +held, wanted elsewhere +{fence} +after {WHEN}", inside[1])
    assert inside[2:4] == [f"    file {a.path('f')}", "    wanted by another host"]
    command = f"flock {a.path('f')} sh -c echo held; read line; true"
    inside[4:] = sorted(inside[4:], key=lambda line: f"by pid {job.pid}," not in line)  # which of the two is found first is not promised
    assert re.fullmatch(rf"    held by pid {job.pid}, exclusive, locked after {WHEN}, running since {WHEN}: {command}", inside[4])
    assert re.fullmatch(rf"    held by pid {shell_of(job)}, exclusive, locked after {WHEN}, running since {WHEN}: sh -c echo held; read line; true",
                        inside[5])
    assert len(inside) == 6
    assert re.fullmatch(r"t/f +flock +exclusive +whole file +waiting +- +-", outside[1])
    assert outside[2:4] == [f"    file {b.path('f')}", "    waits for another host"]
    assert re.fullmatch(rf"    pid {waiting.pid} waits for it, exclusive, since {WHEN}", outside[4])
    assert len(outside) == 5
    for host, marks in ((a, (" (this host)", "")), (b, ("", " (this host)"))):
        cluster = [line.split("  ") for line in paragraph(status(host), "cluster:")]
        cluster = [[word.strip() for word in words if word] for words in cluster]
        cluster = [[re.sub(WHEN, "WHEN", word) for word in words] for words in cluster]
        assert cluster == [
            ["cluster: 2 active hosts, 1 lock name"], ["t/f"],
            ["held", hosts[0] + marks[0], "flock exclusive, whole file", f"fence {fence}", asked_by(job)],
            ["waits (1.)", hosts[1] + marks[1], "flock exclusive, whole file", asked_by(waiting)],
        ]
    job.end()
    waiting.communicate(timeout=20)
    says(a, rf"    held +{hosts[1]} +flock exclusive, whole file +fence \d+ +asked for by pid {waiting.pid} \(flock\), {WHEN}")
    assert b.status()["leases"][0]["fence"] > fence


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


def test_the_schema(make_host):
    """What programs read is written down, and no field is missing there."""
    a, b = (make_host(name, lease="ttl_ms = 20000;") for name in "ab")
    job = holder(a)
    waiting = b.popen("flock", b.path("f"), "true")
    says(a, "    wanted by another host")
    for host in a, b:
        document, lock = host.status(), json.loads(host.cli("who", "--json", host.path("f")).stdout)
        assert document["schema"] == lock["schema"] == 1
        assert document["leases"] and lock["hosts"][0]["holders"] and lock["waiting"] and document["metrics"]["leases_max"]
        fits(described("One host and its cluster"), document)
        fits(described("One lock, on all hosts"), lock)
    job.end()
    waiting.communicate(timeout=20)


def test_shared_and_unused(make_host):
    a = make_host("a", lease="ttl_ms = 20000; linger_ms = 20000;")
    jobs = [holder(a, "-s"), holder(a, "-s")]
    assert a.run("flock", a.path("idle"), "true").returncode == 0
    lines = paragraph(status(a), "NAME")
    assert re.fullmatch(rf"t/f +flock +shared +whole file +held +\d+ +after {WHEN}", lines[1])
    assert sorted(int(re.match(r"    held by pid (\d+), shared, ", line)[1]) for line in lines[3:7]) == \
        sorted([*(j.pid for j in jobs), *(shell_of(j) for j in jobs)])
    assert re.fullmatch(r"t/idle +flock +exclusive +whole file +held +\d+ +-", lines[7])
    assert lines[8:] == [f"    file {a.path('idle')}"]  # held by nobody: it lingers


def test_record_locks(make_host):
    """Each is shown under the lease of its range, and with its own."""
    a, b = (make_host(name, lease="ttl_ms = 20000; linger_ms = 20000;") for name in "ab")
    agents = [host.agent() for host in (a, b)]
    for host, agent in zip((a, b), agents):
        assert agent.do(f"open 0 {host.path('r')} rwc") == "ok"
    assert agents[0].do("setlk 0 ex 10 5") == "ok" and agents[0].do("setlk 0 sh 100 0") == "ok"
    assert agents[1].do("setlk 0 ex 50 10") == "ok"  # the only host of a file has all of it until then
    lines = paragraph(status(a), "NAME")
    assert re.fullmatch(rf"t/r +record +exclusive +0-49 +held +\d+ +after {WHEN}", lines[1])
    assert re.fullmatch(rf"    held by pid {agents[0].pid}, exclusive 10-14, locked after {WHEN}, running since {WHEN}: .*/agent", lines[3])
    assert re.fullmatch(rf"t/r +record +exclusive +60-end +held +\d+ +after {WHEN}", lines[4])
    assert re.fullmatch(rf"    held by pid {agents[0].pid}, shared 100-end, locked after {WHEN}, running since {WHEN}: .*/agent", lines[6])
    assert len(lines) == 7
    held = [re.fullmatch(r"    held +([ab])-[0-9a-f]+( \(this host\))? +record exclusive, (\S+) +fence \d+ +asked for by .*", line).groups()
            for line in paragraph(status(b), "cluster:")[2:]]
    assert held == [("a", None, "0-49"), ("a", None, "60-end"), ("b", " (this host)", "50-59")]


def test_in_grace(host_of, redis):
    a = host_of(redis, lease="ttl_ms = 60000;")
    a.wait_up()
    says(a, r"        in grace: it is new or lost its memory, and nothing new is granted for another \d+ s")
    says(a, "cluster: [01] active hosts?, in grace, 0 lock names")
    a.init()
    assert "grace" not in status(a)


def test_the_store_takes_no_locks(make_host, redis):
    a = make_host("a")
    redis.command("CONFIG", "SET", "maxmemory", "1mb")
    says(a, "        NO NEW LOCKS: the store says \"OOM .*\": the store is out of memory: raise its maxmemory or remove "
            "other data")
    redis.command("CONFIG", "SET", "maxmemory", "0")
    assert "NO NEW LOCKS" not in status(a)


@pytest.mark.parametrize("on_lost, what", [("freeze", "are frozen until it answers"), ("kill", "are ended"),
                                           ("warn", "go on unprotected")])
def test_the_store_is_down_and_time_runs(make_host, redis, folder, on_lost, what):
    proxy = Proxy(redis, folder)
    try:
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
    finally:
        proxy.stop()


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
    redis.signal(signal.SIGCONT)
    says(a, r"        this host's leases are sure for another .* \(ttl 4 s\)")
    assert "FROZEN" not in status(a) and "LOST" not in status(a)
    assert job.end() == 0


def test_lost(make_host, redis, folder):
    proxy = Proxy(redis, folder)
    try:
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
    finally:
        proxy.stop()


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


def test_a_keeper_that_does_not_answer(make_host):
    a = make_host("a")
    parent, keeper = a.keeper_pids()
    os.kill(parent, signal.SIGSTOP)
    os.kill(keeper, signal.SIGSTOP)
    try:
        done = a.cli("status", check=False)
    finally:
        os.kill(keeper, signal.SIGCONT)
        os.kill(parent, signal.SIGCONT)
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(rf"dflock: the keeper \(pid {keeper}\) has not answered for \d+ s; its log may say why\n",
                        done.stderr)
