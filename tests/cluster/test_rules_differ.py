"""
What hosts name or protect differently, as `dflock doctor` and `dflock status` of one of them say it. How rules are compared:
tests/unit/test_differ.c.

Nothing of it may influence a lock: so the scripts of leases never read what hosts post (tests/unit/test_store_rules.c),
and here no host whose posting is refused, lost or hostile gets or keeps a lock in another way.
"""
import os
import shutil
import sys

import pytest
from harness import text_of, wait_until, write_text

from editing import flock, settled
from keepers import kill_keeper

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cli"))
from lines import Doctor  # noqa: E402

RULES = "dflock:{0}:rules"
LEASE = "ttl_ms = 20000;"


def elsewhere(host):
    return host.status()["elsewhere"]


def differences(host):
    return elsewhere(host)["differences"]


def posted(redis, count):
    wait_until(lambda: redis.command("HLEN", RULES) == count, f"{count} hosts have posted their rules")


def same(host, count=1):
    wait_until(lambda: elsewhere(host)["same"] == count, f"{count} other hosts have the same rules")
    assert differences(host) == [] and elsewhere(host)["unknown"] == elsewhere(host)["alone"] == 0
    assert "DIFFERENTLY" not in host.cli("status").stdout and "rules differ" not in host.cli("status").stdout


def reloaded(host, old, new, *how):
    text = text_of(host.config)
    assert old in text
    write_text(host.config, text.replace(old, new))
    host.cli("reload", *how)


@pytest.fixture
def pair(make_host, redis):
    """pair(rules of a, rules of b): both have posted."""
    def make(*rules):
        hosts = [make_host(name, rules=r, lease=LEASE).wait_up() for name, r in zip("ab", rules)]
        posted(redis, 2)
        return hosts
    return make


def test_the_same_rules(pair):
    """In different folders; also when one keeper has ended."""
    hosts = pair('{ tree = "%s"; name = "t"; }', '{ tree = "%s"; name = "t"; }')
    for host in *hosts, hosts[0]:
        same(host)
        doctor = Doctor(host)
        doctor.has("ok", "^1 other keeper names and protects the same, or did when it ran$")
        assert not doctor.of("warning")
        if host is hosts[1]:
            host.cli("stop")


def test_another_name_for_the_same_path(pair, folder):
    a, b = pair('{ tree = "/srv/app"; name = "app"; }', '{ tree = "/srv/app"; name = "apps"; }')
    b_id = b.status()["host"]
    assert Doctor(a).has("warning", "named differently") == (
        f'named differently: tree /srv/app as "app/..." here, and tree /srv/app as "apps/..." on host {b_id}: '
        "these locks do not exclude each other; give both rules the same `name` and `store`")
    found = Doctor(b).has("warning", "named differently")
    assert 'as "apps/..." here' in found and f"on host {a.status()['host']}:" in found
    assert ("\nNAMED DIFFERENTLY on other hosts: 1 rule; these locks do not exclude each other. "
            "`dflock doctor` shows them\n") in a.cli("status").stdout
    said, = differences(a)
    assert said.pop("age_ms") >= 0
    assert said == {"what": "renamed", "hosts": [b_id], "others": 0, "here": "tree /srv/app", "here_as": "app/...",
                    "there": "tree /srv/app", "there_as": "apps/..."}


def test_a_typing_error_in_a_path(pair):
    common = '{ path = "/var/lib/dflock-test/nightly"; }, '
    a, b = pair(common + '{ path = "/srv/app/lock"; }', common + '{ path = "/srv/ap/lock"; }')
    Doctor(a).has("warning", "^2 lock names that only some hosts have, of hosts that share others: .* is a path misspelt")
    assert elsewhere(a)["alone"] == 2 and differences(a) == []
    assert "\nrules differ: " in a.cli("status").stdout


def test_links_in_paths(pair, folder):
    """As /var/run is a link to /run on some machines: the name that was written counts, and the path that it leads to."""
    os.makedirs(os.path.join(folder, "run"))
    os.symlink("run", os.path.join(folder, "link"))
    a, b = pair(f'{{ path = "{folder}/link/f"; name = "{folder}/run/f"; }}', f'{{ path = "{folder}/run/f"; }}')
    same(a)
    same(b)
    reloaded(a, f'name = "{folder}/run/f";', "", "--force")  # one path, and two names
    wait_until(lambda: differences(b), "the other name is posted")
    found, path = Doctor(a).has("warning", "named differently"), f"path {folder}/run/f as"
    assert f'{path} "{folder}/link/f" here, and {path} "{folder}/run/f" on host b-' in found


