"""Ports of 127.0.0.1 for servers of a test."""
import random
import socket

taken = []  # a name for each port: who has it (and so do unit tests, zookeeper_server.h) has the port, also while its server is off


def free_ports(count):
    """Below the range from which the kernel takes ports for clients."""
    ports = []
    while len(ports) < count:
        port = random.randrange(10000, 30000)
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0dflock-port-{port}")
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            name.close()
            continue
        taken.append(name)
        ports.append(port)
    return ports


def give_back():
    while taken:
        taken.pop().close()
