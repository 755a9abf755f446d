"""
A listening socket: each connection is served in a thread of its own. For proxies, and for servers that a test makes up.
"""
import os
import socket
import threading


def end(*sockets):
    """Both directions, at once, also of a socket that another thread waits for."""
    for s in sockets:
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Listener:
    """On a Unix socket with this path, or on a TCP port of 127.0.0.1 without one. address is for the configuration."""

    def __init__(self, serve, path=None):
        """serve(connection): when it returns, or raises an OSError, the connection is closed."""
        self.serve, self.mutex, self.connections = serve, threading.Lock(), []
        if path:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.bind(path)
            self.socket.listen(64)
        else:
            self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = None if path else self.socket.getsockname()[1]
        self.address = "unix:" + os.path.abspath(path) if path else f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with self.mutex:
                self.connections.append(connection)
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection):
        try:
            self.serve(connection)
        except OSError:
            pass
        with self.mutex:
            self.connections.remove(connection)
        end(connection)
        connection.close()

    def cut(self):
        """Ends all connections."""
        with self.mutex:
            end(*self.connections)

    def stop(self):
        end(self.socket)
        self.socket.close()
        self.cut()
