"""`dflock metrics` counts each refusal once, under its reason; and readers that ask much, or do not read, delay no other."""
import array
import os
import socket
import subprocess

import harness.host
import pytest
from common import attempt, opened, refused, works
from harness import Job, wait_until
from harness.metrics import Since, key_of, metrics, parsed, value
from harness.system import Place, SystemHost
from machine import USER
from test_bad_input import STATUS, Client, close_all, connect_all, fk, many_descriptors, question  # noqa: F401

LONG = "ttl_ms = 20000; store_wait_ms = 300;"
METRICS = 16


def refusals(**reasons):
    return {key_of("lock_refusals_total", reason=reason): n for reason, n in reasons.items()}


def test_store(make_host, redis):
    a = make_host("a", lease=LONG)
    redis.stop()
    wait_until(lambda: value(a, "store_up") == 0, "the keeper has noticed")
    before = Since(a)
    refused(attempt(a), "store unix:.* is not reachable")
    refused(attempt(a, wait=True), "store unix:.* is not reachable")
    assert before.moved() == refusals(store=2)


def test_grace(redis, host_of):
    a = host_of(redis, lease="ttl_ms = 600000;").wait_up()
    before = Since(a)
    refused(attempt(a), "in grace")
    assert before.moved() == refusals(grace=1)
    assert value(a, "store_grace") == 1


def test_rule(make_host):
    a = make_host("a", lease=LONG, rules='{ tree = "%s"; name = "t"; at_least_ms = 1000; }')
    before = Since(a)
    agent = opened(a)
    assert agent.do("flock 0 sh nb") == "ENOLCK"
    assert before.moved() == refusals(rule=1)


def test_file(make_host):
    """One file under two lock names."""
    a = make_host("a", lease=LONG)
    works(a)
    os.link(a.path("f"), a.path("g"))
    holder = a.opened("f", "flock 0 ex")
    before = Since(a)
    refused(attempt(a, "g"), "in use as lock")
    assert before.moved() == refusals(file=1)


def test_config(make_host, folder):
    a = make_host("a", lease=LONG)
    other = os.path.join(folder, "other.conf")
    with open(a.config) as f, open(other, "w") as to:
        to.write("\n" + f.read())
    before = Since(a)
    refused(attempt(a, DFLOCK_CONFIG=other), "another configuration")
    assert before.moved() == refusals(config=1)


def test_version(make_host):
    a = make_host("a")
    before = Since(a)
    with Client(a) as c:
        assert "different versions" in c.send(question(a, version=fk.VERSION + 1)).answer()[1]
    assert before.moved() == refusals(version=1)


def test_room(make_host, many_descriptors):  # noqa: F811
    """More connections than there may be: the keeper's parent inherits a small limit."""
    a = make_host("a", inside=["prlimit", "--nofile=400:400"])
    most = int(value(a, "connections_max"))
    before = Since(a)
    clients = connect_all(a, most + 3)
    try:
        told = [c.answer() for c in clients[most:]]
        assert all("too many programs" in why for _, why in told)
    finally:
        close_all(clients)
    wait_until(lambda: a.cli("metrics", check=False).returncode == 0, "the keeper serves again")
    assert before.moved() == refusals(room=3)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs namespaces, and so root")
def test_program(make_host):
    """A keeper in a pid namespace of its own, and a program outside: it has no number there."""
    a = make_host("a", foreground=False)
    env = {**a.env(), "LD_PRELOAD": ""}
    keeper = subprocess.Popen(["unshare", "-p", "--fork", "--kill-child", "--mount-proc", harness.host.KEEPER, "--foreground"], env=env,
                              stderr=subprocess.DEVNULL)
    wait_until(a.serves, "the keeper serves")
    inside = subprocess.run(["pgrep", "-P", str(keeper.pid)], capture_output=True, text=True).stdout.split()[0]

    def within():
        done = subprocess.run(["nsenter", "-t", inside, "-p", "-m", harness.host.CLI, "metrics"], env=env, capture_output=True, text=True)
        line, = [l for l in done.stdout.splitlines() if l.startswith('dflock_lock_refusals_total{reason="program"}')]
        return int(line.split()[-1])

    try:
        before = within()  # serves() has connected
        refused(attempt(a), "pid namespace that the keeper cannot see")
        assert within() == before + 1
    finally:
        keeper.kill()
        keeper.wait()


