"""The lockers alone, without dflock: they do what their libraries do, or every other test here shows nothing."""
import json
import os

import pytest
from client import MODULES, OF_NODE, REDISSON, STRING, key_of, need
from harness import text_of, write_text
from harness.host import ROOT
from hosts import renewed

ALL = STRING + REDISSON


@pytest.mark.parametrize("kind", ALL)
def test_one_has_it_and_hears_that_it_lost_it(make_client, redis, kind):
    one, two = make_client(kind), make_client(kind)
    assert one.do("try") == "locked" and two.do("try") == "busy"
    assert 15000 < redis.command("PTTL", key_of(kind)) <= 20000
    assert redis.command("TYPE", key_of(kind)) == ("hash" if kind in REDISSON else "string")
    two.say("lock")
    assert two.silent()
    assert one.do("unlock") == "unlocked"
    assert two.heard() == "locked" and two.do("unlock") == "unlocked"
    assert not redis.command("EXISTS", key_of(kind))
    assert one.do("lock") == "locked"
    redis.command("DEL", key_of(kind))
    assert two.do("try") == "locked"
    assert one.do("unlock") == "lost" and redis.command("EXISTS", key_of(kind)), "what others have now stays theirs"


@pytest.mark.parametrize("kind", REDISSON)
def test_the_watchdog_renews(make_client, redis, kind):
    one = make_client(kind, ttl_ms=900)
    assert one.do("lock") == "locked"
    renewed(redis, kind, 2)


@pytest.mark.parametrize("kinds", [STRING, REDISSON], ids=["string", "redisson"])
def test_none_loses_an_update(make_client, folder, kinds):
    """Libraries of one format exclude each other: what is ours sends what theirs send."""
    path = os.path.join(folder, "number")
    write_text(path, "0")
    some = [make_client(kind) for kind in kinds for _ in range(2) if key_of(kind) == key_of("recipe")]
    for client in some:
        client.say("count", path, 40, 1)
    assert [client.heard(60) for client in some] == ["counted 40"] * len(some)
    assert text_of(path) == str(40 * len(some))


def test_the_versions():
    """dflock.conf(5) names those that are tested."""
    for kind in (*OF_NODE, "redis-py"):
        need(kind)
    with open(os.path.join(MODULES, "installed")) as f:
        packages = json.load(f)["packages"]
    versions = {kind: packages["node_modules/" + kind]["version"] for kind in OF_NODE}
    page = text_of(os.path.join(ROOT, "man/dflock.conf.5"))
    assert all(f"{kind} {version}" in page for kind, version in versions.items()), versions
    assert "redis-py 4.3.4" in page  # Debian 12's; another one may be installed
