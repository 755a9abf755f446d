"""
docs/recipes.md: jobs on several hosts, by cron, systemd or themselves, and files that they share. The commands of the page are run as they
stand there; without dflock ("plain": the same commands without `dflock run`) they must fail to exclude.
"""
import os
import re
import shlex
import subprocess

import pytest
from harness import text_of, wait_until, write_text

from installed import needs
from machines import CRON, PATH
from recipes import PAGE, check_one_runs, machines_of, recipe  # noqa: F401

# Recipes that another test runs.
ELSEWHERE = {"Once per schedule", "Redis on three machines"}


def test_each_recipe_is_run():
    titles = set(re.findall(r"^## (.*)", PAGE, re.M)) - ELSEWHERE
    ours = "".join(open(os.path.join(os.path.dirname(__file__), name)).read() for name in ("test_recipes.py", "test_recipes_systems.py"))
    assert titles == set(re.findall(r'machines_of\("(.*?)"', ours))
    for title in titles:
        assert "conf" in recipe(title)


def unit(text, key):
    """The last value of the key that is not empty."""
    return [line.split("=", 1)[1] for line in text.splitlines() if line.startswith(key + "=")][-1]


def test_cron_on_several_hosts(machines_of):
    hosts = machines_of("Cron on several hosts")
    line, = machines_of.blocks["crontab"].splitlines()
    *times, user, command = line.split(None, 6)
    assert times == ["0", "3", "*", "*", "*"] and user == "root" and "%" not in command, "cron would take it for a newline"
    check_one_runs(machines_of, [h.popen("/bin/sh", "-c", machines_of.command(command), env=CRON) for h in hosts], 1)


def test_systemd_timers(machines_of):
    hosts = machines_of("Systemd timers")
    words = shlex.split(machines_of.command(unit(machines_of.blocks["ini nightly.service"], "ExecStart")))
    check_one_runs(machines_of, [h.popen(*words, env={"PATH": PATH}) for h in hosts], 0)


@needs("systemd-analyze", "systemd")
@pytest.mark.root("systemd-analyze makes /run/systemd where systemd does not run")
@pytest.mark.parametrize("title", ["Systemd timers", "One active cron"])
def test_systemd_accepts_the_units(folder, title):
    units = [name for name in recipe(title) if name.startswith("ini ")]
    assert units
    for name in units:
        path = os.path.join(folder, name[4:])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        text = recipe(title)[name].replace("/usr/bin/dflock", "/bin/true")
        if ".d/" in name:  # a part of a unit: beside one that systemd knows
            write_text(os.path.join(folder, "cron.service"), "[Unit]\nDescription=x\n[Service]\nExecStart=/bin/false\n")
        write_text(path, text)
    for name in units:
        whole = os.path.join(folder, name[4:].split(".d/")[0])
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", whole], capture_output=True, text=True,
                              env={**os.environ, "SYSTEMD_UNIT_PATH": folder + ":"}, timeout=60)
        said = [line for line in done.stderr.splitlines() if folder in line or os.path.basename(whole) in line]
        assert done.returncode == 0 and not said, done


@needs("cron", "cron")
def test_one_active_cron(machines_of):
    """The host of the active one is switched off; systemd's part, trying again, is the test's. A cron is active when it has run a job: to
    try its lock would keep it from starting."""
    a, b = machines_of("One active cron", "ab", "ttl_ms = 3000;")
    words = shlex.split(machines_of.command(unit(machines_of.blocks["ini cron.service.d/dflock.conf"], "ExecStart")))

    # A job that needs no minute: cron runs it when it starts.
    for host in (a, b):
        host.write("/etc/cron.d/job", f"@reboot root hostname >>{machines_of.shared}/ran\n")
    first = a.popen(*words)
    wait_until(lambda: machines_of.ran() == ["a"], "a's cron has run the job")
    second = b.popen(*words)
    if machines_of.excludes:
        assert "can't lock /var/run/crond.pid" in second.communicate(timeout=60)[1] and second.returncode != 0
        assert first.poll() is None and machines_of.ran() == ["a"]
        a.end()

        def starts(host):
            cron = host.popen(*words)
            wait_until(lambda: cron.poll() is not None or machines_of.ran() == ["a", host.name], "cron ends, or has run the job")
            return cron.poll() is None

        wait_until(lambda: starts(b), "b's cron is active", 60)
    wait_until(lambda: machines_of.ran() == ["a", "b"], "b's cron has run the job")


