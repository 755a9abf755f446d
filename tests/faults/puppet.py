"""
A client of the keeper that may run as another user: each line of standard input is a Python expression, the answer is its repr().
For tests of what comes to the keeper's socket from users that it must not trust; connections and descriptors stay open until it ends.
"""
import array
import ctypes
import os
import select
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../interpose"))
import fake_keeper as fk  # noqa: E402

EOF = (1 << 63) - 1
connections, fds = [], []


def question(config, op=fk.LOCK, space=0, mode=fk.EXCLUSIVE, flags=fk.NONBLOCK, magic=fk.MAGIC, owner=0, text=b""):
    head = fk.REQUEST.pack(magic, fk.VERSION, fk.REQUEST.size, op, space, mode, flags, owner, 0, EOF, fk.boottime(), *fk.config_id(config), fk.path_hash(config), b"")
    return head + text


def connect(runtime):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 20, 0))
    s.connect(os.path.join(runtime, "keeper.sock"))
    s.settimeout(30)
    connections.append(s)
    return len(connections) - 1


def send(number, data, *passed):
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", passed))] if passed else []
    return connections[number].sendmsg([data], ancillary)


def answer(number):
    """(verdict, reason); None: disconnected; "nothing": within the connection's time."""
    try:
        data = connections[number].recv(4096)
    except ConnectionResetError:
        return None
    except TimeoutError:
        return "nothing"
    if not data:
        return None
    reply = fk.reply_of(data)
    return reply.verdict, reply.reason


def granted(number):
    """(verdict, the first record lock that the process has had before: mode, from, to)"""
    reply = fk.reply_of(connections[number].recv(4096))
    return reply.verdict, (reply.mode, reply.from_, reply.to)


def hang_up(number):
    connections[number].close()
    return number


def leave_unread(runtime, data, count):
    """Asks on so many connections, ends each for writing when an answer has come, and keeps that."""
    numbers = [connect(runtime) for _ in range(count)]
    for each in (lambda n: send(n, data), lambda n: select.select([connections[n]], [], [], 1), lambda n: connections[n].shutdown(socket.SHUT_WR)):
        for number in numbers:
            try:
                each(number)
            except BrokenPipeError:  # it was turned away
                pass


def leave_behind(runtime, data, fd, count):
    """Asks on so many connections, and hangs up."""
    for _ in range(count):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect(os.path.join(runtime, "keeper.sock"))
            try:
                s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
            except BrokenPipeError:  # it was turned away
                pass


def listen(name):
    """Other puppets give() descriptors to this one."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.bind("\0" + name)
    s.listen()
    fds.append(s)
    return s.fileno()


def give(name, fd):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect("\0" + name)
        s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
        return s.recv(1)


def take(listener):
    """The number of the descriptor that was given."""
    s = fds[[each.fileno() if hasattr(each, "fileno") else each for each in fds].index(listener)].accept()[0]
    _, ancillary, _, _ = s.recvmsg(1, 64)
    s.send(b"y")
    return array.array("i", ancillary[0][2])[0]


def send_as(number, data, uid, *passed):
    """With the credentials of another user, as far as the kernel lets this one."""
    creds = (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack("3i", os.getpid(), uid, uid))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", passed))] if passed else []
    try:
        return connections[number].sendmsg([data], [creds, *rights])
    except PermissionError:
        return "refused by the kernel"


def storm(runtime):
    """Connects and hangs up for as long as this process lives."""
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect_ex(os.path.join(runtime, "keeper.sock"))


def map_only(fd):
    """Maps a page of it for reading. Python's mmap would keep a copy of the descriptor."""
    mmap = ctypes.CDLL(None, use_errno=True).mmap
    mmap.restype = ctypes.c_ssize_t
    at = mmap(None, ctypes.c_size_t(4096), 1, 1, fd, ctypes.c_long(0))
    assert at > 0, os.strerror(ctypes.get_errno())
    return at


def keep(thing):
    """What must not be closed, since closing it would hang this process."""
    fds.append(thing)
    return thing.fileno() if hasattr(thing, "fileno") else thing


def lingering():
    """A TCP connection with unsent data whose close waits for its peer."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    s = socket.create_connection(listener.getsockname())
    accepted = listener.accept()[0]
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.setblocking(False)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    try:
        while True:
            s.send(b"x" * 65536)
    except BlockingIOError:
        pass
    fds.extend([listener, accepted])
    return keep(s.detach())


if __name__ == "__main__":
    for line in sys.stdin:
        try:
            print(repr(eval(line)), flush=True)
        except Exception as e:  # the test sees it
            print(repr(e), flush=True)
    os._exit(0)
