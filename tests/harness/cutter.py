"""
A TCP proxy that counts bytes and ends connections after a number of them, or lets them stand still: for what it cannot read
(TLS). limit: how many bytes of the server's a connection lets through; None: all. Then "cut" closes both sides, and "stop"
leaves them open and silent.
"""
import socket
import threading


class Cutter:
    def __init__(self, port, limit=None, then="cut"):
        self.port, self.limit, self.then = port, limit, then
        self.accepted, self.reached = 0, 0  # connections; those that met the limit
        self.up, self.down = 0, 0           # bytes to the server, and from it
        self.open = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.own_port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            self.open += [client, server]
            self.accepted += 1
            threading.Thread(target=self.copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, True), daemon=True).start()

    def copy(self, source, sink, answers):
        left = self.limit if answers else None
        try:
            while left is None or left > 0:
                data = source.recv(65536 if left is None else min(left, 65536))
                if not data:
                    break
                sink.sendall(data)
                left = None if left is None else left - len(data)
                if answers:
                    self.down += len(data)
                else:
                    self.up += len(data)
        except OSError:
            pass
        if left == 0:
            self.reached += 1
            if self.then == "stop":
                return
        self.close(source, sink)

    @staticmethod
    def close(*sockets):
        for s in sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def stop(self):
        self.close(self.listener)
        self.listener.close()
        self.close(*self.open)
        for s in self.open:
            s.close()
