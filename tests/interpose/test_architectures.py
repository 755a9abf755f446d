"""The shim's fcntl() is not variadic, and programs call it as if it were: for each of Debian's architectures, clang must put the third
argument of both kinds of functions in the same place."""
import re
import subprocess

import pytest

from world import ROOT

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


def clang(triple, text, *options):
    return subprocess.run(["clang", "--target=" + triple, *options, "-x", "c", "-", "-o", "-"], input=text, capture_output=True, text=True)


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
