"""What the tests of hosts share."""
import os

import pytest
from harness import Authority, Cluster, Nodes
from harness.nodes import here

from failover import LONG, QUICK


def several(start):
    """What a fixture gives that starts servers: start(N, ...) is the Nth."""
    made = []

    def make(*words, **options):
        made.append(start(len(made), *words, **options))
        return made[-1]

    yield make
    for servers in made:
        servers.stop()


@pytest.fixture
def make_nodes(folder):
    yield from several(lambda n, count, sentinels=3, **options: Nodes(os.path.join(folder, f"nodes{n}"), count, sentinels, **options))


@pytest.fixture
def make_cluster(folder):
    yield from several(lambda n, **options: Cluster(os.path.join(folder, f"cluster{n}"), **options))


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
