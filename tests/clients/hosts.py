"""Hosts with a rule whose lease is also a key, and what is in that key."""
from client import REDISSON, format_of, key_of
from harness import Job, wait_until

LEASE = "ttl_ms = 20000; probe_ms = 5000;"  # nothing runs out while a test looks
SHORT = "ttl_ms = 1500; probe_ms = 5000;"


def rule(kind, key=None, more=""):
    """For the file f of each host; its other files are ordinary."""
    return ('{ path = "%%s/f"; name = "t/f"; redis_key = "%s"; redis_key_format = "%s"; %s }, { tree = "%%s"; name = "t"; }' %
            (key or key_of(kind), format_of(kind), more))


def owner(redis, kind, key=None):
    """Whose the key is: the token in it; '' if there is none."""
    key = key or key_of(kind)
    if kind in REDISSON:
        fields = redis.command("HGETALL", key)
        assert len(fields) in (0, 2), fields
        return fields[0].removesuffix(":1") if fields else ""
    return redis.command("GET", key) or ""


def token(host):
    """Of the host's only lease."""
    lease, = [l for l in host.status()["leases"] if l["name"] == "t/f"]
    return lease["token"]


def free(redis, kind):
    wait_until(lambda: not redis.command("EXISTS", key_of(kind)), "the key has gone")


def holds(host, seconds=60, name="f"):
    """flock(1) that has the lock, and a job under it."""
    job = Job(host, "flock", host.path(name), "sh", "-c", "echo held; read line; exit 0")
    assert job.line(seconds) == "held"
    return job


def waits(host, name="f"):
    """The same, that has to wait."""
    return Job(host, "flock", host.path(name), "sh", "-c", "echo held; read line; exit 0")


def is_busy(host, name="f"):
    done = host.run("flock", "-n", "-E", "99", host.path(name), "true")
    assert done.returncode in (0, 99), done.stderr
    return done.returncode == 99
