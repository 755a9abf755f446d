#!/usr/bin/python3
"""plot.py [JSON [FOLDER]]: draws the pictures of docs/performance.md from what run.py has measured; what was not measured is left as it is."""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = """
set terminal svg size 900,430 font "sans,13" background rgb "white"
set key outside right center reverse Left samplen 2
set linetype 5 linecolor rgb "#b8860b"
set grid
"""
RANGES = ["acquire, granted", "acquire, queued behind all, who are told", "release, nobody waits", "release, one of many waits for it",
          "release, handed over to all others", "shrink, nobody waits", "confirm", "beat"]


def block(i, points):
    return "$row%d << end\n%s\nend\n" % (i, "\n".join("%s %s" % point for point in points))


def draw(path, settings, lines, more=()):
    """lines: (title, points, options)."""
    if not lines:
        return
    blocks = [block(i, points) for i, (_, points, _) in enumerate(lines)]
    plots = ['$row%d %s with linespoints linewidth 1.5 pointtype 7 pointsize 0.5 title "%s"' % (i, options, title)
             for i, (title, _, options) in enumerate(lines)]
    subprocess.run(["gnuplot"], input=SETTINGS + settings + "set output %s\n" % json.dumps(path) + "".join(blocks) +
                   "plot " + ", ".join([*plots, *more]), text=True, check=True)
    print(path)


def columns(curves, title, wanted, options=""):
    """The lines of a curve's columns whose names begin with `wanted`."""
    points = curves.get(title, {}).get("points", {})
    names = dict.fromkeys(c for values in points.values() for c in values if c.startswith(wanted))
    return [(name, [(at, values[name]) for at, values in points.items() if name in values], options) for name in names]


AWAY_S = 22  # a host without the store for so long stops its holders (ttl_ms = 30000)
BEAT_S, LOOK_S = 10, 3600


