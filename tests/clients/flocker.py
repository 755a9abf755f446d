#!/usr/bin/python3
"""
flocker.py FILE: as locker.py, with flock() on FILE. Runs on a host, under its shim. A lock without waiting (LOCK_NB): "try", and "grab S MS":
again and again for S seconds, MS ms each time that it gets it: "grabbed TIMES".
"""
import fcntl
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from locker import obey  # noqa: E402


class Flock:
    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)

    def lock(self):
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def attempt(self):
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False

    def unlock(self):
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        return True


def grab(lock, seconds, ms):
    times, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        if lock.attempt():
            time.sleep(ms / 1000)
            lock.unlock()
            times += 1
    return f"grabbed {times}"


lock = Flock(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    word, *more = line.split()
    print(grab(lock, *map(int, more)) if word == "grab" else obey(lock, word, *more), flush=True)
