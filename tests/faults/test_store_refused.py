"""A store that is there but not as it should be: each is refused with a line that says what to do, and gets well again."""
import os
import threading

import pytest
from common import Alive, agent_with, attempt, gone, leases, lock_key, refused, works
from harness import Redis, wait_until, write_text


def written(folder, name, text, mode=0o600):
    path = os.path.join(folder, name)
    write_text(path, text)
    os.chmod(path, mode)
    return path


def both_ways(host, pattern):
    """Refused, whether the call waits or not; the keeper lives on."""
    with Alive(host):
        refused(attempt(host), pattern)
        refused(attempt(host, wait=True), pattern)


SHORT = "ttl_ms = 3000; store_wait_ms = 300;"


@pytest.fixture
def locked_redis(folder):
    """A server that wants passwords: default "secret", user dflock "pw"."""
    server = Redis(folder)
    server.command("ACL", "SETUSER", "dflock", "on", ">pw", "~dflock:*", "&dflock:*", "+@all", "-@dangerous", "+info")
    server.command("ACL", "SETUSER", "poor", "on", ">pw", "~dflock:*", "&dflock:*", "+@all", "-@dangerous")
    server.command("CONFIG", "SET", "requirepass", "secret")
    yield server
    server.stop()


@pytest.mark.parametrize("setting,pattern", [
    ("", "NOAUTH.*set user and password_file"),
    ('password_file = "{wrong}";', "WRONGPASS.*correct user and password_file"),
    ('user = "dflock"; password_file = "{wrong}";', "WRONGPASS.*correct user and password_file"),
    ('user = "poor"; password_file = "{pw}";', r"NOPERM.*ACL SETUSER"),
])
def test_wrong_password(locked_redis, host_of, folder, setting, pattern):
    files = {n: written(folder, n, n + "\n") for n in ("wrong", "pw")}
    host = host_of(locked_redis, store=setting.format(**files), lease=SHORT)
    both_ways(host, "cannot be used: .*" + pattern)
    assert "is not reachable" not in host.log()  # it is: it has answered


@pytest.mark.parametrize("setting", ["", 'user = "poor"; password_file = "{pw}";'])
def test_stop_while_the_store_refuses(locked_redis, host_of, folder, setting):
    """A question that was given up has nothing that must be given back."""
    host = host_of(locked_redis, lease=SHORT, store=setting.format(pw=written(folder, "pw", "pw\n")))
    refused(attempt(host), "WRONGPASS|NOAUTH|NOPERM")
    refused(attempt(host, wait=True), "WRONGPASS|NOAUTH|NOPERM")
    done = host.cli("stop", check=False)
    assert done.returncode == 0, done.stderr
    assert host.keeper.wait(20) == 0


@pytest.mark.parametrize("how", ["wrong password", "no scripts"])
@pytest.mark.parametrize("expired", [False, True], ids=["sure", "run out"])
def test_stop_when_a_store_refuses_that_did_not(redis, host_of, folder, how, expired):
    """The keeper ends although there are unused leases, whether they stand or ran out meanwhile; not if a program has a lock."""
    redis.command("ACL", "SETUSER", "dflock", "on", ">pw", "~dflock:*", "&dflock:*", "+@all")
    pw = written(folder, "pw", "pw\n")
    lease = "linger_ms = 60000; store_wait_ms = 300; ttl_ms = " + ("1500;" if expired else "60000;")
    host = host_of(redis, lease=lease, store=f'user = "dflock"; password_file = "{pw}";').init()
    agent = host.opened("f", "flock 0 ex nb")
    rule = (">other", "<pw") if how == "wrong password" else ("-evalsha", "-eval", "-script")
    redis.command("ACL", "SETUSER", "dflock", *rule)
    redis.command("CLIENT", "KILL", "USER", "dflock")
    wait_until(lambda: not host.status()["store"]["up"], "the store refuses")
    if expired:
        wait_until(lambda: leases(host, state="unsure"), "the lease has run out")
    done = host.cli("stop", check=False)
    assert done.returncode == 1 and "leases cannot be given back" in done.stderr, done
    agent.kill()
    wait_until(lambda: host.cli("stop", check=False).returncode == 0, "it stops")
    assert host.keeper.wait(20) == 0


@pytest.mark.parametrize("setting", ['password_file = "{secret}";', 'user = "dflock"; password_file = "{pw}";'])
def test_right_password(locked_redis, host_of, folder, setting):
    files = {n: written(folder, n, n + "\nthe second line is not read\n") for n in ("secret", "pw")}
    a, b = (host_of(locked_redis, n, store=setting.format(**files)) for n in "ab")
    a.init()
    agent_with(a)
    b.wait_up()
    assert attempt(b).word == "busy"


def test_password_where_there_is_none(redis, host_of, folder):
    both_ways(host_of(redis, store='password_file = "%s";' % written(folder, "pw", "pw"), lease=SHORT),
              "no password.*remove password_file|remove password_file")


def test_password_file_for_everybody(redis, host_of, folder):
    path = written(folder, "pw", "pw", 0o644)
    host = host_of(redis, store='password_file = "%s";' % path, foreground=False)
    with pytest.raises(RuntimeError, match="can be read or written by everybody; run chmod"):
        host.start()
    assert "can be read or written by everybody" in attempt(host).line


def test_database(redis, host_of):
    both_ways(host_of(redis, store="database = 99;", lease=SHORT), "DB index.*correct database")
    a, b, other = host_of(redis, "b", store="database = 3;"), host_of(redis, "c", store="database = 3;"), host_of(redis, "d")
    a.init()
    other.init()
    agent_with(a)
    assert attempt(b.wait_up()).word == "busy"
    assert attempt(other).word == "ok"
    assert "db3:" in redis.command("INFO", "keyspace")


