"""Tests with processes find the mistakes that they must find (mistakes.py), and pass without one."""
import contextlib
import os
import subprocess
import sys

import harness.host
import pytest
from harness.mistakes import ALONE, PROGRAMS
from harness.mutants import ROOT, mutant
from harness.wait import SLOW

pytestmark = pytest.mark.long

FAILED, PASSED = 1, 0


@contextlib.contextmanager
def built(changes):
    """Runs tests with a keeper and a net with these changes: run(test...) is pytest's exit status, and what it said; slow: see harness/wait.py."""
    parts = [part for part in ("dflockd", "dflock-net") if os.path.exists(os.path.join(harness.host.BUILD, part))]
    with mutant(changes, harness.host.BUILD, *parts) as made:
        for name in "agents", "preload":
            with contextlib.suppress(FileExistsError):  # the mutant before had this folder
                os.symlink(os.path.join(harness.host.BUILD, "tests", name), os.path.join(made, "tests", name))

        def run(*tests, slow=SLOW):
            done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
                                  cwd=os.path.join(ROOT, "tests"), env={**os.environ, "DFLOCK_BUILD": made, "DFLOCK_TEST_SLOW": str(slow)},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
            return done.returncode, done.stdout

        yield run


def test_without_a_mistake_they_pass():
    """So it is the mistake that they find, and not what a build in another place lacks. What it has of agents and programs is the same for all
    tests of a file: so one of each is enough."""
    one_of_each = {test.partition("::")[0]: test for test in PROGRAMS if test not in ALONE}
    with built([]) as run:
        status, said = run(*one_of_each.values())
        assert status == PASSED, said


@pytest.mark.parametrize("test, name", [
    pytest.param(test, name, marks=pytest.mark.alone if test in ALONE else ()) for test, mistakes in PROGRAMS.items() for name in mistakes])
def test_mistake_is_found(test, name):
    with built(PROGRAMS[test][name]) as run:
        # A mistake shows in a wait that ends in vain: where no other test takes the processors, half of that is enough.
        status, said = run(test, slow=SLOW / 2 if test in ALONE else SLOW)
        if os.geteuid() and status == PASSED and "skipped in" in said:
            pytest.skip("its test needs root")
        assert status == FAILED, said
