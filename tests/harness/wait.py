"""Waiting for a condition with a deadline, never for a time."""
import os
import subprocess
import time

SLOW = float(os.environ.get("DFLOCK_TEST_SLOW", "1"))  # how many times as long as elsewhere tests wait here before they fail


class Deadline(AssertionError):
    pass


def wait_until(condition, what, seconds=20.0):
    """
    Returns the first true value of condition(); Deadline if it stays false. A condition that takes long is looked at less often: a keeper's
    status takes it a look at all processes, 0.2 s beside tests with many.
    """
    seconds *= SLOW
    end = time.monotonic() + seconds
    pause = 0.001
    while True:
        begin = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > end:
            raise Deadline(f"not within {seconds} s: {what}")
        time.sleep(max(pause, min(2 * (now - begin), 0.25)))
        pause = min(pause * 1.5, 0.05)


def wait_longer():
    """From now on subprocess, too, waits SLOW times as long."""
    wait, communicate = subprocess.Popen.wait, subprocess.Popen.communicate
    subprocess.Popen.wait = lambda process, timeout=None: wait(process, timeout and timeout * SLOW)
    subprocess.Popen.communicate = lambda process, input=None, timeout=None: communicate(process, input, timeout and timeout * SLOW)
