"""
The fault run: 5 hosts, each in its own network namespace, and a nemesis. DFLOCK_NEMESIS_SECONDS (`make nemesis`: an hour) is how
long; DFLOCK_NEMESIS_SEED repeats a run's choices. The report is in the build folder, too.

The two runs that must go wrong are the same with a safeguard taken away, until the checker has found it out.
"""
import os
import random

import pytest
import stamps
from run import run

SECONDS = float(os.environ.get("DFLOCK_NEMESIS_SECONDS", "75"))
SEED = int(os.environ.get("DFLOCK_NEMESIS_SEED", str(random.SystemRandom().randrange(1 << 20))))
KINDS_OF_FAULTS = 16


def test_never_two_holders_whatever_breaks(folder):
    wrong, report = run(folder, SEED, SECONDS)
    report.write("run", wrong)
    assert wrong == []
    # It was a test at all.
    assert len(report.faults) == KINDS_OF_FAULTS
    assert report.acquisitions > SECONDS and report.handovers > SECONDS / 4
    assert set(report.by_kind) == {"flock", "fcntl", "sqlite"} and len(report.by_host) == 5


def overlap(stage):
    return stamps.overlaps(stage.records())


@pytest.mark.parametrize("name,options", [("warn", {"on_lost": "warn"}), ("no grace", {"grace": False})])
def test_without_a_safeguard_it_goes_wrong(folder, name, options):
    wrong, report = run(folder, SEED, 90, until=overlap, **options)
    report.write(name.replace(" ", "-"), wrong)
    assert any(line.startswith("overlap") for line in wrong), "the run above shows nothing"
