"""A store in PostgreSQL: what is about that engine alone. One that cannot be the store: one line says what to do, nothing is granted, and the
host is up once it was done. The rest of tests/cluster runs with it by `make check-postgresql`."""
import os
import shutil
import subprocess

import harness.host
import pytest
from harness import Postgresql, wait_until, write_text
from harness.host import BUILD, CLI, copy_programs
from harness.nodes import here
from harness.postgresql import as_user

RUN = "run `psql -d dflock -v role=dflock -f /usr/local/share/dflock/postgresql.sql` on the server"
ANEW = "stop all hosts, drop schema dflock cascade, and " + RUN
LACKS = "the role lacks a right, which `dflock doctor --acl` prints"
# What is wrong (a statement), what the line says, and what mends it (None: the schema is made anew). More: tests/unit/test_postgresql.c.
WRONG = {
    "no schema": ("drop schema dflock cascade", "it has no schema dflock, or half of one: " + RUN, None),
    "older": ("update dflock.about set format = 0", "its schema is of an older dflock: " + ANEW, None),
    "no usage": ("revoke usage on schema dflock from dflock", LACKS, "grant usage on schema dflock to dflock"),
    "no select": ("revoke select on dflock.cell from dflock", LACKS, "grant select on dflock.cell to dflock"),
    "no insert": ("revoke insert on dflock.cell from dflock", LACKS, "grant insert on dflock.cell to dflock"),
    "no role": ("alter role dflock rename to other", "`dflock doctor --acl` prints what makes the role, and user= names it",
                "alter role other rename to dflock"),
    "no login": ("alter role dflock nologin", "`dflock doctor --acl` prints what makes the role", "alter role dflock login"),
    "no database": ("alter database dflock rename to other", "create the database, or correct dbname= in `postgresql`",
                    "alter database other rename to dflock"),
    "too many": ("alter role dflock connection limit 0", "each host needs a connection: raise max_connections or the role's limit",
                 "alter role dflock connection limit -1"),
}


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


def test_who_uses_redis_needs_neither_libpq_nor_lua():
    for program in "KEEPER", "CLI", "COMMANDS", "DOCTOR", "NET", "SHIM":
        said = subprocess.run(["ldd", getattr(harness.host, program)], capture_output=True, text=True, check=False).stdout
        assert "libpq" not in said and "liblua" not in said, program


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


@pytest.mark.parametrize("engine,why", [
    (None, r"store\.postgresql needs the package dflock-postgresql: there is no "),
    ('const char *const dflock_engine[] = {"0.0.1", "postgresql"};', r"of dflock 0\.0\.1, and the keeper of .*: install both of one version"),
    ("text", r"store\.postgresql cannot be used: .*install dflock-postgresql")], ids=["missing", "of another version", "no library"])
def test_engine_that_does_not_fit_is_refused(elsewhere, host_of, engine, why):
    path = os.path.join(elsewhere, "dflock-postgresql.so")
    if engine:
        write_text(path, engine)
    if engine and engine != "text":
        os.rename(path, path + ".c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", path, path + ".c"], check=True)
    with pytest.raises(RuntimeError, match=why):
        host_of('postgresql = "dbname=dflock";')


# --- what cannot be the store ---


def error(host):
    """What status says; no lock is granted."""
    wait_until(lambda: host.status()["store"]["error"] not in ("", "not connected yet"), "it was tried")
    assert host.run("flock", "-n", host.path("f"), "true").returncode != 0
    return host.status()["store"]["error"]


def told(host):
    """The one problem that `dflock doctor` finds."""
    error(host)
    problem, = (line for line in host.cli("doctor", check=False).stdout.splitlines() if line.startswith("problem:"))
    return problem


@pytest.mark.long
def test_one_line_says_what_to_do(server, host_of):
    for n, (what, (wrong, line, mend)) in enumerate(WRONG.items()):
        def sql(text):
            server.sql(text, database="postgres" if "database" in text else "dflock")

        def anew():
            server.sql("drop schema if exists dflock cascade")
            server.make_schema()

        anew()  # an empty one: what is there already needs no right to be made
        sql(wrong)
        host = host_of(server, f"h{n}")
        assert line in error(host) or line in told(host), what  # what connections fail for, the doctor explains
        assert RUN not in line or line in host.cli("init", check=False).stderr, what
        sql(mend) if mend else anew()
        assert host.init().run("flock", "-n", host.path("f"), "true").returncode == 0, what
        host.stop()


