"""
What TLS to the store costs: the first lock and the hand-over of hosts that reach one server by TLS, beside those of hosts that
reach it by plain TCP, in turns.
"""
import contextlib
import os

from bench.latency import REST_US
from bench.measurements import in_turns, measurement
from bench.report import Series, Times
from tests.harness import Authority, Host, Redis
from tests.harness.nodes import here


@contextlib.contextmanager
def both_ways(lab):
    """Two hosts by plain TCP, two by TLS."""
    folder = os.path.join(lab.folder, "tls")
    ca = Authority(folder)
    plain, encrypted = (place.port for place in here(2))
    options = ca.server_options(ca.issue("server"), encrypted, clients=True)
    own = ca.issue("host", "DNS:host")
    server = Redis(folder, *options[2:], port=plain)  # without its --port 0
    address = {"p": f'server = "127.0.0.1:{plain}";',
               "t": f'server = "rediss://127.0.0.1:{encrypted}"; tls_ca = "{ca.path}"; tls_certificate_file = "{own.path}"; '
                    f'tls_key_file = "{own.key}";'}
    hosts = []
    try:
        for way in "pptt":
            name = way + str(len(hosts))
            hosts.append(Host(address[way], name, folder, lease="", foreground=False, rules=f'{{ tree = "%s"; name = "{way}"; }}'))
            hosts[-1].start()
            hosts[-1].init()
        yield hosts[:2], hosts[2:]
    finally:
        for host in hosts:
            host.stop()
        server.stop()


@measurement("tls")
def tls(lab):
    with both_ways(lab) as (plain, encrypted):
        first = in_turns(8, lambda: lab.run(plain[0], "first", lab.new_prefix(plain[0]), 30),
                         lambda: lab.run(encrypted[0], "first", lab.new_prefix(encrypted[0]), 30))
        turns = in_turns(8, lambda: lab.turns(20, REST_US, plain), lambda: lab.turns(20, REST_US, encrypted))
    return [Times(Series("first lock of a file, by TLS", first[1]), Series("the same, plain", first[0])),
            Times(Series("hand-over between two hosts, by TLS", turns[1]), Series("the same, plain", turns[0]))]
