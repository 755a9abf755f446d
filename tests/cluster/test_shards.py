"""A store whose names are spread over shards: lock tables of their own, each with its beats, its outages and its memory."""
import os
import re
import signal
import time

import pytest
from harness import wait_until
from harness.clock import Clock
from harness.cluster import slot_of
from harness.host import CLI
from harness.metrics import metrics, value
from harness.processes import state

from jobs import LEASE, Job, grows, is_busy, is_frozen
from keepers import held

SHARDS = 8
pytestmark = pytest.mark.of_redis("no other store has shards")


def shard_of(name, shards=SHARDS):
    hashed = 2166136261
    for byte in name.encode():
        hashed = ((hashed ^ byte) * 16777619) & 0xffffffff
    return hashed % shards


def named(shard, shards=SHARDS, beginning="n"):
    """A file whose lock is in that shard."""
    return next(n for n in (f"{beginning}{i}" for i in range(10000)) if shard_of("t/" + n, shards) == shard)


def used(host):
    """The shards to which this host's keeper is connected."""
    found = (re.fullmatch(r'dflock_stores_up\{store="default/(\d+)"\}', key) for key, up in metrics(host).items() if up)
    return {int(match[1]) for match in found if match}


@pytest.fixture
def make(make_host):
    def make(name, shards=SHARDS, lease=LEASE, **options):
        return make_host(name, lease=lease, store=f"shards = {shards};", **options)
    return make


@pytest.fixture
def a(make):
    return make("a")


def test_names_are_spread_and_exclude(a, make, redis):
    b = make("b")
    jobs = [Job(a, named(shard)) for shard in range(SHARDS)]
    for shard in range(SHARDS):
        assert is_busy(b, named(shard)) and not is_busy(b, named(shard, beginning="free"))
        assert "dflock:{%d}:lock:t/%s" % (shard, named(shard)) in redis.command("KEYS", "dflock:{%d}:lock:*" % shard)
    for job in jobs:
        job.end()
    wait_until(lambda: not any(is_busy(b, named(shard)) for shard in range(SHARDS)), "all are free")


def test_only_the_shards_that_are_needed_are_connected(make, redis, folder):
    def clients():
        everybody = redis.command("CLIENT", "LIST").splitlines()
        return len(everybody) - 1  # the test is a client, too

    lease = "ttl_ms = 300000; freeze_margin_ms = 100000; probe_ms = 2000;"
    host = make("a", lease=lease, clock=Clock(os.path.join(folder, "clock"), fast_ppm=99 * 10 ** 6))  # which has minutes for seconds
    assert used(host) == set(range(SHARDS))  # `dflock init` opens them all
    job = Job(host, named(4))
    wait_until(lambda: (used(host), clients()) == ({0, 4}, 4), "the others are given up when nobody has needed them for long", 30)
    assert not is_busy(host, named(3)) and not is_busy(host, named(3, beginning="other"))
    wait_until(lambda: (used(host), clients()) == ({0, 3, 4}, 6), "one more is connected, for commands and for messages", 30)
    host.cli("status")
    assert used(host) == set(range(SHARDS))
    grows(job.path)
    job.end()


def test_another_number_is_refused(a, make):
    other = make("b", shards=SHARDS * 2)
    job = Job(a, named(5))
    for name in named(5), named(12, SHARDS * 2), named(0, SHARDS * 2):
        done = other.run("flock", "-n", other.path(name), "true")
        assert done.returncode not in (0, 1), done
        assert f"shards = {SHARDS}" in done.stderr and f"configured with {SHARDS * 2}" in done.stderr
    job.end()


