"""
A store that is there but not as it should be: each is refused with a line that says what to do, by `dflock doctor` as well, and gets well
again. What makes a server unfit: tests/unit/test_store_refusals.c.
"""
import os
import sys
import threading

import pytest
from common import Alive, agent_with, attempt, gone, leases, lock_key, refused, works
from harness import wait_until, write_text

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cli"))
from lines import Doctor  # noqa: E402

SHORT = "ttl_ms = 3000; store_wait_ms = 300;"


def written(folder, name, text, mode=0o600):
    path = os.path.join(folder, name)
    write_text(path, text)
    os.chmod(path, mode)
    return path


def both_ways(host, pattern, doctor=True):
    """Refused, whether the call waits or not; the keeper lives on."""
    with Alive(host):
        refused(attempt(host), pattern)
        refused(attempt(host, wait=True), pattern)
        if doctor:
            Doctor(host).only(pattern)
        assert "is not reachable" not in host.log()  # it is: it has answered


def test_passwords(redis, host_of, folder):
    """Of default, "secret", and of the users dflock and poor, "pw". A question that was given up has nothing that must be given back: such a
    keeper stops. Only the first line of the file is read."""
    files = {n: written(folder, n, n + "\nthe second line is not read\n") for n in ("wrong", "pw", "secret")}
    none = host_of(redis, "none", store=f'password_file = "{files["pw"]}";', lease=SHORT)
    both_ways(none, "remove password_file from the configuration")
    redis.command("ACL", "SETUSER", "dflock", "on", ">pw", "~dflock:*", "&dflock:*", "+@all", "-@dangerous", "+info")
    redis.command("ACL", "SETUSER", "poor", "on", ">pw", "~dflock:*", "&dflock:*", "+@all", "-@dangerous")
    redis.command("CONFIG", "SET", "requirepass", "secret")
    for name, setting, pattern in [("a", "", "NOAUTH.*: set user and password_file in the configuration"),
                                   ("b", 'password_file = "{wrong}";', "WRONGPASS.*: correct user and password_file in the configuration"),
                                   ("c", 'user = "dflock"; password_file = "{wrong}";', "WRONGPASS.*correct user and password_file"),
                                   ("d", 'user = "poor"; password_file = "{pw}";', r"NOPERM.*")]:
        host = host_of(redis, name, store=setting.format(**files), lease=SHORT)
        both_ways(host, pattern)
        assert host.cli("stop", check=False).returncode == 0 and host.keeper.wait(20) == 0
    right = [host_of(redis, name, store=setting.format(**files)).wait_up()
             for name, setting in (("e", 'password_file = "{secret}";'), ("f", 'user = "dflock"; password_file = "{pw}";'))]
    right[0].init()
    agent_with(right[0])
    assert attempt(right[1]).word == "busy" and not Doctor(right[1]).of("problem")


def test_another_password(redis, host_of, folder):
    """The server has another one while a lock is held: a reload takes it over, and the holder goes on."""
    redis.command("ACL", "SETUSER", "dflock", "on", ">pw", "~dflock:*", "&dflock:*", "+@all")
    pw = written(folder, "pw", "pw\n")
    host = host_of(redis, lease=SHORT, store=f'user = "dflock"; password_file = "{pw}";').init()
    agent = host.opened("f", "flock 0 ex nb")
    redis.command("ACL", "SETUSER", "dflock", "<pw", ">other")
    redis.command("CLIENT", "KILL", "USER", "dflock")
    wait_until(lambda: "correct user and password_file" in host.log() and "are frozen" in host.log(), "the store refuses it")
    write_text(pw, "other\n")
    host.cli("reload")
    wait_until(lambda: host.status()["store"]["up"] and "go on" in host.log(), "it is used")
    assert agent.do("flock 0 un") == "ok" and not host.status()["lost"]
    write_text(pw, "wrong\n")
    host.cli("reload")
    works(host)  # the connection stands


