"""Fixtures of the tests with faults."""

import pytest
from harness import Proxy
from harness.view import View
from machine import Machine


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


@pytest.fixture
def machine(redis, folder):
    machine = Machine(redis, folder)
    yield machine
    machine.delete()


@pytest.fixture
def make_view():
    """make_view(...): a file system that can be made to hang. Name it behind make_host: it ends before the hosts."""
    views = []

    def make(*words, **more):
        views.append(View(*words, **more))
        return views[-1]

    yield make
    for view in views:
        view.end()
