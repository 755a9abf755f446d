"""
Record locks between hosts: how leases follow ranges, and what a keeper says of them. What each call does, with seek modes, owners, upgrades,
F_GETLK and deadlocks, tests/model compares with one kernel.
"""
import os
import re
import signal
import subprocess

from harness import wait_until

from keepers import held, open_at, opened, queued  # noqa: F401 (fixture)
from test_flock import MODES


KINDS = ("", " ofd")


def test_modes(two, open_at):
    a, b = open_at(two[0]), open_at(two[1])
    for first, second, excludes in MODES:
        for kind in KINDS:
            assert a.do(f"setlk 0 {first} 0 10{kind}") == "ok"
            assert b.do(f"setlk 0 {second} 5 10{kind}") == ("EAGAIN" if excludes else "ok"), (first, second, kind)
            assert a.do(f"setlk 0 un 0 10{kind}") == "ok"
            assert b.do(f"setlk 0 {second} 5 10{kind}") == "ok"
            assert b.do(f"setlk 0 un 0 0{kind}") == "ok"


def test_waiter_gets_the_range_after_a_partial_unlock(two, open_at):
    a, b = open_at(two[0]), open_at(two[1])
    assert a.do("setlk 0 ex 0 100") == "ok"
    b.say("setlk 0 ex 50 10 w")
    queued(two[1])
    assert b.silent(0.1)
    assert a.do("setlk 0 un 40 30") == "ok"
    assert b.heard()[0] == "ok"  # what is still locked around it does not matter
    assert b.do("setlk 0 ex 30 5") == "EAGAIN"
    assert b.do("setlk 0 ex 65 5") == "ok"
    assert a.do("setlk 0 ex 50 10") == "EAGAIN"


def test_waiters_of_several_parts_are_not_forgotten(make_host):
    """Recalls that come while a lease is split or fetched: each waiter must hear of its part at once, not when it asks again."""
    hosts = [make_host(n, lease="ttl_ms = 30000;") for n in "abcdef"]
    for name in ("f0", "f1", "f2", "f3"):
        agents = [opened(h, name) for h in hosts]
        assert agents[0].do("setlk 0 ex 0 1000") == "ok"
        for i, agent in enumerate(agents[1:]):
            agent.say(f"setlk 0 ex {100 * i} 10 w")
        for host in hosts[1:]:
            queued(host)
        for i, agent in enumerate(agents[1:]):
            assert agents[0].do(f"setlk 0 un {100 * i} 10") == "ok"
            assert agent.heard(seconds=1.0)[0] == "ok"


def test_posix_locks_end_with_the_process_or_any_close(two):
    for end in ("close", "kill", "other-descriptor"):
        a, b = two[0].opened(end, "setlk 0 ex 0 10"), opened(two[1], end).say("setlk 0 ex 0 10 w")
        queued(two[1])
        if end == "close":
            a.do("close 0")
        elif end == "kill":
            os.kill(a.pid, signal.SIGKILL)
        else:
            assert a.do(f"open 1 {two[0].path(end)} r") == "ok"
            a.do("close 1")
        assert b.heard()[0] == "ok", end


def test_the_keeper_causes_no_drop(two):
    """The keeper opens and closes the file all the time: the program's POSIX locks must stay. Its status shows them."""
    a, b = two[0].opened("f", "setlk 0 ex 10 5"), opened(two[1])
    for i in range(20):
        assert a.do(f"setlk 0 ex {100 + i} 1") == "ok"
        assert a.do(f"setlk 0 un {100 + i} 1") == "ok"
    lease, = held(two[0], state="held")
    holder, = lease["holders"]
    assert (holder["pid"], holder["from"], holder["to"]) == (a.pid, 10, 15)
    assert (lease["from"], lease["to"]) == (0, None)  # nobody else wants anything of the file
    assert "10-14" in two[0].cli("status").stdout
    assert b.do("setlk 0 ex 0 11") == "EAGAIN"


