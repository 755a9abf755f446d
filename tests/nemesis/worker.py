"""
A worker: takes and leaves locks, and writes records (stamps.py) of what it does, until there is a file "stop" in the
folder SIGNS. From when there is one "calm", it holds no lock for long any more.

    worker.py flock|fcntl|sqlite STAMPS SEED SIGNS FILES COUNTERS HOLDER

FILES is the host's folder of lock files (sqlite: its view of the shared database's), COUNTERS a folder of numbers that
all hosts share, HOLDER tests/agents/holder.c. It knows nothing of dflock: the locks are flock(1)'s, Python's fcntl
module's and SQLite's.
"""
import fcntl
import os
import random
import sqlite3
import struct
import subprocess
import sys
import time

import stamps

NAMES = {"flock": ["f0", "f1"], "fcntl": ["r0"], "sqlite": ["db"]}
RANGES = [(0, 1), (1, 2), (0, 2)]
LONG_S = 9.0  # three times as long as a lease lives without word from its host


class Worker:
    def __init__(self, records, seed, signs, files, counters, holder):
        self.writer = stamps.Writer(records)
        self.dice = random.Random(seed)
        self.signs, self.files, self.counters, self.holder = signs, files, counters, holder
        self.db = None

    def sees(self, sign):
        return os.path.exists(os.path.join(self.signs, sign))

    def hold_seconds(self):
        """Mostly short, so that there are many; some longer than a lease lasts."""
        long = self.dice.random() < 0.12 and not self.sees("calm")
        return self.dice.uniform(0.5, LONG_S) if long else self.dice.uniform(0.001, 0.03)

    def counter(self, name, at=0):
        return os.path.join(self.counters, f"{name}.{at}")

    # --- flock(1) and shells ---

    def flock(self):
        name = self.dice.choice(NAMES["flock"])
        how = self.dice.choice(["wait", "wait", "-w 5", "-n", "-o", "-s", "shell", "pipe"])
        path, options = os.path.join(self.files, name), [] if how in ("wait", "shell", "pipe") else how.split()
        slot = self.writer.ask(name, how, exclusive=how != "-s")
        holder = [self.holder, self.writer.path, str(slot), self.counter(name), str(int(self.hold_seconds() * 1e6))]
        if how == "shell":  # flock(1) ends at once: the lock lives on in the shell
            words = ["bash", "-c", '(flock 9 || exit; "$@") 9>>"$0"', path, *holder]
        elif how == "pipe":
            words = ["bash", "-c", '(flock -n 9 || exit; "$@" | cat) 9>>"$0"', path, *holder]
        else:
            words = ["flock", *options, path, *holder]
        subprocess.run(words, stdin=subprocess.DEVNULL)
        if self.writer.get("state") == stamps.ASKED:
            self.writer.end(stamps.FAILED)

    # --- fcntl: POSIX locks and those of descriptions, some bytes of a file ---

    def fcntl(self):
        name, (from_, to) = NAMES["fcntl"][0], self.dice.choice(RANGES)
        exclusive, ofd, nonblock = self.dice.random() < 0.8, self.dice.random() < 0.5, self.dice.random() < 0.3
        self.writer.ask(name, ("ofd" if ofd else "posix") + (" nb" if nonblock else ""), exclusive, from_, to)
        with open(os.path.join(self.files, name), "r+b", buffering=0) as f:
            try:
                self.set_lock(f, fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK, from_, to, ofd, not nonblock)
            except OSError:
                self.writer.end(stamps.FAILED)
                return
            self.work(name, exclusive, from_)
            self.writer.end()
            if self.dice.random() < 0.5:
                self.set_lock(f, fcntl.F_UNLCK, from_, to, ofd, False)

    @staticmethod
    def set_lock(f, kind, from_, to, ofd, wait):
        command = {(False, False): fcntl.F_SETLK, (False, True): fcntl.F_SETLKW,
                   (True, False): fcntl.F_OFD_SETLK, (True, True): fcntl.F_OFD_SETLKW}[ofd, wait]
        fcntl.fcntl(f, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, from_, to - from_, 0))

    def work(self, name, exclusive, at):
        with open(self.counter(name, at), "r+b", buffering=0) as f:
            self.writer.run(0)
            value, = struct.unpack("<q", f.read(8))
            self.writer.run(self.hold_seconds())
            f.seek(0)
            if exclusive:
                self.writer.put("intends", value + 1)
                f.write(struct.pack("<q", value + 1))
                self.writer.put("wrote", value + 1)
            else:
                self.writer.put("torn", f.read(8) != struct.pack("<q", value))
            self.writer.run(0)

    # --- SQLite: a rollback journal, and one database for all hosts ---

    def sqlite(self):
        self.writer.ask("db", "sqlite")
        try:
            self.db = self.db or sqlite3.connect(os.path.join(self.files, "db"), timeout=5, isolation_level=None)
            self.db.execute("BEGIN IMMEDIATE")
            self.writer.run(0)
            value, = self.db.execute("SELECT n FROM counter").fetchone()
            self.writer.run(self.hold_seconds())
            self.db.execute("UPDATE counter SET n = ?", (value + 1,))
            self.db.execute("INSERT INTO log VALUES (?)", (value + 1,))
            self.writer.put("intends", value + 1)
            self.writer.run(0)
            self.db.execute("COMMIT")
            self.writer.put("wrote", value + 1)
            self.writer.end()
        except sqlite3.Error:
            # Taken back, or not: a program that was told so opens the database again and looks.
            self.writer.end(stamps.FAILED)
            self.db = self.db and self.db.close()


def main():
    kind, records, seed, *rest = sys.argv[1:]
    worker = Worker(records, int(seed), *rest)
    while not worker.sees("stop"):
        getattr(worker, kind)()
        time.sleep(worker.dice.uniform(0, 0.05))


main()