def test_evicting_policy(redis, host_of):
    redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    host = host_of(redis, lease=SHORT)
    both_ways(host, "maxmemory-policy is allkeys-lru.*noeviction")
    redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    host.init()
    works(host)


def test_replica(redis, host_of):
    redis.command("REPLICAOF", "127.0.0.1", "1")
    host = host_of(redis, lease=SHORT)
    both_ways(host, "it is a replica.*set the address of the master")
    redis.command("REPLICAOF", "NO", "ONE")
    host.init()
    works(host)


def test_master_that_becomes_a_replica(make_host, redis):
    host = make_host("a", lease="ttl_ms = 1000; linger_ms = 0; store_wait_ms = 300;")
    works(host)
    redis.command("REPLICAOF", "127.0.0.1", "1")
    with Alive(host):
        wait_until(lambda: attempt(host).word == "ENOLCK", "the replica is noticed")
        wait_until(lambda: "replica" in attempt(host).line, "the line says so")
        redis.command("REPLICAOF", "NO", "ONE")
        works(host)  # after grace: it has another replication id


def test_another_ttl(make_host, host_of, redis):
    a = make_host("a")
    b = host_of(redis, "b", lease="ttl_ms = 4000; store_wait_ms = 300;")
    both_ways(b, "ttl_ms = 3000, this keeper is configured with 4000.*same value")
    works(a)
    refusal = b.cli("init", check=False)
    assert refusal.returncode == 1 and "same value" in refusal.stderr
    # Everywhere, once all keepers have ended: the store gets the value of the first host that names it.
    a.cli("stop")
    b.cli("init", "--force")
    works(b)


# --- what is in the store ---


PACKED = "redis.call('SET', KEYS[1], cmsgpack.pack({l = {}, q = {1}}))"


@pytest.mark.parametrize("spoil,pattern", [
    (("LPUSH", lock_key(), "x"), "WRONGTYPE.*something else uses keys"),
    (("SET", lock_key(), "x"), "something else wrote.*remove it"),
    (("EVAL", PACKED, 1, lock_key()), "ERR.*attempt to index"),  # a script that fails in its middle
], ids=["list", "text", "nonsense"])
def test_something_else_under_a_lock(make_host, redis, spoil, pattern):
    host = make_host("a")
    redis.command(*spoil)
    both_ways(host, pattern)
    assert attempt(host, "g").word == "ok"
    redis.command("DEL", lock_key())
    works(host)


@pytest.mark.parametrize("key", ["hosts", "store"])
@pytest.mark.parametrize("when", ["before", "while it runs"])
def test_something_else_under_our_keys(host_of, redis, key, when):
    lease = "ttl_ms = 1000; linger_ms = 0; store_wait_ms = 300;"
    if when == "while it runs":
        host = host_of(redis, lease=lease).init()
        works(host)
    redis.command("DEL", "dflock:{0}:" + key)
    redis.command("SET", "dflock:{0}:" + key, "x")
    if when == "before":
        host = host_of(redis, lease=lease)
        if key == "hosts":
            host.init()
    with Alive(host):
        wait_until(lambda: "WRONGTYPE" in attempt(host).line, "it is refused")
        redis.command("DEL", "dflock:{0}:" + key)
        works(host)  # after grace, if it was the record


def test_full_store(two, redis):
    """A full Redis grants nothing new, but what is held is renewed and given back."""
    a, b = two
    held = agent_with(a)
    redis.command("CONFIG", "SET", "maxmemory", "1")
    both_ways(b, "OOM.*raise its maxmemory")
    refused(attempt(a, "g"), "OOM.*raise its maxmemory")

    def beats():
        return {h: v["beat"] for h, v in a.status()["cluster"]["hosts"].items() if h.startswith("a-")}

    before = beats()
    wait_until(lambda: beats() != before, "a goes on renewing")
    assert leases(a, name="t/f", state="held") and not a.status()["lost"]
    assert held.do("flock 0 un") == "ok"
    gone(redis)
    redis.command("CONFIG", "SET", "maxmemory", "0")
    works(b)


def test_script_flush(two, redis):
    a, b = two
    held = agent_with(a)
    redis.command("SCRIPT", "FLUSH")
    assert attempt(b).word == "busy"
    redis.command("SCRIPT", "FLUSH")
    assert held.do("flock 0 un") == "ok"
    works(b)


def test_busy_script(make_host, redis):
    """Another client's script runs for ever: the refusal names the cure, and SCRIPT KILL is one."""
    host = make_host("a", lease="ttl_ms = 20000; store_wait_ms = 300;")
    held = agent_with(host, name="g")
    redis.command("CONFIG", "SET", "busy-reply-threshold", "50")

    def run():
        try:
            redis.command("EVAL", "while true do end", 0)
        except (RuntimeError, OSError):
            pass

    script = threading.Thread(target=run, daemon=True)
    script.start()
    with Alive(host):
        wait_until(lambda: "SCRIPT KILL" in attempt(host).line, "the script is in the way")
        redis.command("SCRIPT", "KILL")
        script.join(10)
        works(host)
    assert held.do("flock 0 un") == "ok"


def test_server_that_vanishes_for_a_name(host_of):
    """A host name that cannot be looked up."""
    host = host_of("no-such-host.invalid:6379", lease=SHORT, store="connect_ms = 2000;")
    both_ways(host, "no-such-host.invalid")
