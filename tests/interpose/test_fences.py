"""What the compiler makes of the order of loads and stores on which the page rests (wire/leases.h, docs/model/weak.pml), on processors that
reorder them: each fence is an instruction, and stands where the model has it. The instructions are read: no emulator on x86 reorders."""
import re
import subprocess

import pytest

from world import ROOT

MACHINES = {
    "aarch64": ("aarch64-linux-gnu", "armv8-a", {"dmb ish": "F", "dmb ishld": "R", "dmb ishst": "?"}),
    "riscv64": ("riscv64-linux-gnu", "rv64gc", {"fence rw, rw": "F", "fence r, rw": "R", "fence rw, w": "W"}),
}
PUBLISH = """
#include "wire/seqcopy.h"
struct entry { unsigned long left, right; };
void publish(uint32_t *seq, struct entry *record, const struct entry *in) { seqcopy_publish(seq, record, in, sizeof(*in)); }
"""


def clang(triple, text, *options):
    return subprocess.run(["clang", "--target=" + triple, *options, "-x", "c", "-", "-o", "-"], input=text, capture_output=True, text=True)


def assembly(machine, source, folder):
    triple, march, _ = MACHINES[machine]
    own = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True, check=True).stdout.strip()
    (folder / "gnu").mkdir(exist_ok=True)
    for abi in "32", "64", "lp64", "lp64d":  # the C library's headers of this machine do
        (folder / "gnu" / f"stubs-{abi}.h").touch()
    done = clang(triple, source, "-march=" + march, "-O2", "-w", "-std=gnu11", "-D_GNU_SOURCE", f"-I{ROOT}", "-isystem", f"/usr/include/{own}",
                 "-idirafter", folder, "-S")
    assert done.returncode == 0, done.stderr
    return done.stdout


def order(machine, source, function, folder):
    """L: a load, but from the stack, S: a store, F: a full fence, R: what makes loads come before all that follows, W: ... all come before stores that follow."""
    fences = MACHINES[machine][2]
    body = re.search(rf"^{function}:(.*?)^\.Lfunc_end", assembly(machine, source, folder), re.M | re.S)[1]
    found = ""
    for line in body.splitlines():
        words = re.split(r"//|#", line)[0].split()
        if not words or words[0].startswith(".") or words[0].endswith(":"):
            continue
        text = " ".join(words)
        if text in fences:
            found += fences[text]
        elif words[0] in ("dmb", "fence"):
            found += "?"
        elif words[0] == "ldar":
            found += "LR"
        elif words[0] == "stlr":
            found += "WS"
        elif "sp" not in text and re.fullmatch(r"ld|lw|ldr|ldp", words[0]):
            found += "L"
        elif "sp" not in text and re.fullmatch(r"sd|sw|str|stp", words[0]):
            found += "S"
    return found


STAND = r"L*FL+RL+RL+RL+RL+"  # the fence; the clock: acquire, sure_until, fence, again; the slot: the same
WRITE = r"[LS]*SF[LS]*SWSF"  # odd, fence, the words, even as a release, fence


def leases():
    return (ROOT / "wire/leases.c").read_text()


@pytest.mark.parametrize("machine", MACHINES)
def test_the_program_looks_in_this_order(machine, tmp_path):
    found = order(machine, leases(), "leases_stand", tmp_path)
    assert re.fullmatch(STAND, found), found


