#!/usr/bin/python3
"""Shows that the simulator can fail: builds the product with one mistake at a time, and each must be found out.

usage: mutants.py BUILD [NAME...]   (without names: all but the rare ones; "list" shows all)
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COUNT = 6000 # schedules, and not more than so many seconds
SECONDS = 300

# name -> file, what is replaced (a pattern), by what, ...
MUTANTS = {
    "deadline counted from the answer": ("keeper/leases/host.c", r"int64_t deadline = sent_ns \+", "int64_t deadline = clock_now_ns() +"),
    "deadline twice as long": ("keeper/leases/host.c", r"int64_t deadline = sent_ns \+ host_ttl_ns\(k\) \* 9 / 10", "int64_t deadline = sent_ns + host_ttl_ns(k) * 2"),
    "silent for half a ttl counts as dead": ("keeper/rules/watch.c", r"w->first_ns \+ watch->ttl_ns", "w->first_ns + watch->ttl_ns / 2"),
    "whoever is named dead is": ("store/lua/acquire.lua", r"beat_of\(ARGV\[i\]\) == ARGV\[i \+ 1\] or nil", "true or nil"),
    "a lost memory begins without grace": ("store/lua/store.lua", r"t\[2\], '0'", "t[2], '1'"),
    "grace is over at once": ("keeper/leases/grace.c", r"return left < 0 \? 0 : left / NS_PER_MS", "return left < 0 ? 0 : 0"),
    "FLUSHALL is not another incarnation": ("store/lua/store.lua", r" \.\. '-' \.\. t\[1\] \.\. '-' \.\. t\[2\]", " .. '-'"),
    "a lease that goes back stays in the table": ("keeper/rules/lease.c", r"RELEASE \(LEASE_DO_RETURN \| LEASE_DO_RELEASE\)", "RELEASE (LEASE_DO_RELEASE)"),
    "a grant is not written into the table": ("keeper/leases/requests.c", r"table_grant\(k->table, lease->slot, lease->fence, &lease->range, &file\);", "(void)file;"),
    "shrunk, but exclusive in the table": ("keeper/leases/act.c", r"\ttable_share\(lease_keeper\(lease\)->table, lease->slot\);", ""),
    "what goes back may open again": ("keeper/guard/table_earlier.c", r"return state == TABLE_ASKED \|\| state == TABLE_RETURNED;", "return state == TABLE_ASKED;",
                                      r"state == TABLE_HELD \|\| state == TABLE_UNSURE\)\n\t\t\t\*damaged", "state == TABLE_HELD || state == TABLE_UNSURE || state == TABLE_RETURNED)\n\t\t\t*damaged"),
    "what a dead keeper asked for is not given back": ("keeper/guard/table_earlier.c", r"if \(!is_known\(t, slot, &text\) \|\| !tell\(t, slot, &text, cb, arg\)\)", "if (0)"),
    "pins are not waited for": ("keeper/leases/act.c", r"LEASE_DRAINING &&\s+!serve_is_pinned\(lease->lock, &lease->range\)\)", "LEASE_DRAINING)"),
    "pins of a dead keeper are forgotten": ("keeper/keeper.c", r"k->old_pins_until_ns = table_pins_until\(", "k->old_pins_until_ns = 0 * table_pins_until("),
    "what the kernel says is not waited for": ("keeper/rules/lease.c", r"\[LEASE_EV_IN_USE\] = STEP\(WAITING, LEASE_DO_TELL_IN_USE \| LEASE_DO_SERVE\)", "[LEASE_EV_IN_USE] = STEP(RELEASING, RELEASE)"),
    "callers are granted while the kernel is asked": ("keeper/callers/serve.c", r"if \(lease->state == LEASE_DRAINING\)", "if (lease->state != LEASE_RELEASING)",
                                                      r"if \(!lock_stop_probes\(s->lock, &range\)\)", "if (0)"),
    "a lease is closed after the kernel was asked": ("keeper/rules/lease.c", r"LEASE_EV_LINGERED\] = STEP\(DRAINING, LEASE_DO_CLOSE\)", "LEASE_EV_LINGERED] = STEP(HELD, LEASE_DO_PROBE)"),
    "the page is not closed when a lease is": ("keeper/leases/act.c", r"leasepage_close\(lease\); /\* first of all \*/", ";"),
    "the page says for a second that leases are sure": ("keeper/leases/leasepage.c", r"sure < fresh \? sure : fresh", "fresh"),
    "what the page said before the kernel lock was taken is enough": ("shim/acquire.c", r"if \(!leases_stand\(&look->page->leases, slot, &look->file, &wanted\)\)", "if (0)"),
    "granted by hand-over after the deadline": ("keeper/leases/requests.c", r"if \(k->expired\) \{ /\* granted", "if (0) { /* granted"),
    "the deadline passes unseen": ("keeper/leases/host.c", r"if \(k->expired \|\| now < k->deadline_ns\)", "if (k->deadline_ns)"),
    "nobody is frozen": ("keeper/guard/freeze.c", r"if \(!evict_has_asked\(&f->evict, pid\)\)", "if (0)"),
    "who is frozen goes on before the leases are confirmed": ("keeper/guard/freezer.c", r"threads->count && !slots_any\(freeze->fence, SLOTS_IN\(TABLE_UNSURE\)\) && ", "threads->count && "),
    "holders of lost leases go on": ("keeper/guard/table.c", r"if \(table_on_lost\(t, slot\) == ON_LOST_WARN\) \{", "if (true) {"),
    "put back after the deadline": ("keeper/leases/grace.c", r"if \(lease->state == LEASE_UNSURE && lease->forgotten\)\n\t\t\tlease_raise\(lease, LEASE_EV_GONE\);", ";",
                                    r"lease->lapsed \? LEASE_EV_GONE : LEASE_EV_FORGOTTEN", "LEASE_EV_FORGOTTEN"),
    "a fence is not compared": ("store/lua/confirm.lua", r" and number\(lease.fence\) == ARGV\[4\]", ""),
    "what an old snapshot says of a lease is put back": ("store/lua/reclaim.lua", r"if ARGV\[7\] == 'shared' then", "if false then"),
    "a lost memory under standing connections never opens": ("keeper/leases/grace.c", r"\ton_grace_timer\(&k->grace\); /\* no connection[^\n]*\n", ""),
    "the first lease after a pause is no beat": ("keeper/leases/host.c", r"return false; /\* the last one may be long ago", "return recent; /* the last one may be long ago"),
    "who was forgotten keeps others waiting": ("store/lua/acquire.lua", r"if #holders == 0 then\n\tlocal w", "if false then\n\tlocal w",
                                               r"if place and #holders == 0 and #ahead > 0 and not pass then", "if false then"),
    "an older fence is put back over a younger one": ("store/lua/reclaim.lua", r"clash\(mine, e\) and e\.fence > mine\.fence", "clash(mine, e) and e.fence < mine.fence"),
    "shared and exclusive get along": ("store/lua/clashes.lua", r"a\.mode == 'exclusive' or b\.mode", "a.mode == 'exclusive' and b.mode"),
    "who comes later may be first": ("store/lua/entries.lua", r" and \(w\.pass or not ahead\.first\(w\)\)", ""),
    "an unknown token is not given back": ("keeper/leases/host.c", r"\tstore_release\(k->store, m->name, m->token, on_unknown_released, k\);", ""),
    "whoever waits asks only once": ("keeper/leases/requests.c", r"\tlease_start_timer\(lease, \(at - now\) / NS_PER_MS \+ 1\);", "\t(void)at;"),
    "what was to be shrunk is exclusive again": ("keeper/leases/requests.c", r"return lease_raise\(lease, LEASE_EV_UNSHRUNK\);", "lease->range.mode = reply->mode;"),
    "who was to have his pin is a newcomer": ("keeper/callers/serve.c", r" \|\| needed \|\| caller_is_nonblocking\(s\)\)", ")"),
    "what was under way is not sent again": ("keeper/rules/lease.c", r"\[LEASE_EV_UP\] = STEP\(RELEASING, RELEASE\),", ""),
}

# Each needs so many things at once, or is made good by something else so often, that it takes hours to find them.
RARE = {"the page says for a second that leases are sure", "a fence is not compared",
        "granted by hand-over after the deadline", "deadline counted from the answer"}


def build(name, folder, made):
    """The path of a simulator that is built around the mistake."""
    path, *changes = MUTANTS[name]
    for entry in ("Makefile", "VERSION", "wire", "config", "store", "keeper", "shim", "tests/sim"):
        source = os.path.join(ROOT, entry)
        copy = shutil.copytree if os.path.isdir(source) else shutil.copy2
        copy(source, os.path.join(folder, entry))
    shutil.copytree(made, os.path.join(folder, "build"), ignore=shutil.ignore_patterns("unit", "bench", "pic", "agents", "interpose"))
    with open(os.path.join(folder, path)) as f:
        text = f.read()
    for old, new in zip(changes[::2], changes[1::2]):
        text, count = re.subn(old, lambda _: new, text, count=1)
        assert count == 1, f"{path} has no {old}: change the mutant"
    with open(os.path.join(folder, path), "w") as f:
        f.write(text)
    subprocess.run(["make", "-s", "-C", folder, "BUILD=build", "build/tests/sim/sim", "WARN="], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(folder, "build/tests/sim/sim")


def is_found_out(name, made):
    with tempfile.TemporaryDirectory(prefix="dflock-mutant-", dir="/dev/shm") as folder:
        program = build(name, folder, made)
        begin = time.monotonic()
        run = subprocess.run(["setpriv", "--pdeathsig", "TERM", program, "--count", str(COUNT), "--seconds", str(SECONDS), "--failures", "1"], stdout=subprocess.PIPE, text=True)
        said = [line for line in run.stdout.splitlines() if line.startswith("seed")]
        print(f"{'found' if run.returncode == 1 else 'NOT FOUND'} in {time.monotonic() - begin:.0f} s: {name}: {said[0] if said else ''}", flush=True)
        return run.returncode == 1


def main():
    made, names = os.path.abspath(sys.argv[1]), sys.argv[2:] or [name for name in MUTANTS if name not in RARE]
    if names == ["list"]:
        print("\n".join(MUTANTS))
        return 0
    missed = [name for name in names if not is_found_out(name, made)]
    if missed:
        print("not found out:", ", ".join(missed))
    return 1 if missed else 0


sys.exit(main())
