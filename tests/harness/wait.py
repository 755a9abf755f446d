"""Waiting for a condition with a deadline, never for a time."""
import time


class Deadline(AssertionError):
    pass


def wait_until(condition, what, seconds=20.0):
    """Returns the first true value of condition(); Deadline if it stays false."""
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
