"""
The keeper's log: the journal and its fields, a reader of standard error that hangs or goes away, and the level at run time. What is counted and
when, also in storms: tests/unit/test_logcause.c, with a time of its own.
"""
import fcntl
import json
import os
import re
import signal
import subprocess

import pytest
from common import kill_keeper, opened
from harness import Job, wait_until, write_text
from harness.host import KEEPER
from test_bad_input import Client, question

JOURNALD = "/lib/systemd/systemd-journald"
LOST = re.compile(r"(\d+) lines of this log could not be written")
LONG = "ttl_ms = 20000; linger_ms = 0;"


def start(host, stderr, **env):
    """The keeper in the foreground, with this standard error."""
    env = {**host.env(), **env}
    env.pop("LD_PRELOAD", None)
    host.keeper = subprocess.Popen([*host.inside, KEEPER, "--foreground"], env=env, stderr=stderr, stdout=subprocess.DEVNULL, start_new_session=True)
    wait_until(host.serves, "it serves")
    return host.wait_up()


def test_standard_error_that_is_not_read(make_host, redis):
    """A pipe that is full: holders are frozen in time all the same; how many lines were lost is told later. A reader that ends does
    not end the parent."""
    host = make_host("a", foreground=False, lease="ttl_ms = 4000; linger_ms = 0;")
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    start(host, write, DFLOCK_LOG="debug").init()
    os.close(write)
    agent = opened(host)
    os.set_blocking(read, False)
    said = b""

    def is_full():
        assert agent.do("flock 0 ex nb") == agent.do("flock 0 un") == "ok"
        return host.status()["log"]["unwritten"] > 10

    def is_told():
        nonlocal said
        try:
            said += os.read(read, 1 << 20)
        except BlockingIOError:
            pass
        return sum(map(int, LOST.findall(said.decode())))  # the parent's and the keeper's

    wait_until(is_full, "the pipe is full", 60)
    assert "LINES of its log could not be written" in host.cli("status").stdout
    Job(host, "flock", host.path("g"), "sh", "-c", "echo held; read line").held(20)
    parent = host.keeper_pids()[0]
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: host.status()["frozen"], "the holders are frozen", 30)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: not host.status()["frozen"], "they go on", 30)
    wait_until(lambda: is_told() > 10 and host.status()["log"]["unwritten"] == 0, "all lost lines were told")
    os.close(read)
    kill_keeper(host)  # the parent has something to say
    assert host.keeper_pids()[0] == parent


def lines(host, text):
    return [line for line in host.log().splitlines() if text in line]


def counted(found):
    """How many lines these stand for."""
    return sum(int(m.group(1)) if (m := re.search(r"\((\d+) times", line)) else 1 for line in found)


def test_a_killed_keeper_and_what_it_had_counted(make_host):
    """The parent tells it, and the keeper that comes next does not begin anew. What is left is told at the end."""
    host = make_host("a", lease=LONG)
    parent = host.keeper_pids()[0]

    def malformed(count):
        for _ in range(count):
            with Client(host) as client:
                assert client.send(b"x").answer() is None

    for turn in range(3):
        malformed(5)
        kill_keeper(host)
        wait_until(lambda: counted(lines(host, "malformed question")) == 5 * (turn + 1), "all are told")
    assert len(lines(host, "malformed question")) == 4
    assert len(lines(host, "died (signal 9)")) == 1 and host.keeper_pids()[0] == parent
    malformed(500)
    assert len(lines(host, "malformed question")) == 4
    host.keeper.send_signal(signal.SIGTERM)
    host.keeper.wait(20)
    assert counted(lines(host, "died (signal 9)")) == 3
    assert len(lines(host, "malformed question")) == 5 and counted(lines(host, "malformed question")) == 515


# --- the level ---

def test_the_level_at_run_time(make_host):
    host = make_host("a", lease=LONG)
    level = lambda: host.cli("log-level").stdout.strip()  # noqa: E731
    assert level() == "info (default)" and "log level" not in host.cli("status").stdout
    assert host.cli("log-level", "debug").stdout == "debug (dflock log-level)\n"
    agent = host.opened("f", "flock 0 ex nb")
    wait_until(lambda: " in asking -> held" in host.log(), "lines of debugging")
    assert "log level debug, set by dflock log-level" in host.cli("status").stdout
    assert host.status()["log"] == {"level": "debug", "by": "dflock log-level", "unwritten": 0}
    # A keeper that dies keeps it; and its parent goes by it.
    host.cli("log-level", "error")
    kill_keeper(host)
    assert level() == "error (dflock log-level)" and len(lines(host, "died (signal 9)")) == 1
    assert len(lines(host, "serves")) == 1  # information
    # The configuration is behind it.
    text = open(host.config).read()
    write_text(host.config, 'log_level = "warning";\n' + text)
    host.cli("reload")
    assert level() == "error (dflock log-level)"
    host.cli("log-level", "default")
    assert level() == "warning (log_level)"
    write_text(host.config, text)
    host.cli("reload")
    assert level() == "info (default)"
    for word in "verbose", "show me", "DEBUG":
        done = host.cli("log-level", word, check=False)
        assert done.returncode == 1 and "is no level of the log; expected" in done.stderr
    assert host.cli("log-level", "a", "b", check=False).returncode == 2
    assert level() == "info (default)"
    # Anew.
    host.cli("log-level", "debug")
    assert agent.do("flock 0 un") == "ok"
    host.cli("stop")
    host.keeper.wait(20)
    write_text(host.config, 'log_level = "error";\n' + text)
    with open(host.log_path, "w") as log:
        start(host, log, DFLOCK_LOG="warning")
    assert level() == "warning (DFLOCK_LOG)"


