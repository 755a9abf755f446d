"""Libraries' locks, and hosts whose leases are the same locks."""
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))

from client import Client, key_of  # noqa: E402
from hosts import LEASE, rule  # noqa: E402


@pytest.fixture
def make_client(redis):
    """make_client("redis-py", ...): a process of that library, for the key that is its own for "jobs:nightly"."""
    clients = []

    def make(kind, **options):
        clients.append(Client(kind, redis, key_of(kind), **options))
        return clients[-1]

    yield make
    for client in clients:
        client.kill()


@pytest.fixture
def make(make_host):
    """make("redis-py", "ab"): hosts whose file f is the key of this library; one alone is not in a list."""
    def make(kind, names="a", lease=LEASE, **options):
        hosts = [make_host(name, rules=rule(kind), lease=lease, **options) for name in names]
        return hosts if len(hosts) > 1 else hosts[0]

    return make
