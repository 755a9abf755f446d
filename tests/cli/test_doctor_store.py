"""`dflock doctor` on the installation, the configuration, the keeper and the store: what it finds, and what to do."""
import json
import os
import shutil
import signal
import subprocess

import pytest
from harness import wait_until, write_text
from harness.host import CLI, COMMANDS, DOCTOR, KEEPER, NET, SHIM

from lines import LOCAL, Doctor, changed, unconfigured
from server import Pretender

REFUSED = "is not usable, and locks are refused: "


@pytest.fixture
def pretend():
    servers = []

    def make(**info):
        servers.append(Pretender(**info))
        return servers[-1].address

    yield make
    for server in servers:
        server.stop()


def test_all_is_well(make_host, redis):
    a = make_host("a")
    version = redis.command("INFO", "server").split("redis_version:")[1].split()[0]
    found = Doctor(a).found
    assert found == [
        ("ok", f"the library is {SHIM}"),
        ("ok", f"the keeper's program is {KEEPER}"),
        ("ok", f"the net's program is {NET}"),
        ("ok", f"the configuration {a.config} is valid and has 1 rule"),
        ("ok", f"the runtime directory is {a.runtime}"),
        ("ok", f"the keeper runs (pid {a.keeper_pids()[1]}, uid {os.geteuid()})"),
        ("ok", "the keeper goes by this configuration"),
        ("ok", f"the store unix:{redis.socket} answers, version {version}, can be written and evicts no leases"),
        ("ok", "a host that falls silent loses its locks after 3 s (ttl_ms)"),
        ("ok", "the keeper has found no lock that was taken past dflock"),
        ("ok", f"tree {a.files}: tmpfs{LOCAL}"),
    ]


def test_each_store_is_looked_at(host_of, redis, pretend):
    hot = pretend(role="master", connected_slaves=2)
    a = host_of(redis, foreground=False)
    changed(a, "store = {", 'stores = { hot = { server = "%s"; }; gone = { server = "127.0.0.1:1"; };\n'
                            'zoo = { zookeeper = "127.0.0.1:1/dflock"; }; };\nstore = {' % hot)
    found = Doctor(a)
    found.has("ok", r"^store: the store unix:\S+ answers")
    found.has("ok", "^stores.zoo: the store's engine is ")
    found.has("warning", f"^stores.hot: {hot} has 2 replicas, and the configuration says replicas = 0; ")
    found.has("problem", "^stores.gone: 127.0.0.1:1 cannot be asked for its replicas: ")


def test_it_starts_a_keeper(make_host):
    a = make_host("a", lease="ttl_ms = 60000;", foreground=False)
    found = Doctor(a)
    found.has("ok", r"no keeper ran; a keeper was started \(pid \d+, uid \d+\)")
    found.has("ok", r"the store unix:\S+ answers")
    assert found.has("warning", "the store is new or lost its memory: it grants nothing for another .*"
                                "and then opens by itself; if it is new, `dflock init` opens it sooner$")
    a.init()
    assert not Doctor(a).of("warning")


def test_no_server(host_of, folder):
    found = Doctor(host_of("127.0.0.1:1", foreground=False))
    assert found.only("the store") == (f"the store 127.0.0.1:1 {REFUSED}connection refused; "
                                       "start the server there, or correct `server` in the configuration")
    socket = os.path.join(folder, "none.sock")
    found = Doctor(host_of("unix:" + socket, "b", foreground=False))
    assert found.only("the store").startswith(f"the store unix:{socket} {REFUSED}no such file or directory; start the server")


def test_no_such_name(host_of):
    """A name that needs no name server."""
    found = Doctor(host_of("redis..invalid:6379", foreground=False))
    assert found.only("the store").startswith(
        f"the store redis..invalid:6379 {REFUSED}cannot look up the address of redis..invalid: ")
    found.only("; correct `server` in the configuration, or the name service of this machine$")


