"""
docs/recipes.md: its rules, files and commands, taken from the page and run as they stand there, on machines of the test's own (machines.py).
Without dflock ("plain": the same commands without `dflock run`) they must fail to exclude.
"""
import http.server
import json
import os
import re
import shlex
import signal
import subprocess
import threading

import pytest
import yaml
from harness import wait_until
from harness.host import ROOT

from installed import needs
from machines import CRON, PATH, Machine

with open(os.path.join(ROOT, "docs/recipes.md")) as page:
    PAGE = page.read()
with open(__file__) as own:
    OWN = own.read()
# Says on which machine it runs, and runs until the test is content.
JOB = '#!/bin/sh\necho "$(hostname)" >>{shared}/ran\nuntil [ -e {shared}/enough ]; do sleep 0.02; done\n'
# Recipes that another test runs.
ELSEWHERE = {"Once per schedule"}


def recipe(title):
    """Its blocks: {what stands behind ```: text}."""
    part, = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    return dict(re.findall(r"^```(\w[^\n]*)\n(.*?)^```$", part, re.M | re.S))


def test_each_recipe_is_run():
    titles = set(re.findall(r"^## (.*)", PAGE, re.M)) - ELSEWHERE
    assert titles == set(re.findall(r'machines_of\("(.*?)"', OWN))
    for title in titles:
        assert "conf" in recipe(title)


class Group:
    """Machines under the rules of one recipe. shared: a folder that all see by this path."""

    def __init__(self, redis, folder, excludes):
        self.redis, self.folder, self.excludes, self.machines = redis, folder, excludes, []
        self.shared = os.path.join(folder, "shared")
        os.mkdir(self.shared)

    def __call__(self, title, names="abc", lease="ttl_ms = 10000; probe_ms = 5000;", job="nightly"):
        self.blocks = recipe(title)
        for name in names:
            machine = Machine(self.redis, self.folder, name, self.blocks["conf"], lease)
            machine.write("/usr/local/bin/" + job, JOB.format(shared=self.shared), 0o755)
            self.machines.append(machine)
        self.machines[0].init()
        return self.machines

    def command(self, text):
        """As it stands in the page; plain: without `dflock run` and what belongs to it."""
        assert "dflock run --require=" in text
        return text if self.excludes else re.sub(r"(/usr/local/bin/)?dflock run \S+ -- ", "", text)

    def ran(self):
        """The machines on which the job ran, in this order."""
        path = os.path.join(self.shared, "ran")
        return open(path).read().split() if os.path.exists(path) else []

    def enough(self):
        open(os.path.join(self.shared, "enough"), "w").close()

    def end(self):
        for machine in self.machines:
            machine.end()


@pytest.fixture(params=["dflock", "plain"])
def machines_of(request, redis, folder):
    group = Group(redis, folder, request.param == "dflock")
    yield group
    group.end()


def check_one_runs(group, jobs, taken):
    """One of them runs the job, and the others end with the status `taken`; the job is still running then."""
    if not group.excludes:
        wait_until(lambda: len(group.ran()) == len(jobs), "each machine runs it")
        group.enough()
        assert [job.wait(60) for job in jobs] == [0] * len(jobs)
        return
    wait_until(lambda: sum(job.poll() is None for job in jobs) == 1, "all but one have ended")
    wait_until(group.ran, "one runs it")
    assert sorted(str(job.poll()) for job in jobs) == sorted([str(taken)] * (len(jobs) - 1) + ["None"])
    group.enough()
    assert sorted(job.wait(60) for job in jobs) == sorted([taken] * (len(jobs) - 1) + [0])
    assert len(group.ran()) == 1


def test_cron_on_several_hosts(machines_of):
    hosts = machines_of("Cron on several hosts")
    line, = machines_of.blocks["crontab"].splitlines()
    minute, hour, day, month, weekday, user, command = line.split(None, 6)
    assert (minute, hour, day, month, weekday, user) == ("0", "3", "*", "*", "*", "root")
    assert "%" not in command, "cron would take it for a newline"
    check_one_runs(machines_of, [h.popen("/bin/sh", "-c", machines_of.command(command), env=CRON) for h in hosts], 1)


def unit(text, key):
    """The last value of the key that is not empty."""
    return [line.split("=", 1)[1] for line in text.splitlines() if line.startswith(key + "=")][-1]


