"""Waiting for a condition with a deadline, never for a time."""
import os
import subprocess
import time

SLOW = float(os.environ.get("DFLOCK_TEST_SLOW", "1"))  # how many times as long as elsewhere tests wait here before they fail


class Deadline(AssertionError):
    pass


def wait_until(condition, what, seconds=20.0):
    """Returns the first true value of condition(); Deadline if it stays false."""
    seconds *= SLOW
    end = time.monotonic() + seconds
    pause = 0.001
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Deadline(f"not within {seconds} s: {what}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def wait_longer():
    """From now on subprocess, too, waits SLOW times as long."""
    wait, communicate = subprocess.Popen.wait, subprocess.Popen.communicate
    subprocess.Popen.wait = lambda process, timeout=None: wait(process, timeout and timeout * SLOW)
    subprocess.Popen.communicate = lambda process, input=None, timeout=None: communicate(process, input, timeout and timeout * SLOW)