def test_a_cycle_over_three_hosts_and_files(make_host):
    hosts = [make_host(n) for n in "abc"]
    agents = []
    for i, host in enumerate(hosts):
        agent = host.agent()
        for j in range(3):
            assert agent.do(f"open {j} {host.path('f%d' % j)} rwc") == "ok"
        assert agent.do(f"setlk {i} ex 0 1") == "ok"
        agents.append(agent)
    for i, call in enumerate(("setlk 1 ex 0 1 w", "lockf 2 lock 1")):
        agents[i].say(call)
        queued(hosts[i])
    assert agents[2].do("lockf 0 lock 1", seconds=10) == "EDEADLK"
    agents[2].do("setlk 2 un 0 1")
    assert agents[1].heard()[0] == "ok"
    agents[1].do("setlk 1 un 0 1")
    assert agents[0].heard()[0] == "ok"


def test_a_cycle_through_any_of_many_holders(make_host):
    """The store names 16 hosts at a time: here the cycle is closed through the 17th."""
    *hosts, last = [make_host("h%d" % i, lease="ttl_ms = 4000;") for i in range(18)]
    agents = [host.opened("f", "setlk 0 sh 0 0") for host in hosts]
    closes = last.opened("g", "setlk 0 ex 0 1")
    assert closes.do(f"open 1 {last.path('f')} rwc") == "ok"
    assert agents[16].do(f"open 1 {hosts[16].path('g')} rwc") == "ok"
    agents[16].say("setlk 1 ex 0 1 w")
    queued(hosts[16])
    assert closes.do("setlk 1 ex 0 0 w", seconds=30) == "EDEADLK"


def test_a_dead_hosts_range_is_free_after_a_ttl(two):
    ours = {kind: two[0].opened("f" + kind.strip(), f"setlk 0 ex 0 10{kind}") for kind in KINDS}
    before = max(lease["fence"] for lease in held(two[0]))
    waiters = [opened(two[1], "f" + kind.strip()).say(f"setlk 0 ex 5 10 w{kind}") for kind in KINDS]
    wait_until(lambda: len(held(two[1], note="waits for another host")) == len(ours), "b is queued")
    assert all(waiter.silent(0.1) for waiter in waiters)
    two[0].kill_all()
    assert [waiter.heard(seconds=30)[0] for waiter in waiters] == ["ok"] * 2
    assert min(lease["fence"] for lease in held(two[1], state="held")) > before


def test_a_grant_that_comes_too_late_is_asked_for_anew(make_host, proxy):
    """The store had granted all of the file, and then given the lease up. What is asked for again is what the caller wants."""
    quick, slow = "ttl_ms = 1000;", "ttl_ms = 1000; store_wait_ms = 600000;"
    b = make_host("b", lease=quick).wait_up()
    a = make_host("a", lease=slow, store="connect_ms = 60000;", server=proxy.address).wait_up()
    here, there = opened(a), opened(b)
    answer = proxy.fault("acquire", "late")
    proxy.drop_messages = True
    here.say("setlk 0 ex 0 1 w")
    wait_until(answer.happened.is_set, "the store has granted it")
    assert there.do("setlk 0 ex 5 1 w") == "ok"
    proxy.release()
    assert here.heard()[0] == "ok"


def test_no_deadlock_without_a_cycle(make_host):
    """b waits for a, c waits for b: no process waits for itself, however often they ask."""
    hosts = [make_host(n, lease="ttl_ms = 1000;") for n in "abc"]
    agents = [opened(h) for h in hosts]
    assert agents[0].do("setlk 0 ex 0 1") == "ok"
    assert agents[1].do("setlk 0 ex 1 1") == "ok"
    agents[1].say("setlk 0 ex 0 1 w")
    queued(hosts[1])
    agents[2].say("setlk 0 ex 1 1 w")
    queued(hosts[2])
    assert agents[1].silent(1.0) and agents[2].silent(0.1)
    agents[0].do("setlk 0 un 0 1")
    assert agents[1].heard()[0] == "ok"
    agents[1].do("setlk 0 un 0 0")
    assert agents[2].heard()[0] == "ok"


