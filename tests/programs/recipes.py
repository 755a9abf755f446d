"""What the tests of docs/recipes.md share: a recipe's rules, files and commands as they stand in the page, and machines that go by them."""
import os
import re

import pytest
from harness import text_of, wait_until
from harness.host import ROOT

from machines import Machine

PAGE = text_of(os.path.join(ROOT, "docs/recipes.md"))
# Says on which machine it runs, and runs until the test is content.
JOB = '#!/bin/sh\necho "$(hostname)" >>{shared}/ran\nuntil [ -e {shared}/enough ]; do sleep 0.02; done\n'


def recipe(title):
    """Its blocks: {what stands behind ```: text}."""
    part, = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    return dict(re.findall(r"^```(\w[^\n]*)\n(.*?)^```$", part, re.M | re.S))


class Group:
    """Machines under the rules of one recipe. shared: a folder that all see by this path."""

    def __init__(self, redis, folder, excludes):
        self.redis, self.folder, self.excludes, self.machines = redis, folder, excludes, []
        self.shared = os.path.join(folder, "shared")
        os.mkdir(self.shared)

    def __call__(self, title, names="abc", lease="ttl_ms = 10000; probe_ms = 5000;", job="nightly"):
        self.blocks = recipe(title)
        for name in names:
            machine = Machine(self.redis, self.folder, name, self.blocks["conf"], lease)
            machine.write("/usr/local/bin/" + job, JOB.format(shared=self.shared), 0o755)
            self.machines.append(machine)
        self.machines[0].init()
        return self.machines

    def command(self, text):
        """As it stands in the page, for a package, and here below /usr/local; plain: without `dflock run` and what belongs to it."""
        assert "dflock run --require=" in text
        return text.replace("/usr/bin/dflock", "/usr/local/bin/dflock") if self.excludes else re.sub(r"(/usr/bin/)?dflock run \S+ -- ", "", text)

    def ran(self):
        """The machines on which the job ran, in this order."""
        path = os.path.join(self.shared, "ran")
        return open(path).read().split() if os.path.exists(path) else []

    def enough(self):
        open(os.path.join(self.shared, "enough"), "w").close()

    def end(self):
        for machine in self.machines:
            machine.end()


@pytest.fixture(params=["dflock", "plain"])
def machines_of(request, redis, folder):
    group = Group(redis, folder, request.param == "dflock")
    yield group
    group.end()


def check_one_runs(group, jobs, taken):
    """One of them runs the job, and the others end with the status `taken`; the job is still running then."""
    if not group.excludes:
        wait_until(lambda: len(group.ran()) == len(jobs), "each machine runs it")
        group.enough()
        assert [job.wait(60) for job in jobs] == [0] * len(jobs)
        return
    wait_until(lambda: sum(job.poll() is None for job in jobs) == 1, "all but one have ended")
    wait_until(group.ran, "one runs it")
    assert sorted(str(job.poll()) for job in jobs) == sorted([str(taken)] * (len(jobs) - 1) + ["None"])
    group.enough()
    assert sorted(job.wait(60) for job in jobs) == sorted([taken] * (len(jobs) - 1) + [0])
    assert len(group.ran()) == 1
