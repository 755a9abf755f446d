"""The model of the table of leases (docs/model/table.pml) can do what the sources do, and not what they must not do."""
import os
import subprocess
import sys

import pytest
from harness.host import BUILD
from harness.mutants import ROOT

REPLAY = os.path.join(ROOT, "docs/model/replay.py")


def replay(path):
    return subprocess.run([sys.executable, REPLAY, path], capture_output=True, text=True, timeout=300)


def test_the_model_can_do_what_the_sources_do(tmp_path):
    """Without operators, who take leases away: the model has none."""
    lives = tmp_path / "lives"
    subprocess.run(["make", "-s", "-C", ROOT, f"BUILD={BUILD}", f"{BUILD}/tests/sim/sim"], check=True)
    subprocess.run([os.path.join(BUILD, "tests/sim/sim"), "--count", "80", "--drop", "o0", "--lives", lives], check=True, capture_output=True)
    done = replay(lives)
    assert done.returncode == 0 and "0 that the model cannot do" in done.stdout, done.stdout + done.stderr
    told = set(lives.read_text().split())
    assert len(told) > 15 and any("X" in life for life in told) and any("L" in life for life in told), told


@pytest.mark.parametrize("life, may", [
    ("ftzAHRO", "ftzA"),                        # granted without its range and fence
    ("ftzAftnHRO", "ftzAftn"),                  # ... without its sum
    ("ftzAftnsHO", "ftzAftnsH"),                # freed without being given back
    ("ftzAftnsHURO", "ftzAftnsHU"),             # given back before the store has said whether it stands
    ("ftzAftnsHMHRO", "ftzAftnsHM"),            # told as held twice
    ("ftzAftnsHRXKHRO", "ftzAftnsHRXK"),        # opens again after it was given back
    ("ftzAftnsHXKRO", "ftzAftnsHX")])           # the next keeper begins before its leases are unsure
def test_it_cannot_do_what_they_must_not_do(life, may, tmp_path):
    lives = tmp_path / "lives"
    lives.write_text(life + "\n")
    done = replay(lives)
    assert done.returncode == 1 and f"cannot do {life}: after {may}, not {life[len(may)]}" in done.stdout, done.stdout + done.stderr
