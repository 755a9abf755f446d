"""A keeper that says what a test tells it to say: wire/msg.h and wire/page.h, from the other side.

In a test: Keeper(dir, config, rules, handler); the handler gets each connection, in a thread of its own.
As a program (a copy of the shim finds it beside itself as `dflockd`): main() does what the configuration,
a JSON file, says, and writes what it was started with to DIR/started-PID.json.
"""
import array
import json
import mmap
import os
import socket
import struct
import sys
import threading
import time
from collections import namedtuple

MAGIC, VERSION = 0x6B6C6664, 4
REQUEST = struct.Struct("<IHH4BB3xqqq3Q2qQ16x16s") # no thread, no call
REPLY = struct.Struct("<IHHBBBBi1024sqQqq")
Reply = namedtuple("Reply", "magic version size verdict mode on_refused may_mend pid reason until_ns fence from_ to")
LOCK, TEST, BEFORE, HELD = 1, 2, 8, 10
GRANTED, WAITING, WOULD_BLOCK, REFUSED, DEADLOCK, NOT_PROTECTED, OK = range(1, 8)
SHARED, EXCLUSIVE = 0, 1
NONBLOCK, HAVE = 1, 2
DESCRIPTION, PROCESS, FLOCKED = range(3)  # owners of record locks; the owner of what flock() took
KINDS = {"OFDLCK": DESCRIPTION, "POSIX": PROCESS, "FLOCK": FLOCKED}

PAGE_MAGIC, PAGE_VERSION, PAGE_BYTES = 0x65676170636C6664, 5, 4 << 20
PAGE_HEAD = struct.Struct("<Q4I3Q2q2Q8s3Q2qQ72s4096s768s")
EMPTY, RULES, INVALID = range(3)
PATH, GLOB, TREE = range(3)
REFUSE, BUSY, WAIT = range(3)  # on_refused

LEASES_AT, BUCKETS, IN_BUCKET = 1053696, 1024, 8  # struct leases
CLOCK, SLOT = struct.Struct("<q4Q"), struct.Struct("<2I3Q2q4I")
FLOCK, RECORD = 0, 1
EOF = 2**63 - 1

SECOND = 10**9


def boottime():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def config_id(path):
    st = os.stat(path)
    return st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns


NONE = (0,) * 5  # no file


def page(config, rules=(), state=RULES, message="", root=None, seq=2, ids=None, path=None):
    """rules: kind, pattern and perhaps on_refused. ids: those of the file that the rules came from, and of the file when the keeper last looked."""
    packed = b""
    for kind, pattern, *on_refused in rules:
        record = pattern.encode() + b"\0"
        record += b"\0" * (-len(record) % 8)
        packed += struct.pack("<IHH", 8 + len(record), kind, *on_refused or [REFUSE]) + record
    st = root or os.stat("/")
    ids, path = ids or (config_id(config),) * 2, str(path or config)
    head = PAGE_HEAD.pack(PAGE_MAGIC, PAGE_VERSION, seq, state, len(packed), *ids[0], st.st_dev, st.st_ino, b"", *ids[1],
                          path_hash(path), b"", path.encode(), message.encode())
    return (head + packed).ljust(PAGE_BYTES, b"\0")


def write_page(directory, *args, **kwargs):
    """As the keeper does: one file for ever, written in place."""
    fd = os.open(f"{directory}/page", os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, page(*args, **kwargs))
    os.close(fd)


def cover(directory, dev):
    """The page says that rules have covered files of this device."""
    with open(f"{directory}/page", "r+b") as file:
        file.seek(LEASES_AT + 128 + BUCKETS * IN_BUCKET * SLOT.size)
        file.write(struct.pack("<2IQ", 1, 0, dev))


def path_hash(path):
    """leases_hash()"""
    path = os.fsencode(path)
    value, whole = len(path), len(path) // 8 * 8
    for at in range(0, whole + 1, 8):
        value = (value ^ int.from_bytes(path[at:at + 8], sys.byteorder)) * 0x9E3779B97F4A7C15 % 2**64
        value ^= value >> 32
    return value


def reply_of(data):
    reply = Reply(*REPLY.unpack(data))
    return reply._replace(reason=reply.reason.rstrip(b"\0").decode())


