"""Hosts whose store has replicas: their times, how they come back to it after a failover, and a job that goes on."""
from harness import Deadline, wait_until

from jobs import Job, grows
from keepers import held

# A failover takes some four seconds here, on a busy machine more; leases last longer, or not.
LONG = "ttl_ms = 20000; linger_ms = 0;"
SHORT = "ttl_ms = 2500; freeze_margin_ms = 700; linger_ms = 0;"
QUICK = "connect_ms = 1200;"


def reconnected(host, node):
    def is_there():
        store = host.status()["store"]
        return store["up"] and store["server"].endswith(f":{node.port}")
    try:
        wait_until(is_there, f"{host.name} is at the new master", 40)
    except Deadline:
        print(host.log())
        raise


def attempt(host):
    """After a failover there is grace, which lasts as long as a lease."""
    return wait_until(lambda: host.run("flock", "-n", host.path("f"), "true").returncode == 0, "a lock can be had", 60)


class Work(Job):
    """A job that holds the lock and writes all the time, and its lease."""

    def __init__(self, host):
        super().__init__(host, "f")
        self.host, self.lease = host, held(host)[0]

    def goes_on(self):
        grows(self.path)
        assert self.process.poll() is None

    def stands(self):
        same = held(self.host, token=self.lease["token"], fence=self.lease["fence"])
        return same and same[0]["state"] != "unsure"

    def is_put_back(self):
        wait_until(self.stands, "the lease is as it was", 30)

    def hands_over(self, host, other):
        """To a caller on another host, which waits: not in grace, and not before the job ends, which has lost nothing."""
        wait_until(lambda: not host.status()["store"]["grace"], "grace is over", 60)
        assert other.silent(0.2)
        self.goes_on()
        assert not self.host.status()["lost"] and "are frozen" not in self.host.log()
        self.end()
        assert other.heard(30)[0] == "ok"
        assert held(host)[0]["fence"] > self.lease["fence"]
