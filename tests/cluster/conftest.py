"""What the tests of hosts share."""
import os

import pytest
from harness import Host, Nodes, Proxy

from failover import LONG, QUICK


@pytest.fixture
def proxy(redis, folder):
    p = Proxy(redis, folder)
    yield p
    p.stop()


@pytest.fixture
def make_nodes(folder):
    made = []

    def make(count, sentinels=3, **options):
        made.append(Nodes(os.path.join(folder, f"nodes{len(made)}"), count, sentinels, **options))
        return made[-1]

    yield make
    for nodes in made:
        nodes.stop()


@pytest.fixture
def host_at(folder):
    """host_at(settings, "a"): a host whose configuration has these settings of the store."""
    hosts = []

    def make(settings, name, lease=LONG, store=QUICK, **options):
        hosts.append(Host(settings, name, folder, lease=lease, store=store, **options))
        return hosts[-1]

    yield make
    for host in hosts:
        host.stop()
