"""Fixtures of the tests with faults."""
import pytest
from harness import Host, Proxy


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


@pytest.fixture
def make_proxy(redis, folder):
    """make_proxy(): one on a Unix socket; make_proxy(tcp=True): on a TCP port."""
    proxies = []

    def make(tcp=False):
        proxies.append(Proxy(redis, None if tcp else folder, f"proxy{len(proxies)}"))
        return proxies[-1]

    yield make
    for proxy in proxies:
        proxy.stop()