@pytest.mark.parametrize("machine", MACHINES)
def test_the_keeper_writes_in_this_order(machine, tmp_path):
    found = order(machine, PUBLISH, "publish", tmp_path)
    assert re.fullmatch(WRITE, found), found


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("fence", ["the program's", "the reader's", "the writer's", "the last one"])
def test_a_fence_that_is_missing_is_seen(machine, fence, tmp_path):
    seqcopy = (ROOT / "wire/seqcopy.h").read_text()
    if fence == "the program's":
        source, function, expected = leases().replace("__atomic_thread_fence(__ATOMIC_SEQ_CST);", ""), "leases_stand", STAND
    elif fence == "the reader's":
        source = leases().replace('#include "wire/seqcopy.h"', seqcopy.replace("__atomic_thread_fence(__ATOMIC_ACQUIRE);", ""))
        function, expected = "leases_stand", STAND
    else:
        pieces = seqcopy.split("__atomic_thread_fence(__ATOMIC_SEQ_CST);")
        assert len(pieces) == 3
        one = "" if fence == "the writer's" else "__atomic_thread_fence(__ATOMIC_SEQ_CST);"
        other = "" if fence == "the last one" else "__atomic_thread_fence(__ATOMIC_SEQ_CST);"
        source = PUBLISH.replace('#include "wire/seqcopy.h"', pieces[0] + one + pieces[1] + other + pieces[2])
        function, expected = "publish", WRITE
    found = order(machine, source, function, tmp_path)
    assert found and not re.fullmatch(expected, found), found


# --- the shim's fcntl() is not variadic, and programs call it as if it were: each processor must find the third argument of both in one place ---

CALLS = """
int named(int fd, int cmd, void *arg);
int dotted(int fd, int cmd, ...);
int call_named(int fd, int cmd, void *p) { return named(cmd, fd, p) + 1; }
int call_dotted(int fd, int cmd, void *p) { return dotted(cmd, fd, p) + 1; }
"""
DEBIANS = ["x86_64-linux-gnu", "i686-linux-gnu", "aarch64-linux-gnu", "arm-linux-gnueabihf", "arm-linux-gnueabi", "riscv64-linux-gnu",
           "powerpc64le-linux-gnu", "s390x-linux-gnu", "mips64el-linux-gnuabi64", "mipsel-linux-gnu", "loongarch64-linux-gnu"]
# What else a variadic call may have: x86-64 says how many vector registers are used, POWER has room for registers on the stack, below the return address.
BESIDE = re.compile(r"xorl %eax, %eax|stdu 1, -\d+\(1\)|addi 1, 1, \d+|(std|ld) 0, \d+\(1\)|(addis|addi) 2, \d+, \.TOC\..*")


def instructions(assembly, function):
    """Without directives, labels and comments; both functions call one name."""
    body = re.search(r"^_?%s:(.*?)^(\.Lfunc_end|Lfunc_end|\s*\.size|\s*\.cfi_endproc)" % function, assembly, re.M | re.S)[1]
    lines = [re.split(r"[#;@]|//", line)[0].split() for line in body.replace("dotted", "named").splitlines()]
    return [" ".join(words) for words in lines if words and not words[0].startswith(".") and not words[0].endswith(":")
            and not BESIDE.fullmatch(" ".join(words))]


def both(triple):
    done = clang(triple, CALLS, "-O2", "-fno-pic", "-S")
    if "unknown target triple" in done.stderr:
        pytest.skip("this clang does not know " + triple)
    assert done.returncode == 0, done.stderr
    return [instructions(done.stdout, "call_" + kind) for kind in ("named", "dotted")]


@pytest.mark.parametrize("triple", DEBIANS)
def test_the_third_argument_is_in_one_place(triple):
    named, dotted = both(triple)
    assert named and named == dotted


def test_it_would_be_seen():
    """There, what follows the last named argument is on the stack."""
    named, dotted = both("arm64-apple-macosx")
    assert named != dotted


def test_the_shim_names_these_and_refuses_others():
    condition = re.search(r"^#if !\(defined\(__x86_64__\).*?^#endif", (ROOT / "shim/exports.c").read_text(), re.M | re.S)[0]
    for triple in DEBIANS:
        done = clang(triple, condition, "-E")
        assert done.returncode == 0 or "unknown target triple" in done.stderr, (triple, done.stderr)
    assert "does a variadic function find its third argument" in clang("sparc64-linux-gnu", condition, "-E").stderr