def test_a_server_that_hangs(make_host, redis):
    a = make_host("a", store="connect_ms = 300;")
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: not a.status()["store"]["up"], "the keeper notices")
    redis_hangs = Doctor(a).only("the store")
    assert "no answer within 300 ms; the server hangs or has too much to do: look at its log" in redis_hangs
    redis.signal(signal.SIGCONT)
    wait_until(lambda: a.status()["store"]["up"], "it is up again")
    assert not Doctor(a).of("problem")


def test_something_else_answers(host_of, pretend):
    address = pretend(colour="blue")
    found = Doctor(host_of(address, foreground=False))
    assert found.only("the store") == (f"the store {address} {REFUSED}INFO does not show redis_version: it is no Redis 6.2 or newer; "
                                       "correct `server` in the configuration: something else answers there")


def test_too_old(host_of, pretend):
    address = pretend(redis_version="6.0.16", run_id="0" * 40)
    found = Doctor(host_of(address, foreground=False))
    assert found.only("the store") == f"the store {address} {REFUSED}its version is 6.0.16: dflock needs Redis 6.2 or newer"


@pytest.mark.parametrize("info, why", [
    ({"redis_version": "7.4.0", "dragonfly_version": "df-v1.40.1"}, "it is Dragonfly, which dflock does not support: its scripts"),
    ({"redis_version": "6.3.4", "mvcc_depth": "0"}, "it is KeyDB, which dflock does not support: with active-replica or multi-master"),
    ({"redis_version": "6.3.4", "role": "active-replica"}, "it is KeyDB, which dflock does not support: with active-replica"),
    ({"redis_version": "7.2.0", "module": "name=raft,ver=1,api=1"}, "it is RedisRaft, which dflock does not support: each"),
    ({"redis_version": "7.0.15", "redis_mode": "sentinel"}, "it is a Redis Sentinel: name it in sentinels"),
    ({"redis_version": "7.0.15", "cluster_enabled": "1"}, "it is a node of a Redis Cluster: name nodes of it in cluster"),
    ({"redis_version": "7.2.4"}, "INFO does not show a replication id (master_replid), by which dflock sees that the server has lost"),
    ({"redis_version": "7.2.4", "master_replid": "0" * 40}, "INFO does not show a replication id (master_replid)"),
])
def test_servers_that_are_not_fit(host_of, pretend, info, why):
    """By name, when the keeper connects."""
    info = {"run_id": "0" * 40, "maxmemory_policy": "noeviction", "role": "master", **info}
    address = pretend(**info)
    assert Doctor(host_of(address, foreground=False)).only("the store").startswith(f"the store {address} {REFUSED}{why}")


def test_passwords(host_of, redis, folder):
    redis.command("CONFIG", "SET", "requirepass", "secret")
    Doctor(host_of(redis, "a", foreground=False)).only("NOAUTH .*: set user and password_file in the configuration$")
    password = os.path.join(folder, "password")
    write_text(password, "wrong\n")
    os.chmod(password, 0o600)
    Doctor(host_of(redis, "b", foreground=False, store=f'password_file = "{password}";')).only(
        "WRONGPASS .*: correct user and password_file in the configuration$")
    write_text(password, "secret\n")
    assert not Doctor(host_of(redis, "c", foreground=False, store=f'password_file = "{password}";')).of("problem")


def test_a_password_that_the_server_does_not_need(host_of, redis, folder):
    password = os.path.join(folder, "password")
    write_text(password, "x\n")
    os.chmod(password, 0o600)
    Doctor(host_of(redis, foreground=False, store=f'password_file = "{password}";')).only(
        "it has no password: remove password_file from the configuration$")


def test_a_replica(host_of, redis):
    redis.command("REPLICAOF", "127.0.0.1", "1")
    Doctor(host_of(redis, foreground=False)).only(r"it is a replica \(role:slave\): set the address of the master$")


def test_a_policy_that_evicts(host_of, redis):
    redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    Doctor(host_of(redis, "a", foreground=False)).only(
        "its maxmemory-policy is allkeys-lru, which drops leases when memory is short: set it to noeviction")
    redis.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    assert not Doctor(host_of(redis, "b", foreground=False)).of("problem")


