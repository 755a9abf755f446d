"""
Builds the product with a mistake in it. A test that must find mistakes shows with such builds that it can.

A place where a mistake can be made carries a marker: a comment "mutant: NAME" at the end of the line, or alone on the line before. So
the code may be moved, renamed and rewritten without a change here. A mistake is a list of changes, each at one marker; mistakes.py has
them. What a change means:

    skip("m")               the statement is left out
    become("m", text)       the statement is another one
    before("m", text)       text is done before the statement
    after("m", text)        text is done after the statement
    condition("m", text)    the condition of the if (or while) is another one
    put("m", old, new)      within the statement or condition, new takes the place of old, which is there once

The statement is what ends at the marker, without the if or for in front of it; in an initialiser, one element. In Lua it is the line.
"""
import atexit
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections import namedtuple

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCES = ("wire", "procfs", "config", "tls", "store", "keeper", "shim", "net")
MARKER = re.compile(r"[ \t]*(?:/\* mutant: ([a-z-]+) \*/|-- mutant: ([a-z-]+))")

Change = namedtuple("Change", "marker how text old", defaults=(None,))


def skip(marker):
    return Change(marker, "become", ";")


def become(marker, text):
    return Change(marker, "become", text)


def before(marker, text):
    return Change(marker, "before", text)


def after(marker, text):
    return Change(marker, "after", text)


def condition(marker, text):
    return Change(marker, "condition", text)


def put(marker, old, new):
    return Change(marker, "put", new, old)


class Broken(Exception):
    """A marker or a change does not fit the sources."""


def markers(root=ROOT):
    """Marker -> path of its file below root. A marker that stands twice is an error."""
    found = {}
    for source in SOURCES:
        for folder, _, names in os.walk(os.path.join(root, source)):
            for path in (os.path.join(folder, name) for name in names if name.endswith((".c", ".h", ".lua"))):
                with open(path) as f:
                    for m in MARKER.finditer(f.read()):
                        name = m[1] or m[2]
                        if name in found:
                            raise Broken(f'the marker "mutant: {name}" is in {found[name]} and in {os.path.relpath(path, root)}')
                        found[name] = os.path.relpath(path, root)
    return found


# --- where in the text ---

