"""A server whose INFO says what a test wants, and that answers OK to everything else."""
import socket
import threading


class Pretender:
    def __init__(self, **info):
        """info: the fields of INFO. On a port of its own on 127.0.0.1."""
        text = "".join(f"{name}:{value}\r\n" for name, value in info.items())
        self.info = b"$%d\r\n%s\r\n" % (len(text), text.encode())
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.connections = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        try:
            with connection, connection.makefile("rb") as f:
                while line := f.readline():
                    words = []
                    for _ in range(int(line[1:])):
                        f.readline()
                        words.append(f.readline().strip().lower())
                    connection.sendall(self.info if words[0] == b"info" else b"+OK\r\n")
        except OSError:
            return

    def stop(self):
        for s in (self.listener, *self.connections):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()
