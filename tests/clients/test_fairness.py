"""
Neither world starves: programs of two hosts and a library's client, each of which wants the lock again at once. Nothing is promised of how
it is shared. DFLOCK_FAIRNESS_SECONDS: for how long, 6 by default, and then for the libraries with the longest pauses of their kind only;
`make fairness` takes a minute for each.
"""
import os

import pytest
from client import REDISSON, STRING, Flocker

SECONDS = int(os.environ.get("DFLOCK_FAIRNESS_SECONDS", "6"))
KINDS = STRING + REDISSON if "DFLOCK_FAIRNESS_SECONDS" in os.environ else ("redlock", "redis-py", "redisson")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_each_gets_its_turn(make, make_client, kind):
    """With the library's own pauses. A client that only gets the lock by chance had it once or twice in six seconds, when the leases of the
    two hosts followed each other without a pause."""
    a, b = make(kind, "ab", lease="ttl_ms = 10000;")
    all_ = [Flocker(a), Flocker(b), make_client(kind, pause=None)]
    for program in all_:
        program.say("spin", SECONDS, 5)
    times = [int(program.heard(SECONDS + 60).split()[1]) for program in all_]
    print(f"{SECONDS} s: host a {times[0]}, host b {times[1]}, {kind} {times[2]}")
    assert min(times) >= SECONDS, times
