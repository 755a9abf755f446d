"""Clocks that are wrong, for a program that is started with env(): tests/preload/clock.c."""
import os
import struct

from .host import BUILD

HOUR_NS = 3600 * 10 ** 9


class Clock:
    def __init__(self, path, fast_ppm=0):
        self.path = path
        with open(path, "wb") as f:
            f.write(struct.pack("<3q", 0, fast_ppm, 0))

    def env(self):
        return {"LD_PRELOAD": os.path.join(BUILD, "tests/preload/clock.so"), "DFLOCK_TEST_CLOCK": self.path}

    def step(self, hours):
        """The wall clock is wrong by so much from now on."""
        with open(self.path, "r+b") as f:
            f.write(struct.pack("<q", int(hours * HOUR_NS)))

    def asked(self):
        """How often the program has asked for the time."""
        with open(self.path, "rb") as f:
            return struct.unpack("<3q", f.read())[2]
