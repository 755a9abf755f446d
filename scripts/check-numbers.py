#!/usr/bin/env python3
"""
Numbers that documents share with the sources. Part of `make check-docs`.

- The table in docs/operating.md, "What ttl_ms costs": each cell is computed from the sources.
- The bounds of each number in the configuration: man/dflock.conf.5 says them.
"""
import glob
import os
import re
import sys

os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def number(path, pattern):
    """The numbers that the pattern finds in the file; it must stand there once."""
    with open(path) as f:
        found = re.findall(pattern, f.read())
    if len(found) != 1:
        sys.exit(f"check-numbers: {path}: {pattern!r} stands there {len(found)} times, and should once: see docs/operating.md")
    return [int(n) for n in (found[0] if isinstance(found[0], tuple) else found)]


DEADLINE = "keeper/leases/deadline.c"
up, down = number(DEADLINE, r"int64_t deadline = sent_ns \+ deadline_ttl_ns\(m->keeper\) \* (\d+) / (\d+);")
beats, = number(DEADLINE, r"int64_t third = m->keeper->config->lease\.ttl_ms / (\d+);")
asks, most_ms = number(DEADLINE, r"lease\.ttl_ms / (\d+);\n\n\treturn ms < 50 \? 50 : ms > (\d+)")
pings, = number("store/life.c", r"\(uint64_t\)s->ttl_ms / (\d+);")
margin, = number("config/config.c", r"lease->freeze_margin_ms = lease->ttl_ms / (\d+);")
retry_ms, = number("store/life.c", r"#define RETRY_MAX_MS (\d+)")

LEASE, BEAT, MARGIN = up / down, 1 / beats, 1 / margin
FIRST, LAST, KILLED = LEASE - MARGIN - BEAT, LEASE - MARGIN, LEASE - BEAT  # parts of ttl_ms


def seconds(value):
    return "%.1f" % value if value < 10 else "%.0f" % value


def row(ttl_ms):
    ttl = ttl_ms / 1000
    return [f"{seconds(FIRST * ttl)} s", f"{seconds(KILLED * ttl)} s", f"{seconds(FIRST * ttl)} to {seconds(LAST * ttl)} s", f"{seconds(ttl)} s",
            f"{seconds(ttl)} s", f"{(beats + pings) / ttl:.4g}/s"]


with open("docs/operating.md") as page:
    part, = re.findall(r"^## What ttl_ms costs\n(.*?)(?=^## )", page.read(), re.M | re.S)
rows = re.findall(r"^\| \**(\d+)\** \| (.*) \|$", part, re.M)
wrong = [] if rows else ["docs/operating.md: the table of what ttl_ms costs has no rows"]
for ttl_ms, cells in rows:
    if cells.split(" | ") != row(int(ttl_ms)):
        wrong.append(f"docs/operating.md: ttl_ms = {ttl_ms}: the sources say | " + " | ".join(row(int(ttl_ms))) + " |")
for text in (f"{FIRST:.1f} ", f"{KILLED:.2f} ", f"{LAST:.2f} ", f"tries at least every {retry_ms // 1000} seconds", f"at most {most_ms // 1000} s",
             {10: "a tenth of `ttl_ms`"}.get(asks, "?"), {6: "a sixth of `ttl_ms`"}.get(margin, "?")):
    if text not in part:
        wrong.append(f"docs/operating.md: what ttl_ms costs: {text!r} is missing")

# {"ttl_ms", SETTING_NUMBER, offsetof(struct config_lease, ttl_ms), .min = 100, .max = HOUR_MS},
text = "\n".join(open(path).read() for path in sorted(glob.glob("config/*.[ch]")))
names = dict(re.findall(r"#define (\w+) +(?:INT64_C\()?(\w+)", text))


def value(words):
    """Of a bound: a number, a name of one, or a product of these."""
    product = 1
    for word in words.split(" * "):
        while not word.isdigit():
            word = names[word]
        product *= int(word)
    return product


rows = re.findall(r'\{"(\w+)", SETTING_NUMBER, .*?, \.min = ([\w* ]+), \.max = ([\w* ]+)\},', text)
with open("man/dflock.conf.5") as page:
    items = {}
    for name, said in re.findall(r"^\.It Va (\w+) No = (.*?)(?=^\.It |^\.El|^\.S[hs] )", page.read(), re.M | re.S):
        items[name] = items.get(name, "") + said  # a setting may be in a group and in a rule
if len(rows) < 10:
    wrong.append("config/: the numbers of the configuration were not found")
for name, low, high in rows:
    for bound in (low, high):
        number = value(bound)
        if not re.search(rf"\b{number}\b", items.get(name, "")):
            wrong.append(f"man/dflock.conf.5: {name}: its bound {number} is missing")
print("\n".join(wrong) or "numbers are what the sources say")
sys.exit(bool(wrong))
