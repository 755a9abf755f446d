"""
Descriptors whose close never ends, and others that no program should send, from users of a system keeper: the keeper serves all
others meanwhile, can be stopped, killed and restarted, and what was left behind is bounded and ends when the mount answers.
"""
import os
import signal

import pytest
from common import attempt, kill_keeper
from fronted import (GRANTED, HOSTILE, NOT_PROTECTED, OTHER, REFUSED, Puppet, agent_of, fronts, ground, open_in,  # noqa: F401
                     prepare, served, turns)
from harness import wait_until
from harness.hanging import FLUSH, OPEN, RELEASE
from harness.processes import state
from harness.system import SYSTEM_DIR, Hanging

pytestmark = pytest.mark.root("needs root, for users and mounts")

FRONTS_PER_USER = 4


def in_state_d(pids):
    return [pid for pid in pids if state(pid) == "D"]


def test_a_close_that_never_ends(ground):
    """FLUSH is not answered, and fifty connections bring such a descriptor: root and another user are served, each in no time."""
    host, mount, puppet = ground
    served(host), served(host, OTHER)
    dead, hostile = mount(), puppet()
    fds = [hostile.open(f"{dead.path}/f{i}") for i in range(5)]
    dead.say(f"hold {FLUSH}")
    before = host.keeper_pids()
    numbers = [hostile.send(hostile.question, fds[i % 5]) for i in range(50)]
    for _ in range(5):
        served(host), served(host, OTHER), turns(host)
    assert hostile.answer(numbers[-1])[0] == REFUSED
    served(host), served(host, OTHER), turns(host)
    assert len(fronts(host)) <= FRONTS_PER_USER + 4
    assert host.keeper_pids() == before
    dead.say(f"let {FLUSH}")
    wait_until(lambda: not in_state_d(fronts(host)), "what was left behind has ended")
    served(host, HOSTILE)


def test_a_malformed_question_with_it(ground):
    """Descriptors that are not looked at must be closed, too: also for the keeper's own user, which it trusts."""
    host, mount, puppet = ground
    before = host.keeper_pids()
    for uid in HOSTILE, 0:
        served(host), served(host, OTHER)
        dead, hostile = mount(f"m{uid}"), puppet(uid)
        fd = hostile.open(f"{dead.path}/f")
        dead.say(f"hold {FLUSH}")
        questions = ["b''", "b'x'"] + [f"question({host.config!r}, {field})" for field in ("magic=1", "op=7", "mode=9")]
        for question, count in [(question, 1) for question in questions] + [(hostile.question, 2), (hostile.question, 250)]:
            hostile.send(question, *[fd] * count)
            served(host), served(host, OTHER), turns(host)
    assert host.keeper_pids() == before


def test_more_mounts_than_threads(ground):
    host, mount, puppet = ground
    served(host), served(host, OTHER)
    hostile = puppet()
    for i in range(18):
        dead = mount(f"m{i}")
        fds = [hostile.open(f"{dead.path}/{name}") for name in "ab"]
        dead.say(f"hold {FLUSH}")
        for fd in fds:
            hostile.send(hostile.question, fd)
    other = mount("other")
    for _ in range(3):
        served(host), served(host, OTHER), turns(host)
        theirs = puppet(OTHER)
        assert theirs.answer(theirs.send(theirs.question, theirs.open(f"{other.path}/f")))[0] == GRANTED


def test_the_keeper_can_be_stopped_killed_and_restarted(ground):
    host, mount, puppet = ground
    served(host), served(host, OTHER)
    dead, hostile = mount(), puppet()
    fds = [hostile.open(f"{dead.path}/f{i}") for i in range(4)]
    dead.say(f"hold {FLUSH}")
    for question in (hostile.question, "b'x'"):
        hostile.send(question, fds[0])
    unread = hostile.send(hostile.question, fds[1])
    parent = host.keeper_pids()[0]
    kill_keeper(host, 3)
    assert host.keeper_pids()[0] == parent
    wait_until(lambda: attempt(host, "again", before=host.inside).word == "ok", "it grants")
    served(host), served(host, OTHER), turns(host)
    hostile.send(hostile.question, fds[2])
    os.kill(parent, 15)
    host.keeper.wait(10)
    assert not host.keeper_pids()
    host.start()
    served(host, seconds=20), served(host, OTHER), turns(host)
    assert unread is not None