def test_the_number_is_changed_while_jobs_run(a, make):
    """Not while a host holds locks: it would look for them in another shard than the next one."""
    more = make("b", shards=SHARDS * 2)
    name = next(n for n in map("n{}".format, range(1000)) if shard_of("t/" + n) != shard_of("t/" + n, SHARDS * 2))
    job = Job(a, name)
    done = more.cli("init", "--force", check=False)
    assert done.returncode != 0 and f"shards = {SHARDS} (" in done.stderr and "`dflock stop` there first" in done.stderr
    assert more.run("flock", "-n", more.path(name), "true").returncode not in (0, 1)
    assert not any(is_busy(a, named(n, beginning="m")) for n in range(SHARDS)), "what was refused has changed no shard"
    grows(job.path)
    job.end()
    wait_until(lambda: more.cli("init", "--force", check=False).returncode == 0, "it is changed when nobody holds a lock", 30)
    job = Job(more, name)
    done = a.run("flock", "-n", a.path(name), "true")
    assert done.returncode not in (0, 1) and f"shards = {SHARDS * 2}" in done.stderr
    c = make("c", shards=SHARDS * 2)
    assert not is_busy(c, "x") and is_busy(c, name)
    job.end()
    c.stop()
    more.stop()  # with the leases that linger
    fewer = wait_until(lambda: "hosts still use" not in (said := a.cli("init", "--force", check=False)).stderr and said, "nobody is there", 30)
    assert fewer.returncode == 1 and "Fewer are only possible with an empty store" in fewer.stderr


def test_the_number_is_changed_by_several_at_once(a, make):
    assert not is_busy(a, "x")
    a.cli("stop")
    more = make("b", shards=SHARDS * 2)
    assert more.run("flock", "-n", more.path("x"), "true").returncode not in (0, 1)
    inits = [more.popen(CLI, "init", "--force") for _ in range(4)]
    said = [(init.communicate(timeout=60)[1], init.returncode) for init in inits]
    assert any(status == 0 for _, status in said), said
    assert all(status == 0 or "under way" in text for text, status in said), said
    assert not is_busy(more, "x")


def test_a_shard_that_lost_its_memory(a, make, redis):
    """Its leases are put back, and others have no grace."""
    lost, kept = Job(a, named(3)), Job(a, named(4))
    redis.command("DEL", *redis.command("KEYS", "dflock:{3}:*"))
    wait_until(lambda: "lost its memory" in a.log(), "it is noticed", 20)
    assert not is_busy(a, named(4, beginning="new"))
    wait_until(lambda: value(a, "stores_grace", store="default/3"), "it is in grace")
    wait_until(lambda: "grace is over" in a.log(), "and over", 20)
    b = make("b")
    assert is_busy(b, named(3)) and is_busy(b, named(4)) and not is_busy(b, named(3, beginning="new"))
    for job in (lost, kept):
        grows(job.path)
        job.end()
    assert not a.status()["lost"]


# ---- what must not be: two hosts that look for one name in two shards ----

def another_number(redis):
    """As `dflock init --force` of a host with more shards leaves the first one."""
    redis.command("HSET", "dflock:{0}:store", "ttl_ms", f"3000/{2 * SHARDS}", "inc", redis.command("HGET", "dflock:{0}:store", "inc") + "9")


def test_a_new_memory_is_used_only_if_the_first_shard_agrees(a, redis):
    """A host that was idle has not heard of the new number, and begins a shard that was lost with the old one."""
    job = Job(a, named(3))
    another_number(redis)
    redis.command("DEL", *redis.command("KEYS", "dflock:{3}:*"))
    job.waits_frozen()
    wait_until(lambda: f"shards = {2 * SHARDS}" in a.status()["store"]["error"], "it has asked the first shard")
    assert redis.command("HGET", "dflock:{3}:store", "open") == "0"


def test_the_others_go_on_while_the_first_has_another_number(a, redis):
    """A host with the other number cannot open the first shard while these have the old one: so it stops the names of that shard only."""
    job = Job(a, named(3))
    another_number(redis)
    assert a.run("flock", "-n", a.path(named(0)), "true").returncode not in (0, 1)  # meets the record of the first shard
    assert not is_busy(a, named(3, beginning="new"))
    grows(job.path)


def test_a_first_shard_that_was_lost_is_not_a_wrong_host_s(a, make, redis):
    """A host with another number waits to be let in, and is the first that comes after the loss. The others' shards know better."""
    name = next(n for n in map("n{}".format, range(1000)) if 0 < shard_of("t/" + n) < 4 < shard_of("t/" + n, SHARDS * 2))
    job = Job(a, name)
    wrong = make("b", shards=SHARDS * 2)
    wait_until(lambda: "configured with" in wrong.status()["store"]["error"], "it is refused")
    redis.command("DEL", *redis.command("KEYS", "dflock:{0}:*"))
    wait_until(lambda: wrong.status()["store"]["up"], "it has begun the first shard", 20)
    assert redis.command("HGET", "dflock:{0}:store", "ttl_ms") == f"3000/{SHARDS * 2}"
    done = wrong.cli("init", check=False)
    assert done.returncode == 1 and f"shards = {SHARDS}" in done.stderr, done
    for _ in range(80):  # longer than its grace is
        assert wrong.run("flock", "-n", wrong.path(name), "true").returncode != 0
    assert redis.command("HGET", "dflock:{0}:store", "open") == "0"
    grows(job.path)
    job.end()
    wrong.stop()
    wait_until(lambda: a.cli("init", "--force", check=False).returncode == 0, "who is right takes it back", 30)
    assert not is_busy(a, name)