def ranges(host):
    return sorted((l["from"], l["to"]) for l in held(host, state="held"))


def test_a_lone_host_has_it_all_and_keeps_what_is_used(two):
    a, b = two[0].opened("f", "setlk 0 ex 10 5"), opened(two[1])
    first, = held(two[0])
    for start in range(100, 1000, 10):
        assert a.do(f"setlk 0 sh {start} 5") == "ok"
    assert [l["token"] for l in held(two[0])] == [first["token"]]  # the first one does for all
    assert b.do("setlk 0 ex 15 5") == "ok"  # is between two of a's
    wait_until(lambda: (0, None) not in ranges(two[0]), "it has been split")
    assert b.do("setlk 0 ex 10 1") == b.do("setlk 0 ex 104 1") == "EAGAIN"
    assert b.do("setlk 0 sh 104 1") == "ok" and b.do("getlk 0 ex 14 1") == "ex:10:5:-1"


def test_unused_ranges_are_given_back_as_a_whole(two):
    a, b = opened(two[0]), opened(two[1])
    assert a.do("setlk 0 ex 10 5") == a.do("setlk 0 un 10 5") == "ok"
    assert ranges(two[0]) == [(0, None)]
    assert b.do("setlk 0 ex 100 5") == "ok"
    wait_until(lambda: not held(two[0]), "all of it has been given back")


def test_read_only_descriptor_waits_too(two):
    """The keeper's own descriptor cannot take a write lock there: it looks again and again instead."""
    for h in two:
        open(h.path("f"), "w").close()
    a, b = opened(two[0], flags="r"), opened(two[1], flags="rwc")
    for h in two:
        os.chmod(h.path("f"), 0o444)
    assert a.do("setlk 0 sh 0 10") == "ok"
    b.say("setlk 0 ex 0 10 w")
    queued(two[1])
    assert a.do("setlk 0 un 0 10") == "ok"
    assert b.heard()[0] == "ok"


MANY = r"""
import errno, fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
def lock(i):
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 100 + 2 * i)
lock(0)
print("has one", flush=True)
sys.stdin.readline()
count = 1
try:
    while True:
        lock(count)
        count += 1
except OSError as e:
    print(errno.errorcode[e.errno], count, flush=True)
lock(0)
print("has the others", flush=True)
sys.stdin.readline()
"""


def test_the_1001st_range_of_a_name_is_refused(make_host):
    a, b = (make_host(n, lease="ttl_ms = 10000; linger_ms = 50; probe_ms = 10000; store_wait_ms = 2000;") for n in "ab")
    other = opened(b)
    # A host that is alone gets one lease for all. So b has a lock, too, and has given back what it does not use.
    assert other.do("setlk 0 ex 0 1") == "ok"
    job = a.popen("/usr/bin/python3", "-c", MANY, a.path("f"), stdin=subprocess.PIPE)
    assert job.stdout.readline() == "has one\n"
    wait_until(lambda: [(l["to"] or 101) <= 100 for l in held(b)] == [True], "b has one lease, of what lies before a's")
    job.stdin.write("\n")
    job.stdin.flush()
    assert job.stdout.readline() == "ENOLCK 999\n"
    assert job.stdout.readline() == "has the others\n"
    assert other.do("setlk 0 ex 20000 1") == "ENOLCK"  # they are counted over all hosts
    assert other.do("setlk 0 ex 20000 1 w") == "ENOLCK"
    assert other.do("setlk 0 ex 100 1") == "ENOLCK"    # those that wait, too
    _, said = job.communicate("\n", timeout=60)
    assert said.count("\n") == 1 and re.search(r"/f: all hosts .* 1,000 ranges .* lock fewer or larger ranges$", said.strip()), said
    wait_until(lambda: other.do("setlk 0 ex 20000 1") == "ok", "the ranges were given back")
