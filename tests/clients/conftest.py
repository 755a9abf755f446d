"""Libraries' locks, and hosts whose leases are the same locks."""
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))

from client import Client, key_of  # noqa: E402


@pytest.fixture
def make_client(redis):
    """make_client("redis-py", ...): a process of that library, for the key that is its own for "jobs:nightly"."""
    clients = []

    def make(kind, key=None, **options):
        clients.append(Client(kind, redis, key or key_of(kind), **options))
        return clients[-1]

    yield make
    for client in clients:
        client.kill()
