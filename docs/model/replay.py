#!/usr/bin/env python3
"""
replay.py LIVES: can the models do what the sources did?

LIVES: what `sim --lives FILE` has written: a model and a life a line. A life of `table` (table.pml) is that of a slot of the table of leases, one
of `net` (net.pml) is that of a thread whose calls are caught; tests/sim/lives.c says what its letters stand for. For each life, spin searches for
a way of the model to do these steps in this order, and no others of their kinds. Prints what a model cannot do, and how far it gets.
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

# The search ends where all of the life was done. Errors of the model are for check.sh to find.
HEADER = """
#ifndef LIVES_H
#define LIVES_H
#include <stdio.h>
#include <stdlib.h>
static int lives_letter(int at)
{
	static const char *life;

	if (!life)
		life = getenv("LIFE");
	return life[at];
}
static int lives_step(int at)
{
	static int best;

	if (++at > best)
		printf("reached %d\\n", best = at);
	if (!lives_letter(at))
		exit(0);
	return at;
}
#endif
"""


def replay(model, lives, *flags):
    """How many letters of each life the model can do."""
    reached = []
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "lives.h"), "w") as f:
            f.write(HEADER)
        for command in (["spin", "-a", "-DREPLAY", *flags, os.path.join(HERE, model + ".pml")],
                        ["gcc", "-O1", "-w", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=1900", "-DVECTORSZ=512", "-o", "pan", "pan.c"]):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(done.stdout + done.stderr)
        for life in lives:
            done = subprocess.run(["./pan", "-n", "-m1000000", "-w20", "-c0"], cwd=folder, capture_output=True, text=True,
                                  env={**os.environ, "LIFE": life})
            reached.append(max(map(int, re.findall(r"^reached (\d+)$", done.stdout, re.M)), default=0))
            if reached[-1] < len(life) and re.search("max search depth too small|out of memory|truncated", done.stdout):
                sys.exit(f"{model} {life}: not searched through:\n" + done.stdout[-1000:])
    return reached


def main():
    with open(sys.argv[1]) as f:
        told = sorted({tuple(line.split()) for line in f})
    if not told:
        sys.exit(f"{sys.argv[1]}: no life")
    wrong = 0
    for model in sorted({model for model, _ in told}):
        lives = [life for m, life in told if m == model]
        for life, reached in zip(lives, replay(model, lives, *sys.argv[2:])):
            if reached < len(life):
                wrong += 1
                print(f"the model cannot do {model} {life}: after {life[:reached]}, not {life[reached]}")
    print(f"{len(told)} different lives, {wrong} that the models cannot do")
    sys.exit(1 if wrong else 0)


main()
