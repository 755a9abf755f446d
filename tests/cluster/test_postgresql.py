"""A store in PostgreSQL: what is about that engine alone. The rest of tests/cluster runs with it by `make check-postgresql`."""
import os
import shutil
import subprocess

import harness.host
import pytest
from harness import Postgresql, write_text
from harness.host import BUILD, copy_programs


@pytest.fixture
def server(folder):
    server = Postgresql(folder)
    yield server
    server.stop()


def test_password_of_the_file_and_nothing_of_the_environment(server, host_of, monkeypatch):
    """Of libpq's variables each would lead elsewhere."""
    server.sql("alter role dflock password 'open sesame'")
    with open(os.path.join(server.data, "pg_hba.conf"), "w") as f:
        f.write("local all postgres trust\nlocal all dflock scram-sha-256\n")
    server.sql("select pg_reload_conf()")
    for name, value in {"PGPORT": "1", "PGOPTIONS": "-c default_transaction_read_only=on", "PGPASSWORD": "wrong"}.items():
        monkeypatch.setenv(name, value)
    secret = os.path.join(server.folder, "secret")
    write_text(secret, "open sesame\n")
    os.chmod(secret, 0o600)
    host = host_of(server, store=f'password_file = "{secret}";')
    assert host.wait_up().status()["store"]["server"] == f"postgresql dbname=dflock host={server.folder}"


@pytest.mark.parametrize("program", ["KEEPER", "CLI", "COMMANDS", "DOCTOR", "NET", "SHIM"])
def test_who_uses_redis_needs_neither_libpq_nor_lua(program):
    said = subprocess.run(["ldd", getattr(harness.host, program)], capture_output=True, text=True, check=False).stdout
    assert "libpq" not in said and "liblua" not in said


@pytest.fixture
def elsewhere(folder, monkeypatch):
    """An installation without the engine, from whose folder keepers are started; there is one where the dynamic linker looks."""
    place = os.path.join(folder, "installation")
    os.makedirs(place)
    monkeypatch.setattr(harness.host, "KEEPER", copy_programs(place)["KEEPER"])
    os.unlink(os.path.join(place, "dflock-postgresql.so"))
    other = os.path.join(folder, "other")
    os.makedirs(other)
    shutil.copy(os.path.join(BUILD, "dflock-postgresql.so"), other)
    monkeypatch.setenv("LD_LIBRARY_PATH", other)
    monkeypatch.chdir(other)
    return place


def test_missing_engine_says_which_package(elsewhere, host_of, server):
    with pytest.raises(RuntimeError, match=r"store\.postgresql needs the package dflock-postgresql: there is no "):
        host_of(server)


def test_engine_of_another_version_is_refused(elsewhere, host_of, server):
    write_text(os.path.join(elsewhere, "other.c"), 'const char *const dflock_engine[] = {"0.0.1", "postgresql"};')
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "dflock-postgresql.so", "other.c"], cwd=elsewhere, check=True)
    with pytest.raises(RuntimeError, match=r"of dflock 0\.0\.1, and the keeper of .*: install both of one version"):
        host_of(server)


def test_engine_that_is_no_library_is_refused(elsewhere, host_of, server):
    write_text(os.path.join(elsewhere, "dflock-postgresql.so"), "text")
    with pytest.raises(RuntimeError, match=r"store\.postgresql cannot be used: .*install dflock-postgresql"):
        host_of(server)
