"""Times for hosts whose store has replicas, and how they come back to it after a failover."""
from harness import Deadline, wait_until

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