def test_a_leader_among_workers(machines_of):
    """The first leader is killed, the second one's machine switched off."""
    hosts = {host.name: host for host in machines_of("A leader among workers", "abc", "ttl_ms = 3000;", job="leader")}
    command = machines_of.command(machines_of.blocks["sh leader"])
    for number, host in enumerate(hosts.values()):
        host.popen(command)
        if number == 0:
            wait_until(machines_of.ran, "there is a leader")
    if not machines_of.excludes:
        wait_until(lambda: len(machines_of.ran()) == 3, "each is a leader")
        return
    wait_until(lambda: "waits" in hosts["b"].run("dflock status").stdout and "waits" in hosts["c"].run("dflock status").stdout, "two wait")
    assert machines_of.ran() == ["a"]
    hosts["a"].kill("flock", "leader")
    second = wait_until(lambda: machines_of.ran()[1:], "there is another leader")[0]
    assert second != "a"
    hosts[second].end()
    third, = wait_until(lambda: machines_of.ran()[2:], "there is a third leader", 60)
    assert {second, third} == {"b", "c"}


def test_a_late_writer(machines_of):
    """a gets a fence number and is delayed, b writes, and then a does. Plain: with a row that takes every number."""
    a, b = machines_of("A late writer is turned away", "ab")
    script, plain = machines_of.blocks["sh report"], " AND fence <= $DFLOCK_FENCE"
    assert plain in script
    os.mkdir(os.path.join(machines_of.shared, "db"))
    for host in (a, b):
        host.share(machines_of.shared, "/srv/shared")
        host.write("/usr/local/bin/report", script if machines_of.excludes else script.replace(plain, ""), 0o755)
    assert a.run("sqlite3 /srv/shared/db/report.db " + shlex.quote(machines_of.blocks["sql table"])).returncode == 0
    number = a.run("dflock lock report -- sh -c 'echo $DFLOCK_FENCE'").stdout.strip()
    done = b.run(machines_of.blocks["sh run"])
    assert (done.returncode, done.stderr) == (0, ""), done
    late = a.run(f"DFLOCK_FENCE={number} /usr/local/bin/report 7")
    total = a.run("sqlite3 /srv/shared/db/report.db 'SELECT total FROM report'").stdout.strip()
    if machines_of.excludes:
        assert (late.returncode, late.stderr, total) == (1, "report: a later holder of the lock has written\n", "42")
    else:
        assert (late.returncode, total) == (0, "7")


def test_sqlite(machines_of):
    """a is in a transaction while b inserts."""
    a, b = machines_of("SQLite on a shared mount", "ab")
    os.mkdir(os.path.join(machines_of.shared, "db"))
    for host in (a, b):
        host.share(machines_of.shared, "/srv/shared")
    create, insert = (machines_of.command(machines_of.blocks["sh " + name]) for name in ("create", "insert"))
    done = a.run(create)
    assert done.returncode == 0, done
    transaction = a.popen(machines_of.command("dflock run --require=/srv/shared/db/orders.db -- sqlite3 /srv/shared/db/orders.db"),
                          stdin=subprocess.PIPE)
    # A program that tries has a shared lock for a moment, and a commit waits for that.
    transaction.stdin.write(".timeout 20000\nBEGIN IMMEDIATE;\nINSERT INTO orders VALUES ('a', 0);\nSELECT 'begun';\n")
    transaction.stdin.flush()
    assert transaction.stdout.readline() == "begun\n"
    second = b.popen(insert)
    if machines_of.excludes:
        wait_until(lambda: b.pids("sqlite3"), "b tries")
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(0.3)
    else:
        assert second.wait(60) == 0, "nothing excludes it"
    transaction.communicate("COMMIT;\n", timeout=60)
    if machines_of.excludes:
        assert (second.wait(60), transaction.returncode) == (0, 0)
        assert a.run(insert).returncode == 0
        assert b.run("sqlite3 /srv/shared/db/orders.db 'SELECT * FROM orders ORDER BY rowid'").stdout == "a|0\nb|1\na|1\n"


