#!/usr/bin/python3
"""plot.py [JSON [SVG]]: draws what the store's scripts cost by the ranges of a name, from what run.py has measured."""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SHOWN = ["acquire, granted", "acquire, queued behind all, who are told", "release, nobody waits", "release, one of many waits for it",
         "release, handed over to all others", "shrink, nobody waits", "confirm", "beat"]
SETTINGS = """
set terminal svg size 900,430 font "sans,13" background rgb "white"
set logscale xy
set xlabel "ranges of the lock name, leased or waited for"
set ylabel "microseconds of the server per call"
set xrange [0.8:1300]
set yrange [5:20000]
set key outside right center reverse Left samplen 2
set linetype 5 linecolor rgb "#b8860b"
set grid
"""


def main():
    source = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../build/bench.json")
    target = sys.argv[2] if len(sys.argv) > 2 else os.path.join(HERE, "../docs/ranges.svg")
    with open(source) as f:
        rows = {row["title"]: row["us"] for row in json.load(f)["growth"]}
    blocks, lines = [], []
    for i, title in enumerate(SHOWN):
        blocks.append("$row%d << end\n%s\nend\n" % (i, "\n".join("%s %s" % point for point in rows[title].items())))
        lines.append('$row%d with linespoints linewidth 1.5 pointtype 7 pointsize 0.5 title "%s"' % (i, title))
    lines.append('[10:1000] 2.2 * x with lines dashtype 2 linecolor rgb "grey40" title "in proportion"')
    subprocess.run(["gnuplot"], input=SETTINGS + "set output %s\n" % json.dumps(target) + "".join(blocks) + "plot " + ", ".join(lines),
                   text=True, check=True)


if __name__ == "__main__":
    main()
