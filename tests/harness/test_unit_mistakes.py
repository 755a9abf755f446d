"""Unit tests find the mistakes that they must find (mistakes.py)."""
import os
import subprocess

import harness.host
import pytest
from harness.mistakes import UNIT
from harness.mutants import mutant


@pytest.mark.parametrize("test, name", [(test, name) for test, mistakes in UNIT.items() for name in mistakes])
def test_mistake_is_found(test, name):
    with mutant(UNIT[test][name], harness.host.BUILD, f"unit/{test}", more=["tests/unit"]) as made:
        run = subprocess.run([os.path.join(made, "unit", test)], stdout=subprocess.PIPE, text=True, timeout=600)
        assert run.returncode != 0, run.stdout
