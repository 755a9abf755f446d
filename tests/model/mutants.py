"""Keepers with a mistake, built from the sources with one line changed. The model test must find each of them out."""
import os
import re
import shutil
import subprocess

from harness import BUILD
from harness.host import ROOT

# name -> file, what is replaced, by what
MUTANTS = {
    "grants everything": ("keeper/callers/serve.c", r"\tqueue_tell\(w, WAITER_SERVE\);\n}",
                          "\ts->state = SESSION_PINNED;\n\tsession_grant(s, clock_now_ns() + NS_PER_MS * 1000, 1);\n}"),
    "gives back what is in use": ("keeper/kernel/probe.c", r"if \(lock.l_type == F_UNLCK\)\n\t\treturn 1;", "return 1;"),
    "thinks that shared and exclusive get along": ("store/lua/clashes.lua", r"a.mode == 'exclusive' or b.mode", "a.mode == 'exclusive' and b.mode"),
    "knows no deadlock": ("keeper/callers/deadlock.c", r"if \(!s->waiter\.lease \|\| ", "if (true || "),
    "does not see that only a part is wanted": ("keeper/leases/split.c", r"if \(lease->range.space != WIRE_RECORD", "if (true"),
    "gives EDEADLK to any call of a cycle": ("keeper/callers/deadlock.c", r"w->arrival != chase->youngest \|\|", "false ||"),
    "does not show locks of other hosts": ("keeper/callers/callers.c", r"would_block\(struct session \*s\)\n{",
                                           "would_block(struct session *s)\n{\n\tif (s->request.op == WIRE_TEST)\n"
                                           "\t\treturn session_reply(s, WIRE_GRANTED, NULL, -1);"),
    "lets nobody pass who waits": ("keeper/leases/requests.c", r"\.pass = !blocking .*,", ".pass = false && (passes || unfair),"),
    "waits for more than a downgrade": ("keeper/leases/probing.c", r"lease->recall_shared;", "lease->recall_shared && !lease->recall_exclusive;"),
}


def build(name, folder):
    """The path of a mutant's dflockd."""
    path, old, new = MUTANTS[name]
    for entry in ("Makefile", "VERSION", "wire", "config", "store", "keeper"):
        source = os.path.join(ROOT, entry)
        copy = shutil.copytree if os.path.isdir(source) else shutil.copy2
        copy(source, os.path.join(folder, entry))
    # Objects that are up to date need not be made again.
    shutil.copytree(BUILD, os.path.join(folder, "build"), ignore=shutil.ignore_patterns("tests", "unit", "bench", "pic"))
    with open(os.path.join(folder, path)) as f:
        text, count = re.subn(old, lambda _: new, f.read(), count=1)
    assert count == 1, f"{path} has no {old}: change the mutant"
    with open(os.path.join(folder, path), "w") as f:
        f.write(text)
    subprocess.run(["make", "-s", "-C", folder, "BUILD=build", "build/dflockd"], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(folder, "build", "dflockd")
