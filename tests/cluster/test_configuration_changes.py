"""In whatever state the configuration file is, no lock is refused because of it, and no protected lock passes."""
import collections
import json
import os
import re
import subprocess
import threading

import pytest
from harness import wait_until, write_text

from editing import LEASE, flock, works, read, write, holder, settled
from keepers import wait_for_another

# Locks without an end: of a file that another host has, of one that is free, and of one that is not protected. Any other
# answer than these is counted: a refusal, and a lock on what another host has.
HAMMER = """
import collections, errno, fcntl, json, select, sys, time
seen = collections.Counter()
print("begun", flush=True)
ends = False
while not ends:  # once at least
    ends = select.select([0], [], [], 0.005)[0]
    for name in sys.argv[1:]:
        with open(name, "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                seen[name[-1] + " ok"] += 1
            except OSError as e:
                seen[name[-1] + " " + errno.errorcode[e.errno]] += 1
print(json.dumps(seen))
"""


STARTED = {"f EAGAIN", "h ok", "v ok"}  # by new programs
RIGHT = STARTED | {"g ok", "u ok"}


class Hammer:
    """In a program that runs all the time, and in new ones."""

    def __init__(self, host):
        self.host = host
        self.running = host.popen("/usr/bin/python3", "-c", HAMMER, *map(host.path, "fgu"), stdin=subprocess.PIPE)
        assert self.running.stdout.readline() == "begun\n"
        self.starter = threading.Thread(target=self.start_programs)
        self.seen, self.ends = collections.Counter(), threading.Event()
        self.starter.start()

    def start_programs(self):
        while not self.ends.wait(0.02):  # leaves the machine to the others
            for name in "fhv":
                status, said = flock(self.host, name)
                self.seen[name + {0: " ok", 1: " EAGAIN"}.get(status, said)] += 1

    def wrong(self):
        return set(self.seen) - RIGHT

    def met(self):
        """Waits until programs that began later than now have locked."""
        before = dict(self.seen)
        wait_until(lambda: self.wrong() or all(self.seen[what] > before.get(what, 0) for what in STARTED), "programs have locked")

    def end(self):
        """Ends the programs; returns what they saw, and how often."""
        self.ends.set()
        self.starter.join()
        said, complaints = self.running.communicate(timeout=60)
        assert complaints == ""
        return self.seen + collections.Counter(json.loads(said))


def in_place(host, text, met=lambda: None):
    """An editor that truncates the file and writes it piece by piece. met: what it waits for after each."""
    with open(host.config, "w") as f:
        for at in range(0, len(text), 40):
            f.write(text[at:at + 40])
            f.flush()
            met()


def like_vim(host, text, met):
    os.rename(host.config, host.config + "~")
    met()
    write_text(host.config, text)
    os.unlink(host.config + "~")


def run(*words):
    subprocess.run(words, check=True)


def emptied(host, text, met):
    with open(host.config, "w"):
        pass


CHANGES = {
    "touch": (lambda host, text, met: run("touch", host.config), "same"),
    "chmod": (lambda host, text, met: os.chmod(host.config, 0o600), "same"),
    "cp": (lambda host, text, met: (run("cp", host.config, host.config + ".copy"), run("cp", host.config + ".copy", host.config)), "same"),
    "mv": (lambda host, text, met: (run("cp", host.config, host.config + ".copy"), run("mv", host.config + ".copy", host.config)), "same"),
    "sed -i": (lambda host, text, met: run("sed", "-i", "1i // a comment", host.config), "same"),
    "in place": (lambda host, text, met: in_place(host, text), "same"),
    "slowly": (lambda host, text, met: in_place(host, text + "// more\n", met), "same"),
    "like vim": (lambda host, text, met: like_vim(host, text + "// of vim\n", met), "same"),
    "more rules": (lambda host, text, met: write(host, text.replace("protect = (", 'protect = ( { path = "/nowhere"; },')), "same"),
    "a rule gone": (lambda host, text, met: write(host, re.sub(r"\{ path[^}]*/f[^}]*\},", "", text)), "waits"),
    "another name": (lambda host, text, met: write(host, text.replace('name = "f"', 'name = "x"')), "waits"),
    "a tree in front": (lambda host, text, met: write(host, text.replace("protect = (", f'protect = ( {{ tree = "{host.files}"; name = "t"; }},')),
                        "waits"),
    "another ttl": (lambda host, text, met: write(host, text.replace("20000", "30000")), "stop"),
    "empty": (emptied, "waits"),
    "invalid": (lambda host, text, met: write(host, text + "colour = 7;\n"), "invalid"),
    "half": (lambda host, text, met: in_place(host, text[:len(text) - 20]), "invalid"),
    "missing": (lambda host, text, met: os.unlink(host.config), "missing"),
    "a directory": (lambda host, text, met: (os.unlink(host.config), os.mkdir(host.config)), "invalid"),
}
THREE = '{ path = "%s/f"; name = "f"; }, { path = "%s/g"; name = "g"; }, { path = "%s/h"; name = "h"; }'
KILLED = {0: CHANGES, 1: ["cp", "slowly", "a rule gone", "empty", "invalid", "missing"], 2: ["slowly", "invalid", "missing"]}


@pytest.mark.long
@pytest.mark.parametrize("killed", KILLED, ids=["keeper-stays", "keeper-killed", "parent-killed"])
def test_no_state_refuses_or_lets_pass(make_host, killed):
    """While it changes, after that, and when it is put back. killed: then the keeper is, or also its parent."""
    b = make_host("b", lease=LEASE, rules=THREE)
    a = make_host("a", lease=LEASE, rules=THREE, foreground=False)
    held, text = holder(b, "f"), read(a)
    assert works(a, "g")
    for change in KILLED[killed]:
        how, state = CHANGES[change]
        hammer = Hammer(a)
        how(a, text, hammer.met)
        settled(a, state)
        if killed:
            pids = a.keeper_pids()
            a.kill(pids[-killed:])
            wait_for_another(a, pids[1])  # the killed one may still take connections: it has not run since
            settled(a, state)
        if os.path.isdir(a.config):
            os.rmdir(a.config)
        write(a, text)
        if change == "more rules":  # a rule less
            settled(a, "waits")
            a.cli("reload")
        settled(a, "same")
        wait_until(lambda: min(hammer.seen[what] for what in STARTED) >= 3 or hammer.wrong(), "some were started")
        seen = hammer.end()
        assert set(seen) == RIGHT, (change, seen)
    held.end()
    assert works(a)
