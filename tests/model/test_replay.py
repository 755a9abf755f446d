"""The models of the table of leases, the page and calls under way (docs/model/table.pml, page.pml, net.pml) can do what the sources do, and not what they must not."""
import os
import subprocess
import sys

import pytest
from harness.host import BUILD
from harness.mutants import ROOT

REPLAY = os.path.join(ROOT, "docs/model/replay.py")


def replay(path):
    return subprocess.run([sys.executable, REPLAY, path], capture_output=True, text=True, timeout=300)


def test_the_models_can_do_what_the_sources_do(tmp_path):
    """Without operators, who take leases away: the model of the table has none."""
    lives = tmp_path / "lives"
    subprocess.run(["make", "-s", "-C", ROOT, f"BUILD={BUILD}", f"{BUILD}/tests/sim/sim"], check=True)
    subprocess.run([os.path.join(BUILD, "tests/sim/sim"), "--count", "80", "--drop", "o0", "--lives", lives], check=True, capture_output=True)
    done = replay(lives)
    assert done.returncode == 0 and "0 that the models cannot do" in done.stdout, done.stdout + done.stderr
    told = set(lives.read_text().splitlines())
    slots, pages, calls = ([line for line in told if line.startswith(model)] for model in ("table ", "page ", "net "))
    assert len(slots) > 15 and any("X" in life for life in slots) and any("L" in life for life in slots), told
    assert len(pages) > 20 and all(any(event in life for life in pages) for event in "AHROCPFXKqgtsu"), told
    assert len(calls) > 40 and all(any(event in life for life in calls) for event in "cngloruExy"), told


@pytest.mark.parametrize("life, may", [
    ("table ftzAHRO", "ftzA"),                  # granted without its range and fence
    ("table ftzAftnHRO", "ftzAftn"),            # ... without its sum
    ("table ftzAftnsHO", "ftzAftnsH"),          # freed without being given back
    ("table ftzAftnsHURO", "ftzAftnsHU"),       # given back before the store has said whether it stands
    ("table ftzAftnsHMHRO", "ftzAftnsHM"),      # told as held twice
    ("table ftzAftnsHRXKHRO", "ftzAftnsHRXK"),  # opens again after it was given back
    ("table ftzAftnsHXKRO", "ftzAftnsHX"),      # the next keeper begins before its leases are unsure
    ("page qAHOgtsP", "qAHOgts"),               # the kernel is asked before the page is closed
    ("page qAHgtsPFR", "qAHgtsP"),              # ... and says that a lock is free which a program has
    ("page qAHOgtsutCPFs", "qAHOgtsutCP"),      # ... or one that a program took by the page
    ("page qAHgR", "qAHg"),                     # given back within a pin
    ("page qAHOgtsuCPFRts", "qAHOgtsuCPFRt"),   # relied on without asking when the page is closed
    ("page qAHOgtsXKH", "qAHOgtsXK"),           # the next keeper confirms before it has closed the page
    ("page qAts", "qA"),                        # taken before it is granted
    ("net cgElr", "c"),                         # continued before its entry is written
    ("net cEngl", "cEn"),                       # continued although it has ended
    ("net cEglxr", "cEglx"),                    # its entry ends while it is in the kernel
    ("net cEgxlr", "cEgxl"),                    # ... and before it takes the lock
    ("net cEgocEglr", "cEgoc"),                 # the entry of its earlier call stays
    ("net cEglrcEgl", "cEglr"),                 # converts its lock, which the model has not
])
def test_they_cannot_do_what_the_sources_must_not_do(life, may, tmp_path):
    lives = tmp_path / "lives"
    lives.write_text(life + "\n")
    done = replay(lives)
    rest = life.split()[1][len(may):]
    assert done.returncode == 1 and f"cannot do {life}: after {may}, not {rest[0]}" in done.stdout, done.stdout + done.stderr
