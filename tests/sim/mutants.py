#!/usr/bin/python3
"""Shows that the simulator can fail: builds the product with one mistake at a time, and each must be found out.

usage: mutants.py BUILD [NAME...]   (without names: all but the rare ones; "list" shows all)
"""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness.mistakes import RARE, SIMULATOR  # noqa: E402
from harness.mutants import mutant  # noqa: E402

COUNT = 6000 # schedules, and not more than so many seconds
SECONDS = 300
CONTROL = 200, 60  # so much of the product itself, which must not fail


def simulate(build, count, seconds):
    return subprocess.run(["setpriv", "--pdeathsig", "TERM", os.path.join(build, "tests/sim/sim"), "--count", str(count),
                           "--seconds", str(seconds), "--failures", "1"], stdout=subprocess.PIPE, text=True)


def is_found_out(name, build):
    with mutant(SIMULATOR[name], build, "tests/sim/sim", more=["tests/sim", "tests/unit"]) as made:
        begin = time.monotonic()
        run = simulate(made, COUNT, SECONDS)
        said = [line for line in run.stdout.splitlines() if line.startswith("seed")]
        print(f"{'found' if run.returncode == 1 else 'NOT FOUND'} in {time.monotonic() - begin:.0f} s: {name}: {said[0] if said else ''}", flush=True)
        return run.returncode == 1


def main():
    build, names = os.path.abspath(sys.argv[1]), sys.argv[2:] or [name for name in SIMULATOR if name not in RARE]
    if names == ["list"]:
        print("\n".join(SIMULATOR))
        return 0
    if simulate(build, *CONTROL).returncode != 0:
        print("the product itself fails: no mistake would be found out by that")
        return 1
    missed = [name for name in names if not is_found_out(name, build)]
    if missed:
        print("not found out:", ", ".join(missed))
    return 1 if missed else 0


sys.exit(main())
