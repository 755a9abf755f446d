"""A store in PostgreSQL: what is about that engine alone. The rest of tests/cluster runs with it by `make check-postgresql`."""
import os
import shutil
import subprocess

import harness.host
import pytest
from harness import Postgresql, Redis, text_of, wait_until, write_text
from harness.host import BUILD, CLI, copy_programs

@pytest.fixture
def server(folder):
    server = Postgresql(folder)
    yield server
    server.stop()


@pytest.fixture
def redis(server):
    """What hosts of make_host are hosts of."""
    return server


def test_programs_of_two_hosts_exclude(two, folder):
    """Each adds one to a number, which would get lost if two did so at a time."""
    number = os.path.join(folder, "number")
    write_text(number, "0\n")
    loop = f'for i in $(seq 25); do flock {{}} sh -c \'read n <{number}; sleep 0.002; echo $((n + 1)) >{number}\' || exit 1; done'
    jobs = [host.popen(CLI, "run", "--", "sh", "-c", loop.format(host.path("f"))) for host in two for _ in range(2)]
    for job in jobs:
        assert job.wait(120) == 0, job.stderr.read()
    assert text_of(number) == "100\n"
    assert two[0].status()["store"]["version"].startswith("PostgreSQL ")


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


def test_changing_the_store_step_by_step(folder, server, host_of):
    """As docs/stores.md says: from Redis to PostgreSQL. No host goes over while a lock is held, and a host that was left out is refused."""
    old = Redis(folder)
    try:
        a, b, left_out = host_of(old).init(), host_of(old, "b").wait_up(), host_of(old, "c").wait_up()
        held = a.opened("f", "flock 0 ex")
        for host in a, b:
            write_text(host.config, text_of(host.config).replace(f'server = "unix:{old.socket}";', server.settings()))
            assert "store" in host.cli("reload", check=False).stderr
        assert a.cli("stop", check=False).returncode != 0 and b.opened().do("flock 0 ex nb") == "EAGAIN"
        assert held.do("flock 0 un") == "ok"
        for host in a, b:
            wait_until(lambda host=host: host.cli("stop", check=False).returncode == 0, "its keeper has ended")
        old.stop()
        a.start()
        a.init()
        b.start()
        b.wait_up()
        assert held.do("flock 0 ex") == "ok" and b.opened().do("flock 0 ex nb") == "EAGAIN"
        assert a.status()["store"]["engine"] == "postgresql" == b.status()["store"]["engine"]
        assert left_out.opened().do("flock 0 ex nb") == "ENOLCK"
    finally:
        old.stop()