RECORD_LOCK = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.readline()"


def test_mail_boxes(machines_of):
    """All messages are there; a record lock alone, of another program, keeps the other host's delivery waiting."""
    a, b = machines_of("Mail boxes", "ab")
    os.mkdir(os.path.join(machines_of.shared, "mail"))
    deliver = machines_of.command(machines_of.blocks["sh deliver-one"])
    for host in (a, b):
        host.share(machines_of.shared, "/srv/shared")
        host.write("/usr/local/bin/deliver", machines_of.blocks["python deliver"], 0o755)
    jobs = [host.popen(deliver) for host in (a, b) * 4]
    assert [job.wait(60) for job in jobs] == [0] * 8
    box = os.path.join(machines_of.shared, "mail/reports")
    before = messages(box)
    assert before == 8 or not machines_of.excludes
    holder = a.popen(machines_of.command("dflock run --require=/srv/shared/mail/reports -- /usr/bin/python3 -c ") +
                     shlex.quote(RECORD_LOCK) + " /srv/shared/mail/reports", stdin=subprocess.PIPE)
    assert holder.stdout.readline() == "held\n"
    waiter = b.popen(deliver)
    if machines_of.excludes:
        wait_until(lambda: b.pids("deliver"), "b's delivery runs")
        with pytest.raises(subprocess.TimeoutExpired):
            waiter.wait(0.3)
        assert messages(box) == before
    else:
        assert waiter.wait(60) == 0
    holder.communicate("\n", timeout=60)
    assert waiter.wait(60) == 0
    wait_until(lambda: messages(box) == before + 1, "it is delivered")


def messages(box):
    return len(re.findall("^From ", text_of(box), re.M))


@pytest.mark.parametrize("first", ["cron", "service"])
def test_from_cron_to_a_service(machines_of, redis, first):
    a, b = machines_of("From cron to a service", "ab")
    command = machines_of.command(machines_of.blocks["crontab"].split(None, 6)[6].strip())
    service = machines_of.blocks["python service"]
    assert "redis://10.0.0.7:6379" in service
    b.write("/usr/local/bin/service", service.replace("redis://10.0.0.7:6379", f"unix://{redis.socket}"), 0o755)
    start = {"cron": lambda: a.popen("/bin/sh", "-c", command, env=CRON), "service": lambda: b.popen("/usr/local/bin/service")}
    order = [first, "service" if first == "cron" else "cron"]
    on = {"cron": "a", "service": "b"}
    one = start[order[0]]()
    wait_until(lambda: machines_of.ran() == [on[order[0]]], "the first one runs the job")
    two = start[order[1]]()
    if not machines_of.excludes:
        wait_until(lambda: len(machines_of.ran()) == 2, "both run the job")
        return
    said = two.communicate(timeout=60)
    assert two.returncode == 1 and machines_of.ran() == [on[order[0]]], said
    assert order[1] == "cron" or "the lock is taken" in said[1]
    machines_of.enough()
    assert one.communicate(timeout=60) and one.returncode == 0
    wait_until(lambda: not redis.command("EXISTS", "jobs:nightly"), "the key is free")
    assert start[order[1]]().wait(60) == 0
    assert machines_of.ran() == [on[name] for name in order]