@pytest.mark.parametrize("how", ["wrong password", "no scripts"])
def test_stop_when_a_store_refuses_that_did_not(redis, host_of, folder, how):
    """The keeper ends although there are unused leases, whether they stand or ran out meanwhile; not if a program has a lock."""
    redis.command("ACL", "SETUSER", "dflock", "on", ">pw", "~dflock:*", "&dflock:*", "+@all")
    pw = written(folder, "pw", "pw\n")
    hosts = [host_of(redis, name, lease=f"linger_ms = 60000; store_wait_ms = 300; ttl_ms = {ttl};",
                     store=f'user = "dflock"; password_file = "{pw}"; database = {n};').init()
             for n, (name, ttl) in enumerate((("sure", 60000), ("expired", 1500)))]
    agents = [host.opened("f", "flock 0 ex nb") for host in hosts]
    rule = (">other", "<pw") if how == "wrong password" else ("-evalsha", "-eval", "-script")
    redis.command("ACL", "SETUSER", "dflock", *rule)
    redis.command("CLIENT", "KILL", "USER", "dflock")
    wait_until(lambda: leases(hosts[1], state="unsure"), "its lease has run out")
    for host, agent in zip(hosts, agents):
        wait_until(lambda: not host.status()["store"]["up"], "the store refuses")
        done = host.cli("stop", check=False)
        assert done.returncode == 1 and "leases cannot be given back" in done.stderr, done
        agent.kill()
        wait_until(lambda: host.cli("stop", check=False).returncode == 0, "it stops")
        assert host.keeper.wait(20) == 0


def test_password_file_for_everybody(redis, host_of, folder):
    path = written(folder, "pw", "pw", 0o644)
    host = host_of(redis, store='password_file = "%s";' % path, foreground=False)
    with pytest.raises(RuntimeError, match="can be read or written by everybody; run chmod"):
        host.start()
    assert "can be read or written by everybody" in attempt(host).line


def test_database(redis, host_of):
    both_ways(host_of(redis, store="database = 99;", lease=SHORT), "DB index.*: correct database in the configuration")
    a, b, other = host_of(redis, "b", store="database = 3;"), host_of(redis, "c", store="database = 3;"), host_of(redis, "d")
    a.init()
    other.init()
    agent_with(a)
    assert attempt(b.wait_up()).word == "busy"
    assert attempt(other).word == "ok"
    assert "db3:" in redis.command("INFO", "keyspace")


def test_a_server_that_evicts_or_is_a_replica(redis, host_of):
    """From the beginning, or all of a sudden. It gets well again: a master after grace, as it has another replication id."""
    redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    host = host_of(redis, lease="ttl_ms = 1000; linger_ms = 0; store_wait_ms = 300;")
    both_ways(host, "its maxmemory-policy is allkeys-lru, which drops leases when memory is short: set it to noeviction")
    redis.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    redis.command("REPLICAOF", "127.0.0.1", "1")
    for first in True, False:
        wait_until(lambda: "replica" in attempt(host).line, "the line says so")
        both_ways(host, "it is a replica .*set the address of the master")
        redis.command("REPLICAOF", "NO", "ONE")
        if first:
            host.init()
            works(host)
            redis.command("REPLICAOF", "127.0.0.1", "1")
    works(host)


def test_another_ttl(make_host, host_of, redis):
    a = make_host("a")
    b = host_of(redis, "b", lease="ttl_ms = 4000; store_wait_ms = 300;")
    both_ways(b, "the store's leases have ttl_ms = 3000, this keeper is configured with 4000: use the same value in every configuration")
    works(a)
    refusal = b.cli("init", check=False)
    assert refusal.returncode == 1 and "same value" in refusal.stderr
    # Everywhere, once all keepers have ended: the store gets the value of the first host that names it.
    a.cli("stop")
    b.cli("init", "--force")
    works(b)


# --- what is in the store ---


def test_something_else_under_a_lock(make_host, redis):
    host = make_host("a")
    for spoil, pattern in [
            (("LPUSH", lock_key(), "x"), "WRONGTYPE.*something else uses keys"),
            (("SET", lock_key(), "x"), "something else wrote.*remove it"),
            # A script that fails in its middle.
            (("EVAL", "redis.call('SET', KEYS[1], cmsgpack.pack({l = {}, q = {1}}))", 1, lock_key()), "ERR.*attempt to index")]:
        redis.command(*spoil)
        both_ways(host, pattern, doctor=False)
        assert attempt(host, "g").word == "ok"
        redis.command("DEL", lock_key())
        works(host)
        host.cli("stop")  # it gives its lease back
        gone(redis)
        host.start()
        host.wait_up()


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
    """A full Redis grants nothing new, but what is held is renewed and given back. Scripts that the server has forgotten are loaded again."""
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
    redis.command("SCRIPT", "FLUSH")
    assert held.do("flock 0 un") == "ok"
    gone(redis)
    redis.command("CONFIG", "SET", "maxmemory", "0")
    works(b)
    redis.command("SCRIPT", "FLUSH")
    works(a)


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
