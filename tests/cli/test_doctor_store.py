"""
`dflock doctor` on the installation, the configuration, the keeper and the store: what it finds, and what to do. Stores that refuse:
tests/faults/test_store_refused.py; which servers are not fit: tests/unit/test_fit.c.
"""
import json
import os
import select
import shutil
import signal

import pytest
from harness import wait_until
from harness.host import CLI, COMMANDS, DOCTOR, KEEPER, NET, SHIM
from harness.listener import Listener

from lines import LOCAL, Doctor, changed, unconfigured

REFUSED = "is not usable, and locks are refused: "


class Pretender(Listener):
    """A server whose INFO says what a test wants, and that answers OK to everything else. On a port of its own on 127.0.0.1."""

    def __init__(self, **info):
        """info: the fields of INFO."""
        text = "".join(f"{name}:{value}\r\n" for name, value in info.items())
        self.info = b"$%d\r\n%s\r\n" % (len(text), text.encode())
        super().__init__(self.answer)

    def answer(self, connection):
        with connection.makefile("rb") as f:
            while line := f.readline():
                words = []
                for _ in range(int(line[1:])):
                    f.readline()
                    words.append(f.readline().strip().lower())
                connection.sendall(self.info if words[0] == b"info" else b"+OK\r\n")


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
    said = Doctor(a)
    assert said.found == [
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
    done = a.cli("doctor", "--json")
    answer = json.loads(done.stdout)
    assert done.stderr == "" and (answer["schema"], answer["problems"], answer["warnings"]) == (1, 0, 0)
    assert {(f["level"], f["text"]) for f in answer["findings"] if "keeper" not in f["text"]} == {f for f in said.found if "keeper" not in f[1]}


def test_a_store_that_may_stop_all_jobs_or_takes_no_locks(make_host, redis):
    """Settings are warned of before they do harm; a store that answers but takes no locks is a problem. It goes when they are mended."""
    a = make_host("a", store="connect_ms = 300;", rules='{ path = "/k"; redis_key = "k"; redis_key_format = "string"; }')
    for setting, value in ("save", "3600 1"), ("stop-writes-on-bgsave-error", "no"):
        redis.command("CONFIG", "SET", setting, value)
    assert not Doctor(a).of("warning")
    takes_none = "answers, version .*, but takes no new locks: the store says .*"
    for setting, bad, good, level, says in [
            ("stop-writes-on-bgsave-error", "yes", "no", "warning", "if it cannot save to disk, .*: CONFIG SET stop-writes-on-bgsave-error no"),
            ("maxmemory-policy", "volatile-lru", "noeviction", "warning", "if its memory is short, it drops keys of redis_key"),
            ("maxmemory-policy", "allkeys-lru", "noeviction", "warning", "if its memory is short, it drops leases: set its maxmemory-policy to noeviction$"),
            ("maxmemory", "1mb", 0, "problem", takes_none + "raise its maxmemory or remove other data$"),
            ("min-replicas-to-write", 1, 0, "problem",
             takes_none + "it refuses renewals, too: bring its replicas back, or lower its min-replicas-to-write$")]:
        redis.command("CONFIG", "SET", setting, bad)
        Doctor(a).has(level, says)
        redis.command("CONFIG", "SET", setting, good)
        found = Doctor(a)
        assert not found.of("problem") and not found.of("warning"), (setting, found.done)
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: not a.status()["store"]["up"], "the keeper notices")
    assert "no answer within 300 ms; the server hangs or has too much to do: look at its log" in Doctor(a).only("the store")
    redis.signal(signal.SIGCONT)
    a.wait_up()
    assert not Doctor(a).of("problem")


def test_settings_that_cannot_be_seen(host_of, redis):
    """A user without the right, as `dflock doctor --acl` makes it."""
    redis.give_rights()
    redis.command("ACL", "SETUSER", "default", "+@all", "-config")
    redis.command("ACL", "SETUSER", "default", "+config|set")
    found = Doctor(host_of(redis))
    assert not found.of("problem")
    found.has("ok", "cannot be seen here .*CONFIG GET.*: have `stop-writes-on-bgsave-error no` and `min-replicas-to-write 0` there")


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


def drip(connection):
    """Of an answer that has no end, one byte after the other."""
    connection.sendall(b"+")
    while not select.select([connection], [], [], 0.05)[0] or connection.recv(4096):
        connection.sendall(b"x")


def test_a_server_whose_answer_does_not_end(host_of, redis):
    server = Listener(drip)
    a = host_of(redis, foreground=False)
    changed(a, "store = {", 'stores = { slow = { server = "%s"; connect_ms = 500; }; };\nstore = {' % server.address)
    try:
        Doctor(a).has("problem", f"^stores.slow: {server.address} cannot be asked for its replicas: no answer in time")
    finally:
        server.stop()


def test_a_keeper_whose_number_is_not_known(make_host):
    """From inside another pid namespace the keeper has no number there: how doctor itself runs says nothing of it."""
    done = make_host("a").run("unshare", "--pid", "--fork", "--mount-proc", "nice", CLI, "doctor")
    assert "the keeper runs" in done.stdout and "runs with nice" not in done.stdout, done


