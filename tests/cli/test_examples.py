"""
What people copy: lines of the manuals for crontabs, the examples for containers (packaging/container, packaging/kubernetes), and the Ansible
role. Each works with what it gets there, and each path, option and setting that it names is one of dflock's.
"""
import glob
import json
import os
import re
import shlex
import shutil
import subprocess

import pytest
import yaml
from harness import text_of, write_text
from harness.host import BUILD, CLI, ROOT


def read(*path):
    return text_of(os.path.join(ROOT, *path))


def checked(path, *files):
    """dflock check: the configuration is valid, and protects these files."""
    done = subprocess.run([CLI, "check", "--config", path, "--require", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- crontabs ---

SCHEDULE = r"^(?:\.Dl )?\s*(?:[-\d*/,]+ ){5}\s*(\S.*)$"
CRON = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "nobody"}


def test_lines_of_crontabs(make_host):
    """With the little that cron gives to a job, this build for the installed dflock, and something quick for the job."""
    host, tried = make_host("a"), 0
    os.mkdir(host.path("once"))
    env = {**CRON, "HOME": host.files, "DFLOCK_CONFIG": host.config, "DFLOCK_RUNTIME_DIR": host.runtime}
    for page in [os.path.join(ROOT, "README.md"), *glob.glob(os.path.join(ROOT, "docs/*.md")), *glob.glob(os.path.join(ROOT, "man/*"))]:
        for line in re.findall(SCHEDULE, text_of(page), re.M):
            line = re.sub(r"^root\s+", "", line.replace("\\-", "-"))  # as in /etc/crontab
            if "dflock" not in line:  # the line that README begins with, without dflock
                continue
            command, count = re.subn(r"/usr(/local)?/bin/dflock(?= )", shlex.quote(os.path.join(BUILD, "dflock")), line)
            assert count == 1, f"cron does not look in /usr/local/bin: {page}: {line}"
            command = command.replace("/usr/local/bin/nightly", "echo ran").replace("/var/lock", host.files)
            command = command.replace("/var/lib/prometheus/node-exporter", host.files)
            done = subprocess.run(["/bin/sh", "-c", command], env=env, capture_output=True, text=True, timeout=60)
            assert (done.returncode, done.stdout) == (0, "" if " metrics " in line else "ran\n"), (page, done)
            assert " metrics " not in line or os.path.exists(host.path("dflock.prom"))
            tried += 1
    assert tried >= 2


# --- containers ---


def document(name, kind):
    return next(d for d in yaml.safe_load_all(read("packaging", "kubernetes", name)) if d["kind"] == kind)


def job_of(name):
    return document(name, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def lock_file(pod):
    return re.search(r"--require=(\S+)", " ".join(pod["containers"][0]["command"]))[1]


def mounts(pod):
    """Where each volume is mounted, by its source."""
    volumes = {v["name"]: v for v in pod["volumes"]}
    found = {m["mountPath"]: volumes.pop(m["name"]) for m in pod["containers"][0]["volumeMounts"]}
    assert not volumes, "a volume that is mounted nowhere"
    return found


@pytest.mark.parametrize("name", ["cronjob.yaml", "cronjob-host-keeper.yaml"])
def test_the_command(name):
    """It is what the package installs, and takes these options; the job locks the file that --require is about."""
    pod = job_of(name)
    container, = pod["containers"]
    words = container["command"]
    assert words[:2] == ["/usr/bin/dflock", "run"] and words[-1] == "--"
    assert "ExecReload=/usr/bin/dflock " in read("packaging", "dflock.service")
    usage = subprocess.run([CLI, "run", "--help"], capture_output=True, text=True, check=True).stdout
    for word in words[2:-1]:
        assert re.match(r"--[a-z]+", word)[0] in usage
    assert container["args"][:1] == ["flock"] and lock_file(pod) in container["args"]
    assert pod["restartPolicy"] == "Never"
    given = re.search(r"--init=(\d+)", " ".join(words))
    source = read("cli", "container.h")
    times = {n: int(re.search(rf"#define CONTAINER_{n}_S +(\d+)", source)[1]) for n in ("PATIENCE", "KILL", "GIVE_BACK")}
    patience = int(given[1]) if given else times["PATIENCE"]
    assert patience + times["KILL"] + times["GIVE_BACK"] < pod["terminationGracePeriodSeconds"]


def test_a_keeper_of_its_own(folder):
    """The configuration is valid, protects the file, and takes its password from where the Secret is mounted."""
    pod = job_of("cronjob.yaml")
    config = document("cronjob.yaml", "ConfigMap")
    where = mounts(pod)
    assert where["/etc/dflock.conf"]["configMap"]["name"] == config["metadata"]["name"]
    text = config["data"]["dflock.conf"]
    password = re.search(r'password_file = "(.*)/(.*)"', text)
    secret = document("cronjob.yaml", "Secret")
    assert where[password[1]]["secret"]["secretName"] == secret["metadata"]["name"] and password[2] in secret["stringData"]
    assert where[password[1]]["secret"]["defaultMode"] == 0o400
    path, own = os.path.join(folder, "dflock.conf"), os.path.join(folder, "password")
    write_text(own, "change-me\n")
    os.chmod(own, 0o400)
    write_text(path, text.replace(password[0], f'password_file = "{own}"'))
    checked(path, lock_file(pod))


def test_the_hosts_keeper(folder):
    """The folders of the unit's keeper are mounted under their own paths, and so is the folder of the lock file."""
    pod = job_of("cronjob-host-keeper.yaml")
    where = mounts(pod)
    assert all(path == source["hostPath"]["path"] for path, source in where.items())
    unit = read("packaging", "dflock.service")
    runtime = re.search(r"--runtime-dir (\S+)", unit)[1]
    assert where[runtime]["hostPath"]["type"] == "Directory" and re.search(r"--config (\S+)", unit)[1] in where
    assert os.path.dirname(lock_file(pod)) in where
    rule = re.search(r"^#   (protect = .*)$", read("packaging", "kubernetes", "cronjob-host-keeper.yaml"), re.M)[1]
    path = os.path.join(folder, "dflock.conf")
    write_text(path, 'store = { server = "redis.example.org"; };\n' + rule)
    checked(path, lock_file(pod))


def test_the_containerfile():
    text = read("packaging", "container", "Containerfile")
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", text, re.M)
    assert [s[1] for s in stages] == ["build", ""] and all("debian:bookworm-slim" in s[0] for s in stages)
    assert 'ENTRYPOINT ["/usr/bin/dflock", "run"]' in text
    for path in re.findall(r"scripts/\S+", text):
        assert os.access(os.path.join(ROOT, path), os.X_OK), path
    assert re.search(r"COPY --from=build (\S+)/", text)[1] == re.search(r"scripts/deb.sh (\S+)", text)[1]
    for package in re.search(r"--no-install-recommends (build-essential.*)", text)[1].split():
        assert package in ("build-essential", "debhelper", "git")  # scripts/deb.sh says what it needs beside debian/control


# --- Ansible ---

RULES = [{"path": "/var/lock/nightly.lock", "name": "nightly"}, {"tree": "/srv/it's \"quoted\"\\", "name": "jobs", "at_least_ms": 60000}]


@pytest.fixture
def play(folder):
    """play(VARIABLES) writes the configuration as the role does; without package and service, which need a machine of their own."""
    if not shutil.which("ansible-playbook"):
        pytest.skip("ansible-core is not installed")
    playbook = os.path.join(folder, "play.yml")
    write_text(playbook, json.dumps([{"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": ["dflock"]}]))
    config = os.path.join(folder, "dflock.conf")
    env = {**os.environ, "ANSIBLE_ROLES_PATH": os.path.join(ROOT, "packaging/ansible/roles"), "ANSIBLE_LOCALHOST_WARNING": "false", "LC_ALL": "C.UTF-8",
           "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false", "HOME": folder, "PATH": BUILD + ":" + os.environ["PATH"]}

    def run(**variables):
        variables = {"dflock_config": config, "dflock_keeper": False, "dflock_password_file": os.path.join(folder, "password"), **variables}
        done = subprocess.run(["ansible-playbook", "--skip-tags", "dflock_install", "-e", json.dumps(variables), playbook], env=env,
                              capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout + done.stderr

    run.config = config
    return run


def test_the_role(play):
    """It is valid and is not changed again; a mistake replaces nothing."""
    said = []
    for _ in range(2):
        status, out = play(dflock_server="redis.example.org:6379", dflock_user="dflock", dflock_password="secret",
                           dflock_lease={"ttl_ms": 10000}, dflock_protect=RULES)
        assert status == 0, out
        said.append(out)
    assert "changed=0" in said[1], said
    checked(play.config, "/var/lock/nightly.lock")
    before = text_of(play.config)
    assert "secret" not in before + said[0]
    assert os.stat(os.path.join(os.path.dirname(play.config), "password")).st_mode & 0o777 == 0o600
    for variables, why in ({"dflock_server": "a:1", "dflock_protect": [{"path": "relative", "name": "x"}]}, "relative"), \
            ({"dflock_protect": RULES}, "set dflock_server"):
        status, out = play(**variables)
        assert status != 0 and why in out, out
    assert text_of(play.config) == before
