"""Redis servers that replicate, and sentinels that watch them, on free ports of 127.0.0.1 or on machines of a Network."""
import collections
import os
import subprocess

from .ports import free_ports
from .redis import SERVER, Redis
from .wait import wait_until

MASTER = "themaster"
# Where a server listens, and what stands before its words.
Place = collections.namedtuple("Place", "address port inside")


def here(count):
    """On this machine."""
    return [Place("127.0.0.1", port, ()) for port in free_ports(count)]


class Node(Redis):
    def __init__(self, folder, place, master=None, options=()):
        os.makedirs(folder, exist_ok=True)
        follow = ["--replicaof", f"{master.address} {master.port}"] if master else []
        super().__init__(folder, "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", *follow, *options,
                         **place._asdict())

    def info(self, field):
        lines = self.command("INFO", "replication").splitlines()
        return next((l.split(":", 1)[1] for l in lines if l.startswith(field + ":")), None)

    def follow(self, node):
        self.command("REPLICAOF", node.address, node.port)

    def promote(self):
        self.command("REPLICAOF", "NO", "ONE")

    def has_replicas(self, count):
        """So many are connected and up to date."""
        lines = self.command("INFO", "replication").splitlines()
        return sum("state=online" in l for l in lines if l.startswith("slave")) == count


class Sentinel(Redis):
    def __init__(self, folder, place, node, quorum, options=(), tls=()):
        os.makedirs(folder)
        self.path = os.path.join(folder, "sentinel.conf")
        lines = [*(tls or [f"port {place.port}"]), f"bind {place.address}", "protected-mode no", f"dir {folder}",
                 f"unixsocket {folder}/redis.sock", f"sentinel monitor {MASTER} {node.address} {node.port} {quorum}",
                 f"sentinel down-after-milliseconds {MASTER} 1500", f"sentinel failover-timeout {MASTER} 4000",
                 f"sentinel parallel-syncs {MASTER} 5", *options]
        with open(self.path, "w") as f:
            f.write("\n".join(lines) + "\n")
        super().__init__(folder, **place._asdict())

    def start(self):
        self.process = subprocess.Popen([*self.inside, SERVER, self.path, "--sentinel"], stderr=subprocess.STDOUT,
                                        stdout=open(os.path.join(self.folder, "sentinel.log"), "ab"))
        wait_until(self.answers, "a sentinel answers")

    def knows(self, replicas, sentinels):
        said = self.command("SENTINEL", "MASTER", MASTER)
        fields = dict(zip(said[::2], said[1::2]))
        return int(fields["num-slaves"]) == replicas and int(fields["num-other-sentinels"]) == sentinels - 1

    def master(self):
        """The address and the port of what it takes for the master."""
        address, port = self.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return address, int(port)


class Nodes:
    """nodes[0] is the master at first, the others its replicas; sentinels know that. places: of the nodes, then of the sentinels."""

    def __init__(self, folder, count, sentinels=0, options=lambda i: (), places=None, tls=None):
        """tls(place, sentinel): the settings of a server that speaks TLS alone, for a sentinel lines of its file."""
        places = places or here(count + sentinels)
        self.all, self.sentinels = [], []
        try:
            for i, place in enumerate(places[:count]):
                master = places[0] if i else None
                more = tls(place, False) if tls else ()
                self.all.append(Node(os.path.join(folder, f"node{i}"), place, master, [*options(i), *more]))
            wait_until(lambda: self.all[0].has_replicas(count - 1), "all replicas are connected")
            for i, place in enumerate(places[count:]):
                self.sentinels.append(Sentinel(os.path.join(folder, f"sentinel{i}"), place, self.all[0], sentinels // 2 + 1,
                                               tls=tls(place, True) if tls else ()))
            wait_until(lambda: all(s.knows(count - 1, sentinels) for s in self.sentinels), "the sentinels know all", 30)
        except BaseException:
            self.stop()
            raise
        self.settings = self.by_sentinels(count - 1) if sentinels else self.at(0, count - 1)

    def by_sentinels(self, replicas):
        """For the configuration's group `store`."""
        return 'sentinels = ( %s ); master = "%s"; replicas = %d;' % (
            ", ".join(f'"{s.address}:{s.port}"' for s in self.sentinels), MASTER, replicas)

    def at(self, index, replicas):
        """The same for one node, whatever the sentinels say."""
        return 'server = "%s:%d"; replicas = %d;' % (self.all[index].address, self.all[index].port, replicas)

    def __getitem__(self, index):
        return self.all[index]

    def master(self):
        """The one that most sentinels name, if it is one."""
        where = max(said := [s.master() for s in self.sentinels], key=said.count)
        return next((n for n in self.all if (n.address, n.port) == where and n.role() == "master"), None)

    def failed_over(self, old):
        """Waits until another one is the master, and gives it."""
        def another():
            said = [s.master() for s in self.sentinels]
            return said.count((old.address, old.port)) <= len(said) // 2 and self.master()
        return wait_until(another, "another node is the master", 40)

    def stop(self):
        for server in self.sentinels + self.all:
            server.stop()