def test_it_starts_a_keeper(make_host):
    a = make_host("a", lease="ttl_ms = 60000;", foreground=False)
    found = Doctor(a)
    found.has("ok", r"no keeper ran; a keeper was started \(pid \d+, uid \d+\)")
    found.has("ok", r"the store unix:\S+ answers")
    assert found.has("warning", "the store is new or lost its memory: it grants nothing for another .*"
                                "and then opens by itself; if it is new, `dflock init` opens it sooner$")
    a.init()
    assert not Doctor(a).of("warning")


def test_no_store_that_is_fit(host_of, folder, pretend):
    """Nothing is there, or something else; the address may have no name server to ask."""
    none = "unix:" + os.path.join(folder, "none.sock")
    old = pretend(redis_version="6.0.16", run_id="0" * 40)
    dragonfly = pretend(redis_version="7.4.0", run_id="0" * 40, dragonfly_version="df-v1.40.1")
    for name, address, why, cure in [
            ("a", "127.0.0.1:1", "connection refused", "start the server there, or correct `server` in the configuration"),
            ("b", none, "no such file or directory", "start the server"),
            ("c", "redis..invalid:6379", "cannot look up the address of redis..invalid: ",
             "correct `server` in the configuration, or the name service"),
            ("d", pretend(colour="blue"), "INFO does not show redis_version: it is no Redis 6.2 or newer",
             "correct `server` in the configuration: something else answers there"),
            ("e", old, "its version is 6.0.16: dflock needs Redis 6.2 or newer", ""),
            ("f", dragonfly, "it is Dragonfly, which dflock does not support: its scripts", "")]:
        said = Doctor(host_of(address, name, foreground=False)).only("the store")
        assert said.startswith(f"the store {address} {REFUSED}{why}") and cure in said.split(why)[1], said


def test_the_configuration_has_changed(make_host, folder):
    """Locks are not refused: the keeper has a copy of what it accepted, and leaves it to the next one."""
    a = make_host("a")
    changed(a, "ttl_ms = 3000", "linger_ms = 5; ttl_ms = 3000")
    wait_until(lambda: a.status()["rules"]["file"] == "same" and "was changed and taken over" in a.log(), "it is taken over")
    Doctor(a).has("ok", "the keeper goes by this configuration")
    changed(a, "protect = (", "protect = ( ); //")
    wait_until(lambda: a.status()["rules"]["file"] == "waits", "the keeper has looked at it")
    Doctor(a).only(f"^{a.config} was changed, and tree \"{a.files}\" is not protected as \"t\" any more, or its rule was moved; `dflock reload` takes it "
                   "over; until then the rules in force are older ones$")
    a.cli("reload")
    found = Doctor(a)
    found.has("ok", "the keeper goes by this configuration")
    found.has("warning", f"the configuration {a.config} protects nothing; add rules to `protect`")
    other = shutil.copy(a.config, os.path.join(folder, "other.conf"))
    Doctor(a, "--config", other).only(
        f"the keeper goes by the configuration {a.config} and programs by {other}, so that their locks are refused; "
        "set DFLOCK_CONFIG to the former, or DFLOCK_RUNTIME_DIR")
    changed(a, "protect", "protekt")
    wait_until(lambda: a.status()["rules"]["file"] == "invalid", "the keeper has looked at it")
    Doctor(a).only("unknown setting protekt; .*; until this is mended the rules in force are the older ones$")
    wait_until(a.kill_keeper, "the keeper has ended")
    Doctor(a).only("unknown setting protekt; .*; until this is mended the next keeper goes by the rules of the one before$")


def test_what_keeps_it_from_starting_a_keeper(host_of, folder):
    assert not os.path.exists("/etc/dflock.conf"), "this test needs a machine without a configuration"
    a = host_of("unix:/none", foreground=False)
    for mode, where, what in (0o777, a.runtime, "can be written by others"), (0o700, "here", "DFLOCK_RUNTIME_DIR must be an absolute path"):
        os.chmod(a.runtime, mode)
        problems = Doctor(a, env={"DFLOCK_RUNTIME_DIR": where}).of("problem")
        assert problems and all(what in p for p in problems), problems
    changed(a, "protect", "protekt")
    found = Doctor(a)
    found.only(rf"^{a.config}:4: unknown setting protekt; did you mean protect\?; until this is mended every lock is refused$")
    found.has("warning", f"no keeper runs for {a.runtime}")
    os.unlink(a.config)
    Doctor(a).only(f"^{a.config}: cannot be read: No such file or directory; until this is mended every lock is refused$")
    Doctor(a, done=unconfigured(a, folder, "doctor")).only(
        "^there is no configuration, so nothing is protected; write ~/.config/dflock.conf or /etc/dflock.conf")
    assert not a.keeper_pids()


def test_an_installation_that_is_not_whole(host_of, programs):
    if os.path.exists("/usr/local/lib/libdflock.so"):
        pytest.skip("dflock is installed here")
    for program in COMMANDS, DOCTOR:
        shutil.copy(program, programs)
    own = shutil.copy(CLI, programs)
    found = Doctor(host_of("unix:/none", foreground=False), "flock", before=["sh", "-c", 'shift; exec "$0" "$@"', own])
    found.has("problem", r"libdflock.so: No such file or directory; without it no lock is protected: install it$")
    found.has("problem", r"^the keeper's program \S+dflockd: No such file or directory; install it$")
    found.has("problem", r"^cannot execute \S+dflockd: No such file or directory$")
