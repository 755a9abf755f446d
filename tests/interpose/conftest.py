import os
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(__file__))
import fake_keeper as fk  # noqa: E402
from world import Locker, World  # noqa: E402


@pytest.fixture
def world():
    world = World(tempfile.mkdtemp(prefix="dflock-interpose-", dir="/dev/shm"))
    yield world
    world.end()


@pytest.fixture
def lockers(world):
    made = []

    def make(**options):
        made.append(Locker(world, **options))
        return made[-1]

    yield make
    for locker in made:
        locker.kill()


@pytest.fixture
def script(world):
    """A keeper whose answers the test gives."""
    script = fk.Script()
    with world.keeper(script) as keeper:
        script.keeper = keeper
        yield script


@pytest.fixture
def one(script, lockers):
    """A program under the shim whose questions the test answers. Nothing is left in it of the conversations."""
    one = lockers()
    seen = lambda: (sorted(os.listdir(f"/proc/{one.pid}/fd")), os.listdir(f"/proc/{one.pid}/task"), status_of(one.pid))
    before = seen()
    yield one
    assert seen() == before


def status_of(pid):
    """Its signals."""
    with open(f"/proc/{pid}/status") as status:
        return [line for line in status if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]
