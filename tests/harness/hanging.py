"""
A FUSE server by hand, whose answers to chosen requests are held back: the kernel's side of them waits, in state D once the server has
read the request. Run as a program: python3 hanging.py DIR [SECONDS], for so long the kernel knows attributes. Lines on standard input:

  hold OPCODE ...   from now on these are not answered        let OPCODE ...   they are again, with all that was held back

Each is answered with "ok". "held OPCODE PID" is written for each request that is held back. Any name below DIR is a regular file.
The end of standard input, or of this process, ends the file system: the kernel then fails all that waits.
"""
import ctypes
import errno
import os
import select
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, RELEASE, FLUSH, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 14, 18, 25, 26, 36, 42


def mount(fd, where):
    libc = ctypes.CDLL(None, use_errno=True)
    data = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % fd
    if libc.mount(b"hanging", where.encode(), b"fuse.hanging", 6, data):  # MS_NOSUID | MS_NODEV
        raise OSError(ctypes.get_errno(), "mount")


class Server:
    def __init__(self, where, valid=3600):
        self.valid = int(valid)
        self.fd = os.open("/dev/fuse", os.O_RDWR)
        mount(self.fd, where)
        self.names, self.hold, self.held = {}, set(), []

    def answer(self, unique, data=b"", error=0):
        try:
            os.write(self.fd, struct.pack("<IiQ", 16 + len(data), -error, unique) + data)
        except OSError as e:
            if e.errno != errno.ENOENT:  # the request was given up
                raise

    @staticmethod
    def attributes(node):
        mode = 0o40777 if node == 1 else 0o100666
        return struct.pack("<6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 2 if node == 1 else 1, 0, 0, 0, 4096, 0)

    def act(self, opcode, unique, node, body):
        if opcode == INIT:
            self.answer(unique, struct.pack("<4I2H2I2H8I", 7, 31, 4096, 0, 64, 48, 4096, 1, 0, 0, 0, *[0] * 7))
        elif opcode == LOOKUP:
            found = self.names.setdefault(body.rstrip(b"\0"), len(self.names) + 2)
            self.answer(unique, struct.pack("<4Q2I", found, 0, 3600, self.valid, 0, 0) + self.attributes(found))
        elif opcode == GETATTR:
            self.answer(unique, struct.pack("<QII", self.valid, 0, 0) + self.attributes(node))
        elif opcode == OPEN:
            self.answer(unique, struct.pack("<QII", 0, 0, 0))
        elif opcode in (RELEASE, FLUSH):
            self.answer(unique)
        elif opcode not in (FORGET, BATCH_FORGET, INTERRUPT):
            self.answer(unique, error=errno.ENOSYS)

    def request(self):
        data = os.read(self.fd, 1 << 18)
        _, opcode, unique, node, _, _, pid, _ = struct.unpack_from("<IIQQIIII", data)
        if opcode in self.hold:
            self.held.append((opcode, unique, node, data[40:]))
            print("held", opcode, pid, flush=True)
        else:
            self.act(opcode, unique, node, data[40:])

    def command(self, word, *opcodes):
        opcodes = set(map(int, opcodes))
        if word == "hold":
            self.hold |= opcodes
        else:
            self.hold -= opcodes
            for request in [r for r in self.held if r[0] in opcodes]:
                self.held.remove(request)
                self.act(*request)
        print("ok", flush=True)

    def run(self):
        print("ok", flush=True)
        while True:
            ready = select.select([self.fd, 0], [], [])[0]
            if self.fd in ready:
                try:
                    self.request()
                except OSError as e:
                    if e.errno == errno.ENODEV:  # unmounted
                        return
                    if e.errno not in (errno.ENOENT, errno.EINTR):
                        raise
            if 0 in ready:
                line = os.read(0, 4096).decode()
                if not line:
                    return
                for each in line.splitlines():
                    self.command(*each.split())


if __name__ == "__main__":
    Server(*sys.argv[1:]).run()
