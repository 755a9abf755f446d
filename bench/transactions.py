#!/usr/bin/python3
"""transactions.py FILE COUNT: how long each of COUNT transactions of SQLite takes (a row is changed, with a rollback journal), in ns."""
import sqlite3
import sys
import time

db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
db.execute("PRAGMA journal_mode = DELETE")
db.execute("CREATE TABLE IF NOT EXISTS counter (n)")
db.execute("INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT * FROM counter)")
samples = []
for _ in range(int(sys.argv[2])):
    begin = time.monotonic_ns()
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE counter SET n = n + 1")
    db.execute("COMMIT")
    samples.append(time.monotonic_ns() - begin)
print(*samples, sep="\n")