def test_systemd_timers(machines_of):
    hosts = machines_of("Systemd timers")
    words = shlex.split(machines_of.command(unit(machines_of.blocks["ini nightly.service"], "ExecStart")))
    check_one_runs(machines_of, [h.popen(*words, env={"PATH": PATH}) for h in hosts], 0)


@needs("systemd-analyze", "systemd")
@pytest.mark.parametrize("title", ["Systemd timers", "One active cron"])
def test_systemd_accepts_the_units(folder, title):
    units = [name for name in recipe(title) if name.startswith("ini ")]
    assert units
    for name in units:
        path = os.path.join(folder, name[4:])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        text = recipe(title)[name].replace("/usr/local/bin/dflock", "/bin/true")
        if ".d/" in name:  # a part of a unit: beside one that systemd knows
            with open(os.path.join(folder, "cron.service"), "w") as f:
                f.write("[Unit]\nDescription=x\n[Service]\nExecStart=/bin/false\n")
        with open(path, "w") as f:
            f.write(text)
    for name in units:
        whole = os.path.join(folder, name[4:].split(".d/")[0])
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", whole], capture_output=True, text=True,
                              env={**os.environ, "SYSTEMD_UNIT_PATH": folder + ":"}, timeout=60)
        said = [line for line in done.stderr.splitlines() if folder in line or os.path.basename(whole) in line]
        assert done.returncode == 0 and not said, done


@needs("cron", "cron")
def test_one_active_cron(machines_of):
    """The host of the active one is switched off; systemd's part, trying again, is the test's."""
    a, b = machines_of("One active cron", "ab", "ttl_ms = 3000;")
    words = shlex.split(machines_of.command(unit(machines_of.blocks["ini cron.service.d/dflock.conf"], "ExecStart")))

    def is_active(host):
        return host.pids("cron") and host.run("flock", "-n", "/run/crond.pid", "true").returncode == 1

    # A job that needs no minute: cron runs it when it starts.
    for host in (a, b):
        host.write("/etc/cron.d/job", f"@reboot root hostname >>{machines_of.shared}/ran\n")
    first = a.popen(*words)
    wait_until(lambda: is_active(a) and machines_of.ran() == ["a"], "a's cron is active, and has run the job")
    second = b.popen(*words)
    if machines_of.excludes:
        assert "can't lock /var/run/crond.pid" in second.communicate(timeout=60)[1] and second.returncode != 0
        assert first.poll() is None and machines_of.ran() == ["a"]
        a.end()

        def starts(host):
            cron = host.popen(*words)
            wait_until(lambda: cron.poll() is not None or is_active(host), "cron ends, or is active")
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
    transaction.stdin.write("BEGIN IMMEDIATE;\nINSERT INTO orders VALUES ('a', 0);\nSELECT 'begun';\n")
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
    assert messages(box) == 8
    holder = a.popen(machines_of.command("dflock run --require=/srv/shared/mail/reports -- /usr/bin/python3 -c ") +
                     shlex.quote(RECORD_LOCK) + " /srv/shared/mail/reports", stdin=subprocess.PIPE)
    assert holder.stdout.readline() == "held\n"
    waiter = b.popen(deliver)
    if machines_of.excludes:
        wait_until(lambda: b.pids("deliver"), "b's delivery runs")
        with pytest.raises(subprocess.TimeoutExpired):
            waiter.wait(0.3)
        assert messages(box) == 8
    else:
        assert waiter.wait(60) == 0
    holder.communicate("\n", timeout=60)
    assert waiter.wait(60) == 0
    wait_until(lambda: messages(box) == 9, "it is delivered")


def messages(box):
    with open(box) as f:
        return len(re.findall("^From ", f.read(), re.M))


APT = r"""
for dir in /var/lib/dpkg /var/lib/apt /var/cache/apt /var/log; do mount -t tmpfs tmpfs $dir; done
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/apt/lists/partial /var/cache/apt/archives/partial /var/log/apt
rm -rf /etc/apt/sources.list* && touch /etc/apt/sources.list /var/lib/dpkg/available /var/lib/dpkg/status
"""