def blank(text):
    """The text with spaces in place of what is in comments and strings, so that brackets and semicolons are code."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def opening(code, at):
    """Where the bracket opens that closes at `at`."""
    depth = 0
    for i in range(at, -1, -1):
        depth += (code[i] in ")]}") - (code[i] in "([{")
        if depth == 0:
            return i
    raise Broken("brackets do not match")


def is_head(code, start):
    """Is the bracket that opens here that of an if, a for, or a macro that is one?"""
    return re.search(r"\b(if|while|for|switch|[A-Z_]{3,}[A-Z_0-9]*)\s*$", code[:start]) is not None


def statement(code, end):
    """(begin, end) of the statement, element, or condition in brackets whose last character is at end - 1."""
    last = code[end - 1]
    if last == "{":
        end = len(code[:end - 1].rstrip())
        last = code[end - 1]
    if last == ")":
        return opening(code, end - 1), end
    if last not in ";,":
        raise Broken("no statement ends here")
    i = end - 2
    while i >= 0:
        c = code[i]
        rest = code[i + 1:end].lstrip()
        if c in ";{" or c == "," and last == ",":
            break
        if c == "}" and rest[:1] not in (";", ",", ")"):
            break
        if c in ")]}":
            start = opening(code, i)
            if c == ")" and is_head(code, start) and re.match(r"[\w*(]", rest):
                break
            i = start
        elif re.search(r"\b(else|do)$", code[:i + 1]) and not re.match(r"\w", code[i + 1:i + 2]):
            break
        i -= 1
    begin = i + 1
    return begin + len(code[begin:end]) - len(code[begin:end].lstrip()), end


def following(code, at):
    """The end of the statement or condition that begins after `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth == 0 and code[i] in ";," or depth == 1 and code[i] == "{" and code[at:i].rstrip().endswith(")"):
            return i + 1
        if depth == 0 and code[i] == ")" and is_head(code, opening(code, i)):
            return i + 1
    raise Broken("no statement follows")


def place_in_c(text, m):
    code = blank(text)
    alone = text[:m.start()].rstrip(" \t").endswith("\n")
    return statement(code, following(code, m.end()) if alone else len(code[:m.start()].rstrip()))


def place_in_lua(text, m):
    start, end = text.rfind("\n", 0, m.start() + 1) + 1, m.start()
    if not text[start:end].strip(): # alone: the line that follows
        start = text.index("\n", m.end()) + 1
        end = text.index("\n", start)
    return start, end


def place(text, marker):
    for m in MARKER.finditer(text):
        if marker in m.groups():
            return (place_in_lua if m[2] else place_in_c)(text, m)
    raise Broken(f'no marker "mutant: {marker}"')


def changed(text, change):
    begin, end = place(text, change.marker)
    good = text[begin:end]
    if change.how == "become":
        bad = change.text
    elif change.how == "before":
        bad = f"{change.text} {good}"
    elif change.how == "after":
        bad = f"{good} {change.text}"
    elif change.how == "put":
        if good.count(change.old) != 1:
            raise Broken(f'"mutant: {change.marker}": {change.old!r} is not there once, but {good!r}')
        bad = good.replace(change.old, change.text)
    elif good.startswith("("):
        bad = f"({change.text})"
    else:
        bad, count = re.subn(r"\bif .* then\b", lambda _: f"if {change.text} then", good)
        if count != 1:
            raise Broken(f'"mutant: {change.marker}": no condition, but {good!r}')
    return text[:begin] + bad + text[end:]


def texts(changes, root=ROOT):
    """Path -> text of what these changes make of the sources."""
    where, made = markers(root), {}
    for change in changes:
        path = where.get(change.marker)
        if not path:
            raise Broken(f'no source has the marker "mutant: {change.marker}"')
        if path not in made:
            with open(os.path.join(root, path)) as f:
                made[path] = f.read()
        made[path] = changed(made[path], change)
    return made


# --- building it ---

_idle = {}  # build -> folders that no mutant uses now


@atexit.register
def forget():
    """Removes these folders. A worker of pytest ends without atexit: conftest.py."""
    for folder in (folder for folders in _idle.values() for folder in folders):
        shutil.rmtree(folder)
    _idle.clear()


def write_sources(folder, entries, changes):
    """The sources in the folder are those of ROOT with these changes. What is the same already stays as old as it is, so make
    builds only what the last mistake and this one are in."""
    wanted = texts(changes)
    for entry in entries:
        top = os.path.join(ROOT, entry)
        for place, _, names in os.walk(top) if os.path.isdir(top) else ((ROOT, (), [entry]),):
            os.makedirs(os.path.join(folder, os.path.relpath(place, ROOT)), exist_ok=True)
            for path in (os.path.relpath(os.path.join(place, name), ROOT) for name in names):
                with open(os.path.join(ROOT, path), "rb") as f:
                    text = wanted[path].encode() if path in wanted else f.read()
                copy = os.path.join(folder, path)
                if not os.path.exists(copy):
                    shutil.copy2(os.path.join(ROOT, path), copy)
                with open(copy, "rb+") as f:
                    if f.read() != text:
                        f.seek(0)
                        f.truncate()
                        f.write(text)


def new_folder(build):
    """With what `build` has of the product. Not in /dev/shm, which may be noexec."""
    folder = tempfile.mkdtemp(prefix="dflock-mutant-")
    os.chmod(folder, 0o755)  # other users start its programs, too
    leave = shutil.ignore_patterns("unit", "bench", "agents", "interpose", "preload", "pytest", "reports", "logs", "musl", "pycache")
    shutil.copytree(build, os.path.join(folder, "build"), ignore=leave)
    return folder


@contextlib.contextmanager
def mutant(changes, build, *targets, more=()):
    """A folder with these parts of the product ("dflockd", ...), built with the changes from the sources and from what `build` has
    of them already; more: folders that these targets need besides. The next mutant has it afterwards."""
    idle = _idle.setdefault(build, [])
    folder = idle.pop() if idle else new_folder(build)
    try:
        write_sources(folder, ("Makefile", "VERSION", *SOURCES, *more), changes)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))} | {"CFLAGS": "-O0"}  # it runs once
        run = subprocess.run(["make", "-s", "-C", folder, "BUILD=build", "WARN=", *(f"build/{t}" for t in targets)], env=env,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode != 0:
            raise Broken(f"the mistake does not compile:\n{run.stdout}")
        yield os.path.join(folder, "build")
    finally:
        idle.append(folder)
