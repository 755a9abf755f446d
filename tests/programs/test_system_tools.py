"""
The system's own tools, and what administrators run that locks by itself. Two hosts, or machines, each with folders of its own under the same lock
names; what one of them holds, the other reports as held, in its own words.
"""
import os
import re
import socket
import subprocess

import pytest
from harness import Job, wait_until, write_text

from installed import needs

CONTROL = "Package: hold\nVersion: 1\nArchitecture: all\nMaintainer: A <a@example.org>\nDescription: holds dpkg's locks\n"
# In the middle of an installation, with all locks taken. It fails then, so that nothing is unpacked.
PREINST = "#!/bin/sh\necho held\nread line\nexit 1\n"


def make_package(folder):
    tree = os.path.join(folder, "hold", "DEBIAN")
    os.makedirs(tree, mode=0o755)
    write_text(os.path.join(tree, "control"), CONTROL)
    write_text(os.path.join(tree, "preinst"), PREINST)
    os.chmod(os.path.join(tree, "preinst"), 0o755)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", os.path.dirname(tree), folder], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(folder, "hold_1_all.deb")


def make_system(host):
    """What dpkg and apt-get need to see."""
    for name in ("dpkg/info", "dpkg/updates", "root", "lists/partial", "archives/partial", "etc"):
        os.makedirs(host.path(name))
    for name in ("dpkg/status", "dpkg/available", "etc/sources.list", "etc/none"):
        open(host.path(name), "w").close()


@pytest.fixture
def systems(pair):
    make_system(pair.a)
    make_system(pair.b)


def dpkg(host, *words):
    return ["dpkg", "--admindir", host.path("dpkg"), "--instdir", host.path("root"), "--log", host.path("log"),
            "--force-not-root,script-chrootless", *words]


def apt(host, *words):
    options = ["Dir::State::lists=" + host.path("lists"), "Dir::State::status=" + host.path("dpkg/status"),
               "Dir::Cache::archives=" + host.path("archives"), "Dir::Cache::pkgcache=", "Dir::Cache::srcpkgcache=",
               "Dir::Etc=" + host.path("etc"), "Dir::Etc::sourceparts=none", "Dir::Etc::parts=none",
               "Dir::Etc::preferencesparts=none", "Dir::State::extended_states=" + host.path("extended"),
               "Dir::Log=" + host.path("log"), "APT::Sandbox::User="]
    return ["apt-get", "-q", "-y", *(word for option in options for word in ("-o", option)), *words]


def lines_until(job, wanted):
    said = [job.line()]
    while said[-1] not in (wanted, None):
        said.append(job.line())
    assert said[-1] == wanted, said


def check(pair, command, status, said, **more):
    """b's command fails with these words as long as a holds. They name a process only where it is this machine's."""
    done = pair.b.run(*command, **more)
    if pair.excludes:
        assert done.returncode == status and re.search(said, done.stdout + done.stderr), done
    else:
        assert done.returncode == 0, done


def test_dpkg_and_apt_get(pair, systems, folder):
    job = Job(pair.a, *dpkg(pair.a, "--install", make_package(folder)))
    lines_until(job, "held")
    upgrade = apt(pair.b, "dist-upgrade")
    check(pair, dpkg(pair.b, "--configure", "-a"), 2, r"frontend lock was locked by \S+ process with pid -1\n")
    check(pair, upgrade, 100, r"E: Could not get lock \S+/lock-frontend - open \(11:")
    waiter = Job(pair.b, *apt(pair.b, "-o", "DPkg::Lock::Timeout=60", "dist-upgrade"))
    if pair.excludes:
        while "Waiting for cache lock" not in waiter.line():
            pass
    job.end()
    assert waiter.process.wait(30) == 0
    for words in (dpkg(pair.b, "--configure", "-a"), upgrade):
        assert pair.b.run(*words).returncode == 0


