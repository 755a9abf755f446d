"""The Ansible role: its configuration is valid, and one that is not replaces nothing."""
import json
import os
import shutil
import subprocess

import pytest
from harness import text_of
from harness.host import BUILD, CLI, ROOT

RULES = [{"path": "/var/lock/nightly.lock", "name": "nightly"}, {"tree": "/srv/it's \"quoted\"\\", "name": "jobs", "at_least_ms": 60000}]


@pytest.fixture
def play(folder):
    """play(VARIABLES) writes the configuration as the role does; without package and service, which need a machine of their own."""
    if not shutil.which("ansible-playbook"):
        pytest.skip("ansible-core is not installed")
    playbook = os.path.join(folder, "play.yml")
    with open(playbook, "w") as f:
        json.dump([{"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": ["dflock"]}], f)
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


def test_the_configuration(play):
    """It is valid and is not changed again; a mistake replaces nothing."""
    said = []
    for _ in range(2):
        status, out = play(dflock_server="redis.example.org:6379", dflock_user="dflock", dflock_password="secret",
                           dflock_lease={"ttl_ms": 10000}, dflock_protect=RULES)
        assert status == 0, out
        said.append(out)
    assert "changed=0" in said[1], said
    done = subprocess.run([CLI, "check", "--config", play.config, "/var/lock/nightly.lock"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "nightly" in done.stdout, done
    before = text_of(play.config)
    assert "secret" not in before + said[0]
    assert os.stat(os.path.join(os.path.dirname(play.config), "password")).st_mode & 0o777 == 0o600
    for variables, why in ({"dflock_server": "a:1", "dflock_protect": [{"path": "relative", "name": "x"}]}, "relative"), \
            ({"dflock_protect": RULES}, "set dflock_server"):
        status, out = play(**variables)
        assert status != 0 and why in out, out
    assert text_of(play.config) == before
