"""
Clocks that are wrong: the wall clocks of hosts and of the store by hours, stepping either way; the others fast and slow
by 1 %; and time namespaces, in which CLOCK_BOOTTIME and CLOCK_MONOTONIC have other beginnings.
"""
import os
import signal
import struct

import pytest
import stamps
from harness import Clock, Job, wait_until
from setting import HOLDER

pytestmark = pytest.mark.root("has namespaces, and so needs root")

LEASE = "ttl_ms = 2000; freeze_margin_ms = 600;"
STEPS = (5, -5, 0, -1000, 1000, 0)  # hours


@pytest.fixture
def store(make_server, folder):
    """A redis-server with a wall clock of its own, beside the one that make_host() would take."""
    clock = Clock(os.path.join(folder, "store.clock"))
    server = make_server(env=clock.env())
    server.clock = clock
    return server


class Stamped:
    """flock(1) on a host, and under it a holder that writes down when it runs."""

    def __init__(self, host, folder, seconds, *before):
        counter = os.path.join(folder, "counter")
        if not os.path.exists(counter):
            with open(counter, "wb") as f:
                f.write(bytes(8))
        self.folder, self.counter = os.path.join(folder, "stamps"), counter
        os.makedirs(self.folder, exist_ok=True)
        self.writer = stamps.Writer(os.path.join(self.folder, host.name))
        slot = self.writer.ask("f", "wait")
        self.job = Job(host, *before, "flock", host.path("f"), HOLDER, self.writer.path, str(slot), counter,
                       str(int(seconds * 1e6)))

    def runs(self):
        return self.writer.get("state") >= stamps.RUNS

    def wrong(self):
        with open(self.counter, "rb") as f:
            final, = struct.unpack("<q", f.read(8))
        return stamps.check(stamps.read(self.folder), {("f", 0): final})


def clock_of(folder, name, **options):
    return Clock(os.path.join(folder, name + ".clock"), **options)


def server_hours(server):
    return int(server.command("TIME")[0]) / 3600


def step(clocks, hours):
    """Each another way."""
    for i, clock in enumerate(clocks):
        clock.step(hours * (-1) ** i)


def test_the_preload_is_asked(store, make_host, folder):
    """Neither the server nor the keeper gets the time past it."""
    before = server_hours(store)
    store.clock.step(7)
    wait_until(lambda: 6.9 < server_hours(store) - before < 7.1, "the server's clock has stepped")
    clock = clock_of(folder, "a")
    host = make_host("a", server=store, clock=clock)
    asked = clock.asked()
    assert asked > 0
    agent = host.opened()
    clock.step(-7)
    assert agent.do("flock 0 ex") == "ok"
    assert clock.asked() > asked
    since = host.status()["leases"][0]["since"]
    assert -7.1 < since / 3600 - before < -6.9


def test_wall_clocks_step(store, make_host, folder):
    """While a lock is held, and others wait for it and ask: nothing runs out, and no caller waits longer."""
    clocks = [store.clock] + [clock_of(folder, name) for name in "ab"]
    a, b = (make_host(name, server=store, lease=LEASE + "probe_ms = 1900;", clock=clock)
            for name, clock in zip("ab", clocks[1:]))
    one, other, asker = a.opened(), b.opened(), b.opened()
    fence = 0
    for hours in STEPS:
        assert one.do("flock 0 ex") == "ok"
        assert a.status()["leases"][0]["fence"] > fence
        fence = a.status()["leases"][0]["fence"]
        other.say("flock 0 ex")
        wait_until(lambda: a.status()["leases"][0]["note"] == "wanted by another host", "b waits")
        step(clocks, hours)
        assert asker.do("flock 0 ex nb") == "EAGAIN"
        assert other.silent(0.3)
        assert not a.status()["lost"] and a.status()["frozen"] == 0
        assert one.do("flock 0 un") == "ok"
        assert other.heard()[0] == "ok"
        assert other.do("flock 0 un") == "ok"
    assert "run out" not in a.log() + b.log()