def test_apt(machines_of):
    a, b = machines_of("Apt and dpkg", "ab")
    upgrade = machines_of.command(machines_of.blocks["sh upgrade"])
    for host in (a, b):
        assert host.run(APT).returncode == 0
    # a's apt-get waits in the middle of it, for a list that it reads.
    a.run("rm /var/lib/dpkg/status && mkfifo /var/lib/dpkg/status")
    first = a.popen(upgrade)
    wait_until(lambda: a.pids("apt-get"), "a upgrades")
    second = b.popen(upgrade)
    if machines_of.excludes:
        wait_until(lambda: "waits" in b.run("dflock status").stdout, "b waits")
        assert not b.pids("apt-get")
        a.kill("flock", "apt-get")
    out, _ = second.communicate(timeout=60)
    assert second.returncode == 0 and "0 upgraded" in out
    assert (first.poll() is None) == (not machines_of.excludes) or first.wait(60) != 0


CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def first_process(machine):
    """Of the container on this machine: its number outside."""
    uts, found = os.stat(f"/proc/{machine.first}/ns/uts").st_ino, []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/status") as f:
                numbers = re.search(r"^NSpid:\t(.*)$", f.read(), re.M)[1].split()
            if numbers[-1] == "1" and len(numbers) > 1 and os.stat(f"/proc/{pid}/ns/uts").st_ino == uts and int(pid) != machine.first:
                found.append(int(pid))
        except OSError:
            continue
    first, = found
    return first


def test_containers(machines_of):
    """The one that runs the job is stopped; when it has ended, and the machine with it, the lock is free at once."""
    hosts = machines_of("Containers", lease="ttl_ms = 600000; probe_ms = 5000;")
    hosts[0].run("dflock stop")  # it is outside of the container, whose /dev/shm is the same here
    words = [word for key in ("ENTRYPOINT", "CMD") for word in json.loads(
        re.search(rf"^{key} (.*)$", machines_of.blocks["dockerfile"], re.M)[1])]
    assert words[:2] == ["dflock", "run"]
    if not machines_of.excludes:
        words = words[words.index("--") + 1:]
    jobs = {host: host.popen(*CONTAINER, *words, env={"PATH": PATH}) for host in hosts}
    if not machines_of.excludes:
        return check_one_runs(machines_of, list(jobs.values()), 1)
    wait_until(lambda: sum(job.poll() is None for job in jobs.values()) == 1, "all but one have ended")
    wait_until(machines_of.ran, "one runs it")
    first = next(host for host in hosts if host.name == machines_of.ran()[0])
    other = next(host for host in hosts if host is not first)
    os.kill(first_process(first), signal.SIGTERM)
    assert jobs[first].wait(60) == 128 + signal.SIGTERM
    first.end()
    machines_of.enough()
    assert other.popen(*CONTAINER, *words, env={"PATH": PATH}).wait(60) == 0
    assert machines_of.ran() == [first.name, other.name]


def test_apt_with_its_own_locks(redis, folder):
    """Under the page's rules apt stops when the store is away; with on_refused = "refuse", the default, it would go on without locks."""
    blocks = recipe("Apt and dpkg")
    rules = blocks["conf own locks"]
    a = Machine(redis, folder, "a", rules)
    b = Machine(redis, folder, "b", rules.replace('"busy"', '"refuse"'))

    def said(machine, words):
        done = machine.run(blocks["sh own locks"])
        return done if words in done.stderr else None

    try:
        a.init()
        for machine in (a, b):
            assert machine.run(APT).returncode == 0
            done = machine.run(blocks["sh own locks"])
            assert done.returncode == 0 and "0 upgraded" in done.stdout, done
        redis.stop()
        # As long as their leases are sure, both work on.
        done = wait_until(lambda: said(a, "Could not get lock"), "apt gets no lock")
        assert done.returncode == 100 and "Not using locking" not in done.stderr, done
        assert "dflock: /var/lib/dpkg/lock-frontend: store " in done.stderr, done
        done = wait_until(lambda: said(b, "Not using locking for nfs mounted lock file"), "apt goes on without locks")
        assert done.returncode == 0, done
        redis.start()
        wait_until(lambda: a.run(blocks["sh own locks"]).returncode == 0, "apt works again", 60)
    finally:
        a.end()
        b.end()


