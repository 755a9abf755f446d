"""on_lost by rule, and what a job's own standard error says before it is killed."""
import signal

from harness import text_of, wait_until, write_text

import jobs
from keepers import held
from jobs import LEASE, SLOW_LEASE, end, grows, is_frozen, let_go, pid_of, size, state

# The setting of a rule counts before that of all.
RULES = """{ path = "%s/k*"; name = "k"; on_lost = "kill"; }, { path = "%s/w*"; name = "w"; },
           { tree = "%s"; name = "t"; on_lost = "freeze"; }"""
WARN = ' on_lost = "warn";'
IGNORES = 'trap "" INT; trap "echo >>$1.told" TERM; echo $$ >>"$1.pid"; while :; do echo >>"$1"; read -t 0.01 <> <(:); done'
OBEYS = 'trap "" INT; trap "sleep 0.3; echo >>$1.tidied; exit" TERM; echo $$ >>"$1.pid"; while :; do echo >>"$1"; read -t 0.01 <> <(:); done'


def holder(host, *files, how=()):
    """A job that has a lock on each of these files."""
    return jobs.job(host, *how, out="".join(files), names=files, script=OBEYS)


def words_of(process):
    """What it said on its standard error until its end."""
    return process.communicate(timeout=20)[1]


def test_a_lost_lock_is_said_on_standard_error(make_host, redis):
    """By one line for each job, also if its processes share the lock; and it is killed. One under "warn" is not."""
    a = make_host("a", lease=LEASE + WARN, rules=RULES)
    lost = {"f": holder(a, "f")[0], "g": holder(a, "g", how=("-s",))[0]}
    warned, path = holder(a, "w")
    redis.stop()
    wait_until(lambda: {lease["state"] for lease in a.status()["leases"]} == {"unsure"}, "the deadline passes", 20)
    redis.start()
    wait_until(lambda: len(a.status()["lost"]) == 3, "the leases are lost", 20)
    for name, process in lost.items():
        line, = [line for line in words_of(process).splitlines() if "the lock was lost" in line]
        assert line.startswith(f"dflock: {a.path(name)}: the lock was lost: the store lost its memory") and "this process is killed" in line
    grows(path)
    assert warned.poll() is None
    end(warned, path)


def test_each_rule_its_own(make_host, redis):
    """One is frozen, one asked to end by SIGTERM, with time to obey and a line that says why, and one goes on. Of several rules for one
    process kill comes before freeze, and that before warn."""
    a = make_host("a", lease=SLOW_LEASE + WARN, rules=RULES)
    files = [("f",), ("w1", "f1"), ("f2", "w2"), ("k",), ("k1", "f3"), ("f4", "k2"), ("w",)]
    processes, paths = zip(*(holder(a, *names) for names in files))
    pids = [pid_of(path) for path in paths]
    assert {(lease["name"][0], lease["on_lost"]) for lease in a.status()["leases"]} == {("t", "freeze"), ("k", "kill"), ("w", "warn")}
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: "are frozen" in a.log(), "jobs are frozen", 20)
    for pid in pids[3:6]:
        wait_until(lambda: state(pid) in ("gone", "Z"), "a job is ended", 20)  # a flock(1) that has but a lock to freeze is frozen
    assert [size(path + ".tidied") > 0 for path in paths] == [False] * 3 + [True] * 3 + [False]
    assert [path for path in paths[:3] if not is_frozen(path)] == []
    grows(paths[6])
    let_go(a, redis)
    for path in paths[:3]:
        grows(path)
    words = words_of(processes[3])
    assert f"dflock: {a.path('k')}: the lock is about to be lost: the store has not answered" in words and "SIGTERM" in words
    assert processes[3].returncode != 0 and processes[6].poll() is None
    for i in (0, 1, 2, 6):
        end(processes[i], paths[i])
    for i in (4, 5):
        processes[i].communicate(timeout=20)


def test_what_the_holder_started_is_killed_after_its_end(make_host, redis):
    """flock -o has the lock alone, and obeys SIGTERM. Its job does not: it is killed before the lease ends, though no process has the
    lock any more."""
    a = make_host("a", lease=SLOW_LEASE, rules=RULES)
    process, path = jobs.job(a, "-o", out="k", names=("k",), script=IGNORES)
    pid = pid_of(path)
    redis.signal(signal.SIGSTOP)
    process.wait(timeout=30)
    wait_until(lambda: size(path + ".told"), "the job was asked to end", 20)
    wait_until(lambda: state(pid) in ("gone", "Z"), "the job is killed", 20)
    redis.signal(signal.SIGCONT)


def test_reload_changes_it_for_leases_that_are_held(make_host, redis):
    a = make_host("a", lease=LEASE, rules=RULES)
    process, path = holder(a, "f")
    assert held(a)[0]["on_lost"] == "freeze"
    text = text_of(a.config)
    write_text(a.config, text.replace('name = "t"; on_lost = "freeze";', 'name = "t"; on_lost = "warn";'))
    a.cli("reload")
    assert held(a)[0]["on_lost"] == "warn"
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: a.status()["leases"][0]["state"] == "unsure", "the deadline has passed", 20)
    grows(path)
    assert a.status()["frozen"] == 0
    redis.signal(signal.SIGCONT)
    end(process, path)
