"""What a keeper says of record locks, and what the kernel knows of a process's own: for tests of fcntl() and lockf()."""
import os
import socket
import struct
import threading

import fake_keeper as fk

TEST, BEFORE = 2, 8
EOF = 2**63 - 1
DESCRIPTION, PROCESS = 0, 1
KINDS = {"OFDLCK": DESCRIPTION, "POSIX": PROCESS}


def answer(connection, verdict, until_ns=0, mode=0, start=0, to=0, pid=0, reason=""):
    connection.sock.send(fk.REPLY.pack(fk.MAGIC, fk.VERSION, fk.REPLY.size, verdict, mode, 0, 0, pid, reason.encode(), until_ns, 1,
                                       start, to))


def peer(connection):
    return struct.unpack("3i", connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def locks(pid, path, owner):
    """The record locks that a process has on a file: [(mode, from, to)], ascending."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{fd}") != str(path):
                continue
            with open(f"/proc/{pid}/fdinfo/{fd}") as info:
                lines = [line.split() for line in info if line.startswith("lock:")]
        except FileNotFoundError:
            continue
        for _, _, kind, _, mode, _, _, first, last in lines:
            if KINDS.get(kind) == owner:
                found.add((int(first), EOF if last == "EOF" else int(last) + 1, mode == "WRITE"))
    return [(int(mode), start, to) for start, to, mode in sorted(found)]


class Known:
    """Answers WIRE_BEFORE truthfully, for one connection. saw() each question; then ask first() or after()."""

    def __init__(self):
        self.had, self.request = [], None

    def saw(self, connection, request):
        if request.op == fk.LOCK and not request.have:
            self.request, self.had = request, locks(peer(connection), request.fds[0], request.owner)

    def after(self, start):
        return next((lock for lock in self.had if lock[2] > start), (0, start, start))

    def first(self):
        """As WIRE_GRANTED says it: none is the end of the question, twice."""
        mode, start, to = self.after(self.request.start)
        return (mode, start, to) if start < min(to, self.request.to) else (0, self.request.to, self.request.to)

    def answer_before(self, connection, request):
        mode, start, to = self.after(request.start)
        answer(connection, fk.OK, 0, mode, start, to)

    def grant(self, connection, request, ns=10 * fk.SECOND, tell=True):
        mode, start, to = self.first() if tell and not request.have else (0, 0, 0)
        answer(connection, fk.GRANTED, request.sent_ns + ns, mode, start, to)


def grant_all(connection):
    """A keeper that is alone in the world."""
    known = Known()
    while request := connection.receive():
        known.saw(connection, request)
        if request.op == BEFORE:
            known.answer_before(connection, request)
        elif request.op == TEST or request.space == 0:
            answer(connection, fk.GRANTED, request.sent_ns + 10 * fk.SECOND)
        else:
            known.grant(connection, request)


class Question:
    """One that the test answers."""

    def __init__(self, known, connection, request):
        self.known, self.connection, self.request = known, connection, request

    def grant(self, ns=10 * fk.SECOND, tell=True):
        self.known.grant(self.connection, self.request, ns, tell)

    def tells_all(self):
        """Whether the first of the caller's locks is all that there is to know."""
        _, start, to = self.known.first()
        return start == to or to >= self.request.to

    def late(self, tell=True):
        """A grant that is over when it arrives."""
        self.grant(0, tell)

    def send(self, verdict, **fields):
        answer(self.connection, verdict, **fields)

    def die(self):
        self.connection.sock.shutdown(socket.SHUT_RDWR)


class Script:
    """A handler whose questions the test answers, one after the other; but WIRE_BEFORE, which it answers itself."""

    def __init__(self):
        self.arrived, self.questions = threading.Semaphore(0), []
        self.gone, self.befores = threading.Event(), 0

    def __call__(self, connection):
        known = Known()
        while request := connection.receive():
            known.saw(connection, request)
            if request.op == BEFORE:
                self.befores += 1
                known.answer_before(connection, request)
            else:
                self.gone.clear()
                self.questions.append(Question(known, connection, request))
                self.arrived.release()
        self.gone.set()

    def next(self):
        assert self.arrived.acquire(timeout=20), "no question came"
        return self.questions.pop(0)

    def next_known(self):
        """The next, after which the caller knows what it had: if need be, the second one."""
        question = self.next()
        if question.tells_all():
            return question
        question.grant()
        return self.next()
