"""A real PostgreSQL server of the test's own, on a Unix socket in the test's folder, with dflock's schema."""
import atexit
import functools
import glob
import os
import shutil
import signal
import subprocess
import tempfile

import pytest

from .processes import children
from .wait import wait_until

SCHEMA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "store", "postgresql", "schema.sql")
NOBODY = 65534
QUICK = "shared_buffers = 8MB\nmax_wal_size = 64MB\nmax_connections = 200\nlisten_addresses = ''\nfsync = on\nautovacuum = off\ndynamic_shared_memory_type = mmap\n"


def binary(name):
    return max(glob.glob("/usr/lib/postgresql/*/bin/" + name), key=lambda path: int(path.split("/")[4]))


def as_user(words):
    """The server refuses root."""
    return words if os.geteuid() else ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *words]


@functools.cache  # initdb takes seconds, a copy a tenth of one
def template():
    """A folder with a data directory that has the database, the role and the schema."""
    folder = tempfile.mkdtemp(prefix="dflock-test-", dir="/dev/shm")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    own(folder)
    data = os.path.join(folder, "data")
    subprocess.run(as_user([binary("initdb"), "-D", data, "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C", "-E", "UTF8",
                            "--wal-segsize=1"]), check=True, cwd=folder, stdout=subprocess.DEVNULL)
    with open(os.path.join(data, "postgresql.conf"), "a") as f:
        f.write(QUICK)
    server = Postgresql(folder, data=data)
    server.sql("create role dflock login", database="postgres")
    server.sql("create database dflock", database="postgres")
    server.make_schema()
    server.end()
    return data


def own(path):
    if not os.geteuid():
        os.chown(path, NOBODY, NOBODY)


class Postgresql:
    def __init__(self, folder, data=None, forgets=False, inside=(), options=()):
        """
        forgets: as a Redis that saves nothing, when it is stopped and started: what comes back is a backup of before all. inside, options: what
        stands before and behind the server's words.
        """
        self.forgets, self.inside, self.options = forgets, inside, options
        self.folder = os.path.join(folder, "postgresql")
        os.makedirs(self.folder)
        own(self.folder)
        self.data = data or os.path.join(self.folder, "data")
        self.socket = os.path.join(self.folder, ".s.PGSQL.5432")
        self.process = None
        if not data:
            os.chmod(folder, os.stat(folder).st_mode | 0o001)  # what the test keeps there is not the server's
            self.restore()
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def restore(self):
        shutil.rmtree(self.data, ignore_errors=True)
        if os.path.exists(self.data + ".next"):
            os.rename(self.data + ".next", self.data)
        else:
            subprocess.run(["cp", "-a", template(), self.data], check=True)

    def start(self):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            words = as_user([binary("postgres"), "-D", self.data, "-k", self.folder, *self.options])
            self.process = subprocess.Popen([*self.inside, *words], cwd=self.folder, stdout=log, stderr=log)
        wait_until(self.answers, "PostgreSQL answers", 30)

    def answers(self):
        return subprocess.run([binary("pg_isready"), "-q", "-h", self.folder], check=False).returncode == 0

    def info(self, user="dflock", database="dflock"):
        return f"host={self.folder} dbname={database} user={user}"

    def settings(self):
        """For the configuration's group `store`."""
        return f'postgresql = "{self.info()}";'

    def sql(self, text, user="postgres", database="dflock"):
        """What psql prints of it, without decoration; raises CalledProcessError."""
        return subprocess.run(["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", text, self.info(user, database)],
                              check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout.strip()

    def command(self, *words):
        """What tests ask a Redis that is their store, as far as there is the like here."""
        def named(field):
            return "name = '\\x%s'" % ("=" + field).encode().hex()

        def cell(what, which="true"):
            return self.sql(f"select {what} from dflock.cell {where} and {which}")

        where = "where key = '\\x%s' and value is not null" % words[1].encode().hex() if len(words) > 1 else ""
        match words:
            case ["FLUSHALL"]:
                return self.sql("delete from dflock.cell; select dflock.forget()")
            case ["EXISTS", _]:
                return int(cell("count(*) > 0") == "t")
            case ["HLEN", _]:
                return int(cell("count(*)", "substr(name, 1, 1) = '='"))
            case ["HGET", "dflock:{0}:store", "fence"]:
                return self.sql("select last_value from dflock.fence")
            case ["HGET", _, field]:
                return cell("convert_from(value, 'UTF8')", named(field)) or None
            case ["DEL", _]:
                return int(self.sql(f"update dflock.cell set value = null, version = version + 1 {where} returning 1") != "")
            case ["HDEL", _, field]:
                return int(self.sql(f"update dflock.cell set value = null, version = version + 1 {where} and {named(field)} returning 1") != "")
            case ["TIME"]:
                return divmod(int(self.sql("select floor(extract(epoch from clock_timestamp()) * 1000000)")), 1000000)
            case _:
                return pytest.skip(f"asks Redis itself: {words[0]}")

    def commands_processed(self):
        pytest.skip("counts Redis' commands")

    def make_schema(self, database="dflock"):
        subprocess.run(["psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-v", "role=dflock", "-f", SCHEMA, self.info("postgres", database)], check=True)

    def pids(self):
        return [self.process.pid, *children(self.process.pid)]

    def signal(self, number):
        """To all its processes."""
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def end(self):
        """In order, whoever is connected."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        self.process = None

    def stop(self):
        """As if it had lost its power."""
        if self.process:
            if self.process.poll() is None:
                self.signal(signal.SIGSTOP)
                self.signal(signal.SIGKILL)
            self.process.wait()
            self.process = None
            self.free_memory()
            if self.forgets:
                self.restore()
            for name in glob.glob(self.socket + "*"):
                os.unlink(name)

    def free_memory(self):
        """The machine has room for 4,096 segments, and a server that is killed leaves one."""
        try:
            with open(os.path.join(self.data, "postmaster.pid")) as f:
                segment = f.read().splitlines()[6].split()[1]
        except (OSError, IndexError):
            return
        subprocess.run(["ipcrm", "-m", segment], check=False, stderr=subprocess.DEVNULL)

    def restart(self):
        """Whatever takes long is done before: leases last as long as with a Redis."""
        if self.forgets:
            subprocess.run(["cp", "-a", template(), self.data + ".next"], check=True)
        self.stop()
        self.start()
