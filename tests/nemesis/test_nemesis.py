"""
The fault run: 5 hosts, each in its own network namespace, and a nemesis. DFLOCK_NEMESIS_SECONDS (`make nemesis`: half an
hour for each kind of store; DFLOCK_TEST_STORE=postgresql, zookeeper: with one of these) is how long; DFLOCK_NEMESIS_SEED repeats a run's choices. The report is in the build folder, too.

The two runs that must go wrong are the same with a safeguard taken away, until the checker has found it out; half of
the faults are those that it is there for.
"""
import os
import random

import pytest
import stamps
from run import run
from setting import Clustered, Database, Ensemble, Server, Servers

pytestmark = pytest.mark.root("has namespaces, and so needs root")

SECONDS = float(os.environ.get("DFLOCK_NEMESIS_SECONDS", "60"))
SEED = int(os.environ.get("DFLOCK_NEMESIS_SEED", str(random.SystemRandom().randrange(1 << 20))))
STORES = {"redis": [Server, Servers, Clustered], "postgresql": [Database], "zookeeper": [Ensemble]}[os.environ.get("DFLOCK_TEST_STORE", "redis")]


@pytest.mark.long
@pytest.mark.parametrize("store", STORES)
def test_never_two_holders_whatever_breaks(folder, store):
    wrong, report = run(folder, SEED, SECONDS, store=store)
    report.write(store.__name__.lower(), wrong)
    assert wrong == []
    # It was a test at all.
    assert report.acquisitions > SECONDS and report.handovers > SECONDS / 4
    assert set(report.by_kind) == {"flock", "fcntl", "sqlite"} and len(report.by_host) == 5


def overlap(stage):
    """While workers write: a record may be half written at one look, and not at both."""
    return stamps.overlaps(stage.records()) and stamps.overlaps(stage.records())


@pytest.mark.parametrize("name,options", [
    ("warn", {"on_lost": "warn", "often": ["host cut", "host cut, to the store"]}),
    ("no grace", {"grace": False, "often": ["store flushed"]})])
def test_without_a_safeguard_it_goes_wrong(folder, name, options):
    wrong, report = run(folder, SEED, 120, until=overlap, store=STORES[0], **options)
    report.write(name.replace(" ", "-"), wrong)
    assert any(line.startswith("overlap") for line in wrong), "the run above shows nothing"


# --- the checker finds what it is for ---


def record(first, last, *, name="f", exclusive=1, from_=0, to=1, state=stamps.ENDED, intends=0, wrote=0, torn=0):
    return stamps.Record("w", 0, state, first, exclusive, from_, to, name, "", 1, first, last, 0, intends, wrote, torn)


def test_checker_on_overlaps():
    frozen = record(1, 5, state=stamps.RUNS)
    good = [frozen, record(6, 9), record(0, 0, state=stamps.FAILED), record(1, 9, name="g"), record(1, 9, from_=1, to=2),
            record(10, 20, exclusive=0), record(12, 13, exclusive=0)]
    assert stamps.overlaps(good) == []
    for bad in (record(5, 6), record(2, 3), record(7, 7), record(11, 12), record(3, 4, exclusive=0), record(4, 4, to=9)):
        assert stamps.overlaps(good + [bad]), bad
    # A holder that was frozen runs once more after another one had the lock: at no moment did both have it, and it is wrong.
    assert stamps.overlaps([frozen._replace(last=10), record(6, 9)])


def test_checker_on_lost_updates():
    key = ("f", 0)
    good = [record(1, 2, intends=1, wrote=1), record(3, 4, intends=2), record(5, 6, intends=2, wrote=2),
            record(7, 8, intends=3)]
    assert stamps.lost_updates(good, {key: 2}) == [] == stamps.lost_updates(good, {key: 3})
    assert stamps.lost_updates(good, {key: 4})  # nobody wrote it
    assert stamps.lost_updates(good, {key: 1})  # it became less
    assert stamps.lost_updates(good + [record(9, 10, intends=2, wrote=2)], {key: 2})
    assert stamps.lost_updates([record(1, 2, exclusive=0, torn=1)], {})


def test_the_newest_record(folder):
    path = os.path.join(folder, "w")
    writer = stamps.Writer(path)
    assert stamps.newest(path) is None and stamps.newest(path + "x") is None
    for i in range(9):
        writer.ask("f", str(i))
        writer.run(0)
        assert stamps.newest(path).how == str(i)
    assert [r.how for r in stamps.read(folder)] == [str(i) for i in range(9)]
