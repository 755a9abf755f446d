"""
What may happen to the key of a lease, to its host, and to the messages between: who has the lock then, and that no key stays behind.

Where a lock could be had twice, or never again: the store grants a lease by hand-over, and its host has not heard of it
(test_the_key_is_taken_before_the_host_knows); the host that was granted it has forgotten that it asked
(test_a_grant_to_one_that_has_gone); a lease of the same host in the other space has the key (test_the_spaces_of_a_host_share_the_key); a call
that does not wait comes while the key is left free for clients (test_one_that_waits_beside_one_that_grabs).
"""
import os
import signal

import pytest
from client import Flocker, format_of, key_of
from harness import text_of, wait_until, write_text

from hosts import LEASE, holds, is_busy, keyed, owner, renewed, rule, token, waits
from jobs import end, grows, job, size
from keepers import held, kill_keeper, opened

BEATS = "ttl_ms = 3000; freeze_margin_ms = 500;"


@pytest.fixture(params=["recipe", "redisson"])
def kind(request):
    """One for each format of keys."""
    return request.param


def take_away(redis, kind, value="another"):
    """A client has the key now."""
    redis.command("DEL", key_of(kind))
    if format_of(kind) == "string":
        redis.command("SET", key_of(kind), value, "PX", 60000)
    else:
        redis.command("HSET", key_of(kind), value, 1)
        redis.command("PEXPIRE", key_of(kind), 60000)


# --- the key of a lock that is held ---

def test_another_token_means_lost(make, redis, kind):
    a, b = make(kind, "ab", lease=BEATS)
    process, path = job(a)
    another = token(a) + "0"  # not only its beginning counts
    take_away(redis, kind, another)
    process.communicate(timeout=30)
    assert process.returncode != 0
    written = size(path)
    assert owner(redis, kind) == another and size(path) == written
    assert "a Redis client has its key" in a.log() and a.status()["lost"]
    assert is_busy(a) and is_busy(b)
    redis.command("DEL", key_of(kind))
    wait_until(lambda: not is_busy(b), "the lock is free again")


def test_a_key_that_was_deleted_is_put_back(make, make_client, redis, kind):
    host = make(kind, lease=BEATS)
    process, path = job(host)
    had = token(host)
    if kind == "redisson":
        assert make_client(kind).do("force") == "unlocked"  # forceUnlock() deletes whatever is there
    else:
        redis.command("DEL", key_of(kind))
    wait_until(lambda: owner(redis, kind) == had, "the next beat puts it back")
    wait_until(lambda: key_of(kind) in host.log(), "and that is said")
    grows(path)
    assert make_client(kind).do("try") == "busy" and token(host) == had
    end(process, path)


def test_a_key_that_is_no_lock(make, redis, kind):
    """WRONGTYPE: refused with a line, and lost if it comes while the lock is held."""
    host = make(kind, lease=BEATS)
    redis.command("RPUSH", key_of(kind), "an order")
    done = host.run("flock", "-n", host.path("f"), "true")
    assert done.returncode not in (0, 1), done
    line, = [l for l in done.stderr.splitlines() if l.startswith("dflock:")]
    assert host.path("f") in line and key_of(kind) in line and "list" in line
    redis.command("DEL", key_of(kind))
    process, _ = job(host)
    redis.command("DEL", key_of(kind))
    redis.command("RPUSH", key_of(kind), "an order")
    process.communicate(timeout=30)
    assert process.returncode != 0 and redis.command("LLEN", key_of(kind)) == 1


def test_the_store_loses_its_memory(make, make_client, redis, kind):
    """The lease is put back in grace, and its key with it."""
    host = make(kind, lease="ttl_ms = 6000; freeze_margin_ms = 500;")
    process, path = job(host)
    had = token(host)
    redis.command("FLUSHALL")
    wait_until(lambda: owner(redis, kind) == had, "the key is put back")
    wait_until(lambda: not host.status()["store"]["grace"], "grace is over", 40)
    grows(path)
    client = make_client(kind).say("lock")
    assert client.silent() and owner(redis, kind) == had
    end(process, path)
    assert client.heard() == "locked"


def test_a_client_is_faster_than_the_host(make, redis, kind):
    """Clients know no grace: what one of them has taken after the loss is its own."""
    host = make(kind, lease=BEATS)
    process, _ = job(host)
    host_stops = host.keeper_pids()[1]
    os.kill(host_stops, signal.SIGSTOP)
    redis.command("FLUSHALL")
    take_away(redis, kind)
    os.kill(host_stops, signal.SIGCONT)
    process.communicate(timeout=30)
    assert process.returncode != 0 and owner(redis, kind) == "another"


# --- messages and answers ---

