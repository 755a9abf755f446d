"""Unit tests find the mistakes that they must find (mistakes.py)."""
import os
import subprocess

import harness.host
import pytest
from harness.mistakes import TABLE
from harness.mutants import mutant


@pytest.mark.parametrize("name", TABLE)
def test_table(name):
    with mutant(TABLE[name], harness.host.BUILD, "unit/test_table", more=["tests/unit"]) as made:
        run = subprocess.run([os.path.join(made, "unit/test_table")], stdout=subprocess.PIPE, text=True, timeout=600)
        assert run.returncode != 0, run.stdout