@pytest.mark.parametrize("setting, value, advice", [
    ("maxmemory", "1mb", "raise its maxmemory or remove other data$"),
    ("min-replicas-to-write", "1", "it refuses renewals, too: bring its replicas back, or lower its min-replicas-to-write$"),
])
def test_a_store_that_answers_but_takes_no_locks(make_host, redis, setting, value, advice):
    a = make_host("a")
    redis.command("CONFIG", "SET", setting, value)
    Doctor(a).only("answers, version .*, but takes no new locks: the store says .*" + advice)
    redis.command("CONFIG", "SET", setting, 0)
    assert not Doctor(a).of("problem")


RISKS = [("stop-writes-on-bgsave-error", "yes", "no", r"if it cannot save to disk, .*: CONFIG SET stop-writes-on-bgsave-error no"),
         ("maxmemory-policy", "volatile-lru", "noeviction", "if its memory is short, it drops keys of redis_key")]


@pytest.mark.parametrize("setting, bad, good, says", RISKS)
def test_settings_that_could_stop_all_jobs(make_host, redis, setting, bad, good, says):
    """Before they do."""
    a = make_host("a", rules='{ path = "/k"; redis_key = "k"; redis_key_format = "string"; }')
    redis.command("CONFIG", "SET", "save", "3600 1")
    redis.command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
    assert not Doctor(a).of("warning")
    redis.command("CONFIG", "SET", setting, bad)
    Doctor(a).has("warning", says)
    redis.command("CONFIG", "SET", setting, good)
    assert not Doctor(a).of("warning")


def test_settings_that_cannot_be_seen(host_of, redis, folder):
    """A user without the right, as `dflock doctor --acl` makes it."""
    redis.give_rights()
    redis.command("ACL", "SETUSER", "default", "+@all", "-config")
    redis.command("ACL", "SETUSER", "default", "+config|set")
    a = host_of(redis)
    assert not Doctor(a).of("problem")
    Doctor(a).has("ok", "cannot be seen here .*CONFIG GET.*: have `stop-writes-on-bgsave-error no` and `min-replicas-to-write 0` there")


def test_another_ttl_than_the_store(make_host, host_of, redis):
    make_host("a")
    Doctor(host_of(redis, "b", lease="ttl_ms = 4000;", foreground=False)).only(
        "the store's leases have ttl_ms = 3000, this keeper is configured with 4000: use the same value in every configuration; dflock")


def test_a_database_that_is_not_there(host_of, redis):
    Doctor(host_of(redis, store="database = 99;", foreground=False)).only(": correct database in the configuration$")


def test_the_configuration_has_changed(make_host):
    a = make_host("a")
    changed(a, "ttl_ms = 3000", "linger_ms = 5; ttl_ms = 3000")
    wait_until(lambda: a.status()["rules"]["file"] == "same" and "was changed and taken over" in a.log(), "it is taken over")
    Doctor(a).has("ok", "the keeper goes by this configuration")
    changed(a, "protect = (", "protect = ( ); //")
    wait_until(lambda: a.status()["rules"]["file"] == "waits", "the keeper has looked at it")
    Doctor(a).only(f"^{a.config} was changed, and tree \"{a.files}\" is not protected as \"t\" any more, or its rule was moved; `dflock reload` takes it "
                   "over; until then the rules in force are older ones$")
    a.cli("reload")
    Doctor(a).has("ok", "the keeper goes by this configuration")


def test_another_configuration_than_the_keepers(make_host, folder):
    a = make_host("a")
    other = os.path.join(folder, "other.conf")
    with open(a.config) as f, open(other, "w") as g:
        g.write(f.read())
    Doctor(a, "--config", other).only(
        f"the keeper goes by the configuration {a.config} and programs by {other}, so that their locks are refused; "
        "set DFLOCK_CONFIG to the former, or DFLOCK_RUNTIME_DIR")


def test_an_invalid_configuration(host_of):
    a = host_of("unix:/none", foreground=False)
    changed(a, "protect", "protekt")
    found = Doctor(a)
    found.only(rf"^{a.config}:4: unknown setting protekt; did you mean protect\?; until this is mended every lock is refused$")
    found.has("warning", f"no keeper runs for {a.runtime}")
    assert not a.keeper_pids()


