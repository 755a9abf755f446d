"""Hosts with a rule whose lease is also a key, and what is in that key."""
from client import REDISSON, format_of, key_of
from harness import Job, wait_until

LEASE = "ttl_ms = 20000;"  # nothing runs out while a test looks
SHORT = "ttl_ms = 1500;"


def keyed(kind):
    return f'redis_key = "{key_of(kind)}"; redis_key_format = "{format_of(kind)}";'


def rule(kind):
    """For the file f of each host; its other files are ordinary."""
    return '{ path = "%s/f"; name = "t/f"; ' + keyed(kind) + ' }, { tree = "%s"; name = "t"; }'


def owner(redis, kind):
    """Whose the key is: the token in it; '' if there is none."""
    if kind in REDISSON:
        fields = redis.command("HGETALL", key_of(kind))
        assert len(fields) in (0, 2), fields
        return fields[0].removesuffix(":1") if fields else ""
    return redis.command("GET", key_of(kind)) or ""


def token(host):
    """Of the host's only lease."""
    lease, = [l for l in host.status()["leases"] if l["name"] == "t/f"]
    return lease["token"]


def free(redis, kind):
    wait_until(lambda: not redis.command("EXISTS", key_of(kind)), "the key has gone")


def waits(host):
    """flock(1) that has to wait, and then says so, and a job under it."""
    return Job(host, "flock", host.path("f"), "sh", "-c", "echo held; read line; exit 0")


def holds(host):
    return waits(host).held(60)


def is_busy(host):
    done = host.run("flock", "-n", "-E", "99", host.path("f"), "true")
    assert done.returncode in (0, 99), done.stderr
    return done.returncode == 99


def renewed(redis, kind, times, look=lambda left: None):
    """The time that the key has left grows so many times. look: what must be true of it each time."""
    last = redis.command("PTTL", key_of(kind))
    for _ in range(times):
        def grown():
            nonlocal last
            before, last = last, redis.command("PTTL", key_of(kind))
            look(last)
            return last > before
        wait_until(grown, "the key is renewed")
