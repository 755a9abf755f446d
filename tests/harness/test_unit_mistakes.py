"""Unit tests find the mistakes that they must find (mistakes.py): those in the rules also where the rules run outside of Redis (store/replay/)."""
import os
import subprocess

import harness.host
import pytest
from harness.mistakes import OF_REDIS, OF_ROOT, UNIT
from harness.mutants import markers, mutant

pytestmark = pytest.mark.builds

WHERE = markers()


def in_the_rules(changes):
    return any(WHERE[change.marker].startswith("store/rules/") for change in changes)


def fails(suite, made, **more):
    """A mistake that makes the test hang is found, too, and soon; nobody wants to know of more tests that fail."""
    run = subprocess.run([os.path.join(made, "unit", suite)], stdout=subprocess.PIPE, text=True, timeout=600,
                         env={**os.environ, "CK_DEFAULT_TIMEOUT": "20", "SUITE_FIRST_FAILURE": "1", **more})
    assert run.stdout, "there is no such test"
    return run.returncode != 0, run.stdout


def marks(name, changes):
    return ([pytest.mark.rules] if in_the_rules(changes) else []) + ([pytest.mark.root("its test needs root")] if name in OF_ROOT else [])


@pytest.mark.parametrize("test, name", [pytest.param(test, name, marks=marks(name, changes))
                                        for test, mistakes in UNIT.items() for name, changes in mistakes.items()])
def test_mistake_is_found(test, name):
    suite, _, only = test.partition("::")
    changes, only = UNIT[test][name], {"SUITE_ONLY": only} if only else {}
    with mutant(changes, harness.host.BUILD, f"unit/{suite}", more=["tests/unit"]) as made:
        found, said = fails(suite, made, **only)
        assert found, said
        if in_the_rules(changes) and suite not in OF_REDIS:
            found, said = fails(suite, made, SUITE_VARIANT="use_replay", **only)
            assert found and "there is no variant" not in said, said