def turn_begins(redis):
    """As if the lock were taken only in ten minutes: however long this machine takes, the key is not left free for clients at the next hand-over."""
    redis.command("EVAL", "local l, t = cmsgpack.unpack(redis.call('GET', KEYS[1])), redis.call('TIME') l.l[1].run = (t[1] + 600) * 1000 "
                  "redis.call('SET', KEYS[1], cmsgpack.pack(l))", 1, "dflock:{0}:lock:t/f")


@pytest.fixture
def proxied(make_host, redis, proxy):
    """Hosts a, and b, which goes through a proxy."""
    def make(kind, lease=LEASE):
        a = make_host("a", rules=rule(kind), lease=lease)
        return a, make_host("b", rules=rule(kind), lease=lease, server=proxy.address).wait_up(), proxy

    return make


def test_the_key_is_taken_before_the_host_knows(proxied, make_client, redis, kind):
    """b is granted the lock by hand-over, and cannot hear of it until the key has expired: a client has it then."""
    a, b, proxy = proxied(kind, lease="ttl_ms = 2000;")
    one, client = holds(a), make_client(kind)
    waiter = waits(b)
    wait_until(lambda: held(b, note="waits for another host"), "b waits")
    had = token(a)
    proxy.pause()
    proxy.hold_messages()
    turn_begins(redis)
    assert one.end() == 0
    wait_until(lambda: owner(redis, kind) not in ("", had), "b is granted it")
    assert client.do("lock") == "locked"
    mine = owner(redis, kind)
    proxy.pass_messages()
    proxy.resume()
    assert waiter.silent(3)  # beats, and questions, and b is asked anew
    assert owner(redis, kind) == mine and client.do("unlock") == "unlocked"
    assert waiter.line(60) == "held"
    assert owner(redis, kind) == token(b) and client.do("try") == "busy"


def test_a_grant_to_one_that_has_gone(proxied, make_client, redis, kind):
    """b is granted the lock by hand-over; its program and its keeper were killed, and the next keeper knows of no caller."""
    a, b, proxy = proxied(kind)
    one = holds(a)
    waiter = waits(b)
    wait_until(lambda: held(b, note="waits for another host"), "b waits")
    had = token(a)
    proxy.pause()
    proxy.hold_messages()
    waiter.kill()
    os.kill(b.keeper_pids()[1], signal.SIGKILL)
    turn_begins(redis)
    assert one.end() == 0
    wait_until(lambda: owner(redis, kind) not in ("", had), "b is granted it")
    proxy.pass_messages()
    proxy.resume()
    assert make_client(kind).do("lock", seconds=15) == "locked"  # long before the ttl


def test_answers_are_lost(proxied, make_client, redis, kind):
    """An acquire may have been granted: it is asked again, and there is one key all the time. A release that is sent again takes nothing from
    the client that has the key since."""
    a, b, proxy = proxied(kind, lease="ttl_ms = 3000;")
    fault = proxy.fault("acquire", "cut after")
    one, client = waits(b), make_client(kind)
    wait_until(fault.happened.is_set, "the answer is lost")
    assert one.line(60) == "held"
    assert owner(redis, kind) == token(b) and is_busy(a)
    fault = proxy.fault("release", "cut after")
    assert one.end() == 0
    wait_until(fault.happened.is_set, "the answer is lost")
    assert client.do("lock") == "locked"
    mine = owner(redis, kind)
    waiter = waits(b)
    assert waiter.silent(2)
    assert owner(redis, kind) == mine and client.do("unlock") == "unlocked"
    assert waiter.line() == "held"


# --- keepers ---

def test_a_keeper_dies(make, make_client, redis, kind):
    host = make(kind, lease=BEATS)
    process, path = job(host)
    had = token(host)
    kill_keeper(host)
    wait_until(lambda: held(host, token=had, state="waiting"), "the next keeper has the lease")
    renewed(redis, kind, 1)
    assert owner(redis, kind) == had
    grows(path)
    end(process, path)
    assert make_client(kind).do("lock", seconds=2.5) == "locked"


# --- one host alone ---

def test_a_free_lock_is_never_refused(make):
    """LOCK_NB right after the unlock, which is still on its way to the store."""
    host = make("recipe")
    program = Flocker(host)
    for _ in range(50):
        assert program.do("try") == "locked" and program.do("unlock") == "unlocked"
    done = host.run("bash", "-c", 'for i in {1..50}; do flock -n "$1" true || exit 1; done', "-", host.path("f"))
    assert done.returncode == 0, done


def test_conversions(make, make_client, redis, kind):
    """The key stays the same lease's, or goes from one to the next without a moment between."""
    host, client = make(kind), make_client(kind, pause=0)
    agent = host.opened("f", "flock 0 ex")
    client.say("lock")
    for how in ("sh", "ex", "sh nb", "ex nb", "ex"):
        assert agent.do("flock 0 " + how) == "ok"
        assert owner(redis, kind)
    assert client.silent(0.1)
    assert agent.do("flock 0 un") == "ok"
    assert client.heard() == "locked"