# --- readers ---


@pytest.mark.skipif(os.geteuid() != 0, reason="needs namespaces, and so root")
def test_any_user_may_ask(redis, folder):
    """As for status: of others they see numbers only, and all users the same."""
    place = Place()
    host = SystemHost(redis, folder, place)
    try:
        host.init()
        job = Job(host, "flock", host.path("secret"), "sh", "-c", "echo held; read line").held()
        words = [*host.inside, *host.as_user(USER), harness.host.CLI, "metrics"]
        done = subprocess.run(words, env={**host.env(), "LD_PRELOAD": ""}, capture_output=True, text=True, timeout=60)
        assert done.stderr == "" and done.returncode == 0
        values = parsed(done.stdout)
        assert values[key_of("leases", space="flock", state="held")] == 1 and set(values) == set(metrics(host))
        assert "secret" not in done.stdout and str(job.pid) not in done.stdout
    finally:
        host.stop()
        place.end()


@pytest.mark.parametrize("op", [METRICS, STATUS])
def test_a_reader_that_does_not_read(make_host, op):
    """Each connection has one answer on its way; further questions get none with a descriptor, and other callers are served."""
    a = make_host("a")
    keeper = a.keeper_pids()[1]

    def memfds():
        """Those that exist, also on their way: the keeper's shared memory."""
        return sum("memfd:dflock-status" in os.readlink(f"/proc/{keeper}/fd/{fd}") for fd in os.listdir(f"/proc/{keeper}/fd")
                   if os.path.lexists(f"/proc/{keeper}/fd/{fd}"))

    with Client(a) as c:
        assert c.send(question(a, op=op, mode=0, to=0)).answer()[0] == fk.OK
        c.send(question(a, op=op, mode=0, to=0))
        wait_until(lambda: unread(c) == 1, "the first answer is there")
        for _ in range(50):
            c.send(question(a, op=op, mode=0, to=0))
        works(a)
        assert memfds() == 0
        answers = [c.socket.recvmsg(4096, 1024) for _ in range(51)]
        assert sum(len(ancillary) for _, ancillary, _, _ in answers) == 1
        assert "was not read" in fk.reply_of(answers[1][0]).reason
        assert c.send(question(a, op=op, mode=0, to=0)).answer()[0] == fk.OK


def test_many_ask_at_a_time(make_host):
    """All are answered, most with the same memfd: what they cost the keeper does not grow with their number."""
    a = make_host("a")
    clients = [Client(a) for _ in range(100)]
    inodes = set()
    try:
        for c in clients:
            c.send(question(a, op=METRICS, mode=0, to=0))
        works(a)
        for c in clients:
            data, ancillary, _, _ = c.socket.recvmsg(4096, 1024)
            assert fk.reply_of(data).verdict == fk.OK
            fd, = array.array("i", ancillary[0][2])
            inodes.add(os.fstat(fd).st_ino)
            os.close(fd)
    finally:
        close_all(clients)
    assert len(inodes) < len(clients) / 2


def unread(client):
    try:
        client.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return 1
    except BlockingIOError:
        return 0


def test_readers_that_are_stopped(make_host):
    """In the middle of their question: the keeper neither waits nor counts them as anything but connections."""
    a = make_host("a")
    clients = [Client(a) for _ in range(20)]
    try:
        works(a)
        assert metrics(a)["dflock_connections"] >= 21
    finally:
        close_all(clients)
    wait_until(lambda: value(a, "connections") == 1, "they have gone")
