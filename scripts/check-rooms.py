#!/usr/bin/env python3
"""
What stands where, and what it may use. Says all that is wrong, and ends with 1 if anything is.

- Directions: each room (folder) includes and calls only what its README.md, or the table below, allows.
- Circles: no files of a room or of the keeper call each other in a circle.
- Names: a function, a struct or an enum is defined once in a program, whether static or not.

Calls are taken from the objects in DFLOCK_BUILD (build), so the tree must have been built; all else from the sources.
"""
import collections
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("DFLOCK_BUILD", "build")
# Rooms outside of the keeper; the keeper's say it themselves: "May call: `rules`, `store`." in keeper/ROOM/README.md, and
# "Uses the types of: `store`." where a header is included for its types alone.
MAY_CALL = {
    "wire": [], "procfs": ["wire"], "config": ["wire"], "tls": ["config", "wire"], "store": ["config", "wire"],
    "store/redis": ["store", "tls", "config", "wire"], "store/replay": ["store", "config", "wire"],
    "store/postgresql": ["store", "store/replay", "config", "wire"],
    "store/zookeeper": ["store", "store/replay", "config", "wire"],
    "shim": ["wire"], "cli": ["tls", "config", "procfs", "wire"], "net": ["shim", "procfs", "wire"],
    # Puts the rooms together.
    "keeper": ["keeper/*", "store", "config", "procfs", "wire"],
}
# An engine of the store: a struct of functions by which a file of store/ reaches the rooms that may call store/.
ENGINE = re.compile(r"^\w+_engine$")
# Files of the keeper that every room but rules may use.
COMMON = {"keeper/array", "keeper/clock", "keeper/log"}
PROGRAMS = {
    "dflockd": ["keeper", "keeper/*", "store", "store/*", "tls", "config", "procfs", "wire"],
    "dflock": ["cli", "tls", "config", "procfs", "wire"],
    "libdflock.so": ["shim", "wire"],
    "dflock-net": ["net", "shim", "procfs", "wire"],
}
# Files of these rooms that are not in the program, where it has others with the same functions.
REPLACED = {"dflock-net": {"shim/abandoned.c", "shim/note_out.c"}}
DEFINED = re.compile(r"^(?!static const|typedef|extern|return|else)[a-z][\w \t*]*?[ *](?!__attribute__)(\w+)\([^;{}]*\)\n\{", re.M)
TYPES = re.compile(r"^(struct|enum|union) (\w+) \{", re.M)

wrongs = []


def wrong(text):
    wrongs.append(text)


def read(path):
    with open(path) as f:
        return f.read()


def room_of(path):
    """"keeper/kernel/probe.c" -> "keeper/kernel"; a path without its folder is its own room."""
    return os.path.dirname(path)


def module_of(path):
    return os.path.splitext(path)[0]


def sources():
    return sorted(path for folder in ("wire", "procfs", "config", "tls", "store", "store/*", "shim", "cli", "net", "keeper", "keeper/*")
                  for path in glob.glob(folder + "/*.[ch]"))


def named(line):
    return [name if name in MAY_CALL else "keeper/" + name for name in re.findall(r"`([\w/]+)`", line[1])] if line else []


def directions():
    """Room -> the rooms that it may call; and those whose headers it may include."""
    call = {room: list(others) for room, others in MAY_CALL.items()}
    include = {room: list(others) for room, others in MAY_CALL.items()}
    for folder in sorted(glob.glob("keeper/*/")):
        room = folder.rstrip("/")
        readme = os.path.join(room, "README.md")
        text = read(readme) if os.path.exists(readme) else ""
        line = re.search(r"^May call: (.*)\.$", text, re.M)
        if not line:
            wrong(f"{readme}: must say what the room may call, in a line like: May call: `rules`, `store`.")
        call[room] = named(line)
        include[room] = call[room] + named(re.search(r"^Uses the types of: (.*)\.$", text, re.M))
    return call, include


