"""ZooKeepers of the test's own, on free ports of 127.0.0.1: one, or an ensemble."""
import os
import shutil
import signal
import socket
import subprocess

import pytest

from .wait import wait_until

JAVA = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", "/etc/zookeeper/conf:/usr/share/java/zookeeper.jar",
        "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
CONFIG = """tickTime=500
initLimit=20
syncLimit=4
dataDir=%s
clientPort=%d
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
4lw.commands.whitelist=*
"""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Zookeeper:
    def __init__(self, folder, servers=1):
        self.folder = os.path.join(folder, "zookeeper")
        self.ports = free_ports(servers)
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
            f.write(CONFIG % (data, self.ports[n]))
            if len(self.ports) > 1:
                for i in range(len(self.ports)):
                    f.write(f"server.{i + 1}=127.0.0.1:{self.peers[2 * i]}:{self.peers[2 * i + 1]}\n")

    def start_server(self, n):
        with open(os.path.join(self.folder, f"log{n}"), "ab") as log:
            self.processes[n] = subprocess.Popen([*JAVA, os.path.join(self.folder, str(n), "zoo.cfg")], stdout=log, stderr=log)

    def mode(self, n):
        """leader, follower, standalone; "" if it does not serve."""
        try:
            with socket.create_connection(("127.0.0.1", self.ports[n]), timeout=1) as s:
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
        return 'zookeeper = "%s/dflock";' % ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def command(self, *words):
        """What tests ask a Redis that is their store."""
        match words:
            case ["FLUSHALL"]:
                self.stop()
                for n in range(len(self.ports)):
                    shutil.rmtree(os.path.join(self.folder, str(n), "version-2"))
                return self.start()
            case _:
                return pytest.skip(f"asks Redis itself: {words[0]}")

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
        for n in range(len(self.ports)):
            self.start_server(n)
        wait_until(self.answers, "ZooKeeper answers", 60)

    def stop(self):
        for n in range(len(self.ports)):
            self.stop_server(n)

    def restart(self):
        self.stop()
        self.start()