def test_wrong_password(server, host_of):
    server.sql("alter role dflock password 'right'")
    write_text(os.path.join(server.data, "pg_hba.conf"), "local all postgres trust\nlocal all dflock scram-sha-256\n")
    server.sql("select pg_reload_conf()")
    host = host_of(server)
    assert told(host).endswith("no password supplied; write it into a file that password_file names")
    secret = host.password("wrong")
    other = host_of(server, "b", store=f'password_file = "{secret}";')
    assert told(other).endswith("correct the file that password_file names, or the role's password")


def test_another_password(server, host_of):
    """The role has another one while a lock is held: a reload takes it over, and the holder goes on."""
    server.sql("alter role dflock password 'first'")
    write_text(os.path.join(server.data, "pg_hba.conf"), "local all postgres trust\nlocal all dflock scram-sha-256\n")
    server.sql("select pg_reload_conf()")
    secret = os.path.join(server.folder, "secret")
    write_text(secret, "first\n")
    os.chmod(secret, 0o600)
    host = host_of(server, store=f'password_file = "{secret}";').init()
    agent = host.opened("f", "flock 0 ex nb")
    server.sql("alter role dflock password 'other'")
    server.sql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'dflock'")
    wait_until(lambda: "password authentication failed" in host.status()["store"]["error"], "the server refuses it")
    write_text(secret, "other\n")
    host.cli("reload")
    wait_until(lambda: host.status()["store"]["up"], "it is used")
    assert agent.do("flock 0 un") == "ok" and not host.status()["lost"]


def test_server_that_is_not_there(server, host_of):
    server.stop()
    assert told(host_of(server)).endswith("start the server there, or correct `postgresql` in the configuration")


def test_standby(server, host_of):
    server.end()
    write_text(os.path.join(server.data, "standby.signal"), "")
    server.start()
    assert "it is a standby, which may only be read: set the address of the primary" in told(host_of(server))


def test_pooler(server, host_of, folder):
    """In transaction mode it passes on no message."""
    port = here(1)[0].port
    write_text(os.path.join(server.folder, "pgbouncer.ini"), f"""[databases]
dflock = host={server.folder} user=dflock
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
ignore_startup_parameters = extra_float_digits
""")
    pooler = subprocess.Popen(as_user(["/usr/sbin/pgbouncer", os.path.join(server.folder, "pgbouncer.ini")]),
                              stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: subprocess.run(["psql", "-qc", "select 1", f"host=127.0.0.1 port={port} dbname=dflock user=dflock"],
                                          check=False, capture_output=True).returncode == 0, "the pooler answers")
        host = host_of(f'postgresql = "host=127.0.0.1 port={port} dbname=dflock user=dflock";')
        assert "a pooler is between, which does not pass on messages: set the address of the server itself" in told(host)
    finally:
        pooler.kill()
        pooler.wait()


def test_acl_is_what_the_role_needs(server, host_of):
    """Each of these rights is needed (above, and tests/unit/test_postgresql.c); and no more are."""
    server.sql("drop owned by dflock")
    said = subprocess.run([CLI, "doctor", "--acl", "--config", host_of(server, foreground=False).config], check=True, capture_output=True,
                          text=True).stdout
    assert "create role :role login password 'PASSWORD';" in said
    script = os.path.join(server.folder, "acl.sql")
    write_text(script, said.replace("create role", "-- create role"))
    subprocess.run(["psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-f", script, server.info("postgres")], check=True)
    host = host_of(server, "b").init()
    assert host.run("flock", "-n", host.path("f"), "true").returncode == 0
    assert server.sql("select count(*) from pg_class c, aclexplode(relacl) a where relnamespace = 'dflock'::regnamespace "
                      "and a.grantee = 'dflock'::regrole and privilege_type = 'TRUNCATE'") == "0"