def test_a_broken_file_beside_older_rules(make_host):
    """Locks are not refused: the keeper has a copy of what it accepted, and leaves it to the next one."""
    a = make_host("a")
    changed(a, "protect", "protekt")
    wait_until(lambda: a.status()["rules"]["file"] == "invalid", "the keeper has looked at it")
    Doctor(a).only("unknown setting protekt; .*; until this is mended the rules in force are the older ones$")
    wait_until(a.kill_keeper, "the keeper has ended")
    Doctor(a).only("unknown setting protekt; .*; until this is mended the next keeper goes by the rules of the one before$")


def test_a_configuration_that_is_not_there(host_of):
    a = host_of("unix:/none", foreground=False)
    os.unlink(a.config)
    Doctor(a).only(f"^{a.config}: cannot be read: No such file or directory; until this is mended every lock is refused$")


def test_no_configuration(host_of, folder):
    assert not os.path.exists("/etc/dflock.conf"), "this test needs a machine without a configuration"
    a = host_of("unix:/none", foreground=False)
    found = Doctor(a, done=unconfigured(a, folder, "doctor"))
    found.only("^there is no configuration, so nothing is protected; write ~/.config/dflock.conf or /etc/dflock.conf")
    assert not a.keeper_pids()


def test_a_configuration_without_rules(make_host):
    a = make_host("a", foreground=False)
    changed(a, "protect = ( {", "protect = ( ); // {")
    Doctor(a).has("warning", f"the configuration {a.config} protects nothing; add rules to `protect`")


def test_a_runtime_directory_that_others_can_write(host_of):
    a = host_of("unix:/none", foreground=False)
    os.chmod(a.runtime, 0o777)
    found = Doctor(a)
    assert found.of("problem") and all("can be written by others" in p for p in found.of("problem"))


def test_a_runtime_directory_that_is_no_path(host_of):
    a = host_of("unix:/none", foreground=False)
    done = subprocess.run([CLI, "doctor"], env={**a.env(), "LD_PRELOAD": "", "DFLOCK_RUNTIME_DIR": "here"},
                          capture_output=True, text=True, timeout=60)
    found = Doctor(a, done=done)
    assert found.of("problem") and all("DFLOCK_RUNTIME_DIR must be an absolute path" in p for p in found.of("problem"))


def test_a_keeper_that_hangs(make_host):
    a = make_host("a")
    # The parent would kill one that hangs, and start the next one.
    parent, keeper = a.keeper_pids()
    os.kill(parent, signal.SIGSTOP)
    os.kill(keeper, signal.SIGSTOP)
    try:
        Doctor(a).only(rf"the keeper \(pid {keeper}\).*has not answered for \d+ s; its log may say why$")
    finally:
        os.kill(keeper, signal.SIGCONT)
        os.kill(parent, signal.SIGCONT)


def test_an_installation_that_is_not_whole(host_of, programs):
    if os.path.exists("/usr/local/lib/libdflock.so"):
        pytest.skip("dflock is installed here")
    own = shutil.copy(CLI, programs)
    shutil.copy(COMMANDS, programs)
    shutil.copy(DOCTOR, programs)
    a = host_of("unix:/none", foreground=False)
    env = {k: v for k, v in a.env().items() if k != "LD_PRELOAD"}
    found = Doctor(a, done=subprocess.run([own, "doctor", "flock"], env=env, capture_output=True, text=True, timeout=60))
    found.has("problem", r"libdflock.so: No such file or directory; without it no lock is protected: install it$")
    found.has("problem", r"^the keeper's program \S+dflockd: No such file or directory; install it$")
    found.has("problem", r"^cannot execute \S+dflockd: No such file or directory$")


def test_for_programs(make_host):
    a = make_host("a")
    said = Doctor(a)
    done = a.cli("doctor", "--json", check=False)
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and done.stderr == "" and answer["schema"] == 1 and answer["problems"] == 0
    assert answer["warnings"] == len(said.of("warning")) == sum(f["level"] == "warning" for f in answer["findings"])
    assert {(f["level"], f["text"]) for f in answer["findings"] if "keeper" not in f["text"]} == {f for f in said.found if "keeper" not in f[1]}