def limits(curves):
    """How much of what one server has is used, in percent, by hosts that all have leases."""
    one, known = (curves.get(title, {}).get("points") for title in ("one store, by hosts", "one store, by the hosts that it knows"))
    if not one or not known:
        return []
    most, listed = max(one, key=int), max(known, key=int)
    connect, beat = one[most]["connected after, s"] / int(most), one[most]["beats, % of a processor"] / int(most)
    look = known[listed]["list of hosts, ms"] / int(listed) / 1000
    hosts = [round(10 ** (i / 10)) for i in range(30, 61)]
    return [("all connect again within %d s" % AWAY_S, [(n, n * connect / AWAY_S * 100) for n in hosts], ""),
            ("beats", [(n, n * beat) for n in hosts], ""),
            ("hosts that look for silent ones", [(n, n * n * look / LOOK_S / min(n // 1000 + 1, 12) * 100) for n in hosts], "")]


ROW, LEFT, WIDTH = 54, 100, 900


def box(x, y, width, height, color, title):
    return '<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>' % (x, y, max(width, 0.6), height, color, title)


def arrow(x, y, to, title):
    end = to - 4 if to > y else to + 4
    return ('<path d="M%.1f %d V%d" stroke="#c0392b" fill="none" marker-end="url(#head)"><title>%s</title></path>' % (x, y, end, title)
            if y != to else '<circle cx="%.1f" cy="%d" r="2.5" fill="#c0392b"><title>%s</title></circle>' % (x, y, title))


def timeline(path, row):
    """When each actor had a processor (light), in system calls (dark), and which wake-up let which actor go on (arrows)."""
    names, ns = row["actors"], row["ns"]
    scale = (WIDTH - LEFT - 20) / ns
    height = ROW * len(names) + 60
    at = {name: 14 + ROW * i for i, name in enumerate(names)}
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">' % (WIDTH, height),
           '<defs><marker id="head" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
           '<path d="M0 0L6 3L0 6z" fill="#c0392b"/></marker></defs><rect width="100%" height="100%" fill="white"/>']
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000) if ns / 1000 / s <= 12)
    for us in range(0, int(ns / 1000) + 1, step):
        x = LEFT + us * 1000 * scale
        out.append('<path d="M%.1f 8V%d" stroke="#dddddd"/><text x="%.1f" y="%d" text-anchor="middle">%d</text>' %
                   (x, height - 42, x, height - 26, us))
    out.append('<text x="%d" y="%d" text-anchor="end">microseconds; light: on a processor, dark: in a system call, arrows: wake-ups</text>' %
               (WIDTH - 20, height - 8))
    for name in names:
        out.append('<text x="8" y="%d">%s</text><path d="M%d %dH%d" stroke="#999999"/>' %
                   (at[name] + 24, name, LEFT, at[name] + 34, WIDTH - 20))
    for name, _, begin, end in row["spans"]:
        out.append(box(LEFT + begin * scale, at[name] + 6, (end - begin) * scale, 28, "#a9cce3", "%s: %.0f us" % (name, (end - begin) / 1000)))
    for name, _, begin, end, number in row["calls"]:
        for _, _, on, off in (span for span in row["spans"] if span[0] == name):
            a, b = max(begin, on), min(end, off)
            if a <= b:
                out.append(box(LEFT + a * scale, at[name] + 14, (b - a) * scale, 20, "#2471a3", "system call %d: %.0f us" %
                               (number, (end - begin) / 1000)))
    for name, _, woken, _, when in row["wakes"]:
        out.append(arrow(LEFT + when * scale, at.get(name, at[woken]) + 20, at[woken] + 20, "%s wakes %s" % (name, woken)))
    with open(path, "w") as f:
        f.write("\n".join([*out, "</svg>\n"]))
    print(path)


def main():
    source = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../build/bench.json")
    folder = sys.argv[2] if len(sys.argv) > 2 else os.path.join(HERE, "../docs")
    with open(source) as f:
        measured = json.load(f)
    growth = {row["title"]: row["us"] for row in measured["growth"]}
    curves = {row["title"]: row for row in measured["curves"]}

    def to(name):
        return os.path.join(folder, name + ".svg")

    for row in measured.get("timelines", []):
        timeline(to("steps-" + row["title"].split()[0]), row)
    draw(to("ranges"), """
set logscale xy
set xlabel "ranges of the lock name, leased or waited for"
set ylabel "microseconds of the server per call"
set xrange [0.8:1300]
set yrange [5:20000]
""", [(title, growth[title].items(), "") for title in RANGES if title in growth],
         ['[10:1000] 2.2 * x with lines dashtype 2 linecolor rgb "grey40" title "in proportion"'])
    draw(to("handover"), """
set logscale xy
set xlabel "hosts that wait"
set ylabel "hand-over, microseconds"
set xtics (2, 4, 8, 16, 32, 64)
set xrange [1.8:70]
""", columns(curves, "hand-over, by hosts that wait", ("median", "p99")))
    draw(to("hot"), """
set xlabel "min\\\\_hold\\\\_ms"
set ylabel "pairs per second of both hosts"
set y2label "longest wait, ms"
set logscale y
set ytics nomirror
set y2tics
set y2range [0:*]
""", columns(curves, "hot lock of two hosts, by min_hold_ms", "pairs/s") +
         columns(curves, "hot lock of two hosts, by min_hold_ms", "longest", "axes x1y2"))
    draw(to("hosts"), """
set xlabel "hosts that lock the same file in tight loops"
set ylabel "pairs per second of all hosts"
set y2label "longest wait, ms"
set logscale x
set xtics (1, 2, 4, 8)
set xrange [0.9:9]
set ytics nomirror
set y2tics
set yrange [0:*]
set y2range [0:*]
""", columns(curves, "hot lock, by hosts", "pairs/s") + columns(curves, "hot lock, by hosts", "longest", "axes x1y2"))
    draw(to("crowd"), """
set logscale xy
set xlabel "programs of one host, or hosts"
set ylabel "microseconds for one lock, or one program"
set xrange [0.9:1100]
""", [(title + ": " + name.split(",")[0], points, options) for title, of in
      (("one file", "crowd on one file, by programs"), ("a file each", "crowd on a file each, by programs"),
       ("hosts on one name", "crowd of hosts on one name, by hosts"))
      for name, points, options in columns(curves, of, "")])
    draw(to("load"), """
set logscale xy
set xlabel "leases that are held"
set ylabel "% of a core"
""", columns(curves, "load while leases are held", ""))
    draw(to("limits"), """
set logscale xy
set xlabel "hosts with leases in one server, or shard"
set ylabel "% of what the server has"
set yrange [1:1000]
""", limits(curves), ['100 with lines dashtype 2 linecolor rgb "grey40" title "its end"'])


if __name__ == "__main__":
    main()
