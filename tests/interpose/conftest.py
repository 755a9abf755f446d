import os
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(__file__))
from world import World  # noqa: E402


@pytest.fixture
def world():
    world = World(tempfile.mkdtemp(prefix="dflock-interpose-", dir="/dev/shm"))
    yield world
    world.end()
