#!/usr/bin/python3
"""stamps.py FILE: a job that writes down when it ran: a line with CLOCK_MONOTONIC in ns, a hundred times a second, until it is killed."""
import sys
import time

with open(sys.argv[1], "a", buffering=1) as file:
    while True:
        file.write("%d\n" % time.monotonic_ns())
        time.sleep(0.01)