def test_apt_get_update(pair, systems):
    job = Job(pair.a, *apt(pair.a, "-o", "APT::Update::Pre-Invoke::=echo held; read line", "update"))
    lines_until(job, "held")
    check(pair, apt(pair.b, "update"), 100, r"E: Could not get lock \S+/lists/lock - open \(11:")
    check(pair, apt(pair.b, "clean"), 100, r"E: Could not get lock \S+/lists/lock - open \(11:")
    job.end()
    assert pair.b.run(*apt(pair.b, "clean")).returncode == 0


def test_logrotate(pair):
    commands = {}
    for host, script in ((pair.a, "echo held; read line"), (pair.b, "true")):
        write_text(host.path("log"), "full")
        with open(host.path("conf"), "w") as f:
            f.write(f"{host.path('log')} {{\n size 1\n rotate 1\n missingok\n prerotate\n{script}\n endscript\n}}\n")
        os.chmod(host.path("conf"), 0o644)
        commands[host] = ["logrotate", "-s", host.path("state"), host.path("conf")]
    job = Job(pair.a, *commands[pair.a])
    lines_until(job, "held")
    check(pair, commands[pair.b], 3, r"state file \S+ is already locked")
    job.end()
    assert pair.b.run(*commands[pair.b]).returncode == 0


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


DOVECOT = """base_dir = %s
state_dir = %s
log_path = /dev/stderr
mail_location = maildir:%s
ssl = no
"""


@needs("doveadm", "dovecot-core (not by scripts/install-deps.sh: it starts a server)")
def test_doveadm(two):
    """It runs doveconf, which starts doveadm again, with the variables alone that import_environment names."""
    host = two[0]
    config = host.path("dovecot.conf")

    def preloads():
        """How often the library is opened. doveadm ends with an error then: it serves no mail to root."""
        host.run("strace", "-f", "-o", host.path("trace"), "-e", "trace=openat", "-E", "LD_PRELOAD=" + host.env()["LD_PRELOAD"], "doveadm",
                 "-c", config, "mailbox", "list", "-u", "nobody")
        with open(host.path("trace")) as f:
            return sum("libdflock.so" in line for line in f)

    write_text(config, DOVECOT % (host.files, host.files, host.files))
    assert preloads() == 2, "doveadm and doveconf"
    with open(config, "a") as f:
        f.write("import_environment = $import_environment LD_PRELOAD\n")
    assert preloads() == 3, "and doveadm again"
    said = host.cli("doctor", "doveadm", check=False).stdout
    assert re.search(r"problem: \S+doveadm: it runs doveconf, which cleans the environment", said)


@pytest.mark.long
@pytest.mark.parametrize("linger_ms", [50, 0])
def test_a_folder_is_removed_soon_after_the_lock(views, make_host, linger_ms):
    """On a file system that is not local, a file that the keeper has open is only renamed. However long a lock was held, the keeper looks
    once a second whether it still is; pauses that double with each look would be 100 s by then."""
    host = make_host("a", lease=f"ttl_ms = 30000; linger_ms = {linger_ms};", debug=True, times=True)
    folder = os.path.join(host.files, "d")

    def removed():
        return subprocess.run(["rm", "-rf", folder], stderr=subprocess.DEVNULL, check=False).returncode == 0

    def looks():
        return [int(line.split()[0]) for line in host.log().splitlines() if ": lingered in held" in line][before:]

    before = 0
    os.mkdir(folder)
    assert host.run("flock", os.path.join(folder, "l"), "true").returncode == 0
    wait_until(removed, "the folder of a lock that was held for a moment is removed")
    os.mkdir(folder)
    holder, before = host.agent(), len(looks())
    assert holder.do(f"open 0 {folder}/l rwc") == "ok" and holder.do("flock 0 ex") == "ok"
    times = wait_until(lambda: looks() if len(looks()) >= 13 else None, "the keeper has looked often enough")
    assert times[12] - times[11] >= 900_000_000  # not all the time
    holder.kill()
    wait_until(removed, "the folder of a lock that was held for long is removed")
