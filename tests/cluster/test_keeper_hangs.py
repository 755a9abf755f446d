"""A keeper whose loop stands still is replaced early enough for the next one to renew: its holders need not be frozen."""
import json
import os
import signal

import pytest
from harness import wait_until

from jobs import end, grows, job

pytestmark = pytest.mark.alone  # it is about being in time


def holds(host):
    """Also asked while there is no keeper."""
    status = host.cli("status", "--json", check=False)
    return status.returncode == 0 and any(lease["state"] == "held" for lease in json.loads(status.stdout).get("leases", []))


@pytest.mark.parametrize("ttl,margin", [(2000, 300), (4000, 600), (8000, 1300)])
def test_the_next_one_renews_in_time(make_host, ttl, margin):
    a = make_host("a", lease=f"ttl_ms = {ttl}; freeze_margin_ms = {margin};")
    process, path = job(a)
    keeper = a.keeper_pids()[1]
    os.kill(keeper, signal.SIGSTOP)
    wait_until(lambda: "hangs: it is killed" in a.log(), "it is found to hang")
    wait_until(lambda: holds(a), "the next one has the lease")
    grows(path)
    assert a.keeper_pids()[1] != keeper
    assert "frozen" not in a.log()
    assert process.poll() is None
    end(process, path)


def test_one_that_wants_for_a_processor_is_left_alone(make_host):
    """With a long ttl_ms it has five seconds."""
    a = make_host("a", lease="ttl_ms = 60000;")
    process, path = job(a)
    keeper = a.keeper_pids()[1]
    os.kill(keeper, signal.SIGSTOP)
    with pytest.raises(AssertionError):
        wait_until(lambda: "hangs" in a.log(), "it is found to hang", 3)
    os.kill(keeper, signal.SIGCONT)
    wait_until(a.serves, "it serves")
    a.status()
    assert a.keeper_pids()[1] == keeper and "hangs" not in a.log()
    end(process, path)
