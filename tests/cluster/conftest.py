"""What the tests of hosts share."""
import os

import pytest
from harness import Authority, Cluster, Nodes
from harness.nodes import here

from failover import LONG, QUICK


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
def make_cluster(folder):
    made = []

    def make(**options):
        made.append(Cluster(os.path.join(folder, f"cluster{len(made)}"), **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.stop()


@pytest.fixture
def ca(folder):
    return Authority(os.path.join(folder, "tls"))


@pytest.fixture
def serve(make_server, ca):
    """serve(certificate, clients=True) is a redis-server that speaks TLS on tls_port, and none on its Unix socket."""
    def make(certificate=None, clients=False, more=()):
        port = here(1)[0].port
        server = make_server(*ca.server_options(certificate or ca.issue("server"), port, clients), *more)
        server.tls_port = port
        return server

    return make


@pytest.fixture
def host_at(host_of):
    """host_at(settings, "a"): a host whose configuration has these settings of the store."""
    def make(settings, name, **options):
        return host_of(settings, name, **{"lease": LONG, "store": QUICK, **options})

    return make