class Leases:
    """The leases in the page of a runtime directory; this is their only writer. The clock has not run out unless clock() says so."""

    def __init__(self, directory):
        with open(f"{directory}/page", "r+b") as file:
            self.page = mmap.mmap(file.fileno(), PAGE_BYTES)
        self.used = {}
        self.clock()

    def clock(self, sure_until_ns=EOF, namespace=None):
        space = namespace or os.stat("/proc/self/ns/time")
        pids = os.stat("/proc/self/ns/pid")
        CLOCK.pack_into(self.page, LEASES_AT + 64, sure_until_ns, space.st_dev, space.st_ino, pids.st_dev, pids.st_ino)

    def show(self, path, space=FLOCK, mode=EXCLUSIVE, start=0, to=EOF, called=None, ino=None, seq=2, note=0):
        """called: the path that stands there; note: for a program's second preload, in the word that is reserved."""
        st = os.stat(path)
        dev, ino = st.st_dev, ino or st.st_ino
        mixed = (ino ^ dev << 32 ^ dev >> 32) % 2**64 * 0x9E3779B97F4A7C15 % 2**64
        bucket = (mixed >> 32) % BUCKETS
        number = self.used[bucket] = self.used.get(bucket, -1) + 1
        at = LEASES_AT + 128 + (bucket * IN_BUCKET + number) * SLOT.size
        SLOT.pack_into(self.page, at, seq, note, dev, ino, path_hash(called or path), start, to, space, mode, 1, 0)
        return at

    def close(self, at):
        seq, = struct.unpack_from("<I", self.page, at)
        SLOT.pack_into(self.page, at, seq + 2, *[0] * 10)


def locks(pid, path, owner):
    """The locks that a process has on a file: [(mode, from, to)], ascending."""
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


class Request:
    def __init__(self, data, fds):
        (self.magic, self.version, self.size, self.op, self.space, self.mode, self.flags, self.owner, self.start,
         self.to, self.sent_ns, *config, self.path_hash, command) = REQUEST.unpack(data)
        self.config, self.fds, self.command = tuple(config), fds, command.rstrip(b"\0").decode()
        self.have, self.nonblock = bool(self.flags & HAVE), bool(self.flags & NONBLOCK)


