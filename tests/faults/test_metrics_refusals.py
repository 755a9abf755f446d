"""`dflock metrics` counts each refusal once, under its reason; and readers that ask much, or do not read, delay no other."""
import array
import os

import pytest
from common import attempt, refused, works
from harness import Job, wait_until
from harness.metrics import Since, key_of, metrics, parsed, value
from machine import USER
from test_bad_input import STATUS, Client, close_all, connect_all, descriptors, fk, many_descriptors, question  # noqa: F401

METRICS = 16


def refusals(**reasons):
    return {key_of("lock_refusals_total", reason=reason): n for reason, n in reasons.items()}


def test_each_reason(make_host, redis, folder):
    """But for a program that the keeper cannot see: test_pid_namespace.py."""
    a = make_host("a", lease="ttl_ms = 20000; store_wait_ms = 300;",
                  rules='{ path = "%s/once"; name = "once"; at_least_ms = 1000; }, { tree = "%s"; name = "t"; }')
    works(a)
    os.link(a.path("f"), a.path("g"))  # one file under two lock names
    holder, once, other = a.opened("f", "flock 0 ex"), a.opened("once"), os.path.join(folder, "other.conf")
    with open(a.config) as f, open(other, "w") as to:
        to.write("\n" + f.read())
    before = Since(a)
    assert once.do("flock 0 sh nb") == "ENOLCK"
    assert before.moved() == refusals(rule=1)
    refused(attempt(a, "g"), "in use as lock")
    assert before.moved() == refusals(rule=1, file=1)
    refused(attempt(a, DFLOCK_CONFIG=other), "another configuration")
    with Client(a) as c:
        assert "different versions" in c.send(question(a, version=fk.VERSION + 1)).answer()[1]
    assert before.moved() == refusals(rule=1, file=1, config=1, version=1)
    assert holder.do("flock 0 un") == "ok"
    wait_until(lambda: not a.status()["leases"], "it holds nothing")
    redis.command("FLUSHALL")
    wait_until(lambda: attempt(a).word == "ENOLCK" and value(a, "store_grace") == 1, "it notices")
    before = Since(a)
    refused(attempt(a), "in grace")
    assert before.moved() == refusals(grace=1)
    redis.stop()
    wait_until(lambda: value(a, "store_up") == 0, "the keeper has noticed")
    before = Since(a)
    for wait in False, True:
        refused(attempt(a, wait=wait), "store unix:.* is not reachable")
    assert before.moved() == refusals(store=2)


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
    wait_until(lambda: descriptors(a) < most / 2, "it has seen them end: a question before that would be refused, too")
    assert before.moved() == refusals(room=3)


# --- readers ---


def test_any_user_may_ask(make_system):
    """As for status: of others they see numbers only, and all users the same."""
    host = make_system()
    job = Job(host, "flock", host.path("secret"), "sh", "-c", "echo held; read line").held()
    done = host.cli("metrics", before=host.as_user(USER))
    values = parsed(done.stdout)
    assert done.stderr == "" and values[key_of("leases", space="flock", state="held")] == 1 and set(values) == set(metrics(host))
    assert "secret" not in done.stdout and str(job.pid) not in done.stdout


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
        wait_until(c.has_answer, "the first answer is there")
        for _ in range(50):
            c.send(question(a, op=op, mode=0, to=0))
        works(a)
        assert memfds() == 0
        answers = [c.socket.recvmsg(4096, 1024) for _ in range(51)]
        assert sum(len(ancillary) for _, ancillary, _, _ in answers) == 1
        assert "was not read" in fk.reply_of(answers[1][0]).reason
        assert c.send(question(a, op=op, mode=0, to=0)).answer()[0] == fk.OK


def test_many_ask_at_a_time(make_host):
    """All are answered, most with the same memfd: what they cost the keeper does not grow with their number. Others are stopped in the middle of
    their question, and count as connections."""
    a = make_host("a")
    clients, stopped, inodes = connect_all(a, 100), connect_all(a, 20), set()
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
        close_all(clients)
        assert value(a, "connections") >= 21
    finally:
        close_all(clients + stopped)
    assert len(inodes) < len(clients) / 2
    wait_until(lambda: value(a, "connections") == 1, "they have gone")
