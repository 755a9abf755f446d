"""docs/recipes.md, as test_recipes.py: systems and what belongs to them. Packages, containers, Kubernetes, NFS, and events."""
import http.server
import json
import os
import re
import signal
import subprocess
import threading

import pytest
import yaml
from harness import text_of, wait_until, write_text
from harness.processes import pids_where

from installed import needs
from machines import EMPTY_APT, PATH, Machine
from recipes import check_one_runs, machines_of, recipe  # noqa: F401

def test_apt(machines_of):
    a, b = machines_of("Apt and dpkg", "ab")
    upgrade = machines_of.command(machines_of.blocks["sh upgrade"])
    for host in (a, b):
        assert host.run(EMPTY_APT).returncode == 0
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
    uts = os.stat(f"/proc/{machine.first}/ns/uts").st_ino

    def is_first(pid):
        numbers = re.search(r"^NSpid:\t(.*)$", text_of(f"/proc/{pid}/status"), re.M)[1].split()
        return numbers[-1] == "1" and len(numbers) > 1 and os.stat(f"/proc/{pid}/ns/uts").st_ino == uts and pid != machine.first

    first, = pids_where(is_first)
    return first


def words_of_a_container(blocks):
    words = [word for key in ("ENTRYPOINT", "CMD") for word in json.loads(re.search(rf"^{key} (.*)$", blocks["dockerfile"], re.M)[1])]
    return words, words.index("--") + 1


def words_of_a_pod(blocks):
    job = yaml.safe_load(blocks["yaml"])
    assert job["kind"] == "CronJob"
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    container, = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    patience, = (int(word[7:]) for word in container["command"] if word.startswith("--init="))
    assert patience + 7 < pod["terminationGracePeriodSeconds"] and container["command"][-1] == "--"
    return [*container["command"], *container["args"]], len(container["command"])


@pytest.mark.parametrize("kind", ["containers", "kubernetes"])
def test_containers(machines_of, kind):
    """The command as process 1 of a container. The one that runs the job is stopped, or has ended; when its machine is off, the lock is free at
    once."""
    lease = "ttl_ms = 600000; probe_ms = 5000;"
    hosts = machines_of("Containers", lease=lease) if kind == "containers" else machines_of("Kubernetes CronJob", lease=lease)
    hosts[0].run("dflock stop")  # it is outside of the container, whose /dev/shm is the same here
    words, own = (words_of_a_container if kind == "containers" else words_of_a_pod)(machines_of.blocks)
    assert words[:2] == ["dflock", "run"]
    words = words if machines_of.excludes else words[own:]

    def start(host):
        return host.popen(*CONTAINER, *words, env={"PATH": PATH})

    jobs = {host: start(host) for host in hosts}
    if kind == "kubernetes" or not machines_of.excludes:
        check_one_runs(machines_of, list(jobs.values()), 0 if kind == "kubernetes" else 1)
        if not machines_of.excludes:
            return
        first = runs_on(machines_of, hosts)
    else:
        wait_until(lambda: sum(job.poll() is None for job in jobs.values()) == 1, "all but one have ended")
        wait_until(machines_of.ran, "one runs it")
        first = runs_on(machines_of, hosts)
        os.kill(first_process(first), signal.SIGTERM)
        assert jobs[first].wait(60) == 128 + signal.SIGTERM
        machines_of.enough()
    other = next(host for host in hosts if host is not first)
    first.end()
    assert start(other).wait(60) == 0
    assert machines_of.ran() == [first.name, other.name]


def runs_on(machines_of, hosts):
    return next(host for host in hosts if host.name == machines_of.ran()[0])


@pytest.mark.root("mounts, and so needs root")
def test_apt_with_its_own_locks(redis, folder):
    """Under the page's rules apt stops when the store is away; with on_refused = "refuse", the default, it goes on without locks. dpkg stops in
    either case."""
    blocks = recipe("Apt and dpkg")
    rules, upgrade = blocks["conf own locks"], blocks["sh own locks"]
    a, b = made = [Machine(redis, folder, "a", rules), Machine(redis, folder, "b", rules.replace('"busy"', '"refuse"'))]

    def said(machine, words, command=upgrade):
        done = machine.run(command)
        return done if words in done.stderr else None

    try:
        a.init()
        for machine in made:
            assert machine.run(EMPTY_APT).returncode == 0
            done = machine.run(upgrade)
            assert done.returncode == 0 and "0 upgraded" in done.stdout, done
        redis.stop()
        # As long as their leases are sure, both work on.
        done = wait_until(lambda: said(a, "Could not get lock"), "apt gets no lock")
        assert done.returncode == 100 and "Not using locking" not in done.stderr, done
        assert "dflock: /var/lib/dpkg/lock-frontend: store " in done.stderr, done
        done = wait_until(lambda: said(b, "Not using locking for nfs mounted lock file"), "apt goes on without locks")
        assert done.returncode == 0, done
        for machine, words in ((a, "was locked by another process"), (b, "unable to lock")):
            done = wait_until(lambda: said(machine, words, "dflock run -- dpkg --configure -a"), "dpkg gets no lock, either")
            assert done.returncode == 2, done
        redis.start()
        wait_until(lambda: a.run(upgrade).returncode == 0, "apt works again", 60)
    finally:
        for machine in made:
            machine.end()


def test_nfs(machines_of):
    """On views whose locks are local, in the place of NFS: no update of a number is lost. And the line of fstab is one."""
    a, b = machines_of("NFS with local_lock", "ab")
    source, where, kind, options, _, _ = machines_of.blocks["fstab"].split()
    assert (where, kind) == ("/srv/shared", "nfs") and "local_lock=all" in options.split(",")
    write_text(os.path.join(machines_of.shared, "count"), "0\n")
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
    mail = text_of(machines_of.shared + "/mail")
    assert "-s dflock: lease-lost root\n" + f"{lost['host']}: LOST: the exclusive lease on /var/lock/nightly.lock" in mail
    assert "holders-killed" in mail and "store-away" not in mail
