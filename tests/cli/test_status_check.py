"""`dflock status --check`: one line and 0, 1 or 2, for monitoring systems."""
import os
import re
import signal
import subprocess

import pytest
from harness import wait_until
from harness.job import holder
from harness.host import CLI
from harness.system import Place, SystemHost

from lines import changed

FIGURES = r" \| leases=(\d+) used=(\d+) waiting=(\d+) frozen=(\d+) lost=(\d+)\n"


def check(host):
    """(exit status, the line up to the figures, the figures)"""
    done = host.cli("status", "--check", check=False)
    assert done.stderr == "" and done.stdout.count("\n") == 1, done
    line, *figures = re.fullmatch(rf"(DFLOCK [^|]*?)(?:{FIGURES}|\n)", done.stdout).groups()
    return done.returncode, line, [int(n) for n in figures if n is not None]


def becomes(host, status, pattern):
    def so():
        found = check(host)
        return found if found[0] == status and re.fullmatch(pattern, found[1]) else None
    return wait_until(so, f"{status}, {pattern}")[2]


def test_all_is_well(make_host):
    a, b = (make_host(name, lease="ttl_ms = 20000;") for name in "ab")
    assert check(a) == (0, "DFLOCK OK: the store is up, 0 of 0 leases in use, 0 waiting", [0] * 5)
    job = holder(a)
    assert check(a) == (0, "DFLOCK OK: the store is up, 1 of 1 leases in use, 0 waiting", [1, 1, 0, 0, 0])
    waiting = b.popen("flock", b.path("f"), "true")
    assert becomes(b, 0, "DFLOCK OK: the store is up, 0 of 0 leases in use, 1 waiting") == [0, 0, 1, 0, 0]
    job.end()
    assert waiting.wait(20) == 0


def test_what_it_costs_does_not_grow_with_the_locks(make_host, redis):
    """Each host may ask each minute: the store is not asked for what it has."""
    a = make_host("a", lease="ttl_ms = 20000;")

    def scans():
        return redis.command("INFO", "commandstats").count("cmdstat_scan:")

    jobs = [holder(a, name=name) for name in ("f", "g", "h")]
    redis.command("CONFIG", "RESETSTAT")
    assert check(a)[0] == 0 and scans() == 0
    a.cli("status")
    assert scans() == 1
    for job in jobs:
        job.end()


def test_no_keeper(host_of):
    a = host_of("unix:/none", foreground=False)
    assert check(a) == (0, f"DFLOCK OK: no keeper runs for {a.runtime}: this host holds nothing", [])


def test_a_keeper_that_is_expected(host_of):
    a = host_of("unix:/none", foreground=False)
    done = a.cli("status", "--expect-keeper", check=False)
    assert (done.returncode, done.stdout) == (2, "DFLOCK CRITICAL: no keeper runs, and one should: --expect-keeper; see its log\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs namespaces, and so root")
def test_a_keeper_of_the_system_that_has_run(redis, folder):
    """Programs start none in its place that would protect other users' jobs."""
    place = Place()
    host = SystemHost(redis, folder, place)
    host.init()
    env = {k: v for k, v in host.env().items() if k not in ("LD_PRELOAD", "DFLOCK_RUNTIME_DIR")}

    def said():
        done = subprocess.run([*host.inside, CLI, "status", "--check"], env=env, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout

    assert said()[0] == 0
    host.stop()
    assert said() == (2, "DFLOCK CRITICAL: no keeper runs, and one should: a keeper of the system has run since the machine was started; "
                         "see its log\n")
    place.end()


def test_all_reasons(make_host, redis):
    a = make_host("a")
    changed(a, "protect", "protekt")
    becomes(a, 1, "DFLOCK WARNING: older rules are in force: .*unknown setting protekt.*")
    redis.command("CONFIG", "SET", "maxmemory", "1")
    becomes(a, 2, "DFLOCK CRITICAL: no new locks: .*out of memory.*; older rules are in force: .*unknown setting protekt.*")


def test_a_lock_that_an_operator_took_away(make_host):
    a = make_host("a")
    job = holder(a)
    a.cli("break", "--yes", "t/f")
    job.process.wait(20)
    wait_until(lambda: a.status()["lost"], "status shows it")
    assert check(a)[0] == 0


def test_no_store(host_of):
    becomes(host_of("127.0.0.1:1"), 2, "DFLOCK CRITICAL: the store 127.0.0.1:1 is not reachable: connection refused")


def test_a_store_that_wants_a_password(host_of, redis):
    redis.command("CONFIG", "SET", "requirepass", "secret")
    becomes(host_of(redis), 2, "DFLOCK CRITICAL: the store unix:.* cannot be used: the store says .NOAUTH.*")


def test_a_store_that_takes_nothing_new(make_host, redis):
    a = make_host("a")
    redis.command("CONFIG", "SET", "maxmemory", "1")
    becomes(a, 2, "DFLOCK CRITICAL: no new locks: .*out of memory.*")


def test_a_store_that_could_stop_all_jobs(make_host, redis):
    """A setting, so no warning: it would be one for ever. What comes of it is critical."""
    a = make_host("a")
    redis.command("CONFIG", "SET", "save", "3600 1")
    becomes(a, 0, "DFLOCK OK: the store is up, .*; note: if it cannot save to disk, it refuses all writes, renewals of leases too.*")
    redis.command("CONFIG", "SET", "min-replicas-to-write", "1")
    becomes(a, 2, "DFLOCK CRITICAL: no new locks: .*NOREPLICAS.* it refuses renewals, too: bring its replicas back.*")


def test_frozen_holders(make_host, redis):
    a = make_host("a", lease="ttl_ms = 1000;")
    job = holder(a)
    redis.signal(signal.SIGSTOP)
    figures = becomes(a, 2, r"DFLOCK CRITICAL: \d+ processes are frozen until the store unix:\S+ answers(; the store unix:\S+ .*)?")
    assert figures[3] >= 1
    redis.signal(signal.SIGCONT)
    becomes(a, 0, "DFLOCK OK: the store is up, 1 of 1 leases in use, 0 waiting")
    job.end()


def test_grace(host_of, redis):
    becomes(host_of(redis, lease="ttl_ms = 60000;"), 1, "DFLOCK WARNING: the store is in grace and grants no new locks")


def test_older_rules(make_host):
    a = make_host("a")
    changed(a, "protect", "protekt")
    becomes(a, 1, "DFLOCK WARNING: older rules are in force: .*unknown setting protekt.*")


def test_other_names_elsewhere(make_host):
    a, _ = (make_host(name, rules='{ path = "/srv/f"; name = "%s"; }' % (name, )) for name in "ab")
    becomes(a, 1, r"DFLOCK WARNING: 1 rule is named differently on other hosts \(dflock doctor\)")


def test_nothing_else_with_it(host_of):
    a = host_of("unix:/none", foreground=False)
    done = a.cli("status", "--check", "--json", check=False)
    assert done.returncode == 2 and "one of --json, --html, --check and --watch" in done.stderr


def test_the_bar_is_for_the_figures(host_of):
    """The reason may have one, as in a path; a monitoring system would take the rest for figures."""
    a = host_of("unix:/none|x", foreground=True)
    becomes(a, 2, "DFLOCK CRITICAL: the store unix:/none/x is not reachable: .*")