def test_the_spaces_of_a_host_share_the_key(make, make_client, redis, kind):
    """flock() and record locks of one file do not exclude each other on a host; of two hosts they do, by the key."""
    a, b = make(kind, "ab")
    client = make_client(kind)
    one, two = a.opened("f", "flock 0 ex"), opened(a)
    word = two.do("setlk 0 ex 0 0")
    if word == "ENOLCK":
        pytest.skip("record locks of such files are refused")
    assert word == "ok"
    assert opened(b).do("setlk 0 ex 0 0") in ("EAGAIN", "EACCES") and opened(b).do("flock 0 ex nb") == "EAGAIN"
    assert client.do("try") == "busy"
    assert one.do("flock 0 un") == "ok"
    wait_until(lambda: len([l for l in a.status()["leases"] if l["name"] == "t/f"]) == 1, "the lease of the other space is left")
    assert owner(redis, kind) == token(a) and client.do("try") == "busy"
    assert two.do("setlk 0 un 0 0") == "ok"
    assert client.do("lock") == "locked"


# --- waiting ---

def test_a_key_without_an_end(make, redis, kind):
    """redis-py sets no time by default. Nobody asks busily meanwhile, and its end is noticed."""
    host = make(kind)
    take_away(redis, kind)
    redis.command("PERSIST", key_of(kind))
    waiter = waits(host)
    wait_until(lambda: [l for l in host.status()["leases"] if l["state"] == "asking"], "it waits")
    before = redis.commands_processed()
    assert waiter.silent(2)
    assert redis.commands_processed() - before < 100
    assert is_busy(host)
    redis.command("DEL", key_of(kind))
    assert waiter.line() == "held"


def test_one_that_gives_up_leaves_nothing(make, make_client, redis, kind):
    a, b = make(kind, "ab")
    client = make_client(kind)
    assert client.do("lock") == "locked"
    waiter = waits(a)
    assert waiter.silent()
    waiter.kill()
    wait_until(lambda: not redis.command("EXISTS", "dflock:{0}:lock:t/f"), "nobody waits")
    assert client.do("unlock") == "unlocked"
    assert not is_busy(b) and client.do("lock") == "locked"


def test_one_that_waits_beside_one_that_grabs(make, redis):
    """Calls that do not wait, of another host, take the lock whenever it is free: who waits gets it all the same."""
    kind = "recipe"
    a, b = make(kind, "ab")
    grabber, waiter = Flocker(a), Flocker(b)
    grabber.say("grab", 12, 5)
    wait_until(lambda: owner(redis, kind), "it grabs")
    for _ in range(3):
        assert waiter.do("lock", seconds=9) == "locked" and waiter.do("unlock") == "unlocked"
    assert int(grabber.heard().split()[1]) > 3


# --- the rule changes, and then the keeper ends ---

def change(host, old, new):
    text = text_of(host.config)
    assert old in text
    write_text(host.config, text.replace(old, new))
    host.cli("reload", "--force")


def test_the_rule_has_no_key_any_more(make, redis, kind):
    """The lease still has its key in the store. The next keeper knows only the new rule, and must not take the lease for an unknown one."""
    a, b = make(kind, "ab", lease=BEATS)
    process, path = job(a)
    had = token(a)
    change(a, keyed(kind), "")
    kill_keeper(a)
    wait_until(lambda: held(a, token=had) and "asking" not in held(a)[0]["state"], "the next keeper has the lease")
    renewed(redis, kind, 3)
    assert owner(redis, kind) == had
    grows(path)
    assert is_busy(b) and not a.status()["lost"]
    take_away(redis, kind)
    process.communicate(timeout=30)
    assert process.returncode != 0


def test_the_rule_has_a_key_now(make_host, make_client, redis, kind):
    """The lease has none, so a client may have it: the next keeper must not grant anything more under this lease."""
    host, client = make_host("a", rules=rule(kind).replace(keyed(kind), ""), lease=LEASE), make_client(kind)
    one = host.opened("f", "flock 0 sh")
    had = token(host)
    change(host, 'name = "t/f";', 'name = "t/f"; ' + keyed(kind))
    kill_keeper(host)
    wait_until(lambda: held(host, token=had) and held(host)[0]["state"] in ("held", "waiting"), "the next keeper has the lease")
    assert client.do("try") == "locked"  # as it could all the time
    other = opened(host)
    assert other.do("flock 0 sh nb") == "EAGAIN"
    assert client.do("unlock") == "unlocked"
    assert one.do("flock 0 un") == "ok"
    assert other.do("flock 0 ex") == "ok" and owner(redis, kind) == token(host)
