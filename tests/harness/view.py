"""A FUSE file system whose server holds back its answers to chosen requests (hanging.py)."""
import os
import queue
import subprocess
import sys
import threading

from . import hanging


class View:
    def __init__(self, path, request, valid=3600):
        self.path, self.request = path, request
        os.mkdir(self.path)
        self.server = subprocess.Popen([sys.executable, hanging.__file__, self.path, str(valid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=lambda: [self.lines.put(line.strip()) for line in self.server.stdout], daemon=True).start()
        self.hears("ok")

    def hears(self, begin):
        while not (line := self.lines.get(timeout=20)).startswith(begin):
            pass
        return line

    def do(self, command):
        self.server.stdin.write(f"{command} {self.request}\n")
        self.server.stdin.flush()
        self.hears("ok")

    def hangs(self, pid):
        """A thread of this process waits for an answer, and nothing can end that."""
        while True:
            tid = int(self.hears("held").split()[2])
            if os.path.exists(f"/proc/{pid}/task/{tid}"):
                return

    def end(self):
        self.server.stdin.close()
        self.server.wait(20)
        subprocess.run(["umount", "-l", self.path], stderr=subprocess.DEVNULL, check=False)
