"""ZooKeepers of the test's own, on free ports of 127.0.0.1: one, or an ensemble."""
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import time

import pytest

from .ports import free_ports
from .wait import wait_until

# A server keeps its last 500 commits in memory: with a name of a thousand ranges these take 70 MB.
JAVA = ["java", "-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", "/etc/zookeeper/conf:/usr/share/java/zookeeper.jar",
        "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
CONFIG = """tickTime=500
initLimit=20
syncLimit=4
dataDir=%s
clientPort=%d
clientPortAddress=%s
admin.enableServer=false
maxClientCnxns=0
4lw.commands.whitelist=*
"""


class Client:
    """What a client of ZooKeeper says to one server (jute)."""
    EXISTS, GET, SET, GET_ACL, NAMES, SYNC, DELETE, MULTI = 3, 4, 5, 6, 8, 9, 2, 14
    READS = EXISTS, GET, GET_ACL, NAMES
    NOT_DONE = -101, -102, -103, -110, -111  # there is no such node, no right, another version, it exists, it has children

    def __init__(self, port, address="127.0.0.1"):
        self.socket = socket.create_connection((address, port), timeout=20)
        self.send(struct.pack(">iqiqi16s?", 0, 0, 10000, 0, 16, bytes(16), False))
        self.receive()

    def send(self, body):
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def receive(self):
        with_length = self.exactly(4)
        return self.exactly(struct.unpack(">i", with_length)[0])

    def exactly(self, count):
        got = b""
        while len(got) < count:
            piece = self.socket.recv(count - len(got))
            assert piece, "ZooKeeper closed the connection"
            got += piece
        return got

    def ask(self, kind, body):
        """
        What it answers; None: there is no such node, or it has changed. A follower may answer a read from before what another server has
        already confirmed to somebody: it looks at the leader first.
        """
        if kind in self.READS:
            self.ask(self.SYNC, self.text(b"/"))
        self.send(struct.pack(">ii", 1, kind) + body)
        answer = self.receive()
        error = struct.unpack(">i", answer[12:16])[0]
        assert error in (0, *self.NOT_DONE), f"ZooKeeper says {error}"
        return None if error else answer[16:]

    @staticmethod
    def text(data):
        return struct.pack(">i", len(data)) + data

    def get(self, path):
        answer = self.ask(self.GET, self.text(path.encode()) + b"\0")
        return None if answer is None else answer[4:4 + struct.unpack(">i", answer[:4])[0]]

    def set(self, path, data):
        return self.ask(self.SET, self.text(path.encode()) + self.text(data) + struct.pack(">i", -1)) is not None

    def names(self, path):
        answer = self.ask(self.NAMES, self.text(path.encode()) + b"\0")
        found, at = [], 4
        for _ in range(struct.unpack(">i", answer[:4])[0] if answer else 0):
            length = struct.unpack(">i", answer[at:at + 4])[0]
            found.append(answer[at + 4:at + 4 + length].decode())
            at += 4 + length
        return found

    def all_below(self, path):
        return [node for name in self.names(path) for node in (*self.all_below(f"{path}/{name}"), f"{path}/{name}")]

    def remove_all(self, paths):
        """In one step, or not at all."""
        body = b"".join(struct.pack(">i?i", self.DELETE, False, -1) + self.text(path.encode()) + struct.pack(">i", -1) for path in paths)
        answer = self.ask(self.MULTI, body + struct.pack(">i?i", -1, True, -1))
        return answer is not None and struct.unpack(">i", answer[:4])[0] == self.DELETE  # else why the first one was not done

    def close(self):
        self.socket.close()


def node_of(key, field=""):
    """Where dflock has what a Redis has in `field` of the hash `key`, or in the key: a node below the root, and a tag in it."""
    def encode(name):
        plain = "".join(c if c.isalnum() and c.isascii() or c in "_-:@,=+ ." else "".join("%%%02x" % b for b in c.encode()) for c in name)
        return "%2e" + plain[1:] if plain.startswith(".") else plain

    prefix, _, rest = key.partition("dflock:{0}:")[2].partition(":")
    if prefix == "lock":
        return f"locks/{encode(rest)}", "lock"
    if prefix == "rests":
        space, _, name = field.removeprefix("dflock:{0}:rest:").partition(":")
        return f"locks/{encode(name)}", "rest-" + space
    if prefix == "hosts":
        return f"hosts/{encode(field)}", "beat"
    if prefix == "store" and field.split(":")[0] in ("inc", "open", "ttl_ms"):
        return "store", field
    return pytest.skip(f"asks Redis itself: {key} {field}")


def cells(data):
    """What a node has: tag -> value."""
    found, at = {}, data.find(b"\n") + 1
    while data and at < len(data):
        tag, length = data[at:data.index(b"\n", at)].split()
        at = data.index(b"\n", at) + 1
        found[tag.decode()] = data[at:at + int(length)]
        at += int(length) + 1
    return found


class Zookeeper:
    def __init__(self, folder, servers=1, forgets=False, address="127.0.0.1", port=None, inside=(), within=contextlib.nullcontext):
        """
        forgets: as a Redis that saves nothing, when it is stopped and started. One with an address of its own (Network): its port, what
        stands before its words, and where to be for a connection to it.
        """
        self.forgets, self.address, self.inside, self.within = forgets, address, list(inside), within
        self.folder = os.path.join(folder, "zookeeper")
        self.socket = self.folder  # what other users must be let in to, where it has one
        self.ports = [port] if port else free_ports(servers)
        self.peers = free_ports(2 * servers)
        self.processes = [None] * servers
        try:
            for n in range(servers):
                self.configure(n)
                self.start_server(n)
            wait_until(self.answers, "ZooKeeper answers", 60)
        except BaseException:
            self.stop()
            raise

    def configure(self, n):
        data = os.path.join(self.folder, str(n))
        os.makedirs(data)
        with open(os.path.join(data, "myid"), "w") as f:
            f.write(str(n + 1))
        with open(os.path.join(data, "zoo.cfg"), "w") as f:
            f.write(CONFIG % (data, self.ports[n], self.address))
            if len(self.ports) > 1:
                for i in range(len(self.ports)):
                    f.write(f"server.{i + 1}=127.0.0.1:{self.peers[2 * i]}:{self.peers[2 * i + 1]}\n")

    def start_server(self, n):
        with open(os.path.join(self.folder, f"log{n}"), "ab") as log:
            self.processes[n] = subprocess.Popen([*self.inside, *JAVA, os.path.join(self.folder, str(n), "zoo.cfg")], stdout=log, stderr=log)

    def mode(self, n):
        """leader, follower, standalone; "" if it does not serve."""
        try:
            with self.within(), socket.create_connection((self.address, self.ports[n]), timeout=1) as s:
                s.sendall(b"srvr")
                said = b"".join(iter(lambda: s.recv(4096), b"")).decode()
        except OSError:
            return ""
        return said.split("Mode: ")[1].split()[0] if "Mode: " in said else ""

    def answers(self):
        return all(self.mode(n) for n, process in enumerate(self.processes) if process)

    def leader(self):
        modes = [self.mode(n) if process else "" for n, process in enumerate(self.processes)]
        return modes.index("leader") if "leader" in modes else None

    def settings(self):
        """For the configuration's group `store`."""
        return 'zookeeper = "%s/dflock";' % ",".join(f"{self.address}:{port}" for port in self.ports)

    def command(self, *words):
        """What tests ask a Redis that is their store, as far as there is the like here."""
        match words:
            case ["FLUSHALL"]:
                return self.forget()
            case ["TIME"]:
                return divmod(time.time_ns() // 1000, 1000000)
            case ["EXISTS" | "DEL", _] | ["HGET" | "HDEL", _, _]:
                return self.cell(*words)
            case _:
                return pytest.skip(f"asks Redis itself: {words[0]}")

    def cell(self, what, *where):
        client = self.client()
        if where == ("dflock:{0}:hosts",):
            return int(client.remove_all(client.all_below("/dflock/hosts")))
        node, tag = node_of(*where)
        data = client.get("/dflock/" + node) or b""
        has = cells(data)
        there = tag in has
        if what in ("DEL", "HDEL") and there:
            del has[tag]
            there = client.set("/dflock/" + node, b"dflock 1\n" + b"".join(b"%s %d\n%s\n" % (t.encode(), len(v), v) for t, v in has.items()))
        client.close()
        return int(there) if what != "HGET" else has[tag].decode() if there else None

    def client(self):
        with self.within():
            return Client(self.ports[0], self.address)

    def forget(self):
        """All that dflock has there goes at once: the first host that comes makes a new tree."""
        client = self.client()
        wait_until(lambda: client.remove_all(client.all_below("/dflock")), "the tree is removed")
        client.close()

    def commands_processed(self):
        pytest.skip("counts Redis' commands")

    def pids(self):
        return [process.pid for process in self.processes if process]

    def signal(self, number):
        for pid in self.pids():
            os.kill(pid, number)

    def stop_server(self, n):
        """As if it had lost its power."""
        if self.processes[n]:
            self.processes[n].send_signal(signal.SIGKILL)
            self.processes[n].wait()
            self.processes[n] = None

    def start(self):
        if self.forgets:
            for n in range(len(self.ports)):
                shutil.rmtree(os.path.join(self.folder, str(n), "version-2"), ignore_errors=True)
        for n in range(len(self.ports)):
            self.start_server(n)
        wait_until(self.answers, "ZooKeeper answers", 60)

    def stop(self):
        for n in range(len(self.ports)):
            self.stop_server(n)

    def restart(self):
        if self.forgets:  # its start takes longer than leases of tests last; test_zookeeper.py has servers that end
            return self.forget()
        self.stop()
        return self.start()
