"""
The least that could be had: of a pair, the calls that find out which file is meant (least.c); of a hand-over, the wake-ups and the script
(chain.c). What dflock takes beyond that is its own.
"""
import os

from bench.lab import BUILD, CannotMeasure
from bench.latency import placed, places
from bench.measurements import BLOCK_US, REST_US, in_turns, measurement
from bench.report import Series, Times

LIBRARY = os.path.join(BUILD, "bench", "least.so")


def least(lab):
    if not os.path.exists(LIBRARY):
        raise CannotMeasure(LIBRARY + " is missing: run make bench")
    return {**lab.plain(), "LD_PRELOAD": LIBRARY}


def calls(lab, name, title):
    """Plain, with the library that only looks, and with dflock on a file whose lease the host has."""
    host = lab.host("a")
    path, protected = lab.open_file("floor"), host.path("floor")
    plain, looking, cached = in_turns(20, lambda: lab.run(lab.plain(), "calls", name, path, 15, BLOCK_US),
                                      lambda: lab.run(least(lab), "calls", name, path, 15, BLOCK_US),
                                      lambda: lab.run(host, "calls", name, protected, 15, BLOCK_US))
    lab.protected()
    reference = Series("plain", plain)
    return [Times(Series(title + ", looked at only", looking), reference), Times(Series(title + ", lease cached", cached), reference)]


@measurement("floor")
def floor(lab):
    rows = calls(lab, "flock-pair", "flock pair") + calls(lab, "fcntl-pair", "fcntl pair") + calls(lab, "getlk", "F_GETLK")
    hosts, server, file = (lab.host("a"), lab.host("b")), lab.redis().socket, lab.open_file("chain")
    for where, processors in places().items():
        with placed(lab, hosts, processors):
            pings, bare, same, turns = in_turns(
                10, lambda: lab.run(lab.plain(), "roundtrip", server, "ping", 12, REST_US),
                lambda: lab.run(lab.plain(), "chain", server, file, 12, REST_US, "bare"),
                lambda: lab.run(lab.plain(), "chain", server, file, 12, REST_US, "same"),
                lambda: lab.turns(12, REST_US))
        reference = Series("PING after %g ms of rest" % (REST_US / 1000), pings)
        rows += [Times(Series("wake-ups of a hand-over", bare), reference, note=where),
                 Times(Series("... and the Redis commands", same), reference, note="the same"),
                 Times(Series("hand-over between two hosts", turns), reference, note="the same")]
    return rows
