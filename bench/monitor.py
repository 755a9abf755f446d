"""
Counts the commands of a private redis-server with MONITOR, which tells those that a client sent from those that a
script ran (INFO commandstats adds them up), and has the server's time of each.
"""
import socket
import uuid


class Monitor:
    def __init__(self, redis):
        self.redis = redis
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(redis.socket)
        self.file = self.socket.makefile("r", encoding="utf-8", errors="replace", newline="\n")
        self.socket.sendall(b"MONITOR\r\n")
        if self.file.readline() != "+OK\r\n":
            raise OSError("redis-server does not answer MONITOR")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()
        self.socket.close()

    def commands(self):
        """What the server executed since the last call: a list of (server time in s, inside a script?, words). Not in
        it: what this object sent."""
        mark, out = "mark-" + uuid.uuid4().hex, []
        self.redis.command("ECHO", mark)
        for line in self.file:
            if mark in line:
                return out
            # +1700000000.123456 [0 unix:/path] "EVALSHA" "..."
            head, _, words = line[1:].rstrip("\r\n").partition("] ")
            time, _, source = head.partition(" ")
            out.append((float(time), source == "[0 lua", words))
        raise OSError("redis-server has ended")

    def count(self):
        """The same, counted: (sent by clients, run inside scripts)."""
        commands = self.commands()
        inside = sum(c[1] for c in commands)
        return len(commands) - inside, inside