def test_only_root_and_the_keepers_user_set_it(make_system):
    host = make_system()

    def user(*words):
        return host.cli("log-level", *words, before=host.as_user(12345), check=False)

    assert user().stdout == "info (default)\n"
    done = user("debug")
    assert done.returncode == 1 and "only root or the keeper's user" in done.stderr
    assert user("default").returncode == 1 and user().stdout == "info (default)\n"


# --- the journal ---

@pytest.fixture
def journald(place):
    """A real one in that place: what it has of the keeper's, and the process."""
    if not os.path.exists(JOURNALD):
        pytest.skip("no systemd-journald is installed")
    if not os.path.exists("/etc/machine-id") or os.stat("/etc/machine-id").st_size < 32:
        pytest.skip("journald writes nothing without /etc/machine-id: systemd-machine-id-setup makes it")
    os.makedirs(place.outside("/run/systemd/journal"))
    os.makedirs(place.outside("/run/systemd/journald.conf.d"))
    write_text(place.outside("/run/systemd/journald.conf.d/test.conf"),
               "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\nForwardToSyslog=no\nRateLimitBurst=0\n")
    daemon = subprocess.Popen([*place.inside, JOURNALD], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: os.path.exists(place.outside("/run/systemd/journal/socket")), "the journal's socket")

    def entries(*match):
        done = subprocess.run([*place.inside, "journalctl", "--directory=/run/log/journal", "-q", "-a", "-o", "json", "-t", "dflockd", *match],
                              stdout=subprocess.PIPE, text=True, timeout=30)
        return [json.loads(line) for line in done.stdout.splitlines()]

    yield entries, daemon
    daemon.kill()
    daemon.wait()


def test_a_journal(make_host, place, journald, redis):
    """A keeper whose standard error is a stream to the journal, as in a unit of systemd: here, the log's file. No file's name makes up a line or a
    field; refusals of one cause are one line. A journal that goes away, or is full: tests/unit/test_logsink_journal.c."""
    entries, daemon = journald

    def entry(match):
        return wait_until(lambda: entries(match), match)[0]

    host = make_host("a", inside=place.inside, foreground=False, lease=LONG)
    log = host.open_log()
    start(host, log, JOURNAL_STREAM="%d:%d" % (os.fstat(log).st_dev, os.fstat(log).st_ino)).init()
    os.close(log)
    serves = entry("DFLOCK_EVENT=keeper-serves")
    assert serves["MESSAGE"].startswith("version ") and serves["PRIORITY"] == "6" and serves["SYSLOG_FACILITY"] == "3"
    assert serves["DFLOCK_HOST"] == host.status()["host"] and int(serves["_PID"]) == host.keeper_pids()[1]
    redis.stop()
    away = entry("DFLOCK_EVENT=store-away")
    assert away["MESSAGE"].startswith("event=store-away: ") and away["PRIORITY"] == "3"
    name = "x\nPRIORITY=0\nDFLOCK_EVENT=lease-lost\ndflockd: event=lease-lost: a lie"
    job = host.popen("flock", "-n", host.path(name), "true")
    job.communicate(timeout=30)
    refused = entry("DFLOCK_LOCK=t/" + name)
    assert refused["DFLOCK_EVENT"] == "lock-refused" and refused["PRIORITY"] == "4"
    assert "\n" not in refused["MESSAGE"] and int(refused["DFLOCK_PID"]) == job.pid
    files = [os.open(host.path(f"f{i}"), os.O_RDWR | os.O_CREAT) for i in range(3)]
    with Client(host) as client:
        for i in range(60):
            assert "not reachable" in client.send(question(host, flags=1), files[i % 3]).answer()[1]
    for fd in files:
        os.close(fd)
    entry("DFLOCK_LOCK=t/f2")
    assert len(entries("DFLOCK_EVENT=lock-refused")) == 4 and not entries("DFLOCK_EVENT=lease-lost")
    assert host.log() == ""
    daemon.kill()
    redis.start()
    wait_until(host.log, "lines go to standard error")
