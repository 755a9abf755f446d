"""
Random sequences of lock calls by several processes: what they do on one kernel, they must do with the shim when they are spread
over hosts. rules.py says what a sequence is.

DFLOCK_MODEL_SEQUENCES: how many (`make model` plays more); DFLOCK_MODEL_SEED: which ("7"), or the one that a failure names
("7/123"), again and again.
"""
import itertools
import os
import random
import time

import pytest
from author import Author
from found import FOUND, FOUND_NET
from harness import BUILD
from harness.host import CLI
from harness.mistakes import MODEL
from harness.mutants import mutant
from play import Difference, Sequence, compare, play_hosts, shorten
from stage import Place, Stage

SEQUENCES = int(os.environ.get("DFLOCK_MODEL_SEQUENCES", 1000))  # each mistake of MODEL is found by one of so many
LEAST_PER_SECOND = 1  # fewer: something hangs
SEED = os.environ.get("DFLOCK_MODEL_SEED") or str(random.randrange(10**6))

# Nothing here depends on times, only how long the test takes: what waits behind a waiter, or for a pin, soon goes on; and a
# question may take long on a busy machine.
TIMES = "ttl_ms = 60000; fair_ms = 20; probe_ms = 10000; pin_ms = 100; "
LINGER = {"a": "linger_ms = 1000;", "b": "linger_ms = 20;", "c": "linger_ms = 200;"}


def place_of(name, host, net):
    """net: the players are static programs under the net."""
    if not net:
        return Place(name, host.files, host.env())
    env = {k: v for k, v in host.env().items() if k != "LD_PRELOAD"}
    return Place(name, host.files, env, (CLI, "run", "--net=on", "--", os.path.join(BUILD, "tests/net/sequence")))


@pytest.fixture
def stages(make_host, folder):
    """stages(...) is (one kernel, hosts); the arguments go to the hosts."""
    made = []

    def make(net=False, **options):
        hosts = {name: make_host(name, lease=TIMES + LINGER[name], **options) for name in "abc"}
        env = {k: v for k, v in os.environ.items() if not k.startswith(("DFLOCK_", "LD_PRELOAD"))}
        outside = Place("outside", os.path.join(folder, "one"), env)
        made.append(Stage(dict.fromkeys("abc", outside), outside, folder, "one"))
        made.append(Stage({name: place_of(name, host, net) for name, host in hosts.items()}, outside, folder, "hosts"))
        return made[-2:]

    yield make
    for stage in made:
        stage.close()


def report(one, hosts, seed, sequence, difference, net):
    short, found = shorten(one, hosts, sequence, difference.at, net)
    return (f"{difference}\nDFLOCK_MODEL_SEED={seed} plays it again and again; without the steps that do not matter:\n\n"
            f"{short}\n\n{found or 'It did not happen again: it depends on the timing.'}\n")


@pytest.mark.long
@pytest.mark.parametrize("net", [False, True], ids=["preload", "net"])
def test_hosts_do_what_one_kernel_does(stages, net):
    one, hosts = stages(net=net)
    seeds = itertools.repeat(SEED) if "/" in SEED else (f"{SEED}/{i}" for i in itertools.count())
    end, steps, whole = time.monotonic() + SEQUENCES / LEAST_PER_SECOND, 0, 0
    print(f"seed {SEED}")
    sequences = SEQUENCES // 4 if net else SEQUENCES  # each call takes far longer
    for count, seed in enumerate(itertools.islice(seeds, sequences)):
        assert time.monotonic() < end, f"only {count} sequences in time"
        author = Author(seed, net)
        try:
            sequence, expected = author.write(one)
        except AssertionError as problem:
            pytest.fail(f"seed {seed}, on one kernel: {problem}\n\n{author.sequence}", pytrace=False)
        try:
            whole += play_hosts(hosts, sequence, expected, net=net)
        except Difference as difference:
            pytest.fail(report(one, hosts, seed, sequence, difference, net), pytrace=False)
        steps += len(expected)
    print(f"{sequences} sequences, {whole} to their end, {steps} steps")
    assert whole > 0.9 * sequences


@pytest.mark.parametrize("net,found,times", [(False, FOUND, 3), (True, FOUND_NET, 40)], ids=["preload", "net"])
def test_what_was_found_before(stages, net, found, times):
    one, hosts = stages(net=net)
    for why, text in found.items():
        sequence = Sequence.read(text)
        sequence.steps[:0] = [f"{name} open 0 f rw" for name in sequence.cast]
        whole = 0
        for _ in range(times):
            try:
                whole += compare(one, hosts, sequence, net=net)
            except Difference as difference:
                pytest.fail(f"{why}: {difference}\n\n{sequence}", pytrace=False)
        assert whole > 0.7 * times, f"{why}: {whole} times of {times}\n\n{sequence}"


# Where a mistake is found late: the sequence that has found it.
SEQUENCE = {"knows no deadlock": 131, "waits for more than a downgrade": 195}

RARE = {"gives EDEADLK to any call of a cycle": 4000}  # one in some 400 finds it, another one each time


def find_out(one, hosts, first=0, sequences=1000):
    """A difference is found among so many; first: the one that is played before the others."""
    end = time.monotonic() + sequences / LEAST_PER_SECOND
    for i in (first, *range(sequences)):
        assert time.monotonic() < end, f"only {i} sequences in time"
        sequence, expected = Author(f"mutant/{i}").write(one)
        try:
            play_hosts(hosts, sequence, expected, seconds=2)
        except Difference as difference:
            print(f"sequence {i}: {difference}")
            return
    pytest.fail(f"{sequences} sequences, and no difference")


def test_it_finds_out_that_there_is_no_shim(stages):
    find_out(*stages(shim=False))


@pytest.mark.parametrize("name", MODEL)
def test_it_finds_out_a_keeper_that(name, stages, monkeypatch):
    with mutant(MODEL[name], BUILD, "dflockd") as made:
        monkeypatch.setattr("harness.host.KEEPER", os.path.join(made, "dflockd"))
        find_out(*stages(), first=SEQUENCE.get(name, 0), sequences=RARE.get(name, 1000))