@pytest.mark.parametrize("hours", [5, -5])
def test_wall_clocks_step_and_a_host_dies(store, make_host, folder, hours):
    """Its lease is taken over after a ttl of the waiter's own clock, neither at once nor never."""
    clocks = [store.clock] + [clock_of(folder, name) for name in "ab"]
    a, b = (make_host(name, server=store, lease=LEASE + "dead_ms = 2592000000L; probe_ms = 200;", clock=clock)
            for name, clock in zip("ab", clocks[1:]))
    one, other, asker = a.opened(), b.opened(), b.opened()
    assert one.do("flock 0 ex") == "ok"
    one.kill()
    wait_until(a.kill_keeper, "host a is dead")
    step(clocks, hours)
    assert asker.do("flock 0 ex nb") == "EAGAIN"  # it may be alive: nobody has watched it for a ttl
    assert other.do("flock 0 ex") == "ok"


RARE_BEATS = "ttl_ms = 20000; freeze_margin_ms = 2000; probe_ms = 300;"  # none while a test asks


def step_ahead(store):
    """By more than dead_ms."""
    before = server_hours(store)
    store.clock.step(5)
    wait_until(lambda: server_hours(store) - before > 4.9, "the server's clock has stepped")


def test_the_stores_clock_steps_and_a_holder_behind_which_others_wait_is_asked(store, make_host):
    """By the stepped clock it was silent for longer than dead_ms; but it is there, and says that it uses the lock."""
    a, b, c = (make_host(name, server=store, lease=RARE_BEATS) for name in "abc")
    one, asker, other = (host.opened() for host in (a, b, c))
    assert one.do("flock 0 ex") == "ok"
    other.say("flock 0 ex")
    wait_until(lambda: a.status()["leases"][0]["note"] == "wanted by another host", "c waits")
    step_ahead(store)
    assert asker.do("flock 0 ex nb") == "EAGAIN"
    assert "dead_ms" not in b.log()
    assert other.silent(0.3)
    assert one.do("flock 0 un") == "ok"
    assert other.heard()[0] == "ok"


def test_the_stores_clock_steps_and_one_of_two_holders_answers(store, make_host):
    """F_GETLK waits for both of them: the one that has answered is not dead because the other one is."""
    a, b, c = (make_host(name, server=store, lease=RARE_BEATS) for name in "abc")
    one, asker, other = (host.opened() for host in (a, b, c))
    assert one.do("setlk 0 ex 0 10") == "ok" and other.do("setlk 0 ex 20 10") == "ok"
    wait_until(c.kill_keeper, "host c is dead")
    step_ahead(store)
    assert asker.do("getlk 0 ex 0 100") == "ex:0:10:-1"
    assert asker.do("setlk 0 ex 0 10") == "EAGAIN"


def test_the_stores_clock_steps_and_who_waits_for_a_dead_host_lives(store, make_host):
    """It is not asked, since what it waits for is not its own: so nothing that it has may be dropped."""
    a, b, c = (make_host(name, server=store, lease=RARE_BEATS) for name in "abc")
    one, other, asker, dead = a.opened(), a.opened(), b.opened(), c.opened()
    assert one.do("setlk 0 ex 0 10") == "ok"
    assert dead.do("flock 0 ex") == "ok"
    other.say("flock 0 ex")
    wait_until(lambda: c.status()["leases"][0]["note"] == "wanted by another host", "a waits")
    wait_until(c.kill_keeper, "host c is dead")
    step_ahead(store)
    assert asker.do("flock 0 ex nb") == "EAGAIN"
    assert "dead_ms" in b.log()
    assert other.heard()[0] == "ok"  # c's lease was dropped
    assert asker.do("setlk 0 ex 0 10") == "EAGAIN"  # but not a's


@pytest.mark.parametrize("pin_ms", [10, 5000])
def test_the_stores_clock_steps_and_the_holder_cannot_answer(store, make_host, pin_ms):
    """Before its pins have ended; but a beat shows that it lives."""
    a, b = (make_host(name, server=store, lease=RARE_BEATS + f"pin_ms = {pin_ms};") for name in "ab")
    one, other, asker = a.opened(), a.opened(), b.opened()
    assert one.do("flock 0 ex") == "ok"
    step_ahead(store)
    other.say("flock 0 ex")  # gets a pin, and waits in the kernel
    assert other.silent(0.3)
    assert asker.do("flock 0 ex nb") == "EAGAIN"
    assert one.do("flock 0 un") == "ok"
    assert other.heard()[0] == "ok"