KINDS = {
    "O_PATH": "keep(os.open('/etc/passwd', os.O_PATH))",
    "FIFO": "(os.path.exists('/tmp/{mark}') or os.mkfifo('/tmp/{mark}')) and 0 or keep(os.open('/tmp/{mark}', os.O_RDWR))",
    "device": "keep(os.open('/dev/null', os.O_RDWR))",
    "terminal": "[keep(fd) for fd in os.openpty()][1]",
    "lingering socket": "lingering()",
    "memfd": "keep(os.memfd_create('x'))",
    "epoll": "keep(__import__('select').epoll())",
    "pidfd": "keep(os.pidfd_open(os.getpid()))",
    "connection to the keeper": "keep(connections[connect('/run/dflock')])",
    "eventfd": "keep(os.eventfd(0))",
    "socket with itself in its queue": "(lambda a, b: (a.sendmsg([b'x'], [(1, 1, array.array('i', [b.fileno()]))]), keep(a), keep(b))[2])"
                                       "(*socket.socketpair())",
    "namespace": "keep(os.open('/proc/self/ns/mnt', os.O_RDONLY))",
    "file of /proc": "keep(os.open('/proc/self/stat', os.O_RDONLY))",
    "directory": "keep(os.open('/tmp', os.O_RDONLY))",
    "O_PATH of a protected file's directory": "keep(os.open('{files}', os.O_PATH))",
    "deleted directory": "(lambda path: (os.mkdir(path), keep(os.open(path, os.O_RDONLY)), os.rmdir(path))[1])('/tmp/{mark}')",
    "deleted file": "(lambda path: (keep(os.open(path, os.O_RDWR | os.O_CREAT)), os.unlink(path))[0])('/tmp/{mark}')",
}


def test_other_kinds(ground, folder):
    """Each is refused, or is no lock's file; a socket that lingers after the program's last close takes nothing with it."""
    host, _, puppet = ground
    served(host), served(host, OTHER)
    before = host.keeper_pids()
    for uid in HOSTILE, 0:
        client = puppet(uid)
        for kind, expression in KINDS.items():
            mark = f"{os.path.basename(folder)}-{uid}-" + kind.replace(" ", "").replace("/", "")
            fd = client.do(expression.format(mark=mark, files=host.files))
            os.kill(before[1], signal.SIGSTOP)  # so that the keeper's is the last, where it is not in use here
            number = client.send(client.question, fd)
            client.do(f"os.close({fd})")
            os.kill(before[1], signal.SIGCONT)
            said = client.answer(number)
            assert said and said[0] in (REFUSED, NOT_PROTECTED), (kind, said)
            if os.path.exists("/tmp/" + mark):
                os.unlink("/tmp/" + mark)
        turns(host), served(host), served(host, OTHER)
    assert host.keeper_pids() == before


def test_left_unread(ground):
    """Connections that are closed by their peers with descriptors in their queues, while all of the user's fronts hang."""
    host, mount, puppet = ground
    served(host), served(host, OTHER)
    dead, hostile = mount(), puppet()
    before = host.keeper_pids()
    fds = [hostile.open(f"{dead.path}/f{i}") for i in range(8)]
    dead.say(f"hold {FLUSH} {RELEASE}")
    for i in range(100):
        number = hostile.send(hostile.question, fds[i % 8])
        for _ in range(3):
            hostile.do(f"send({number}, b'', {fds[i % 8]})")
        if i % 2:
            hostile.do(f"hang_up({number})")
    served(host), served(host, OTHER), turns(host)
    assert len(fronts(host)) <= FRONTS_PER_USER + 1 + 2
    assert open_in(before[1], "socket:") <= 50 + 50, "those that nobody can close share pits"
    assert host.keeper_pids() == before
    hostile.kill()
    dead.say(f"let {FLUSH} {RELEASE}")
    hostile.process.wait(20)
    wait_until(lambda: len(fronts(host)) <= 2, "what was left behind has ended", 30)
    wait_until(lambda: open_in(before[1], "socket:") <= 16, "all connections are closed", 30)
    served(host, HOSTILE)


def test_more_left_unread_than_descriptors(make_system, place):
    """More such connections than the keeper may have descriptors, or have on their way: those that can be closed are, and it serves again."""
    host = make_system(limits=["prlimit", "--nofile=2000", "setpriv", "--bounding-set=-sys_resource,-sys_admin"],
                       rules='{ tree = "%s"; name = "t"; }, { tree = "/run/fuse"; name = "fuse"; }')
    dead, hostile = Hanging(place), Puppet(host)
    try:
        served(host), served(host, OTHER)
        before = host.keeper_pids()
        hostile.do("__import__('resource').setrlimit(7, (20000, 20000))")
        fds = [hostile.open(f"{dead.path}/f{i}") for i in range(8)]
        dead.say(f"hold {FLUSH} {RELEASE}")
        for fd in fds:
            hostile.send(hostile.question, fd)
        for fd in fds * 2:
            hostile.do(f"leave_behind({SYSTEM_DIR!r}, {hostile.question}, {fd}, 400)")
        wait_until(lambda: len(os.listdir(f"/proc/{before[1]}/fd")) < 150, "the connections are closed")
        served(host), served(host, OTHER), turns(host)
        assert host.keeper_pids() == before
    finally:
        hostile.kill()
        dead.end()
        hostile.end()


