"""
A network of the test's own: a namespace with a bridge, and a namespace for each machine, in which programs are started with
`inside(name)` before their words. Nothing of it is in the network that the machine is in, and delete() removes it all.

Needs root, and no more of the kernel than namespaces, veth and bridges: a port that is down cuts both ways; a neighbour's address
that no machine has cuts one way (packets to it are lost without an error).
"""
import contextlib
import ctypes
import os
import subprocess

NOBODY = "02:00:00:00:00:fe"


def _ip(*words, inside=None):
    subprocess.run([*(_enter(inside) if inside else ()), "ip", *words], check=True, stdin=subprocess.DEVNULL)


def _enter(space):
    # Not `ip netns exec`, which gives a mount namespace of its own as well.
    return ["nsenter", "--net=/run/netns/" + space]


class Network:
    """names: the machines. Addresses are the same in every run, since each network is apart."""

    def __init__(self, names):
        self.tag = f"dflock{os.getpid()}"
        self.addresses = {name: f"10.99.0.{i}" for i, name in enumerate(names, 1)}
        self.spaces = []
        try:
            self._create()
        except BaseException:
            self.delete()
            raise

    def _space(self, name):
        space = f"{self.tag}-{name}"
        _ip("netns", "add", space)
        self.spaces.append(space)
        _ip("link", "set", "lo", "up", inside=space)
        return space

    def _create(self):
        self.hub = self._space("hub")
        _ip("link", "add", "bridge", "type", "bridge", inside=self.hub)
        _ip("link", "set", "bridge", "up", inside=self.hub)
        for name, address in self.addresses.items():
            space = self._space(name)
            _ip("link", "add", "name", name, "type", "veth", "peer", "name", "eth", "netns", space, inside=self.hub)
            _ip("link", "set", "dev", name, "master", "bridge", "up", inside=self.hub)
            _ip("address", "add", address + "/24", "dev", "eth", inside=space)
            _ip("link", "set", "eth", "up", inside=space)

    def delete(self):
        for space in self.spaces:
            subprocess.run(["ip", "netns", "delete", space], check=False)
        self.spaces = []

    def inside(self, name):
        return _enter(f"{self.tag}-{name}")

    @contextlib.contextmanager
    def within(self, name):
        """Sockets that this thread makes meanwhile are that machine's."""
        with open("/proc/thread-self/ns/net") as before, open(f"/run/netns/{self.tag}-{name}") as there:
            self._enter_for_good(there)
            try:
                yield
            finally:
                self._enter_for_good(before)

    @staticmethod
    def _enter_for_good(space):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(space.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")

    def cut(self, name):
        """Nothing comes to or from this machine."""
        _ip("link", "set", "dev", name, "down", inside=self.hub)

    def mend(self, name):
        _ip("link", "set", "dev", name, "up", inside=self.hub)

    def deafen(self, name, speaker):
        """What the speaker sends to `name` gets lost, but not what `name` sends to it."""
        _ip("neigh", "replace", self.addresses[name], "lladdr", NOBODY, "dev", "eth", "nud", "permanent",
            inside=f"{self.tag}-{speaker}")

    def undeafen(self, name, speaker):
        _ip("neigh", "delete", self.addresses[name], "dev", "eth", inside=f"{self.tag}-{speaker}")

    def unroute(self, name, speaker):
        """As deafen(), but the speaker is told: its calls fail."""
        _ip("route", "add", "blackhole", self.addresses[name], inside=f"{self.tag}-{speaker}")

    def reroute(self, name, speaker):
        _ip("route", "delete", "blackhole", self.addresses[name], inside=f"{self.tag}-{speaker}")
