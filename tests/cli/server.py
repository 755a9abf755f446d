"""A server whose INFO says what a test wants, and that answers OK to everything else."""
from harness.listener import Listener


class Pretender(Listener):
    def __init__(self, **info):
        """info: the fields of INFO. On a port of its own on 127.0.0.1."""
        text = "".join(f"{name}:{value}\r\n" for name, value in info.items())
        self.info = b"$%d\r\n%s\r\n" % (len(text), text.encode())
        super().__init__(self.answer)

    def answer(self, connection):
        with connection.makefile("rb") as f:
            while line := f.readline():
                words = []
                for _ in range(int(line[1:])):
                    f.readline()
                    words.append(f.readline().strip().lower())
                connection.sendall(self.info if words[0] == b"info" else b"+OK\r\n")