def rates_run(make_host, proxy, folder, a_ppm, b_ppm, lease=LEASE):
    """Host a is cut off while it holds the lock, and b takes it over. What was wrong, host a and its holder."""
    clocks = clock_of(folder, "a", fast_ppm=a_ppm), clock_of(folder, "b", fast_ppm=b_ppm)
    b = make_host("b", lease=lease, clock=clocks[1])
    a = make_host("a", lease=lease, server=proxy.address, clock=clocks[0]).wait_up()
    holder = Stamped(a, folder, 3600)
    wait_until(holder.runs, "a's holder runs")
    other = Stamped(b, folder, 0.5)
    wait_until(lambda: a.status()["leases"][0]["note"] == "wanted by another host", "b waits")
    proxy.accepting = False
    proxy.cut()
    wait_until(other.runs, "b has taken it over", 30)
    assert other.job.end() == 0
    proxy.accepting = True
    return other.wrong(), a, holder


@pytest.mark.parametrize("ppm", [10000, -10000])
def test_rates_apart(make_host, proxy, folder, ppm):
    """The holder's clock runs slow by 1 % and the waiter's fast by as much, and the other way."""
    wrong, a, holder = rates_run(make_host, proxy, folder, -ppm, ppm)
    assert wrong == []
    assert "are frozen" in a.log()
    assert holder.job.process.wait(30) == -signal.SIGKILL
    assert holder.wrong() == []


def test_rates_far_apart_go_wrong(make_host, proxy, folder):
    """The control: forty times as fast is more than a lease's tenth can bear. Else the test above shows nothing."""
    wrong, _, _ = rates_run(make_host, proxy, folder, 0, 39 * 10 ** 6, "ttl_ms = 2000; freeze_margin_ms = 50;")
    assert any(line.startswith("overlap") for line in wrong)


# --- time namespaces ---


def unshared(offset):
    return ["unshare", "--time", "--boottime", str(offset), "--monotonic", str(offset)]


def is_elsewhere(pid):
    """The namespace holds from exec on (Linux 6.3), not only for children: else these tests would show nothing."""
    return os.readlink(f"/proc/{pid}/ns/time") != os.readlink("/proc/self/ns/time")


def test_hosts_in_time_namespaces(make_host, redis, proxy, folder):
    """Each host has started at another time, as hosts have."""
    b = make_host("b", lease=LEASE, inside=unshared(1000000))
    a = make_host("a", lease=LEASE, server=proxy.address, inside=unshared(5000)).wait_up()
    assert all(is_elsewhere(pid) for host in (a, b) for pid in host.keeper_pids())
    holder = Stamped(a, folder, 3600)
    wait_until(holder.runs, "a's holder runs")
    other = b.opened()
    assert other.do("flock 0 ex nb") == "EAGAIN"
    proxy.accepting = False
    proxy.cut()
    assert other.do("flock 0 ex") == "ok"
    last = holder.writer.get("last")
    assert "are frozen" in a.log()
    proxy.accepting = True
    holder.job.process.wait(30)
    assert holder.writer.get("last") == last


@pytest.mark.parametrize("offset", [1000000, 5000])
def test_a_program_in_a_time_namespace(make_host, redis, folder, offset):
    """Its CLOCK_BOOTTIME is not its keeper's. It gets locks, waits for them, and is frozen and goes on as others."""
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE)
    other = b.opened()
    assert other.do("flock 0 ex") == "ok"
    holder = Stamped(a, folder, 3600, *unshared(offset))
    wait_until(lambda: b.status()["leases"][0]["note"] == "wanted by another host", "it waits")
    assert not holder.runs() and is_elsewhere(holder.job.pid)
    assert other.do("flock 0 un") == "ok"
    wait_until(holder.runs, "it has the lock")
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "it is frozen", 10)
    last = holder.writer.get("last")
    assert holder.writer.get("last") == last
    redis.signal(signal.SIGCONT)
    wait_until(lambda: holder.writer.get("last") > last, "it goes on")


def test_a_shown_lease_is_not_believed_in_a_time_namespace(make_host):
    """A program whose clock began later would take a lease that has run out for a sure one."""
    a, b = (make_host(name, lease="ttl_ms = 2000; linger_ms = 60000;") for name in "ab")
    one, other = a.opened(), b.opened()
    assert one.do("flock 0 ex") == "ok" and one.do("flock 0 un") == "ok"
    os.kill(a.keeper_pids()[-1], signal.SIGSTOP)  # it closes no lease in the page, until its parent starts it again
    assert other.do("flock 0 ex") == "ok"
    asked = a.popen(*unshared(-1000), "flock", "-n", "-E", "99", a.path("f"), "true")
    assert asked.wait(30) in (99, 71)  # busy, or ENOLCK
