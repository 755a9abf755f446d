import os
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(__file__))
import fake_keeper as fk  # noqa: E402
from world import Locker, World, numbers_of  # noqa: E402


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

    def seen():
        signals = [numbers_of(one.pid, field, 16) for field in ("SigBlk", "SigIgn", "SigCgt")]
        return sorted(os.listdir(f"/proc/{one.pid}/fd")), os.listdir(f"/proc/{one.pid}/task"), signals

    before = seen()
    yield one
    assert seen() == before
