"""Asks a keeper on behalf of a thread, as the net's supervisor does, and leaves the call to the thread itself."""
import array
import os
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../interpose"))
import fake_keeper as fk  # noqa: E402

EOF = (1 << 63) - 1
THREAD_AT, CALL_AT = 88, 96  # struct wire_request


def question(host, thread, call, space=0, mode=fk.EXCLUSIVE, flags=0, owner=0, start=0, to=EOF):
    data = bytearray(fk.REQUEST.pack(fk.MAGIC, fk.VERSION, fk.REQUEST.size, fk.LOCK, space, mode, flags, owner, start, to,
                                     fk.boottime(), *fk.config_id(host.config), fk.path_hash(host.config), b"net"))
    struct.pack_into("<i", data, THREAD_AT, thread)
    struct.pack_into("<Q", data, CALL_AT, call)
    return bytes(data)


class Asked:
    """One question on a connection of its own; the file is opened anew, so its description holds nothing."""

    def __init__(self, host, thread, call, name="f", **more):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(os.path.join(host.runtime, "keeper.sock"))
        self.socket.settimeout(20)
        fd = os.open(host.path(name), os.O_RDWR | os.O_CREAT)
        self.socket.sendmsg([question(host, thread, call, **more)],
                            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
        os.close(fd)

    def answer(self):
        """(verdict, reason): the first one that is final."""
        reply = fk.reply_of(self.socket.recv(4096))
        while reply.verdict == fk.WAITING:
            reply = fk.reply_of(self.socket.recv(4096))
        return reply.verdict, reply.reason

    def end(self):
        self.socket.close()


def granted(host, thread, call, **more):
    """The call is under way from now on."""
    asked = Asked(host, thread, call, **more)
    verdict = asked.answer()
    asked.end()
    return verdict[0] == fk.GRANTED
