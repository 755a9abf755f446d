"""
Players on a stage: processes (tests/agents/player.c) that make the calls of a sequence, and are used again for the next one. One
stage has no shim and one copy of the files; the other has hosts, each with its keeper and its own copy.
"""
import collections
import os
import re
import select
import signal
import socket
import subprocess
import time

from harness import BUILD, Deadline, text_of

# The numbers of fcntl and flock, and fcntl's commands that wait, as /proc/PID/syscall shows them: "72 0x4 0x7 ...".
FCNTL, FLOCK = {"x86_64": ("72", "73"), "aarch64": ("25", "32")}[os.uname().machine]
WAIT_COMMANDS = ("0x7", "0x26")  # F_SETLKW, F_OFD_SETLKW
WAITS_ELSEWHERE = re.compile(r"^dflock: debug: pid (\d+): .*waiting for another host$", re.M)  # DFLOCK_LOG=debug
SMALL = 0.0002


class Place:
    """Where players run: their environment, and their copy of the files."""

    def __init__(self, name, folder, env, words=(os.path.join(BUILD, "tests/agents/player"),)):
        """words: what starts a player."""
        self.words = words
        self.name, self.folder, self.env = name, folder, dict(env, DFLOCK_LOG="debug")
        self.idle = []
        os.makedirs(folder, exist_ok=True)

    def path(self, name):
        return os.path.join(self.folder, name)


class Errors:
    """What the players of one family write to descriptor 2."""

    def __init__(self):
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        self.last = collections.deque(maxlen=20)
        self.waiting = set()  # pids that have said so since they were asked last

    def said_that_it_waits(self, pid):
        """Since the last time. A process's relatives write here too."""
        try:
            text = os.read(self.read_end, 1 << 16).decode(errors="replace")
        except BlockingIOError:
            text = ""
        self.last.extend(l for l in text.splitlines() if "debug" not in l)
        self.waiting.update(map(int, WAITS_ELSEWHERE.findall(text)))
        said = pid in self.waiting
        self.waiting.discard(pid)
        return said

    def __del__(self):
        os.close(self.read_end)
        os.close(self.write_end)


class Player:
    def __init__(self, connection, pid, place, errors, process=None):
        self.connection, self.pid, self.place, self.errors, self.process = connection, pid, place, errors, process
        self.saw_wait = False
        self.gone = False

    def say(self, command):
        self.errors.said_that_it_waits(self.pid)
        self.saw_wait = False
        self.connection.send(command.encode())

    def ready(self, seconds=0.0):
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def heard(self, seconds=20.0):
        if not self.ready(seconds):
            raise Deadline(f"pid {self.pid} has not answered within {seconds} s")
        text = self.connection.recv(1 << 18).decode()
        if not text:
            raise Deadline(f"pid {self.pid} has ended: {list(self.errors.last)}")
        return text

    def do(self, command, seconds=20.0):
        self.say(command)
        return self.heard(seconds)

    def waits_in(self):
        """"kernel": for a lock; "keeper": which told it to wait; None."""
        self.saw_wait |= self.errors.said_that_it_waits(self.pid)
        with open(f"/proc/{self.pid}/syscall") as f:
            call, *words = f.read().split()
            if call == FLOCK or call == FCNTL and words[1] in WAIT_COMMANDS:
                if self._is_with_the_net():
                    return "keeper" if self.saw_wait else None
                if not self._is_interruptible():
                    return None
                self.saw_wait = False  # once it is back from there, it asks the keeper again
                return "kernel"
        return "keeper" if self.saw_wait else None

    def _is_interruptible(self):
        """
        Else it has yet to come to the locks: whoever reads /proc/locks keeps all lock calls back for a moment, also the one that lets a lock go
        since the keeper has told the program to wait.
        """
        return text_of(f"/proc/{self.pid}/stat").rpartition(")")[2].split()[0] == "S"

    def _is_with_the_net(self):
        """The kernel has handed its call over, and has no answer so far."""
        return "seccomp" in text_of(f"/proc/{self.pid}/wchan")

    def kill(self):
        self.connection.close()
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if self.process:
            self.process.wait()
        while not self._has_ended():
            time.sleep(SMALL)
        self.gone = True

    def _has_ended(self):
        try:
            with open(f"/proc/{self.pid}/stat") as f:
                return f.read().rpartition(")")[2].split()[0] in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return True


class Stage:
    """places: host name -> Place. A stage without a shim has one place for all hosts."""

    def __init__(self, places, outside, folder, name):
        """outside: a Place without a shim, for the player that looks at the others."""
        self.places = places
        self.all = []
        self.address = os.path.join(folder, f"{name}.sock")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.address)
        self.listener.listen(64)
        self.listener.settimeout(20)
        self.strangers = {}  # pid -> connection
        self.looker = self._start(outside)

    def _met(self, pid):
        """The connection of the player with this pid."""
        while pid not in self.strangers:
            connection, _ = self.listener.accept()
            connection.settimeout(20)
            self.strangers[int(connection.recv(100).split()[1])] = connection
        return self.strangers.pop(pid)

    def _keep(self, player):
        self.all.append(player)
        return player

    def hire(self, host):
        place = self.places[host]
        while place.idle:
            player = place.idle.pop()
            if not player.gone:
                return player
        return self._start(place)

    def _start(self, place):
        errors = Errors()
        process = subprocess.Popen([*place.words, self.address], env=place.env,
                                   stdin=subprocess.DEVNULL, stderr=errors.write_end)
        return self._keep(Player(self._met(process.pid), process.pid, place, errors, process))

    def fork(self, parent):
        """The child, or None: fork() failed."""
        answer = parent.do("fork").split()
        pid = int(answer[1])
        return self._keep(Player(self._met(pid), pid, parent.place, parent.errors))

    def release(self, player):
        """After "reset". Children are not used again: they end when their parent does, at the latest."""
        if player.process:
            player.place.idle.append(player)
        else:
            self.dismiss(player)

    def dismiss(self, player):
        if not player.gone:
            player.kill()
        self.all.remove(player)

    def make_file(self, name, size):
        for place in set(self.places.values()):
            with open(place.path(name), "w") as f:
                f.truncate(size)

    def remove_file(self, name):
        for place in set(self.places.values()):
            os.unlink(place.path(name))

    def close(self):
        for player in list(self.all):
            self.dismiss(player)
        self.listener.close()
