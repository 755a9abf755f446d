"""redis_key: the rule comes and goes while locks are held, and both worlds want the lock all the time."""
import threading

import pytest
from harness import Job, text_of, wait_until, write_text

from editing import read, write
from keepers import HOLD, leases, opened
from redis_keys import KEY, LEASE, QUICK, Client, client, key_is_free, make, token, value  # noqa: F401

pytestmark = pytest.mark.of_redis("is about redis_key")

RULE = '{ path = "%s/f"; name = "t/f"; }'


def give_rule(host):
    write(host, read(host).replace('name = "t/f";', f'name = "t/f"; redis_key = "{KEY}";'))
    assert host.cli("reload").returncode == 0


def test_the_rule_comes_while(make_host, redis, client):
    """The lock of before has no key. Who comes later waits for its end, and takes the key."""
    a = make_host("a", rules=RULE, lease=LEASE)
    old, new = a.opened("f", "flock 0 sh"), opened(a)
    give_rule(a)
    assert client.takes()  # nobody has said before that the key belongs to it
    assert client.gives_back()
    assert old.do("flock 0 sh") == "ok"  # the same description, which has it
    new.say("flock 0 sh")
    wait_until(lambda: leases(a, state="asking"), "it waits for the store")
    assert new.silent(0.2)
    assert old.do("flock 0 un") == "ok"
    assert new.heard()[0] == "ok"
    wait_until(lambda: len(leases(a)) == 1, "the old lease has gone")
    assert value(redis) == token(a) and not client.takes()


def test_the_rule_goes_while(make, redis, client):
    """The lease keeps its key until it goes back."""
    a = make("a", lease=QUICK)
    holder = a.opened("f", "flock 0 ex")
    write(a, read(a).replace(f'redis_key = "{KEY}";', ""))
    wait_until(lambda: "redis_key" in a.status()["rules"]["why"], "it is not taken over by itself")
    assert a.cli("reload", "--force").returncode == 0
    wait_until(lambda: redis.command("PTTL", KEY) < 1600, "time goes by")
    wait_until(lambda: redis.command("PTTL", KEY) > 1600, "a beat renewed it")
    assert value(redis) == token(a)
    assert holder.do("flock 0 un") == "ok"
    key_is_free(redis)
    assert client.takes()
    assert holder.do("flock 0 ex nb") == "ok"  # the rule has gone


def test_two_hosts_and_two_clients_want_it_all_the_time(make, redis, folder):
    """A counter in a file, which each reads, and then writes: no update is lost, and neither world starves."""
    hosts, counter = [make(name, lease=QUICK) for name in "ab"], folder + "/counter"
    write_text(counter, "0")
    add = f"read n <{counter}; echo $((n + 1)) >{counter}"
    loop = 'until [ -e "$2.end" ]; do flock "$1" sh -c "$3" && echo x; done'
    jobs = [Job(host, "bash", "-c", loop, "-", host.path("f"), counter, add) for host in hosts for _ in range(2)]
    counts, ended = [0, 0], threading.Event()

    def work(number):
        while not ended.is_set():
            one = Client(redis)
            while not one.takes() and not ended.wait(0.05):  # as libraries do
                pass
            if value(redis) == one.token:
                n = int(text_of(counter))
                write_text(counter, str(n + 1))
                counts[number] += 1
                assert one.gives_back()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        lines = [0] * len(jobs)
        for _ in range(5):
            for number, job in enumerate(jobs):
                assert job.line(60) == "x"
                lines[number] += 1
        wait_until(lambda: min(counts) >= 5, "each client has had its turns", 60)
    finally:
        ended.set()
        open(counter + ".end", "w").close()
        for thread in threads:
            thread.join()
    for number, job in enumerate(jobs):
        while job.line(60) == "x":
            lines[number] += 1
    assert int(text_of(counter)) == sum(lines) + sum(counts)
