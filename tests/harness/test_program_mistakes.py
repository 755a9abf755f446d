"""Tests with processes find the mistakes that they must find (mistakes.py), and pass without one."""
import os
import subprocess
import sys

import harness.host
import pytest
from harness.mistakes import PROGRAMS
from harness.mutants import ROOT, mutant

pytestmark = pytest.mark.alone

FAILED, PASSED = 1, 0


def status_of(test, changes):
    with mutant(changes, harness.host.BUILD, "dflockd") as made:
        os.symlink(os.path.join(harness.host.BUILD, "tests/agents"), os.path.join(made, "tests/agents"))
        run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test], cwd=os.path.join(ROOT, "tests"),
                             env={**os.environ, "DFLOCK_BUILD": made}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        return run.returncode, run.stdout


@pytest.mark.parametrize("test", PROGRAMS)
def test_mistakes_are_found(test):
    status, said = status_of(test, [])
    assert status == PASSED, said
    for name, changes in PROGRAMS[test].items():
        status, said = status_of(test, changes)
        assert status == FAILED, f"{name}: {said}"
