#!/usr/bin/python3
"""
run.py [--json FILE] [MEASUREMENT...]: measures dflock and prints a table, every row beside its reference from the same
run. Standard error has a line for each measurement while it goes on. It judges nothing: a missed limit is shown, and the exit
status is 1 only if something could not be measured.
"""
import argparse
import os
import platform
import signal
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from bench import measurements, latency, steps, timeline, tls, rediskey, scaling, limits, comparison, lost, net, floor, report  # noqa: E402, F401 (the path comes first; in the order of the table)
from bench.lab import BUILD, CannotMeasure, Lab  # noqa: E402
from tests.harness import Deadline  # noqa: E402


# What a change of a lock call's way would show in, in two minutes at the most.
QUICK = ("getfl", "flock", "fcntl", "relock", "start", "first", "handover", "steps")


def processor():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":")[1].strip() for line in f if line.startswith("model name")), platform.machine())


def about(lab):
    with open(os.path.join(ROOT, "VERSION")) as f:
        version = f.read().strip()
    server = lab.redis().command("INFO", "server")
    return {"version": version, "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "processor": processor(), "processors": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "redis": next(line.split(":")[1] for line in server.splitlines() if line.startswith("redis_version")),
            "load": os.getloadavg()[0]}


def measure(lab, names):
    """(rows by measurement, what could not be measured and why)"""
    rows, failed = {}, {}
    for number, name in enumerate(names, 1):
        begin = time.monotonic()
        print("bench: %d of %d, %s: " % (number, len(names), name), end="", file=sys.stderr, flush=True)
        try:
            lab.settle()
            rows[name] = measurements.ALL[name](lab)
            print("%.1f s" % (time.monotonic() - begin), file=sys.stderr)
        except (CannotMeasure, Deadline, OSError, RuntimeError) as why:
            failed[name] = str(why)
            print("not measured: %s" % why, file=sys.stderr)
    return rows, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--json", default=os.path.join(BUILD, "bench.json"), help="where the numbers go (%(default)s)")
    parser.add_argument("names", nargs="*", metavar="MEASUREMENT", help="of " + ", ".join(measurements.ALL) + "; quick: " + ", ".join(QUICK) + " (without any: all)")
    options = parser.parse_args()
    names = [name for word in options.names for name in (QUICK if word == "quick" else [word])] or list(measurements.ALL)
    unknown = [n for n in names if n not in measurements.ALL]
    if unknown:
        parser.error("no such measurement: " + ", ".join(unknown))

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is stopped
    begin = time.monotonic()
    lab = Lab()
    try:
        facts = about(lab)
        rows, failed = measure(lab, names)
    finally:
        lab.close()
    facts["rounds_made_again"], facts["rounds_disturbed"] = measurements.again["rounds"], measurements.again["kept"]
    facts["seconds"] = round(time.monotonic() - begin, 1)
    print("dflock {version}, {processors} x {processor}, Linux {kernel}, Redis {redis}, load {load:.1f}, {seconds} s\n"
          "rounds made again because the reference was disturbed: {rounds_made_again}; disturbed all the same: {rounds_disturbed}\n"
          .format(**facts))
    print(report.text([row for some in rows.values() for row in some]))
    report.write_json(options.json, facts, rows, failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