class Connection:
    def __init__(self, sock):
        self.sock = sock

    def receive(self):
        """The next question, or None when the caller has gone."""
        try:
            data, ancillary, _, _ = self.sock.recvmsg(4096, socket.CMSG_SPACE(16))
        except ConnectionResetError:
            return None
        fds = array.array("i")
        for level, kind, body in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(body[: len(body) // 4 * 4])
        if not data:
            return None
        paths = [os.readlink(f"/proc/self/fd/{fd}") for fd in fds]
        for fd in fds:
            os.close(fd)
        return Request(data, paths)

    def send(self, verdict, until_ns=0, reason="", version=VERSION, size=REPLY.size, magic=MAGIC, mode=0, start=0, to=0, pid=0,
             on_refused=REFUSE, may_mend=False, fds=()):
        reply = REPLY.pack(magic, version, size, verdict, mode, on_refused, may_mend, pid, reason.encode(), until_ns, 1, start, to)
        socket.send_fds(self.sock, [reply], fds) if fds else self.sock.send(reply)

    def grant(self, request, ns=10 * SECOND):
        """Also the answer to a WIRE_TEST: no lock is in the way. For the record space: "you had no locks there",
        which matters only to a call that must put things back."""
        self.send(GRANTED, request.sent_ns + ns, start=request.to, to=request.to)

    def peer(self):
        return struct.unpack("3i", self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]

    def close(self):
        self.sock.close()


def grant_all(connection):
    """As a keeper that is alone in the world."""
    known = Known(connection)
    while request := connection.receive():
        if not known.saw(request):
            known.grant(request)


class Known:
    """What the caller of one connection has. saw() each question: it answers WIRE_BEFORE."""

    def __init__(self, connection):
        self.connection, self.had, self.request = connection, [], None

    def saw(self, request):
        """true: it was answered."""
        if request.op == BEFORE:
            mode, start, to = self.after(request.start)
            self.connection.send(OK, mode=mode, start=start, to=to)
        elif request.op == LOCK and request.space == RECORD and not request.have:
            self.request, self.had = request, locks(self.connection.peer(), request.fds[0], request.owner)
        return request.op == BEFORE

    def after(self, start):
        return next((lock for lock in self.had if lock[2] > start), (0, start, start))

    def first(self):
        """As WIRE_GRANTED says it: none is the end of the question, twice."""
        mode, start, to = self.after(self.request.start)
        return (mode, start, to) if start < min(to, self.request.to) else (0, self.request.to, self.request.to)

    def grant(self, request, ns=10 * SECOND, tell=True):
        mode, start, to = self.first() if tell and self.request and not request.have and request.op == LOCK else (0, 0, 0)
        self.connection.send(GRANTED, request.sent_ns + ns, mode=mode, start=start, to=to)


class Question:
    """One that the test answers."""

    def __init__(self, known, connection, request):
        self.known, self.connection, self.request, self.have = known, connection, request, request.have
        self.send = connection.send

    def grant(self, ns=10 * SECOND, tell=True):
        self.known.grant(self.request, ns, tell)

    def tells_all(self):
        """Whether the first of the caller's locks is all that there is to know."""
        if self.request.space == FLOCK:
            return True
        _, start, to = self.known.first()
        return start == to or to >= self.request.to

    def late(self):
        """A grant that is over when it arrives."""
        self.grant(0)

    def refuse(self, **more):
        self.send(REFUSED, **{"reason": "so it is", **more})

    def die(self):
        self.connection.sock.shutdown(socket.SHUT_RDWR)


class Script:
    """A handler whose questions the test answers, one after the other; but WIRE_BEFORE, which it answers itself."""

    def __init__(self):
        self.arrived, self.questions = threading.Semaphore(0), []
        self.gone, self.befores = threading.Event(), 0

    def __call__(self, connection):
        known = Known(connection)
        while request := connection.receive():
            if known.saw(request):
                self.befores += 1
            else:
                self.gone.clear()
                self.questions.append(Question(known, connection, request))
                self.arrived.release()
        self.gone.set()

    def next(self, have=None):
        assert self.arrived.acquire(timeout=20), "no question came"
        question = self.questions.pop(0)
        assert have in (None, question.have), question.request
        return question

    def next_known(self):
        """The next, after which the caller knows what it had: if need be, the second one."""
        question = self.next()
        if question.tells_all():
            return question
        question.grant()
        return self.next()


def refuse_all(connection):
    while connection.receive():
        connection.send(REFUSED, reason="so it is")


class Keeper:
    def __init__(self, directory, config, rules=(), handler=grant_all, with_page=True, **page_args):
        self.directory, self.handler, self.requests = directory, handler, 0
        if with_page:
            write_page(directory, config, rules, **page_args)
        self.connections, self.threads = [], []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = f"{directory}/keeper.sock"
        if os.path.exists(path):
            os.unlink(path)
        self.listener.bind(path)
        self.listener.listen(64)
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.requests += 1
            self.connections.append(Connection(sock))
            thread = threading.Thread(target=self.serve, args=(self.connections[-1],), daemon=True)
            thread.start()

    def serve(self, connection):
        try:
            self.handler(connection)
        except OSError:
            pass
        connection.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        os.unlink(f"{self.directory}/keeper.sock")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def describe():
    """What this process was given by the one that started it."""
    with open("/proc/self/status") as status:
        fields = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
    with open("/proc/self/limits") as limits:
        files = next(line.split()[3:5] for line in limits if line.startswith("Max open files"))
    return {
        "argv": sys.argv[1:], "environ": dict(os.environ), "cwd": os.getcwd(), "umask": os.umask(0o22),
        "fds": {int(fd): os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                if os.path.lexists(f"/proc/self/fd/{fd}")},
        "sid": os.getsid(0), "pid": os.getpid(), "ppid": os.getppid(), "files": files,
        "blocked": int(fields["SigBlk"], 16), "ignored": int(fields["SigIgn"], 16),
    }


def main():
    given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    directory, config, ready = given["--runtime-dir"], given["--config"], int(given["--ready-fd"])
    about = describe()
    with open(config) as file:
        orders = json.load(file)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    with open(f"{directory}/started-{os.getpid()}.json.new", "w") as file:
        json.dump(about, file)
    os.rename(file.name, file.name[:-4])
    if "fail" in orders:
        os.write(ready, orders["fail"].encode() + b"\n")
        return 1
    if orders.get("hang"):
        threading.Event().wait()
    handler = refuse_all if orders.get("refuse") else grant_all
    with Keeper(directory, config, [tuple(rule) for rule in orders["rules"]], handler):
        os.close(ready)
        # The test ends this process by its pid.
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
