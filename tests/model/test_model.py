"""
Random sequences of lock calls by several processes: what they do on one kernel, they must do with the shim when they are spread
over hosts. See rules.py for what a sequence is.

DFLOCK_MODEL_SECONDS: how long; DFLOCK_MODEL_SEED: which sequences ("7"), or the one that a failure names ("7/123"), again and again.
"""
import os
import random
import time

import pytest
from author import Author
from harness import BUILD
from play import Difference, Sequence, compare, play_hosts, shorten
from stage import Place, Stage

SECONDS = float(os.environ.get("DFLOCK_MODEL_SECONDS", 45))
SEED = os.environ.get("DFLOCK_MODEL_SEED") or str(random.randrange(10**6))

# Nothing here depends on times, only how long the test takes: what waits behind a waiter, or for a pin, soon goes on; and a
# question may take long on a busy machine.
TIMES = "ttl_ms = 60000; fair_ms = 20; probe_ms = 10000; pin_ms = 100; "
LINGER = {"a": "linger_ms = 1000;", "b": "linger_ms = 20;", "c": "linger_ms = 200;"}


@pytest.fixture
def stages(make_host, folder):
    """stages(...) is (one kernel, hosts); the arguments go to the hosts."""
    made = []

    def make(**options):
        hosts = {name: make_host(name, lease=TIMES + LINGER[name], **options) for name in "abc"}
        env = {k: v for k, v in os.environ.items() if not k.startswith(("DFLOCK_", "LD_PRELOAD"))}
        outside = Place("outside", os.path.join(folder, "one"), env)
        made.append(Stage(dict.fromkeys("abc", outside), outside, folder, "one"))
        made.append(Stage({name: Place(name, host.files, host.env()) for name, host in hosts.items()}, outside, folder, "hosts"))
        return made[-2:]

    yield make
    for stage in made:
        stage.close()


def seeds():
    if "/" in SEED:
        while True:
            yield SEED
    number = 0
    while True:
        yield f"{SEED}/{number}"
        number += 1


def report(one, hosts, seed, sequence, difference):
    short, found = shorten(one, hosts, sequence, difference.at)
    return (f"{difference}\nDFLOCK_MODEL_SEED={seed} plays it again and again; without the steps that do not matter:\n\n"
            f"{short}\n\n{found or 'It did not happen again: it depends on the timing.'}\n")


def test_hosts_do_what_one_kernel_does(stages):
    one, hosts = stages()
    end, count, steps = time.monotonic() + SECONDS, 0, 0
    for seed in seeds():
        sequence, expected = Author(seed).write(one)
        try:
            play_hosts(hosts, sequence, expected)
        except Difference as difference:
            pytest.fail(report(one, hosts, seed, sequence, difference), pytrace=False)
        count, steps = count + 1, steps + len(expected)
        if time.monotonic() > end:
            break
    print(f"\nseed {SEED}: {count} sequences, {steps} steps")
