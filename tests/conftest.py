"""Fixtures: a folder on a tmpfs, a redis-server, hosts. Everything that a test starts is stopped at its end."""
import os
import shutil
import signal
import sys
import tempfile
import threading

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import BUILD, Host, Postgresql, Proxy, Redis, Zookeeper, mutants, ports  # noqa: E402
from harness.system import Place, SystemHost  # noqa: E402
from harness.wait import wait_longer  # noqa: E402

# The engine of the store in tests that ask for `redis` or make_host.
STORE = os.environ.get("DFLOCK_TEST_STORE", "redis")
# Tests that have one of these are skipped with another engine, or for an ordinary user.
OF_ROOT = {"place": "mounts, and so needs root", "make_view": "mounts, and so needs root",
           "copied": "has a pid namespace, and so needs root", "machine": "mounts, and so needs root",
           "machines_of": "mounts, and so needs root", "ground": "mounts, and so needs root", "on": "mounts, and so needs root"}
OF_REDIS = {"proxy": "the proxy speaks Redis' protocol", "make_nodes": "is about replicas of Redis", "serve": "is about TLS to Redis"}


def hear_signals():
    """A shell without job control ignores SIGINT and SIGQUIT for what it starts in the background, nohup ignores SIGHUP; programs inherit that."""
    for number, handler in (signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def closed_to_others():
    """The checkout or a folder above it that keeps other users out, if one does."""
    path = os.path.dirname(os.path.abspath(__file__))
    while path != "/" and os.stat(path).st_mode & 0o001:
        path = os.path.dirname(path)
    return path if path != "/" else None


def pytest_configure(config):
    hear_signals()
    wait_longer()
    os.umask(0o022)  # what a group may write to is refused, and a user may have 002
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # which an ordinary user may not have there
    closed = closed_to_others() if os.geteuid() == 0 else None
    if closed:
        pytest.exit(f"users other than root may not enter {closed}, and many tests are of what they do: have the checkout elsewhere", 2)
    config.addinivalue_line("markers", "alone: needs the machine for itself")
    config.addinivalue_line("markers", "punctual: is about being in time, and leaves the machine to others of its kind")
    config.addinivalue_line("markers", "of_redis(reason): is about Redis itself, and skipped with another engine of the store")
    config.addinivalue_line("markers", "root(reason): is skipped for an ordinary user")
    config.addinivalue_line("markers", "rules: makes a mistake in the rules of the store")
    config.addinivalue_line("markers", "long: takes so long that it must begin first")
    config.addinivalue_line("markers", "builds: computes all the time, and runs beside those that wait")


def pytest_runtest_logfinish():
    ports.give_back()


def pytest_sessionfinish():
    mutants.forget()


def pytest_collection_modifyitems(config, items):
    """If several tests run at a time, no long one should begin when the others are about to end. xdist gives each worker a stretch of the
    list at the beginning, a quarter of what it would be if all were given away: the long tests stand at the beginnings of these, a few each.
    Those that compute are spread over the others, which wait most of the time."""
    for here, marker, fixtures in (STORE != "redis", "of_redis", OF_REDIS), (os.geteuid() != 0, "root", OF_ROOT):
        for item in items if here else ():
            marks = [mark.args[0] for mark in item.iter_markers(marker)]
            for reason in marks + [fixtures[name] for name in item.fixturenames if name in fixtures]:
                item.add_marker(pytest.mark.skip(reason=reason))
    marked = {"long": [], "builds": [], None: []}
    for item in items:
        marked[next((name for name in ("long", "builds") if item.get_closest_marker(name)), None)].append(item)
    long, builds, short = marked.values()
    for i, item in enumerate(builds):
        short.insert((i * (len(short) + 1)) // len(builds), item)
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    stretch = max(len(items) // (4 * workers), 2)
    ordered = []
    for worker in range(workers):
        mine = long[worker::workers]
        rest = max(stretch - len(mine), 0)
        ordered += mine + short[:rest]
        short = short[rest:]
    items[:] = ordered + short


REPORTS = os.path.join(BUILD, "reports")  # tests/san/options.c: of programs that were built with SAN=1


def sanitizer_reports():
    try:
        return {os.path.join(REPORTS, name) for name in os.listdir(REPORTS)}
    except FileNotFoundError:
        return set()


@pytest.fixture(autouse=True)
def no_sanitizer_report():
    """The report of a keeper that a test has started fails that test; with several tests at a time perhaps another one."""
    before = sanitizer_reports()
    yield
    reports = sanitizer_reports() - before
    assert not reports, "\n".join(open(r, errors="replace").read() for r in reports)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    """A test that waits for ever fails after DFLOCK_TEST_SECONDS, and the others go on. Not where xdist runs a worker's tests beside
    its main thread, as it does where that was slow to come: only the main thread hears signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number, frame):
        pytest.fail(f"not within {seconds} s")

    seconds = int(os.environ.get("DFLOCK_TEST_SECONDS", "0"))
    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder():
    path = tempfile.mkdtemp(prefix="dflock-test-", dir="/dev/shm")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def redis(folder):
    """The server of the store."""
    make = {"redis": Redis, "postgresql": lambda place: Postgresql(place, forgets=True), "zookeeper": lambda place: Zookeeper(place, forgets=True)}
    server = make[STORE](folder)
    yield server
    server.stop()


@pytest.fixture
def make_server(folder):
    """make_server(options...): one more redis-server, in a folder of its own."""
    started = []

    def make(*options, **more):
        place = os.path.join(folder, f"server{len(started)}")
        os.mkdir(place)
        started.append(Redis(place, *options, **more))
        return started[-1]

    yield make
    for server in started:
        server.stop()


@pytest.fixture
def proxy(redis, folder):
    p = Proxy(redis, folder)
    yield p
    p.stop()


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
def place():
    """A mount namespace with a /run of its own."""
    place = Place()
    yield place
    place.end()


@pytest.fixture
def make_system(redis, folder, place):
    """make_system(...) is a system keeper, with an open store. limits: words before the keeper's own."""
    hosts = []

    def make(limits=(), server=redis, **options):
        os.chmod(server.socket, 0o777)
        inside, place.inside = place.inside, [*place.inside, *limits]
        hosts.append(SystemHost(server, folder, place, **options))
        hosts[0].inside = place.inside = inside
        return hosts[0].init()

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