def test_kubernetes(machines_of):
    """The command as process 1 of a container; when it has ended, and the machine with it, the lock is free at once."""
    hosts = machines_of("Kubernetes CronJob", lease="ttl_ms = 600000; probe_ms = 5000;")
    hosts[0].run("dflock stop")  # it is outside of the container, whose /dev/shm is the same here
    job = yaml.safe_load(machines_of.blocks["yaml"])
    assert job["kind"] == "CronJob"
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    container, = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    patience, = (int(word[7:]) for word in container["command"] if word.startswith("--init="))
    assert patience + 7 < pod["terminationGracePeriodSeconds"]
    assert container["command"][:2] == ["dflock", "run"] and container["command"][-1] == "--"
    words = [*(container["command"] if machines_of.excludes else []), *container["args"]]

    def start(host):
        return host.popen(*CONTAINER, *words, env={"PATH": PATH})

    jobs = {host: start(host) for host in hosts}
    check_one_runs(machines_of, list(jobs.values()), 0)
    if machines_of.excludes:
        first = next(host for host in hosts if host.name == machines_of.ran()[0])
        first.end()
        other = next(host for host in hosts if host is not first)
        assert start(other).wait(60) == 0
        assert machines_of.ran() == [first.name, other.name]


def test_nfs(machines_of):
    """On views whose locks are local, in the place of NFS: no update of a number is lost. And the line of fstab is one."""
    a, b = machines_of("NFS with local_lock", "ab")
    source, where, kind, options, _, _ = machines_of.blocks["fstab"].split()
    assert (where, kind) == ("/srv/shared", "nfs") and "local_lock=all" in options.split(",")
    with open(os.path.join(machines_of.shared, "count"), "w") as f:
        f.write("0\n")
    for host in (a, b):
        host.share(machines_of.shared, where)
    count = machines_of.command(machines_of.blocks["sh count"])
    if machines_of.excludes:
        jobs = [host.popen(count) for host in (a, b) * 10]
        assert [job.wait(60) for job in jobs] == [0] * 20
        assert b.read("/srv/shared/count") == "20\n"
    # Another program holds the lock: without dflock it is not waited for.
    holder = a.popen(machines_of.command("dflock run --require=/srv/shared/count.lock -- flock /srv/shared/count.lock sh -c 'echo held; read line'"),
                     stdin=subprocess.PIPE)
    assert holder.stdout.readline() == "held\n"
    waiter = b.popen(count)
    if machines_of.excludes:
        wait_until(lambda: "waits" in b.run("dflock status").stdout, "b waits")
        assert waiter.poll() is None
    else:
        assert waiter.wait(60) == 0
    holder.communicate("\n", timeout=60)
    assert waiter.wait(60) == 0


class Alerts(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.got.append((self.headers["Content-Type"], json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *words):
        pass


@needs("jq", "jq")
@needs("curl", "curl")
@pytest.mark.parametrize("machines_of", ["dflock"], indirect=True)
def test_tell_somebody(machines_of, redis):
    """A lock is lost: a mail and a message to a web server say so. mail(1) and the server are the test's."""
    server = http.server.HTTPServer(("127.0.0.1", 0), Alerts)
    server.got = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    a, = machines_of("Tell somebody", "a", "ttl_ms = 3000;")
    script = machines_of.blocks["sh dflock-event"]
    assert "https://alerts.example.com/dflock" in script
    a.write("/usr/local/sbin/dflock-event", script.replace("https://alerts.example.com", f"http://127.0.0.1:{server.server_port}"), 0o755)
    a.write("/usr/local/bin/mail", f'#!/bin/sh\n(echo "$@"; cat) >>{machines_of.shared}/mail\n', 0o755)
    a.popen("dflock run -- flock /var/lock/nightly.lock /usr/local/bin/nightly")
    wait_until(machines_of.ran, "the job runs")
    redis.stop()
    wait_until(lambda: [e for _, e in server.got if e["event"] == "holders-frozen"], "that is told", 30)
    wait_until(lambda: "unsure" in a.run("dflock status").stdout, "the lease has run out", 30)
    redis.start()
    wait_until(lambda: {"lease-lost", "holders-killed"} <= {e["event"] for _, e in server.got}, "the loss is told", 30)
    server.shutdown()
    server.server_close()
    assert {kind for kind, _ in server.got} == {"application/json"}
    lost, = (e for _, e in server.got if e["event"] == "lease-lost")
    with open(machines_of.shared + "/mail") as f:
        mail = f.read()
    assert "-s dflock: lease-lost root\n" + f"{lost['host']}: LOST: the exclusive lease on /var/lock/nightly.lock" in mail
    assert "holders-killed" in mail and "store-away" not in mail