def test_a_first_shard_waits_for_leases_of_shards_that_were_lost_after_it(make, redis, folder):
    """The wrong host has watched the first shard for a ttl when all others, which knew better, lose their memory, too. A lease still stands there."""
    name = next(n for n in map("n{}".format, range(1000)) if 0 < shard_of("t/" + n) < SHARDS <= shard_of("t/" + n, SHARDS * 2))
    way = os.path.join(folder, "way.sock")
    os.symlink(redis.socket, way)
    lease = "ttl_ms = 9000; freeze_margin_ms = 1300;"
    job = Job(make("a", lease=lease, server="unix:" + way), name)
    wrong = make("b", shards=SHARDS * 2, lease=lease)
    redis.command("DEL", *redis.command("KEYS", "dflock:{0}:*"))
    wait_until(lambda: wrong.run("flock", "-n", wrong.path(name), "true").returncode and wrong.status()["store"]["up"], "it has begun that", 20)
    begin = time.monotonic()
    while time.monotonic() < begin + 10:  # longer than its grace is
        assert wrong.run("flock", "-n", wrong.path(name), "true").returncode != 0
    grows(job.path)
    os.unlink(way)
    for kind in ("normal", "pubsub"):
        redis.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    redis.command("DEL", *redis.command("KEYS", "dflock:{[1-7]}:*"))
    wait_until(lambda: wrong.run("flock", "-n", wrong.path(name), "true").returncode == 0, "the wrong host has the store", 40)
    assert state(job.pid()) in "tT" or is_frozen(job.path)


def test_a_cycle_over_shards(a, make):
    """The chase goes from shard to shard, since each wait has its own; the last wait fails, and no other, however many there were in a shard."""
    hosts = a, make("b"), make("c")
    names = [named(shard) for shard in (1, 4, 6)]
    agents = []
    for host, own in zip(hosts, range(3)):
        agents.append(host.agent())
        for i, name in enumerate(names):
            assert agents[-1].do(f"open {i} {host.path(name)} rwc") == "ok"
        assert agents[-1].do(f"setlk {own} ex 0 1") == "ok"
    for _ in range(3):
        gone = a.opened(names[1])
        gone.say("setlk 0 ex 0 1 w")
        wait_until(lambda: held(a, state="asking"), "it is queued")
        gone.kill()
        wait_until(lambda: not held(a, state="asking"), "it is not queued any more")
    for i in (0, 1):
        agents[i].say(f"setlk {i + 1} ex 0 1 w")
        wait_until(lambda: held(hosts[i], state="asking"), "it is queued")
    assert agents[2].do("setlk 0 ex 0 1 w", seconds=10) == "EDEADLK"
    assert agents[2].do("setlk 2 un 0 1") == "ok" and agents[1].heard()[0] == "ok"


# ---- in a Redis Cluster ----

@pytest.fixture
def cluster(make_cluster):
    return make_cluster(options=("--cluster-require-full-coverage", "no"))


@pytest.fixture
def host_in(cluster, host_at):
    def make(name, lease=LEASE):
        return host_at(cluster.settings() + f" shards = {SHARDS};", name, lease=lease)
    return make


def at(cluster):
    """A shard for each master, the first one's last."""
    owners = {cluster.owner(slot_of(shard)): shard for shard in reversed(range(SHARDS))}
    assert len(owners) == 3
    return [(owners[node], node) for node in cluster.all if node is not cluster.owner(slot_of(0))] + [(0, cluster.owner(slot_of(0)))]


