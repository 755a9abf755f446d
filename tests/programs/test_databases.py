"""
Databases that lock for themselves. SQLite with a rollback journal takes record locks on bytes from 2^30; tdb (Samba's) on bytes of its hash
chains, makes shared ones exclusive in its transactions, and lives with EDEADLK; GNU dbm takes flock() once per opening, without waiting. Four
hosts write into one database on a folder that they share; afterwards it must be whole, with everything in it. Without the shim something must
be lost, or the run shows nothing.

DFLOCK_SQLITE_WRITES is how many transactions each host makes with SQLite; 5000 is the longer form. WAL mode is not tried: its index is memory
that processes share (the -shm file, mapped), which views of different hosts cannot be, whatever locks they have.
"""
import os
import re
import subprocess
import sys
import time

import pytest
from harness import Deadline, Job

OPERATIONS = 30
WRITES = int(os.environ.get("DFLOCK_SQLITE_WRITES", "300"))

# Two of three rounds add to a counter, and each leaves a record. NOMMAP: a mapping would be another view of the data.
TDB = """
import os, sys, tdb
path, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
db = tdb.Tdb(path, 0, tdb.DEFAULT | tdb.NOMMAP, os.O_RDWR)
def add():
    db.store(b"n", b"%d" % (int(db.get(b"n")) + 1))
print("ready", flush=True)
sys.stdin.readline()
for i in range(count):
    if i % 3 == 0:
        db.transaction_start()
        add()
        db.transaction_commit()
    elif i % 3 == 1:
        db.lock_all()
        add()
        db.unlock_all()
    db.store(b"%s %d" % (who.encode(), i), b"x" * (i * 37 % 500))
    if i % 10 == 9:
        db.read_lock_all()
        if len([k for k in db if k.startswith(who.encode() + b" ")]) != i + 1:
            sys.exit("a record is not there")
        db.read_unlock_all()
print("done")
"""
SQLITE = """
import sqlite3, sys
path, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
db = sqlite3.connect(path, timeout=60, isolation_level=None)
print("ready", flush=True)
sys.stdin.readline()
for i in range(count):
    db.execute("BEGIN IMMEDIATE")
    n, rows = db.execute("SELECT n, rows FROM counter").fetchone()
    db.execute("UPDATE counter SET n = ?, rows = ?", (n + (i % 3 != 2), rows + 1))
    db.execute("INSERT INTO log VALUES (?, ?)", (who, i))
    db.execute("COMMIT")
    said, there = db.execute("SELECT rows, (SELECT count(*) FROM log) FROM counter").fetchone()
    if said != there:
        sys.exit("torn: %d and %d" % (said, there))
print("done")
"""
GDBM = """
use GDBM_File; use Errno;
my ($path, $who, $count) = @ARGV;
sub opened {
    while (1) {
        my $db = tie my %h, 'GDBM_File', $path, $_[0] | GDBM_NOMMAP, 0644;
        return \\%h if $db;
        die "$!" if !$!{EAGAIN};
    }
}
$| = 1;
print "ready\\n";
<STDIN>;
for my $i (0 .. $count - 1) {
    my $h = opened(GDBM_WRITER);
    $$h{n}++ if $i % 3 != 2;
    $$h{"$who $i"} = 'x' x ($i * 37 % 500);
    untie %$h;
    if ($i % 10 == 9) {
        $h = opened(GDBM_READER);
        die 'a record is not there' if $i + 1 != grep { /^$who / } keys %$h;
        untie %$h;
    }
}
print "done\\n";
"""


def tdb_begin(path):
    subprocess.run(["tdbtool"], input=f"create {path}\ninsert n 0\n", check=True, stdout=subprocess.DEVNULL, text=True)


def tdb_end(path):
    """Is it whole, what is the counter, how many records are there?"""
    said = subprocess.run(["tdbtool", path, "check"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    found = re.search(r"Database integrity is OK and has (\d+) records", said)
    if not found:
        return said
    shown = subprocess.run(["tdbdump", "-k", "n", path], stdout=subprocess.PIPE, text=True).stdout
    return int(shown.replace("\\00", "")), int(found[1])


def gdbm_begin(path):
    subprocess.run(["gdbmtool", "--newdb", path, "store", "n", "0"], check=True)


def gdbm_end(path):
    done = subprocess.run(["gdbmtool", "-r", path], input="fetch n\ncount\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    found = re.fullmatch(r"(\d+)\nThere are (\d+) items in the database\.\n", done.stdout)
    return (int(found[1]), int(found[2])) if found else done.stdout


def sqlite(path, text):
    return subprocess.run([sys.executable, "-c", "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n" + text, path], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True).stdout


def sqlite_begin(path):
    assert sqlite(path, "db.executescript('PRAGMA journal_mode=DELETE; CREATE TABLE counter (n, rows); INSERT INTO counter VALUES (0, 0);"
                        " CREATE TABLE log (who, i);')") == ""


def sqlite_end(path):
    said = sqlite(path, "print(*db.execute('PRAGMA integrity_check').fetchone(),"
                        " *db.execute('SELECT n, (SELECT count(*) + 1 FROM log) FROM counter').fetchone())")
    found = re.fullmatch(r"ok (\d+) (\d+)\n", said)
    return (int(found[1]), int(found[2])) if found else said


DATABASES = {
    "tdb": (["/usr/bin/python3", "-c", TDB], tdb_begin, tdb_end, OPERATIONS),
    "gdbm": (["perl", "-e", GDBM], gdbm_begin, gdbm_end, OPERATIONS),
    "sqlite": (["/usr/bin/python3", "-c", SQLITE], sqlite_begin, sqlite_end, WRITES),
}


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("shim", [True, False], ids=["shim", "plain"])
def test_four_hosts_write(views, make_host, database, shim):
    """What the four say at last, and how the database is then. Without the shim they may go around in a circle: killed."""
    program, begin, end, count = DATABASES[database]
    count = count if shim or database == "sqlite" else 10 * count
    begin(os.path.join(views, "db"))
    hosts = [make_host(name, shim=shim, foreground=shim) for name in "abcd"]
    jobs = [Job(host, *program, host.path("db"), host.name, str(count)) for host in hosts]
    for job in jobs:
        assert job.line() == "ready"
    for job in jobs:
        job.say("go")
    said, deadline = [], time.monotonic() + (60 + WRITES / 2 if shim else 5)
    for job in jobs:
        try:
            said.append(job.line(max(deadline - time.monotonic(), 0)))
        except Deadline:
            said.append("still runs")
    for job in jobs:
        job.kill()
    found = said, end(os.path.join(views, "db"))
    assert (found == (["done"] * 4, (4 * count * 2 // 3, 4 * count + 1))) == shim, found


def test_gdbmtool(pair):
    for host in (pair.a, pair.b):
        gdbm_begin(host.path("db"))
    job = Job(pair.a, "stdbuf", "-oL", "gdbmtool", pair.a.path("db"))
    job.say("store k v")
    job.say("fetch k")
    assert job.line() == "v"
    for command, why in ((["fetch", "n"], "Can't be reader"), (["store", "n", "1"], "Can't be writer")):
        done = pair.b.run("gdbmtool", *(["-r"] if command[0] == "fetch" else []), pair.b.path("db"), *command)
        assert (why in done.stderr) == pair.excludes, done
    job.end()
    assert pair.b.run("gdbmtool", pair.b.path("db"), "store", "n", "1").returncode == 0
