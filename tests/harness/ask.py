"""
A question of an operator to a keeper, without a program: tests look at a keeper again and again while they wait, and to start `dflock` takes
ten times as long.
"""
import array
import os
import socket
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "interpose"))
import fake_keeper as wire  # noqa: E402

STATUS = 3


def ask(path, op, seconds=20):
    """What the keeper at this socket answers, as text; OSError: it does not."""
    question = wire.REQUEST.pack(wire.MAGIC, wire.VERSION, wire.REQUEST.size, op, 0, 0, 0, 0, 0, 0, wire.boottime(), *(0,) * 6, b"")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(seconds)
        s.connect(path)
        s.send(question)
        data, passed, _, _ = s.recvmsg(wire.REPLY.size, socket.CMSG_SPACE(4))
    fds = [fd for level, kind, number in passed if kind == socket.SCM_RIGHTS for fd in array.array("i", number)]
    if not fds or wire.reply_of(data).verdict != wire.OK:
        raise OSError("the keeper has refused to say it")
    with open(fds[0]) as answer:
        answer.seek(0)
        return answer.read()
