"""The recipe "Redis on three machines": its files as they stand in the page, on three addresses of this machine."""
import contextlib
import os
import random
import socket
import subprocess

import pytest
from harness import Job, text_of, wait_until
from harness.redis import SERVER

from recipes import recipe

RECIPE = "Redis on three machines"


class Machine:
    """A Redis server and a sentinel, by the recipe's files, at the address that is this machine's."""

    def __init__(self, folder, blocks, address, first, net):
        self.address, self.folder = address, folder
        os.makedirs(folder)
        server = blocks["redis.conf"].replace("bind 10.0.0.1", "bind " + address).replace("announce-ip 10.0.0.1", "announce-ip " + address)
        server = server if address != first else server.replace("replicaof 10.0.0.1 6379\n", "")
        sentinel = blocks["sentinel.conf"].replace("bind 10.0.0.1", "bind " + address).replace("announce-ip 10.0.0.1", "announce-ip " + address)
        self.processes = []
        for name, text in ("server", server), ("sentinel", sentinel):
            path = os.path.join(folder, name + ".conf")
            with open(path, "w") as f:
                f.write(text.replace("10.0.0.", net) + f'dir "{folder}"\n')
            self.processes.append(subprocess.Popen([SERVER, path, *(["--sentinel"] if name == "sentinel" else [])], cwd=folder,
                                                   stdout=open(path + ".log", "w"), stderr=subprocess.STDOUT))

    def ask(self, port, *words):
        """The answer of the server, or the sentinel, as lines; none if it does not answer."""
        login = ["-a", "change-me", "--no-auth-warning"] if port == 6379 else []
        done = subprocess.run(["redis-cli", "-h", self.address, "-p", str(port), *login, *words], capture_output=True, text=True, timeout=60)
        return done.stdout.splitlines()

    def known(self):
        """How many replicas and other sentinels its sentinel knows: it looks every ten seconds, and changes over only what it knows."""
        lines = self.ask(26379, "SENTINEL", "MASTER", "locks")
        fields = dict(zip(lines[::2], lines[1::2]))
        return fields.get("num-slaves"), fields.get("num-other-sentinels")

    def is_off(self):
        for process in self.processes:
            process.kill()
            process.wait()


def free_net():
    """A beginning of addresses of this machine at which nothing listens."""
    while True:
        net = f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}."
        with contextlib.suppress(OSError):
            for n in "123":
                for port in 6379, 26379:
                    with socket.socket() as s:
                        s.bind((net + n, port))
            return net


@pytest.fixture
def machines(folder):
    blocks, net = recipe(RECIPE), free_net()
    made = [Machine(os.path.join(folder, "redis-" + n), blocks, net + n, net + "1", net) for n in "123"]
    try:
        wait_until(lambda: sum("state=online" in line for line in made[0].ask(6379, "INFO", "replication")) == 2, "the replicas follow", 60)
        wait_until(lambda: all(m.known() == ("2", "2") for m in made), "each sentinel knows the others, and both replicas", 60)
        yield made, net
    finally:
        for machine in made:
            machine.is_off()


@pytest.mark.long
def test_a_machine_is_off(machines, host_of, folder):
    """Its master is killed: the job that holds the lock goes on, nobody else gets the lock, and new ones can be had after grace."""
    made, net = machines
    conf = recipe(RECIPE)["conf"].replace("10.0.0.", net)
    store, lease = (conf.split(group + " = {", 1)[1].split("};", 1)[0].strip() for group in ("store", "lease"))
    hosts = []
    for name in "ab":
        host = host_of(store.replace('password_file = "/etc/dflock.password";', ""), name, foreground=False, lease=lease,
                       rules='{ path = "%s/nightly.lock"; name = "nightly"; }')
        secret = host.password("change-me")
        text = text_of(host.config)
        with open(host.config, "w") as f:
            f.write(text.replace("replicas = 2;", f'replicas = 2; password_file = "{secret}";'))
        host.start()
        hosts.append(host)
    a, b = hosts
    wait_until(lambda: a.cli("init", "--force", check=False).returncode == 0, "the store is open", 60)
    holder = Job(a, "flock", a.path("nightly.lock"), "sh", "-c", "echo held; while read line; do echo $line; done").held(60)
    lease = [l for l in a.status()["leases"] if l["name"] == "nightly"][0]
    made[0].is_off()
    wait_until(lambda: any("role:master" in m.ask(6379, "INFO", "replication") for m in made[1:]), "another one is the master", 60)
    wait_until(lambda: a.status()["store"]["up"] and b.status()["store"]["up"], "both hosts are there", 60)
    holder.say("alive")
    assert holder.line() == "alive"
    assert b.run("flock", "-n", b.path("nightly.lock"), "true").returncode != 0
    assert [(l["token"], l["fence"]) for l in a.status()["leases"]] == [(lease["token"], lease["fence"])]
    assert holder.end() == 0
    wait_until(lambda: b.run("flock", "-n", b.path("nightly.lock"), "true").returncode == 0, "the next host gets it", 90)
