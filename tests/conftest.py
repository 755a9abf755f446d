"""Fixtures: a folder on a tmpfs, a redis-server, hosts. Everything that a test starts is stopped at its end."""
import os
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Host, Redis  # noqa: E402


@pytest.fixture
def folder():
    path = tempfile.mkdtemp(prefix="dflock-test-", dir="/dev/shm")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def redis(folder):
    server = Redis(folder)
    yield server
    server.stop()


@pytest.fixture
def make_host(redis, folder):
    """make_host("a", ...) is a host with a running keeper; the first one opens the store."""
    hosts = []

    def make(name, **options):
        host = Host(options.pop("server", redis), name, folder, **options)
        hosts.append(host)
        if len(hosts) == 1 and host.keeper:
            host.init()
        return host

    yield make
    for host in hosts:
        host.stop()


@pytest.fixture
def two(make_host):
    return make_host("a"), make_host("b")


@pytest.fixture
def host_of(folder):
    """host_of(server, name, ...): a host of any server, not opened."""
    hosts = []

    def make(server, name="a", **options):
        hosts.append(Host(server, name, folder, **options))
        return hosts[-1]

    yield make
    for host in hosts:
        host.stop()