def test_a_master_of_a_cluster_is_away(cluster, host_in):
    """The holders of its shards are frozen, whichever those are, and no others."""
    a = host_in("a").init()
    b, idle = host_in("b").wait_up(), host_in("c").wait_up()
    jobs = [(Job(a, named(shard)), shard, node) for shard, node in at(cluster)]
    assert all(n.command("DBSIZE") > 0 for n in cluster.all)
    for job, shard, node in jobs:
        rest = [(other, number) for other, number, _ in jobs if other is not job]
        node.signal(signal.SIGSTOP)
        job.waits_frozen()
        for other, number in rest:
            grows(other.path)
            assert is_busy(b, named(number)) and not is_busy(b, named(number, beginning="new"))
            if shard == 0:  # the shard is open, so its number is known to be right
                assert not is_busy(idle, named(number, beginning="first"))
        node.signal(signal.SIGCONT)
        grows(job.path)
    for job, _, _ in jobs:
        job.end()
    assert not a.status()["lost"]


def test_a_shard_that_is_first_needed_while_the_first_one_is_away(cluster, host_in):
    """Its master is there, and it is connected: a call that does not wait is not refused meanwhile."""
    host_in("a").init()
    idle = host_in("b")
    others, (_, node) = at(cluster)[:2], at(cluster)[2]
    assert not is_busy(idle, named(0)) and used(idle) == {0}
    node.signal(signal.SIGSTOP)
    wait_until(lambda: not value(idle, "stores_up", store="default/0"), "it is seen to be away", 20)
    for shard, _ in others:
        assert not is_busy(idle, named(shard))
    node.signal(signal.SIGCONT)


def test_a_cluster_of_which_one_master_stops_all(make_cluster, host_at):
    """Redis' default. doctor says so."""
    cluster = make_cluster(masters=1)
    host = host_at(cluster.settings() + f" shards = {SHARDS};", "a").init()
    assert "cluster-require-full-coverage no, on all nodes" in host.cli("doctor", check=False).stdout
    cluster.all[0].command("CONFIG", "SET", "cluster-require-full-coverage", "no")
    assert "full-coverage" not in host.cli("doctor", check=False).stdout


# ---- operators ----

def test_what_operators_see_and_do(make, redis):
    lease = "ttl_ms = 12000;"  # which is the time of a grace: doctor is to look meanwhile
    a, b = make("a", lease=lease).init(), make("b", lease=lease)
    job = Job(a, named(6))
    wait_until(lambda: f"pid {job.pid()}" in b.cli("who", b.path(named(6))).stdout, "the other host says who")
    shown = b.cli("status", "--all").stdout
    assert re.search(rf"t/{named(6)}\n +held +a-", shown) and "default/" not in shown
    done = a.cli("doctor", check=False)
    assert f"ok:      {SHARDS - 1} shards more were looked at" in done.stdout and "problem:" not in done.stdout, done.stdout

    for key in redis.command("KEYS", "dflock:{5}:*"):
        redis.command("DEL", key)

    def is_named():
        a.run("flock", "-n", a.path(named(5)), "true")  # so that its loss is seen
        return "warning: default/5: the store is new" in a.cli("doctor", check=False).stdout

    wait_until(is_named, "doctor says which is in grace")
    assert f"fence {a.cli('fence', a.path(named(6))).stdout.strip()}" in shown
    assert "allow_break" in b.cli("break", "--yes", b.path(named(6)), check=False).stderr
    assert a.cli("break", "--yes", a.path(named(6))).returncode == 0
    job.process.communicate(timeout=20)
    assert not is_busy(b, named(6))


def test_status_while_no_shard_answers(make, redis):
    """It waits for all at once."""
    a = make("a", lease="ttl_ms = 30000;")
    a.cli("status")
    redis.signal(signal.SIGSTOP)
    assert f"store   unix:{redis.socket}, " in a.cli("status", check=False).stdout
    redis.signal(signal.SIGCONT)


def test_a_host_that_is_off_has_nothing_in_any_shard(make):
    a, b = make("a"), make("b")
    jobs = [Job(a, named(shard)) for shard in (0, 3, 7)]
    name = a.status()["host"]
    wait_until(a.kill_all, "a is off")
    a.keeper.wait()
    for job in jobs:
        job.process.communicate(timeout=20)
    wait_until(lambda: b.status()["cluster"]["hosts"][name]["age_ms"] > 3000, "it was silent for long", 20)
    said = b.cli("break", "--yes", "--host", name).stdout
    for shard in 0, 3, 7:
        assert f"t/{named(shard)}, exclusive" in said and not is_busy(b, named(shard))
