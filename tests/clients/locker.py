#!/usr/bin/python3
"""
locker.py KIND SOCKET KEY TTL_MS [PAUSE]: a lock of one of these kinds in the Redis at SOCKET, driven by lines on standard input, each of
which gets one line as its answer. PAUSE: seconds between two tries of one that waits. TTL_MS 0:
for ever, as redis-py does by default.

  lock      waits for it: "locked"
  try       "locked" or "busy"
  unlock    "unlocked", or "lost": it was not its lock any more
  force     whoever has it: "unlocked" or "lost" (Redisson)
  spin S MS lock, wait for MS, unlock, again and again for S seconds: "spun TIMES"
  count PATH N [MS]  N times: lock, add one to the number in PATH, which takes MS, unlock: "counted N", or "lost" and how far it came

  redis-py      the library: redis.lock.Lock
  recipe, redisson, redisson-3.12  commands.py
locker.js has the libraries of node.
"""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from commands import Recipe, Redisson, Redisson312  # noqa: E402


class RedisPy:
    def __init__(self, path, key, ttl_ms, pause):
        import redis
        self.of_library = redis.exceptions.LockError
        self.inner = redis.Redis(unix_socket_path=path).lock(key, timeout=ttl_ms / 1000 or None, sleep=pause)

    def attempt(self):
        return self.inner.acquire(blocking=False)

    def lock(self):
        self.inner.acquire()

    def unlock(self):
        try:
            self.inner.release()
            return True
        except self.of_library:
            return False


def count(lock, path, times, ms=0):
    for done in range(times):
        lock.lock()
        with open(path) as f:
            n = int(f.read())
        time.sleep(ms / 1000)
        with open(path, "w") as f:
            f.write(str(n + 1))
        if not lock.unlock():
            return f"lost {done}"
    return f"counted {times}"


def spin(lock, seconds, ms):
    times, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        lock.lock()
        time.sleep(ms / 1000)
        lock.unlock()
        times += 1
    return f"spun {times}"


KINDS = {"redis-py": RedisPy, "recipe": Recipe, "redisson": Redisson, "redisson-3.12": Redisson312}


def obey(lock, word, *more):
    if word == "lock":
        lock.lock()
        return "locked"
    if word == "try":
        return "locked" if lock.attempt() else "busy"
    if word == "unlock":
        return "unlocked" if lock.unlock() else "lost"
    if word == "force":
        return "unlocked" if lock.force() else "lost"
    if word == "spin":
        return spin(lock, *map(int, more))
    return count(lock, more[0], *map(int, more[1:]))


if __name__ == "__main__":
    kind, path, key, ttl_ms, *pause = sys.argv[1:]
    lock = KINDS[kind](path, key, int(ttl_ms), float(pause[0]) if pause else 0.1)
    print("ready", flush=True)
    for line in sys.stdin:
        print(obey(lock, *line.split()), flush=True)
