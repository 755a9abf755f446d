#!/usr/bin/python3
"""
player.py KIND WHERE NAME: a lock of one of these kinds, driven by lines on standard input: "pair N" prints the times of N pairs, lock and
unlock, in ns; "lock" and "unlock" print the time (CLOCK_MONOTONIC, ns) after, or before, they did it.
  flock      WHERE is ignored, NAME a file; under dflock's preload, or not
  redis-py   WHERE is a Redis' Unix socket
  kazoo      WHERE is a ZooKeeper's HOST:PORT
"""
import fcntl
import sys
import time


def flock(where, name):
    file = open(name, "w")
    return lambda: fcntl.flock(file, fcntl.LOCK_EX), lambda: fcntl.flock(file, fcntl.LOCK_UN)


def redis_py(where, name):
    import redis
    lock = redis.Redis(unix_socket_path=where).lock(name, timeout=30)
    return lock.acquire, lock.release


def kazoo(where, name):
    import logging

    from kazoo.client import KazooClient
    logging.disable(logging.CRITICAL)
    client = KazooClient(hosts=where)
    client.start()
    lock = client.Lock("/" + name)
    return lock.acquire, lock.release


lock, unlock = {"flock": flock, "redis-py": redis_py, "kazoo": kazoo}[sys.argv[1]](*sys.argv[2:])
print("ready", flush=True)
for line in sys.stdin:
    word, *count = line.split()
    if word == "pair":
        samples = []
        for _ in range(int(count[0])):
            begin = time.monotonic_ns()
            lock()
            unlock()
            samples.append(time.monotonic_ns() - begin)
        print(*samples, flush=True)
    elif word == "lock":
        lock()
        print(time.monotonic_ns(), flush=True)
    elif word == "unlock":
        at = time.monotonic_ns()
        unlock()
        print(at, flush=True)
