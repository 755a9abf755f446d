"""Programs that take record locks, and a keeper for them: fixtures and helpers of test_record*.py."""
import os

import pytest

import record_keeper as rk
from harness import Agent, wait_until
from record_keeper import PROCESS

FCNTL = {"x86_64": "72", "aarch64": "25"}[os.uname().machine]
FLOCK_CALL = {"x86_64": "73", "aarch64": "32"}[os.uname().machine]
FUTEX = {"x86_64": "202", "aarch64": "98"}[os.uname().machine]


class Locker(Agent):
    """An agent that has the world's file open."""

    def __init__(self, world, flags="rwc", preload=True, path=None):
        self.env, self.inside = lambda: world.environment(preload=preload), []
        super().__init__(self)
        self.path = str(path or world.lock)
        assert self.do(f"open 0 {self.path} {flags}") == "ok"
        assert self.do("alarm 0") == "ok"

    def locks(self, owner=PROCESS):
        return rk.locks(self.pid, self.path, owner)

    def waits_in(self, number):
        """In a system call, in any of its threads."""
        waits_in(self.pid, number)


def waits_in(pid, number):
    def waits():
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/syscall") as file:
                if file.read().split()[0] == number:
                    return True
        return False
    wait_until(waits, f"{pid} waits in system call {number}")


@pytest.fixture
def lockers(world):
    made = []

    def make(**options):
        made.append(Locker(world, **options))
        return made[-1]

    yield make
    for locker in made:
        locker.kill()


@pytest.fixture
def script(world):
    script = rk.Script()
    with world.keeper(script) as keeper:
        script.keeper = keeper
        yield script


@pytest.fixture
def one(script, lockers):
    """A program under the shim whose questions the test answers."""
    return lockers()


def have(script, locker, *commands):
    for command in commands:
        locker.say(command)
        script.next_known().grant()
        assert locker.heard()[0] == "ok", command
