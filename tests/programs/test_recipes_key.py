"""docs/recipes.md: a job that moves from cron to a service, which locks with redis-py."""
import pytest
from harness import wait_until

from machines import CRON
from recipes import machines_of  # noqa: F401


@pytest.mark.parametrize("first", ["cron", "service"])
def test_from_cron_to_a_service(machines_of, redis, first):
    a, b = machines_of("From cron to a service", "ab")
    command = machines_of.command(machines_of.blocks["crontab"].split(None, 6)[6].strip())
    service = machines_of.blocks["python service"]
    assert "redis://10.0.0.7:6379" in service
    b.write("/usr/local/bin/service", service.replace("redis://10.0.0.7:6379", f"unix://{redis.socket}"), 0o755)
    start = {"cron": lambda: a.popen("/bin/sh", "-c", command, env=CRON), "service": lambda: b.popen("/usr/local/bin/service")}
    order = [first, "service" if first == "cron" else "cron"]
    on = {"cron": "a", "service": "b"}
    one = start[order[0]]()
    wait_until(lambda: machines_of.ran() == [on[order[0]]], "the first one runs the job")
    two = start[order[1]]()
    if not machines_of.excludes:
        wait_until(lambda: len(machines_of.ran()) == 2, "both run the job")
        return
    said = two.communicate(timeout=60)
    assert two.returncode == 1 and machines_of.ran() == [on[order[0]]], said
    assert order[1] == "cron" or "the lock is taken" in said[1]
    machines_of.enough()
    assert one.communicate(timeout=60) and one.returncode == 0
    wait_until(lambda: not redis.command("EXISTS", "jobs:nightly"), "the key is free")
    assert start[order[1]]().wait(60) == 0
    assert machines_of.ran() == [on[name] for name in order]
