"""
A Redis Cluster on free ports of 127.0.0.1, or on machines of a Network: masters that share the slots, and replicas of the one that
has dflock's.
"""
import binascii
import os

from .nodes import here
from .redis import Redis
from .wait import wait_until

SLOT = 13907  # of {0}
SLOTS = 16384
TAG = "dflock:{0}:"


def slot_of(shard):
    """Of {N}, as every Redis counts it: XMODEM's checksum."""
    return binascii.crc_hqx(str(shard).encode(), 0) % SLOTS


class ClusterNode(Redis):
    def __init__(self, folder, place, bus, options=()):
        os.makedirs(folder, exist_ok=True)
        super().__init__(folder, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port", str(bus.port),
                         "--cluster-node-timeout", "1500", "--cluster-allow-replica-migration", "no",
                         "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", *options, **place._asdict())
        self.bus = bus.port
        self.id = self.command("CLUSTER", "MYID")

    def owner(self, slot=SLOT):
        """The id of the node that has the slot, as this one sees it."""
        return next((n[2][2] for n in self.command("CLUSTER", "SLOTS") if n[0] <= slot <= n[1]), None)

    def has(self):
        """How many keys of the slot it has."""
        return self.command("CLUSTER", "COUNTKEYSINSLOT", SLOT)

    def keys(self, slot=SLOT):
        return self.command("CLUSTER", "GETKEYSINSLOT", slot, 1000)


class Cluster:
    def __init__(self, folder, masters=3, replicas=0, options=(), places=None):
        """The last of the masters has dflock's slot at first. places: of the masters, then of the replicas, each with its bus' behind it."""
        places = places or here(2 * (masters + replicas))
        self.all = []
        try:
            for i in range(masters + replicas):
                self.all.append(ClusterNode(os.path.join(folder, f"node{i}"), places[2 * i], places[2 * i + 1], options))
            self.join(masters, replicas)
        except BaseException:
            self.stop()
            raise

    def join(self, masters, replicas):
        first, share = self.all[0], SLOTS // masters
        for i, node in enumerate(self.all[:masters]):
            node.command("CLUSTER", "ADDSLOTSRANGE", i * share, SLOTS - 1 if i == masters - 1 else (i + 1) * share - 1)
            node.command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for node in self.all[1:]:
            node.command("CLUSTER", "MEET", first.address, first.port, first.bus)
        wait_until(lambda: all(self.knows_all(n) for n in self.all), "the nodes know each other", 30)
        for node in self.all[masters:]:
            node.command("CLUSTER", "REPLICATE", self.all[masters - 1].id)
        wait_until(lambda: all("cluster_state:ok" in n.command("CLUSTER", "INFO") for n in self.all), "the cluster is up", 30)
        wait_until(lambda: "connected_slaves:%d" % replicas in self.owner().command("INFO", "replication"), "its replicas are there", 30)

    def knows_all(self, node):
        lines = node.command("CLUSTER", "NODES").splitlines()
        return len(lines) == len(self.all) and not any("handshake" in l or " disconnected" in l for l in lines)

    def settings(self, replicas=0, nodes=None):
        """For the configuration's group `store`."""
        named = ", ".join(f'"{n.address}:{n.port}"' for n in nodes or self.all)
        return f"cluster = ( {named} ); replicas = {replicas};"

    def living(self):
        return [n for n in self.all if n.process]

    def owner(self, slot=SLOT):
        """The node that has the slot by its own account, and by that of most others."""
        said = [n.owner(slot) for n in self.living()]
        return next((n for n in self.living() if said.count(n.id) > len(said) // 2 and n.role() == "master"), None)

    # ---- the slot moves, as redis-cli --cluster reshard does it ----

    def begin_move(self, source, to, slot=SLOT):
        to.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)

    def move_key(self, source, to, key):
        try:
            return source.command("MIGRATE", to.address, to.port, key, 0, 5000) in ("OK", "NOKEY")
        except RuntimeError as e:
            raise AssertionError(f"{key}: {e}") from e

    def move_keys(self, source, to, slot=SLOT):
        while keys := source.keys(slot):
            for key in keys:
                self.move_key(source, to, key)

    def end_move(self, source, to, slot=SLOT):
        for node in (to, source, *(n for n in self.living() if n not in (to, source) and n.role() == "master")):
            node.command("CLUSTER", "SETSLOT", slot, "NODE", to.id)

    def move(self, source, to, slot=SLOT):
        self.begin_move(source, to, slot)
        self.move_keys(source, to, slot)
        self.end_move(source, to, slot)

    def stop(self):
        for node in self.all:
            node.stop()
