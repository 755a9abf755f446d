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
    with mutant(UNIT[test][name], harness.host.BUILD, f"unit/{test}", more=["tests/unit"]) as made:
        # A mistake that makes the test hang is found, too, and soon; nobody wants to know of more tests that fail.
        run = subprocess.run([os.path.join(made, "unit", test)], stdout=subprocess.PIPE, text=True, timeout=600,
                             env={**os.environ, "CK_DEFAULT_TIMEOUT": "20", "SUITE_FIRST_FAILURE": "1"})
        assert run.returncode != 0, run.stdout
