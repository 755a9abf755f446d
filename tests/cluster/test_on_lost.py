"""on_lost by rule, and what a job's own standard error says before it is killed."""
import signal

import pytest
from harness import text_of, wait_until, write_text

from keepers import held
from jobs import LEASE, SLOW_LEASE, end, grows, is_frozen, pid_of, size, state

RULES = """{ path = "%s/k*"; name = "k"; on_lost = "kill"; }, { path = "%s/w*"; name = "w"; on_lost = "warn"; },
           { tree = "%s"; name = "t"; }"""


def holder(host, *files, how=()):
    """A job that has a lock on each of these files."""
    words = []
    for file in files[1:]:
        words += ["flock", *how, host.path(file)]
    path = host.path("job." + files[0])
    process = host.popen("flock", *how, host.path(files[0]), *words, "bash", "-c",
                         'trap "" INT; trap "sleep 0.3; echo >>$1.tidied; exit" TERM; echo $$ >>"$1.pid"; while :; do echo >>"$1"; read -t 0.01 <> <(:); done', "job", path)
    wait_until(lambda: size(path) > 3, "the job runs")
    return process, path


def words_of(process):
    """What it said on its standard error until its end."""
    return process.communicate(timeout=20)[1]


def lose(host, redis):
    """The store is away until the leases have run out, and comes back empty."""
    redis.stop()
    wait_until(lambda: host.status()["leases"][0]["state"] == "unsure", "the deadline passes", 20)
    redis.start()
    wait_until(lambda: host.status()["lost"], "the lease is lost", 20)


@pytest.mark.parametrize("lock", ["ex", "sh"])
def test_a_lost_lock_is_said_on_standard_error(make_host, redis, lock):
    a = make_host("a", lease=LEASE)
    process, path = holder(a, "f", how=("-s",) if lock == "sh" else ())
    lose(a, redis)
    words = words_of(process)
    lines = [line for line in words.splitlines() if "the lock was lost" in line]
    assert len(lines) == 1, words  # flock and bash share it
    assert lines[0].startswith(f"dflock: {a.path('f')}: the lock was lost: the store lost its memory"), words
    assert "this process is killed" in lines[0]


def test_each_job_has_its_own_line(make_host, redis):
    a = make_host("a", lease=LEASE)
    jobs = {name: holder(a, name)[0] for name in ("f", "g")}
    lose(a, redis)
    for name, process in jobs.items():
        words = words_of(process)
        assert f"dflock: {a.path(name)}: the lock was lost" in words
        assert words.count("the lock was lost") == 1


def test_one_that_is_asked_to_end(make_host, redis):
    a = make_host("a", lease=SLOW_LEASE, rules=RULES)
    process, path = holder(a, "k")
    redis.signal(signal.SIGSTOP)
    words = words_of(process)
    redis.signal(signal.SIGCONT)
    assert f"dflock: {a.path('k')}: the lock is about to be lost: the store has not answered" in words
    assert "SIGTERM" in words
    assert process.returncode != 0


def test_each_rule_its_own(make_host, redis):
    """One program each: frozen, ended, and going on."""
    a = make_host("a", lease=SLOW_LEASE, rules=RULES)
    (frozen, frozen_path), (killed, killed_path), (warned, warned_path) = (holder(a, name) for name in ("f", "k", "w"))
    assert {(lease["name"], lease["on_lost"]) for lease in a.status()["leases"]} == {
        ("t/f", "freeze"), ("k/k", "kill"), ("w/w", "warn")}
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "the job is frozen", 20)
    wait_until(lambda: killed.poll() is not None, "the job is ended", 20)
    assert is_frozen(frozen_path)
    grows(warned_path)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: "go on" in a.log(), "the job is let go", 20)
    grows(frozen_path)
    assert warned.poll() is None
    end(frozen, frozen_path)
    end(warned, warned_path)
    killed.communicate(timeout=20)


@pytest.mark.parametrize("files, frozen", [(("w", "f"), True), (("f", "w"), True), (("k", "f"), False), (("f", "k"), False)])
def test_locks_under_several_rules(make_host, redis, files, frozen):
    """kill before freeze before warn."""
    a = make_host("a", lease=SLOW_LEASE, rules=RULES)
    process, path = holder(a, *files)
    pid = pid_of(path)
    redis.signal(signal.SIGSTOP)
    if frozen:
        wait_until(lambda: "are frozen" in a.log(), "the job is frozen", 20)
        assert is_frozen(path)
        redis.signal(signal.SIGCONT)
        grows(path)
        return end(process, path)
    wait_until(lambda: state(pid) in ("gone", "Z"), "the job is ended", 20)  # a flock(1) that has but a lock to freeze is frozen
    assert size(path + ".tidied")  # it had time to obey SIGTERM, since it was not stopped
    redis.signal(signal.SIGCONT)
    process.communicate(timeout=20)


def test_a_lost_lock_under_warn_kills_no_process(make_host, redis):
    a = make_host("a", lease=LEASE, rules=RULES)
    process, path = holder(a, "w")
    lose(a, redis)
    grows(path)
    assert process.poll() is None
    end(process, path)


def test_reload_changes_it_for_leases_that_are_held(make_host, redis):
    a = make_host("a", lease=LEASE, rules=RULES)
    process, path = holder(a, "f")
    assert held(a)[0]["on_lost"] == "freeze"
    text = text_of(a.config)
    write_text(a.config, text.replace('name = "t";', 'name = "t"; on_lost = "warn";'))
    a.cli("reload")
    assert held(a)[0]["on_lost"] == "warn"
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: a.status()["leases"][0]["state"] == "unsure", "the deadline has passed", 20)
    grows(path)
    assert a.status()["frozen"] == 0
    redis.signal(signal.SIGCONT)
    end(process, path)
