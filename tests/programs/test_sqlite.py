"""
SQLite with a rollback journal on a folder that four hosts share. Writers and readers on each; afterwards the file must be whole
and every row must be there. The same without the shim must lose something, or the run shows nothing.

DFLOCK_SQLITE_WRITES is how many transactions each host makes; 5000 is the longer form. WAL mode is not tried: its index is memory that
processes share (the -shm file, mapped), which views of different hosts cannot be, whatever locks they have.
"""
import os
import subprocess
import sys


HOSTS = "abcd"
WRITES = int(os.environ.get("DFLOCK_SQLITE_WRITES", "500"))
SECONDS = 60 + WRITES / 2

WRITER = r"""
import sqlite3, sys, os
path, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
db = sqlite3.connect(path, timeout=60, isolation_level=None)
done = failed = 0
for i in range(count):
    try:
        db.execute("BEGIN IMMEDIATE")
        n = db.execute("SELECT n FROM counter").fetchone()[0]
        db.execute("UPDATE counter SET n = ?", (n + 1,))
        db.execute("INSERT INTO log VALUES (?, ?)", (who, i))
        db.execute("COMMIT")
        done += 1
    except sqlite3.Error as e:
        failed += 1
        try:
            db.execute("ROLLBACK")
        except sqlite3.Error:
            pass
print(done, failed)
"""

READER = r"""
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
bad = 0
for i in range(int(sys.argv[2])):
    try:
        n, rows = db.execute("SELECT (SELECT n FROM counter), (SELECT count(*) FROM log)").fetchone()
        bad += n != rows
    except sqlite3.Error:
        bad += 1
print(bad)
"""


def run(data, make_host, shim):
    subprocess.run([sys.executable, "-c", "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n"
                    "db.executescript('PRAGMA journal_mode=DELETE; CREATE TABLE counter (n); INSERT INTO counter VALUES (0);"
                    " CREATE TABLE log (who, i);')", os.path.join(data, "db")], check=True)
    hosts = [make_host(n, shim=shim, lease="ttl_ms = 5000;") for n in HOSTS]
    writers = [h.popen(sys.executable, "-c", WRITER, h.path("db"), h.name, str(WRITES)) for h in hosts]
    readers = [h.popen(sys.executable, "-c", READER, h.path("db"), str(WRITES // 4)) for h in hosts]
    out = [w.communicate(timeout=SECONDS) for w in writers]
    read = [r.communicate(timeout=SECONDS) for r in readers]
    done = sum(int(o.split()[0]) for o, _ in out if o.split())
    failed = sum(int(o.split()[1]) for o, _ in out if o.split())
    torn = sum(int(o) for o, _ in read if o.strip())
    check = subprocess.run([sys.executable, "-c", "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n"
                            "print(db.execute('PRAGMA integrity_check').fetchone()[0])\n"
                            "print(*db.execute('SELECT (SELECT n FROM counter), (SELECT count(*) FROM log)').fetchone())",
                            os.path.join(data, "db")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    return done, failed, torn, check.split("\n"), "".join(e for _, e in out + read)


def test_writers_and_readers_of_four_hosts(views, make_host):
    done, failed, torn, check, errors = run(views, make_host, True)
    assert (failed, torn) == (0, 0), errors
    assert done == len(HOSTS) * WRITES
    assert check[0] == "ok"
    assert check[1] == f"{done} {done}"


def test_without_the_shim_it_loses(views, make_host):
    done, failed, torn, check, _ = run(views, make_host, False)
    whole = failed == 0 and torn == 0 and check[0] == "ok" and check[1] == f"{done} {done}"
    assert not whole, "the control run lost nothing: the run with the shim shows nothing"


def test_the_sqlite_command_line(views, make_host):
    """sqlite3(1): one host is in a transaction, another gets "database is locked", and then its turn."""
    hosts = [make_host(n) for n in "ab"]
    assert hosts[0].run("sqlite3", hosts[0].path("db"), "CREATE TABLE t (x)").returncode == 0
    first = hosts[0].popen("sqlite3", hosts[0].path("db"), stdin=subprocess.PIPE)
    first.stdin.write("BEGIN IMMEDIATE;\nINSERT INTO t VALUES (1);\nSELECT 'locked';\n")
    first.stdin.flush()
    assert first.stdout.readline() == "locked\n"
    second = hosts[1].run("sqlite3", hosts[1].path("db"), "INSERT INTO t VALUES (2)")
    assert "locked" in second.stderr
    first.communicate("COMMIT;\n", timeout=60)
    assert hosts[1].run("sqlite3", hosts[1].path("db"), "INSERT INTO t VALUES (2)").returncode == 0
    assert hosts[0].run("sqlite3", hosts[0].path("db"), "SELECT count(*) FROM t").stdout == "2\n"
