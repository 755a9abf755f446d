"""`dflock doctor --acl`: with exactly these rights all works, and what is missing is named. Connections say which host they are."""
import pytest
from harness import Nodes, wait_until
from harness.redis import rights

from lines import Doctor, changed

LEASE = "ttl_ms = 3000;"
OF_A_KEY = {"+getrange", "+hsetnx", "+type", "+unsubscribe"}


@pytest.fixture
def host_as_user(host_of):
    def make(server, name="a", **options):
        host = host_of(server, name, foreground=False, lease=LEASE, **options)
        changed(host, "\nstore = {", '\nstore = { user = "dflock"; password_file = "%s";' % host.password("pw"))
        host.start()
        return host

    return make


def without(words, right):
    assert right in words
    return [w for w in words if w != right]


def clients(redis):
    """The names of the connections that have one."""
    names = (line.split(" name=")[1].split()[0] for line in redis.command("CLIENT", "LIST").splitlines() if " name=dflock" in line)
    return sorted(names)


def test_only_what_the_configuration_needs():
    plain, = rights()

    def more(*settings, **rules):
        return [set(words) - set(plain) for words in rights(*settings, **rules)]

    assert plain[:4] == ["ACL", "SETUSER", "dflock", "reset"]
    assert not {"+select", "+wait", "+cluster|slots"} & set(plain) and "+@all" not in plain
    assert more("database = 1;") == [{"+select"}] and more("replicas = 1;") == [{"+wait"}]
    assert more('cluster = ( "a" ); replicas = 0;') == [{"+cluster|slots"}]
    server, sentinel = rights('sentinels = ( "a" ); master = "m"; replicas = 1; user = "me"; password_file = "/none";')
    assert server[2] == "me" and sentinel[2] == "dflock" and not {"+get", "+info"} & set(sentinel)
    assert more(rules='{ path = "/f"; redis_key = "jobs:f"; }') == [OF_A_KEY | {"~jobs:f", "&__keyspace@0__:jobs:f"}]
    assert more(rules='{ path = "/f"; redis_key = "a*[b]"; redis_key_format = "redisson"; }') == [OF_A_KEY | {
        '"~a\\\\*\\\\[b\\\\]"', '"&__keyspace@0__:a\\\\*\\\\[b\\\\]"', '"&redisson_lock__channel:{a\\\\*\\\\[b\\\\]}"'}]
    assert more('}; stores = { hot = { server = "h"; database = 2; user = "u"; password_file = "/none"; };',
                rules='{ path = "/f"; redis_key = "jobs:f"; store = "hot"; }') == [
        set(), OF_A_KEY | {"u", "+select", "~jobs:f", "&__keyspace@2__:jobs:f"}]


@pytest.mark.parametrize("format", ["string", "redisson"])
def test_a_redis_key_works_with_exactly_these(redis, host_as_user, format):
    rule = '{ path = "%%s/f"; name = "t/f"; redis_key = "jobs:f"; redis_key_format = "%s"; }' % format
    redis.give_rights(rights(rules=rule % "/x")[0], "pw")
    redis.command("CONFIG", "SET", "notify-keyspace-events", "Kgx")
    a = host_as_user(redis, rules=rule).init()
    agent = a.opened()
    assert agent.do("flock 0 ex") == "ok" and redis.command("EXISTS", "jobs:f")
    wait_until(lambda: redis.command("PTTL", "jobs:f") < 2500, "time goes by")
    wait_until(lambda: redis.command("PTTL", "jobs:f") > 2500, "a beat renewed it")
    assert agent.do("flock 0 un") == "ok"
    wait_until(lambda: not redis.command("EXISTS", "jobs:f"), "it is free")
    redis.command("SET", "jobs:f", "x") if format == "string" else redis.command("HSET", "jobs:f", "x:1", "1")
    agent.say("flock 0 ex")
    wait_until(lambda: "a Redis client" in a.cli("status").stdout, "it waits")
    redis.command("DEL", "jobs:f")
    assert agent.heard()[0] == "ok"
    assert "does not tell" not in a.log() and "NOPERM" not in a.log()


def test_all_works_with_exactly_these(redis, host_as_user):
    redis.give_rights(rights()[0], "pw")
    redis.command("CONFIG", "SET", "requirepass", "other")  # of the user default, which the host is not
    a, b = host_as_user(redis).init(), host_as_user(redis, "b").wait_up()
    held, other = a.opened("f", "flock 0 ex"), b.opened().say("flock 0 ex")
    wait_until(lambda: "waits for another host" in b.cli("status").stdout, "b is queued")
    assert held.do("flock 0 un") == "ok" and other.heard(10)[0] == "ok"
    assert "t/f" in a.cli("status").stdout
    assert not Doctor(a).of("problem") and not Doctor(b).of("problem")
    assert "NOPERM" not in a.log() + b.log()


def test_a_server_that_takes_no_names(redis, host_as_user):
    redis.give_rights(without(rights()[0], "+client|setname"), "pw")
    a = host_as_user(redis).init()
    assert a.run("flock", "-n", a.path("f"), "true").returncode == 0
    redis.command("CLIENT", "KILL", "TYPE", "pubsub")
    wait_until(lambda: "is not reachable" in a.log(), "it has noticed")
    a.wait_up()
    assert a.log().count("the user lacks the right +client|setname (") == 1 and not clients(redis)


def test_what_is_missing_is_named(redis, host_as_user):
    for i, right in enumerate(["+info", "+evalsha", "+subscribe", "+hget", "~dflock:{*}:*", "&dflock:{*}:host:*"]):
        redis.give_rights(without(rights()[0], right), "pw")
        found = Doctor(host_as_user(redis, f"h{i}")).of("problem")
        assert any(f"the user lacks the right {right} (" in f and "`dflock doctor --acl` prints" in f for f in found), found


def test_wait_is_needed_with_replicas(folder, host_as_user):
    nodes = Nodes(folder + "/nodes", 2)
    try:
        words, = rights(nodes.settings)
        for node in nodes.all:
            node.give_rights(without(words, "+wait"), "pw")
        a = host_as_user(nodes.settings)
        wait_until(lambda: "the user lacks the right +wait (" in a.log(), "it is named")
        nodes[0].give_rights(words, "pw")
        a.init()
    finally:
        nodes.stop()


def test_connections_say_which_host(redis, two):
    ids = sorted(two[0].status()["cluster"]["hosts"])
    wait_until(lambda: len(clients(redis)) == 4, "two connections of each host")
    names = clients(redis)
    assert names[0] == names[1] and names[0].startswith("dflock:a-") and names[2] == names[3] and names[2].startswith("dflock:b-")
    assert {"dflock:" + i for i in ids} <= set(names)
    redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    redis.command("CLIENT", "KILL", "TYPE", "pubsub")
    wait_until(lambda: clients(redis) == names, "they say so again")