def allowed(may, room, path):
    other, module = room_of(path), module_of(path)
    if other == room or (module in COMMON and room.startswith("keeper") and room != "keeper/rules"):
        return True
    return any(other == name or (name.endswith("/*") and other.startswith(name[:-1])) for name in may[room])


def check_includes(may, paths):
    for path in paths:
        for name in re.findall(r'^#include "([^"]+)"', read(path), re.M):
            if os.path.exists(name) and not allowed(may, room_of(path), name):
                wrong(f"{path}: includes {name}: {room_of(path)} may not use {room_of(name)}")


def symbols(module):
    """What an object defines and what it lacks."""
    defined, lacking = set(), set()
    said = subprocess.run(["nm", os.path.join(BUILD, module + ".o")], capture_output=True, text=True, check=True).stdout
    for line in said.splitlines():
        kind, name = line.split()[-2:]
        if kind == "U":
            lacking.add(name)
        elif kind in "TDBRVW":
            defined.add(name)
    return defined, lacking


def calls(modules):
    """Module -> {the module that it calls: names}."""
    known = {module: symbols(module) for module in modules if os.path.exists(os.path.join(BUILD, module + ".o"))}
    if not known:
        sys.exit(f"check-rooms: nothing was built in {BUILD}")
    home = {name: module for module, (defined, _) in known.items() for name in defined}
    graph = {}
    for module, (_, lacking) in known.items():
        graph[module] = collections.defaultdict(list)
        for name in sorted(lacking & home.keys()):
            if home[name] != module:
                graph[module][home[name]].append(name)
    return graph


def check_calls(may, graph):
    for module, others in graph.items():
        for other, names in others.items():
            names = [name for name in names if room_of(module) != "store" or not ENGINE.match(name)]
            if names and not allowed(may, room_of(module), other + ".c"):
                wrong(f"{module}.c: calls {', '.join(names)} of {other}.c: {room_of(module)} may not use {room_of(other)}")


def circles(graph):
    """The sets of modules that call each other in a circle (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            circle = set()
            while module not in circle:
                circle.add(stack.pop())
            if len(circle) > 1:
                found.append(circle)

    sys.setrecursionlimit(10000)
    for module in graph:
        if module not in index:
            visit(module)
    return found


def check_circles(graph):
    for circle in circles(graph):
        wrong(f"{len(circle)} files call each other in a circle:")
        for module in sorted(circle):
            for other in sorted(circle & graph[module].keys()):
                wrong(f"    {module}.c calls {', '.join(graph[module][other])} of {other}.c")


def check_names(paths):
    for program, rooms in PROGRAMS.items():
        functions, types = collections.defaultdict(set), collections.defaultdict(set)
        for path in paths:
            if not any(room_of(path) == room or (room.endswith("/*") and room_of(path).startswith(room[:-1]))
                       for room in rooms):
                continue
            if path in REPLACED.get(program, ()):
                continue
            text = read(path)
            if path.endswith(".c"):
                for name in DEFINED.findall(text):
                    functions[name].add(path)
            for kind, name in TYPES.findall(text):
                types[f"{kind} {name}"].add(path)
        functions.pop("main", None)
        for name, where in sorted({**functions, **types}.items()):
            if len(where) > 1:
                wrong(f"{program}: {name} is defined in {' and in '.join(sorted(where))}")


def main():
    os.chdir(ROOT)
    paths = sources()
    call, include = directions()
    graph = calls(sorted({module_of(path) for path in paths if path.endswith(".c") and room_of(path) != "shim"}))
    check_includes(include, paths)
    check_calls(call, graph)
    check_circles(graph)
    check_names(paths)
    for line in wrongs:
        print(f"check-rooms: {line}", file=sys.stderr)
    if wrongs:
        sys.exit(1)
    print("every file keeps to its room's directions, no circle, no name twice")


main()
