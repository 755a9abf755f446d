"""Unit tests find the mistakes that they must find (mistakes.py)."""
import os
import subprocess

import harness.host
import pytest
from harness.mistakes import UNIT
from harness.mutants import mutant

pytestmark = pytest.mark.long  # each builds


@pytest.mark.parametrize("test, name", [(test, name) for test, mistakes in UNIT.items() for name in mistakes])
def test_mistake_is_found(test, name):
    suite, _, only = test.partition("::")
    with mutant(UNIT[test][name], harness.host.BUILD, f"unit/{suite}", more=["tests/unit"]) as made:
        # A mistake that makes the test hang is found, too, and soon; nobody wants to know of more tests that fail.
        run = subprocess.run([os.path.join(made, "unit", suite)], stdout=subprocess.PIPE, text=True, timeout=600,
                             env={**os.environ, "CK_DEFAULT_TIMEOUT": "20", "SUITE_FIRST_FAILURE": "1"} | ({"SUITE_ONLY": only} if only else {}))
        assert run.returncode != 0 and run.stdout, "there is no such test" if run.returncode else run.stdout