def test_files_that_are_not_local_are_served(ground, make_host):
    """The keeper has none of them open; locks go to and fro between hosts all the same."""
    host, mount, _ = ground
    mount()
    elsewhere = make_host("b", rules='{ tree = "%s"; name = "fuse/m"; }')
    keeper = host.keeper_pids()[1]
    one, two, other = agent_of(host, OTHER), agent_of(host, OTHER), elsewhere.agent()
    for agent, path in ((one, "/run/fuse/m/f"), (two, "/run/fuse/m/f"), (other, elsewhere.path("f"))):
        assert agent.do(f"open 0 {path} rwc") == "ok"
    for lock, nb, unlock in (("flock 0 ex", "flock 0 ex nb", "flock 0 un"), ("setlk 0 ex 0 10 w", "setlk 0 ex 0 10", "setlk 0 un 0 10")):
        for _ in range(3):
            assert one.do(lock) == "ok"
            assert open_in(keeper, "/run/fuse") == 0
            assert other.do(nb) in ("EWOULDBLOCK", "EAGAIN")
            other.say(lock)
            assert other.silent()
            assert one.do(unlock) == "ok" and other.heard()[0] == "ok"
            one.say(lock)
            assert one.silent()
            assert other.do(unlock) == "ok" and one.heard()[0] == "ok"
            assert one.do(unlock) == "ok"
    assert one.do("flock 0 sh") == "ok"
    other.say("flock 0 ex")
    assert other.silent()
    assert two.do("flock 0 sh") == "ok"  # shared while shared is held, past the waiters
    for agent in (one, two):
        assert agent.do("flock 0 un") == "ok"
    assert other.heard()[0] == "ok"


def test_what_was_left_behind_ends(ground):
    """Also the processes that keep files end, once they are not needed. One that is killed is replaced."""
    host, mount, _ = ground
    mount()
    as_other = [*host.inside, *host.as_user(OTHER)]
    for i in range(3):
        assert attempt(host, f"/run/fuse/m/f{i}", before=as_other).word == "ok"
    assert fronts(host)
    wait_until(lambda: not fronts(host), "no front is left", 40)
    assert len(host.inhabitants("dflock-door")) == 1
    served(host, OTHER)
    prepare(host, "again", OTHER)
    for comm in ("dflock-front", "dflock-door"):
        before = host.inhabitants(comm)
        assert before
        for pid in before:
            os.kill(pid, 9)
        wait_until(lambda: attempt(host, "again", before=as_other).word == "ok", "it is served again", 10)
        wait_until(lambda: not set(before) & set(host.inhabitants(comm)), "those have ended")


def test_held_through_an_outage(ground, redis):
    """Holders of files that fronts keep are found, frozen and let go like all others."""
    host, mount, _ = ground
    mount()
    agent = agent_of(host, OTHER)
    prepare(host, "f", OTHER)
    for slot, path in enumerate(("/run/fuse/m/f", host.path("f"))):
        assert agent.do(f"open {slot} {path} rwc") == "ok" and agent.do(f"flock {slot} ex") == "ok"
    redis.signal(signal.SIGSTOP)
    wait_until(lambda: host.status()["frozen"] > 0, "it is frozen", 20)
    redis.signal(signal.SIGCONT)
    wait_until(lambda: host.status()["frozen"] == 0, "it goes on", 20)
    assert [agent.do(f"flock {slot} un") for slot in range(2)] == ["ok", "ok"]
    assert attempt(host, "/run/fuse/m/f", before=[*host.inside, *host.as_user(OTHER)]).word == "ok"


def test_ones_other_files(ground):
    """A mount on which files cannot be opened, and many programs that try: their user's other files are served once that is known."""
    host, mount, puppet = ground
    served(host, OTHER)
    dead, client = mount(), puppet(OTHER)
    fds = [client.open(f"{dead.path}/f{i}") for i in range(10)]
    dead.say(f"hold {OPEN}")
    numbers = [client.send(client.question, fd) for fd in fds]
    prepare(host, "again", OTHER)
    served(host, OTHER, 20)
    for _ in range(5):
        served(host, OTHER), served(host)
    assert [client.answer(number)[0] for number in numbers] == [REFUSED] * len(numbers)
    said = client.answer(client.send(client.question, fds[0]))
    assert said[0] == REFUSED and "does not answer" in said[1], said
    dead.say(f"let {OPEN}")
    wait_until(lambda: client.answer(client.send(client.question, fds[0]))[0] == GRANTED, "the mount is tried again", 30)
