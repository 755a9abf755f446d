#!/usr/bin/env python3
"""
replay.py LIVES: can the model of the table of leases (table.pml) do what the sources did?

LIVES: what `sim --lives FILE` has written: the life of a slot a line, a letter for each store and each death of a keeper. For each life, spin
searches for a way of the model to do these steps in this order, and no others of their kinds. Prints what the model cannot do, and how far
it gets.
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = 20000  # of letters in one search


def header(lives):
    """lives.h: the letters, each life with a 0 behind it."""
    begins, text, at = [], [], 0
    for life in lives:
        begins.append(at)
        text.append(f'"{life}\\0"')
        at += len(life) + 1
    assert at < BYTES, "too many lives for one search"
    return f"""#ifndef LIVES_H
#define LIVES_H
#include <stdio.h>
#define LIVES {len(lives)}
static const char lives[] = {" ".join(text)};
static const short lives_begin[] = {{{", ".join(map(str, begins))}}};
static short lives_best[LIVES];
static void lives_reached(int life, int at)
{{
	if (at > lives_best[life]) {{
		lives_best[life] = at;
		printf("reached %d %d\\n", life, at - lives_begin[life]);
	}}
}}
#endif
"""


def replay(lives, *flags):
    """How many letters of each life the model can do."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "lives.h"), "w") as f:
            f.write(header(lives))
        model = os.path.join(HERE, "table.pml")
        for command in (["spin", "-a", "-DREPLAY", *flags, model],
                        ["gcc", "-O1", "-w", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=1900", "-DVECTORSZ=512", "-o", "pan", "pan.c"]):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(done.stdout + done.stderr)
        # Errors of the model are for check.sh to find.
        done = subprocess.run(["./pan", "-n", "-m5000000", "-w24", "-c0"], cwd=folder, capture_output=True, text=True)
    if re.search("max search depth too small|out of memory|truncated", done.stdout):
        sys.exit("not searched through:\n" + done.stdout[-1000:])
    reached = [0] * len(lives)
    for life, letters in re.findall(r"^reached (\d+) (\d+)$", done.stdout, re.M):
        reached[int(life)] = max(reached[int(life)], int(letters))
    return reached


def main():
    with open(sys.argv[1]) as f:
        lives = sorted(set(f.read().split()))
    if not lives:
        sys.exit(f"{sys.argv[1]}: no life")
    wrong = 0
    for life, reached in zip(lives, replay(lives, *sys.argv[2:])):
        if reached < len(life):
            wrong += 1
            print(f"the model cannot do {life}: after {life[:reached]}, not {life[reached]}")
    print(f"{len(lives)} different lives, {wrong} that the model cannot do")
    sys.exit(1 if wrong else 0)


main()
