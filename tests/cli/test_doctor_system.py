"""Commands of an ordinary user beside the keeper of the system, which may read more than the user."""
import os

import pytest
from harness import write_text

from lines import Doctor

USER = 12345
pytestmark = pytest.mark.root("needs root")


@pytest.fixture
def system(redis, folder, make_system):
    """The keeper of a system whose password only root may read."""
    password = os.path.join(folder, "password")
    write_text(password, "secret\n")
    os.chmod(password, 0o600)
    redis.command("CONFIG", "SET", "requirepass", "secret")
    return make_system(store=f'password_file = "{password}";')


def dflock(host, uid, *words):
    """DFLOCK_RUNTIME_DIR is not set: the user finds the system's keeper by itself."""
    return host.cli(*words, check=False, before=host.as_user(uid), env={"DFLOCK_RUNTIME_DIR": ""})


def doctor(host, uid):
    return Doctor(host, done=dflock(host, uid, "doctor"))


def test_the_password_is_not_for_this_user(system):
    found = doctor(system, USER)
    line = found.has("ok", "the keeper of uid 0 goes by the configuration")
    assert f"{system.config}, and has 1 rules. This user cannot read all of it (" in line and "Permission denied" in line
    assert not found.of("problem")
    found.has("ok", "the store unix:.* answers")
    assert not doctor(system, 0).of("problem")


def test_without_a_keeper(system):
    """A keeper of the user's own cannot read the password: a problem. Root starts none beside the system's."""
    system.cli("stop")
    system.keeper.wait()
    for _ in range(2):
        found = doctor(system, 0)
        found.has("warning", "the keeper of the system does not run, and the store was not tried; start it")
        assert not found.of("problem") and "was started" not in found.done.stdout
    assert "Permission denied; until this is mended every lock is refused" in doctor(system, USER).only("password")


def test_commands_that_need_the_rules_only(system):
    """What is protected can be asked, and a job can be started, without the password."""
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


def test_files_that_are_not_as_they_should_be(system):
    """That is said, also where the keeper cannot read them either, and not that all is well."""
    password = os.path.join(os.path.dirname(system.config), "password")
    os.chmod(password, 0o644)
    done = dflock(system, USER, "check")
    assert done.returncode == 1 and "can be read or written by everybody" in done.stderr
    os.chmod(password, 0o600)
    os.chmod(system.config, 0o600)
    done = dflock(system, USER, "run", "--require", "true")
    assert done.returncode == 123 and "Permission denied" in done.stderr
    doctor(system, USER).has("warning", "which this user cannot read .*Permission denied.*: locks are protected all the same, but "
                                        "`dflock run --require` and `dflock check` need it; let this user read it")
    os.chmod(system.config, 0o644)
    with open(system.config, "a") as f:
        f.write("nonsense = 1;\n")
    system.cli("reload", check=False)
    assert doctor(system, USER).of("problem")
