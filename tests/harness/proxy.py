"""
A proxy between keepers and a redis-server, on a Unix socket or TCP, that makes the faults of networks.

It understands RESP, so that a fault can be tied to a command or a script: fault("release", "no answer") lets the next
release reach the server and swallows its answer. What can be done to a command (Fault.KINDS):

  "lost"        neither the server gets it nor is there ever an answer; arrives() sends it later
  "no answer"   the server executes it; its answer is swallowed
  "cut before"  the connections of this keeper's side are cut before the server gets it
  "cut after"   the server executes it; instead of the answer the connection is cut
  "garbage"     the server executes it; instead of the answer come bytes that are no RESP
  "late"        the server executes it; this answer and all behind it wait until release()

After a swallowed answer a connection is deaf: whatever the server says on it is swallowed, as on a broken network, for
answers that have no questions any more would be a fault of the server.

Besides: cut() all connections, accepting (False: new ones are closed at once), drop_messages (what is published to
subscribers vanishes; the subscriptions stand), and dropped, which counts those; hold_messages() and pass_messages(): what is
published meanwhile arrives then; pause() and resume(): what the keepers send meanwhile reaches the server then; turned_away
counts the connections that were not accepted.
"""
import glob
import hashlib
import os
import socket
import threading

from .host import ROOT
from .listener import Listener, end


def _script_names():
    """The line below #!lua, which says what a script does -> its name. SCRIPT LOAD sends it, too."""
    names = {}
    for path in glob.glob(os.path.join(ROOT, "store/rules/*.lua")):
        with open(path, "rb") as f:
            first, second = f.readline(), f.readline()
        if first.startswith(b"#!lua"):
            names[second] = os.path.basename(path)[:-len(".lua")]
    return names


class Fault:
    KINDS = ("lost", "no answer", "cut before", "cut after", "garbage", "late")

    def __init__(self, word, kind):
        assert kind in self.KINDS
        self.word, self.kind = word.lower(), kind
        self.happened = threading.Event()


class _Connection:
    def __init__(self, proxy, client, server):
        self.proxy, self.client, self.server = proxy, client, server
        self.waiting = []  # for each command under way: the fault of its answer, or None
        self.deaf = False

    def serve(self):
        answers = threading.Thread(target=self.run, args=(self.answers,), daemon=True)
        answers.start()
        self.run(self.commands)
        answers.join()

    def run(self, what):
        try:
            what()
        except OSError:
            pass
        self.close()

    def close(self):
        end(self.client, self.server)

    def commands(self):
        with self.client.makefile("rb") as f:
            while True:
                raw, words = _read(f)
                fault = self.proxy.fault_of(words)
                kind = fault and fault.kind
                if kind in ("cut before", "lost"):
                    fault.happened.set()
                if kind == "cut before":
                    return self.close()
                if kind == "lost":
                    fault.raw = raw
                    self.deaf = True
                    continue
                self.proxy.running.wait(60)
                with self.proxy.mutex:
                    self.waiting.append(fault)
                self.server.sendall(raw)

    def answers(self):
        with self.server.makefile("rb") as f:
            while True:
                raw, said = _read(f)
                if isinstance(said, list) and said[:1] == [b"message"]:
                    if self.proxy.drop_messages:
                        self.proxy.dropped += 1
                        continue
                    if not self.proxy.messages_pass.is_set():
                        self.proxy.held += 1
                        self.proxy.messages_pass.wait(60)
                else:
                    with self.proxy.mutex:
                        fault = self.waiting.pop(0)
                    if fault and not self.do(fault):
                        return
                if not self.deaf:
                    self.client.sendall(raw)

    def do(self, fault):
        """False: the connection is gone."""
        fault.happened.set()
        if fault.kind == "no answer":
            self.deaf = True
        elif fault.kind == "cut after":
            self.close()
        elif fault.kind == "garbage":
            self.client.sendall(b"HTTP/1.1 418 I'm a teapot\r\n\r\n")
            self.deaf = True
        elif fault.kind == "late":
            self.proxy.late.wait(60)
        return fault.kind != "cut after"


class Proxy:
    def __init__(self, redis, folder=None, name="proxy"):
        """On a Unix socket in `folder`, or on a TCP port of 127.0.0.1 without one. address is for the configuration."""
        self.redis = redis
        self.scripts, self.names = {}, _script_names()
        self.mutex = threading.Lock()
        self.faults, self.connections = [], []
        self.late = threading.Event()
        self.accepting, self.turned_away = True, 0
        self.drop_messages, self.dropped, self.held = False, 0, 0
        self.running, self.messages_pass = threading.Event(), threading.Event()
        self.resume()
        self.pass_messages()
        self.listener = Listener(self.serve, folder and os.path.join(folder, name + ".sock"))
        self.address = self.listener.address

    def serve(self, client):
        with self.mutex:
            self.turned_away += not self.accepting
        if not self.accepting:
            return
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(self.redis.socket)
            connection = _Connection(self, client, server)
            with self.mutex:
                self.connections.append(connection)
            connection.serve()

    def fault_of(self, words):
        """The fault that this command shall meet; each happens once."""
        word = words[0].lower().decode()
        if word == "script" and words[1].lower() == b"load":
            for line, name in self.names.items():
                if line in words[2]:
                    self.scripts[hashlib.sha1(words[2]).hexdigest().encode()] = name
        if word == "evalsha":
            word = self.scripts.get(words[1], word)
        with self.mutex:
            fault = next((f for f in self.faults if f.word == word), None)
            if fault:
                self.faults.remove(fault)
        return fault

    def fault(self, word, kind):
        """The next command `word` (a script's name, or what Redis calls it) meets this fault, which is returned."""
        fault = Fault(word, kind)
        with self.mutex:
            self.faults.append(fault)
        return fault

    def release(self):
        """What was late arrives."""
        self.late.set()

    def arrives(self, fault):
        """What was lost was only on its way for long: the server goes on with what it got before a connection ended."""
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(self.redis.socket)
            server.sendall(fault.raw)
            with server.makefile("rb") as f:
                return _read(f)[1]

    def pause(self):
        self.running.clear()

    def resume(self):
        self.running.set()

    def hold_messages(self):
        self.messages_pass.clear()

    def pass_messages(self):
        self.messages_pass.set()

    def cut(self):
        with self.mutex:
            connections, self.connections = self.connections, []
        for c in connections:
            c.close()

    def stop(self):
        self.accepting = False
        self.late.set()
        self.resume()
        self.pass_messages()
        self.listener.stop()
        self.cut()


def _read(f):
    """One RESP value: its bytes, and what they mean."""
    line = f.readline()
    if not line.endswith(b"\r\n"):
        raise OSError("the connection has ended")
    kind, rest = line[:1], line[1:-2]
    if kind == b"$":
        if int(rest) < 0:
            return line, None
        data = f.read(int(rest) + 2)
        return line + data, data[:-2]
    if kind == b"*":
        raw, values = line, []
        for _ in range(int(rest)):
            more, value = _read(f)
            raw += more
            values.append(value)
        return raw, values
    return line, rest
