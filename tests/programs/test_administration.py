"""
What administrators run that locks by itself: certbot, unattended-upgrades, debconf, Subversion, cron. Two hosts, with the same lock
names and files of their own; what one of them does, the other reports as being done, in its own words.
"""
import os
import socket

import pytest
from harness import Job, wait_until

from installed import needs
from machines import Machine


def check(pair, command, status, said, **more):
    """b's command fails with these words as long as a holds, and only then. Without the shim it succeeds."""
    done = pair.b.run(*command, **more)
    if pair.excludes:
        assert done.returncode == status and said in done.stdout + done.stderr, done
    else:
        assert done.returncode == 0, done


def certbot(host, *words):
    return ["certbot", *words, "-n", "--config-dir", host.path("etc"), "--work-dir", host.path("lib"), "--logs-dir", host.path("log")]


@needs("certbot", "certbot")
def test_certbot(pair):
    """It holds three locks, here while the server of certificates does not answer it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/directory"
        job = Job(pair.a, *certbot(pair.a, "register", "--server", url, "--agree-tos", "--register-unsafely-without-email"))
        asked, _ = server.accept()
        check(pair, certbot(pair.b, "certificates"), 1, "Another instance of Certbot is already running.")
        job.kill()
        asked.close()
    assert pair.b.run(*certbot(pair.b, "certificates")).returncode == 0


def debconf(host):
    """Its database is the host's own."""
    path = host.path("debconf.conf")
    with open(path, "w") as f:
        for name in ("config", "template"):
            if name == "config":
                f.write("Config: config\nTemplates: template\n")
            f.write(f"\nName: {name}\nDriver: File\nFilename: {host.path(name + '.dat')}\n")
    return ["env", "DEBIAN_FRONTEND=noninteractive", "DEBCONF_SYSTEMRC=" + path, "debconf-communicate"]


def test_debconf(pair):
    """debconf-communicate has the database as long as it reads commands."""
    job = Job(pair.a, *debconf(pair.a))
    job.say("VERSION 2.0")
    assert job.line().startswith("0 ")
    check(pair, debconf(pair.b), 1, "config.dat is locked by another process: Resource temporarily unavailable",
          input="VERSION 2.0\n")
    job.end()
    assert pair.b.run(*debconf(pair.b), input="VERSION 2.0\n").returncode == 0


@needs("svnadmin", "subversion")
def test_subversion(pair):
    """svnadmin freeze holds the lock of those who write, and a commit waits for it; those who read do not."""
    for host in (pair.a, pair.b):
        assert host.run("svnadmin", "create", host.path("repo")).returncode == 0
    url = "file://" + pair.b.path("repo")
    job = Job(pair.a, "svnadmin", "freeze", pair.a.path("repo"), "--", "sh", "-c", "echo held; read line").held()
    commit = Job(pair.b, "sh", "-c", "svn -q mkdir -m x \"$1\" && echo held", "-", url + "/dir")
    pair.check_waits(commit)
    assert pair.b.run("svn", "ls", url).returncode == 0
    job.end()
    pair.check_gets(commit)
    assert pair.b.run("svn", "ls", url).stdout == "dir/\n"


@pytest.fixture(params=["dflock", "plain"])
def machines(request, redis, folder):
    """Two machines on which nothing but the test runs; plain: nothing is protected there."""
    excludes = request.param == "dflock"
    rules = 'protect = ( { path = "/run/*.lock"; }, { path = "/run/crond.pid"; } );' if excludes else ""
    made = []
    try:
        for name in "ab":
            made.append(Machine(redis, folder, name, rules))
        made[0].init()
        yield *made, excludes
    finally:
        for machine in made:
            machine.end()


def is_locked(machine, path):
    """By the machine's own kernel."""
    return machine.run("flock", "-n", path, "true").returncode == 1


@needs("cron", "cron")
def test_cron(machines):
    """Debian's cron locks /run/crond.pid as long as it runs: the second one ends."""
    a, b, excludes = machines
    cron = ["/usr/local/bin/dflock", "run", "--", "/usr/sbin/cron", "-f"]
    first = a.popen(*cron)
    wait_until(lambda: a.read("/run/crond.pid") and is_locked(a, "/run/crond.pid"), "cron has its lock")
    second = b.popen(*cron)
    if excludes:
        assert "can't lock /var/run/crond.pid" in second.communicate(timeout=60)[1] and second.returncode == 1
        a.kill("cron")
        first.wait(60)
        second = b.popen(*cron)
    wait_until(lambda: b.read("/run/crond.pid") and is_locked(b, "/run/crond.pid"), "cron on b has its lock")
    assert second.poll() is None


# apt reads the list of packages that are installed here from a pipe, so that it goes on when the test wants.
EMPTY_APT = r"""
for dir in /var/lib/dpkg /var/lib/apt /var/cache/apt /var/log; do mount -t tmpfs tmpfs $dir; done
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/apt/lists/partial /var/cache/apt/archives/partial /var/log/apt /var/log/unattended-upgrades
rm -rf /etc/apt/sources.list* && touch /etc/apt/sources.list /var/lib/dpkg/available
"""


@needs("unattended-upgrade", "unattended-upgrades (not by scripts/install-deps.sh: it would upgrade this machine)")
def test_unattended_upgrades(machines):
    a, b, excludes = machines
    for machine in (a, b):
        assert machine.run(EMPTY_APT).returncode == 0
    assert a.run("mkfifo /var/lib/dpkg/status").returncode == 0
    assert b.run("touch /var/lib/dpkg/status").returncode == 0
    upgrade = ["/usr/local/bin/dflock", "run", "--", "unattended-upgrade", "--dry-run"]
    first = a.popen(*upgrade)
    wait_until(lambda: os.path.exists(a.outside("/run/unattended-upgrades.lock")) and
               is_posix_locked(a, "/run/unattended-upgrades.lock"), "unattended-upgrade has its lock")
    second = b.run(*upgrade)
    if excludes:
        assert second.returncode == 1 and "Lock file is already taken, exiting" in b.read(
            "/var/log/unattended-upgrades/unattended-upgrades.log"), second
    else:
        assert second.returncode == 0, second
    first.kill()
    a.kill("unattended-upgr")
    second = b.run(*upgrade)
    assert second.returncode == 0, second


def is_posix_locked(machine, path):
    inode = os.stat(machine.outside(path)).st_ino
    with open("/proc/locks") as f:
        return any("POSIX" in line and f":{inode} " in line for line in f)
