"""Commands of an ordinary user beside the keeper of the system, which may read more than the user."""
import os
import subprocess
import tempfile

import pytest
from harness import Redis, write_text
from harness import host as host_module
from harness.system import Place, SystemHost

from lines import Doctor

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
USER = 12345


@pytest.fixture
def system(folder, monkeypatch):
    """The keeper of a system whose password only root may read, and programs that everybody may run."""
    redis, place = Redis(folder, "--requirepass", "secret"), Place()
    password = os.path.join(folder, "password")
    write_text(password, "secret\n")
    os.chmod(password, 0o600)
    with tempfile.TemporaryDirectory(prefix="dflock-test-") as shown:
        os.chmod(shown, 0o755)
        for program, copy in host_module.copy_programs(shown).items():
            monkeypatch.setattr(host_module, program, copy)
        host = SystemHost(redis, folder, place, store=f'password_file = "{password}";')
        yield host
        host.stop()
    place.end()
    redis.stop()


def dflock(host, uid, *words):
    """DFLOCK_RUNTIME_DIR is not set: the user finds the system's keeper by itself."""
    env = {k: v for k, v in host.env().items() if k not in ("LD_PRELOAD", "DFLOCK_RUNTIME_DIR")}
    return subprocess.run([*host.inside, *host.as_user(uid, host_module.CLI, *words)], env=env, capture_output=True, text=True,
                          timeout=60)


def doctor(host, uid):
    return Doctor(host, done=dflock(host, uid, "doctor"))


def test_the_password_is_not_for_this_user(system):
    system.wait_up()
    found = doctor(system, USER)
    line = found.has("ok", "the keeper of uid 0 goes by the configuration")
    assert f"{system.config}, and has 1 rules. This user cannot read all of it (" in line and "Permission denied" in line
    assert not found.of("problem")
    found.has("ok", "the store unix:.* answers")
    assert not doctor(system, 0).of("problem")


def test_without_a_keeper_it_is_a_problem(system):
    """A keeper of the user's own cannot read the password."""
    system.cli("stop")
    system.keeper.wait()
    assert "Permission denied; until this is mended every lock is refused" in doctor(system, USER).only("password")


def test_root_starts_no_keeper_beside_the_systems(system):
    system.cli("stop")
    system.keeper.wait()
    found = doctor(system, 0)
    found.has("warning", "the keeper of the system does not run, and the store was not tried; start it")
    assert not found.of("problem") and "was started" not in found.done.stdout
    assert doctor(system, 0).of("warning") == found.of("warning")


def test_a_configuration_that_this_user_cannot_read(system):
    """Then `dflock run --require` is refused, and doctor says so."""
    system.wait_up()
    os.chmod(system.config, 0o600)
    done = dflock(system, USER, "run", "--require", "true")
    assert done.returncode == 123 and "Permission denied" in done.stderr
    doctor(system, USER).has("warning", "which this user cannot read .*Permission denied.*: locks are protected all the same, but "
                                        "`dflock run --require` and `dflock check` need it; let this user read it")


def test_rules_that_are_not_in_force(system):
    """The keeper could not read the file either: then it is said, and not that all is well."""
    system.wait_up()
    with open(system.config, "a") as f:
        f.write("nonsense = 1;\n")
    system.cli("reload", check=False)
    assert doctor(system, USER).of("problem")


def test_commands_that_need_the_rules_only(system):
    """What is protected can be asked, and a job can be started, without the password."""
    system.wait_up()
    system.cli("init")
    file = system.path("f")
    with open(file, "w"):
        os.chmod(file, 0o666)
    done = dflock(system, USER, "check", "--require", file)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1) and f"{file}: protected" in done.stdout, done
    assert "cannot be read: Permission denied; that does no harm where the keeper is another user's" in done.stderr
    done = dflock(system, USER, "run", f"--require={file}", "echo", "ran")
    assert (done.stdout, done.returncode, done.stderr) == ("ran\n", 0, "")
    done = dflock(system, USER, "run", "--report", "flock", file, "true")
    assert done.returncode == 0 and "no lock names" not in done.stderr and file in done.stderr, done.stderr
    done = dflock(system, USER, "run", f"--require={system.config}", "echo", "ran")
    assert done.returncode == 123 and "is not protected" in done.stderr


def test_a_broken_password_file_is_no_harmless_one(system):
    system.wait_up()
    password = os.path.join(os.path.dirname(system.config), "password")
    os.chmod(password, 0o644)
    done = dflock(system, USER, "check")
    assert done.returncode == 1 and "can be read or written by everybody" in done.stderr