def test_a_reload_changes_it(pair):
    a, b = pair('{ path = "/srv/app/lock"; name = "app"; }', '{ path = "/srv/app/lock"; name = "apps"; }')
    assert len(differences(a)) == 1
    reloaded(b, '"apps"', '"app"')
    same(a)
    same(b)
    reloaded(a, '"app"', '"apps"')
    wait_until(lambda: len(differences(b)) == 1, "b sees the other name")
    # Also a change that the keeper takes over by itself: it adds a rule.
    text = text_of(b.config)
    with open(b.config, "w") as f:
        f.write(text.replace('name = "app"; }', 'name = "app"; }, { path = "/srv/more"; name = "apps"; }'))
    settled(b, "same")
    wait_until(lambda: len(differences(a)) == 1 and elsewhere(a)["error"] == "", "a sees it")


def test_the_store_forgets_and_gets_it_again(pair, redis):
    a, b = pair('{ path = "/srv/app/lock"; name = "app"; }', '{ path = "/srv/app/lock"; name = "apps"; }')
    redis.command("FLUSHALL")
    for host in (a, b):
        host.run("flock", "-n", host.path("f"), "true")
        host.cli("init", "--force")  # each asks the store, and learns that its memory is another one
    posted(redis, 2)
    assert len(differences(a)) == len(differences(b)) == 1
    redis.restart()
    for host in (a, b):
        host.wait_up()
    posted(redis, 2)
    assert len(differences(a)) == 1


def test_what_a_keeper_said_last_stays(pair, redis):
    """A user's keeper ends when no program needs it. The next one takes its place, also after the machine was started anew."""
    a, b = pair('{ path = "/srv/app/lock"; name = "app"; }', '{ path = "/srv/app/lock"; name = "apps"; }')
    before = b.status()["host"]
    b.cli("stop")
    b.keeper.wait()
    assert differences(a)[0]["hosts"] == [before]
    text = text_of(b.config)
    write_text(b.config, text.replace('"apps"', '"app"'))
    shutil.rmtree(b.runtime)  # it is on a tmpfs
    os.mkdir(b.runtime, 0o700)
    b.start()
    same(a)
    assert b.status()["host"] != before
    kill_keeper(b)
    same(a)
    assert redis.command("HLEN", RULES) == 2


def test_it_comes_again_before_the_store_forgets_it(make_host, redis):
    a, b = (make_host(name, lease="ttl_ms = 1000; sweep_ms = 2400;") for name in "ab")  # posts each 100 ms
    posted(redis, 2)
    redis.command("DEL", RULES)
    posted(redis, 2)
    same(a)


def hostile(redis, texts):
    """Each text is the rules of a host of its own."""
    for i, text in enumerate(texts):
        digest = "%016x" % (i + 1)
        redis.command("HSET", RULES, f"place{i}", f"{digest} 1 99999999999999999 evil-{i}")
        redis.command("SET", f"{RULES}:{digest}", text)


def test_hostile_text(make_host, redis):
    a = make_host("a", rules='{ tree = "%s"; name = "t"; }, { path = "/srv/x"; name = "x"; }', lease=LEASE)
    posted(redis, 1)
    hostile(redis, ["", "x" * 20000, "2\npath\t6\t/srv/x\t\x1b[2Jnot\rok: x\t\n", "2\npath\t99999\t/srv/x\ty\t\n", "1\n",
                    "2\nglob\t0\t/" + "*a" * 2000 + "\tt\t\n", "\n" * 1000, "%s%n" * 100,
                    "2\ntree\t0\t/\t\t\n" + "path\t2\t/a\tb\t\n" * 1200])
    redis.command("HSET", RULES, "p", "not a record", "q", "0" * 16 + " 1 2 3 4 5")
    doctor = Doctor(a)
    found = doctor.has("warning", "on host evil-2")
    assert r'named differently: path /srv/x as "x" here, and path /srv/x as "\x1b[2Jnot\x0dok: x" on host evil-2 (' in found
    assert "\x1b" not in doctor.done.stdout
    doctor.has("ok", r"the rules of \d+ other keepers are not known")
    assert "NAMED DIFFERENTLY" in a.cli("status").stdout
    assert flock(a) == (0, "")  # and locks are as they were


def test_hostile_keys(make_host, redis):
    """Another type where the records should be: neither side can use them, and that is all."""
    redis.command("SET", RULES, "x")
    a, b = (make_host(name, lease=LEASE) for name in "ab")
    assert flock(a) == (0, "") and flock(b) == (0, "")
    assert elsewhere(a)["differences"] == [] and "WRONGTYPE" in elsewhere(a)["error"]
    Doctor(a).has("warning", "^the rules of other hosts cannot be compared with these: the store says")
    wait_until(lambda: "cannot compare this host's rules with theirs: the store says" in a.log(), "it is logged")
    assert a.log().count("cannot compare this host's rules") == 1
    assert a.status()["store"]["up"] and "not reachable" not in a.log()
    redis.command("DEL", RULES)
    a.cli("reload")
    b.cli("reload")
    same(a)
