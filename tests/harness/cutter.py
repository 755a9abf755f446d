"""
A TCP proxy that ends connections after a number of bytes, or lets them stand still: for what it cannot read (TLS). limit: how many bytes of
the server's a connection lets through; None: all. Then "cut" closes both sides, and "stop" leaves them open and silent.
"""
import socket
import threading

from .listener import Listener, end


class Cutter(Listener):
    def __init__(self, port):
        self.server_port, self.limit, self.then = port, None, "cut"
        self.reached = 0  # connections that met the limit
        super().__init__(self.pass_on)

    def pass_on(self, client):
        with socket.create_connection(("127.0.0.1", self.server_port)) as server:
            back = threading.Thread(target=self.copy, args=(server, client, True), daemon=True)
            back.start()
            self.copy(client, server, False)
            back.join()

    def copy(self, source, sink, answers):
        left = self.limit if answers else None
        try:
            while left is None or left > 0:
                data = source.recv(65536 if left is None else min(left, 65536))
                if not data:
                    break
                sink.sendall(data)
                left = None if left is None else left - len(data)
        except OSError:
            pass
        if left == 0:
            self.reached += 1
            if self.then == "stop":
                return
        end(source, sink)
