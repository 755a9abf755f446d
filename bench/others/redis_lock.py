#!/usr/bin/python3
"""redis_lock.py SOCKET NAME SECONDS JOB...: runs JOB under a lock of redis-py that lasts for so long (timeout=SECONDS)."""
import subprocess
import sys

import redis

where, name, seconds, *job = sys.argv[1:]
lock = redis.Redis(unix_socket_path=where).lock(name, timeout=float(seconds))
lock.acquire()
subprocess.run(job, check=True)
lock.release()
