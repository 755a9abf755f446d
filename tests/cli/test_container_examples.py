"""packaging/container and packaging/kubernetes: each path, option and setting that they name is one of dflock's."""
import os
import re
import subprocess

import pytest
from harness import text_of, write_text
import yaml
from harness.host import CLI, ROOT

EXAMPLES = ["cronjob.yaml", "cronjob-host-keeper.yaml"]


def read(*path):
    return text_of(os.path.join(ROOT, *path))


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


def checked(text, folder, *files):
    """dflock check: the configuration is valid, and protects these files."""
    path = os.path.join(folder, "dflock.conf")
    write_text(path, text)
    done = subprocess.run([CLI, "check", "--config", path, "--require", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", EXAMPLES)
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
    with open(os.path.join(folder, "password"), "w") as f:
        os.chmod(f.name, 0o400)
        f.write("change-me\n")
    checked(text.replace(password[0], f'password_file = "{f.name}"'), folder, lock_file(pod))


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
    checked('store = { server = "redis.example.org"; };\n' + rule, folder, lock_file(pod))


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
