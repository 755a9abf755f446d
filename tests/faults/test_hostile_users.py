"""
Users of a system keeper who make up what they send: each gets what the kernel would give it, and an answer or the end of its
connection; the shares of users (quota.c, room.c); and what a user cannot end, or learn, by way of the keeper.
"""
import json
import os
import signal
import subprocess

import pytest
from common import attempt
from fronted import (GRANTED, HOSTILE, OTHER, REFUSED, Puppet, agent_of, ground, prepare, served, turns)  # noqa: F401
from harness import wait_until
from harness.host import CLI
from harness.processes import children, state
from harness.system import SYSTEM_DIR

pytestmark = pytest.mark.root("needs root, for users and mounts")

OK = 7
STATUS, RELOAD, STOP, INIT, PING, BEFORE, FIT, HELD, WHO, BREAK, END_REST, GIVE_UP, LOG_LEVEL, METRICS = range(3, 17)


def names(host):
    return {lease["name"] for lease in host.status()["leases"]}


# --- what the kernel lets them lock ---


def test_a_file_that_may_only_be_read(ground):
    """flock() takes any descriptor, and a lock of bytes takes one that is open for it: so does the keeper, and others may read. A descriptor from a
    time when the user could open the file gets no lease: the kernel's lock is all that it has."""
    host, _, puppet = ground
    hostile = puppet()
    for space, mode, verdict in [(1, 1, REFUSED), (0, 1, GRANTED), (0, 0, GRANTED), (1, 0, GRANTED)]:
        path = host.path(f"f{space}{mode}")
        with open(path, "w"):
            os.chmod(path, 0o644)
        fd = hostile.do(f"keep(os.open({path!r}, os.O_RDONLY))")
        said = hostile.answer(hostile.send(f"question({host.config!r}, space={space}, mode={mode}, owner={space})", fd))
        assert said[0] == verdict, said
        if verdict == REFUSED:
            assert "not open for writing" in said[1] and not names(host)
    before = names(host)
    path = prepare(host, "f", HOSTILE)
    fd = hostile.open(path)
    os.chown(path, 0, 0)
    os.chmod(path, 0o600)
    said = hostile.answer(hostile.send(hostile.question, fd))
    assert said[0] == REFUSED and "cannot open it again: Permission denied" in said[1], said
    assert names(host) <= before
    served(host, name="f")


# --- paths of their own ---

FAKES = {
    "tmpfs": "mount -t tmpfs x {files} && touch {files}/f",
    "bind": "mkdir /tmp/{mark} && touch /tmp/{mark}/f && mount --bind /tmp/{mark} {files} && rmdir /tmp/{mark} 2>/dev/null; true",
    "overlay": "mkdir -p /tmp/{mark}/u /tmp/{mark}/w && mount -t tmpfs x /tmp/{mark} && mkdir /tmp/{mark}/u /tmp/{mark}/w && "
               "mount -t overlay -o userxattr,lowerdir={files},upperdir=/tmp/{mark}/u,workdir=/tmp/{mark}/w x {files} && touch {files}/f",
    "file": "mount -t tmpfs x /tmp && touch /tmp/f && mount --bind /tmp/f {files}/f",
    "fuse": "mount -t tmpfs x {files} && touch {files}/f",
}


def test_a_protected_path_in_a_namespace_of_ones_own(ground, folder):
    """Its file is not the lock's, so no lease is taken for it, also when it was deleted; and others lock the real one meanwhile. The control: the
    user is the one that it is outside, whatever it is called inside."""
    host, mount, puppet = ground
    mount()
    inside = ["unshare", "--user", "--map-root-user", "--mount"]
    prepare(host, "f", HOSTILE)
    for how, script in FAKES.items():
        mark = f"{os.path.basename(folder)}-{how}"
        files = "/run/fuse/m" if how == "fuse" else host.files
        hostile = puppet(inside=inside)
        try:
            script = script.format(files=files, mark=mark)
            assert hostile.do(f"__import__('subprocess').call({script!r}, shell=True)") == 0, how
            fd = hostile.do(f"keep(os.open({files + '/f'!r}, os.O_RDWR))")
            for deleted in (False, True) if how != "file" else (False, ):
                if deleted:
                    hostile.do(f"os.unlink({files + '/f'!r})")
                said = hostile.answer(hostile.send(hostile.question, fd))
                assert said[0] == REFUSED and "another file" in said[1], (how, deleted, said)
            assert not names(host)
            assert attempt(host, "f", before=host.inside).word == "ok"
            wait_until(lambda: not names(host), "it goes back")
        finally:
            subprocess.run(["rm", "-rf", "--one-file-system", "/tmp/" + mark], check=False)
    real = puppet(inside=inside)
    assert real.do("os.getuid()") == 0
    assert real.answer(real.send(real.question, real.open(host.path("f"))))[0] == GRANTED
    for op in (RELOAD, STOP, INIT):
        said = real.answer(real.send(f"question({host.config!r}, op={op})"))
        assert said[0] == REFUSED and "only root" in said[1], said


# --- messages ---


def test_shapes_of_messages(ground):
    """Half a message, a byte at a time, more than any, 253 descriptors: the connection ends, and nothing stays open. Every question, with and
    without a descriptor, whose peer is gone before its answer. A peer that does not read."""
    host, _, puppet = ground
    served(host), served(host, OTHER)
    hostile = puppet()
    fd = hostile.open(prepare(host, "f", HOSTILE))
    before = host.keeper_pids()
    for data in ("b'x'", f"{hostile.question}[:44]", f"{hostile.question} + bytes(60000)", "bytes(88)"):
        for count in (0, 1, 2, 253):
            assert hostile.answer(hostile.send(data, *[fd] * count)) is None, (data, count)
    for count in (0, 2, 253):
        assert hostile.answer(hostile.send(hostile.question, *[fd] * count)) is None, count
    slow = hostile.connect()
    hostile.do(f"send({slow}, {hostile.question}[:1])")
    assert hostile.answer(slow) is None
    served(host), served(host, OTHER), turns(host)
    assert hostile.answer(hostile.send(hostile.question, fd))[0] == GRANTED
    for op in range(0, 17):
        for passed in ([], [fd]):
            for text in ("b''", "b't/f'"):
                number = hostile.send(f"question({host.config!r}, op={op}, text={text})", *passed)
                hostile.do(f"hang_up({number})")
    served(host), served(host, OTHER), turns(host)
    wait_until(lambda: hostile.answer(hostile.send(hostile.question, fd))[0] == GRANTED, "it is served again", 20)
    ping = f"question({host.config!r}, op={PING})"
    number = hostile.connect()
    hostile.do(f"connections[{number}].setblocking(False)")
    hostile.do(f"(lambda q: [send({number}, q) for _ in range(8)])({ping}) and 0")
    for _ in range(20):
        hostile.do(f"send({number}, {ping}) if __import__('select').select([], [connections[{number}]], [], 0)[1] else 0")
    served(host), served(host, OTHER), turns(host)
    hostile.do(f"connections[{number}].setblocking(True)")
    assert hostile.answer(number)[0] == OK
    assert host.keeper_pids() == before


def test_who_asks(ground):
    """It is the process that connected: what a message says does not count, also where the kernel lets it pass (root). If that has ended, and
    another one has the connection, it counts until that is gone, too."""
    host, _, puppet = ground
    hostile, root, other = puppet(), puppet(0), puppet(OTHER)
    stop = f"question({host.config!r}, op={STOP})"
    number = hostile.connect()
    assert hostile.do(f"send_as({number}, {stop}, 0)") == "refused by the kernel"
    hostile.do(f"send_as({number}, {stop}, {HOSTILE})")
    assert "only root" in hostile.answer(number)[1]
    prepare(host, "r", 0)
    os.chmod(host.path("r"), 0o600)
    fd, number = root.open(host.path("r")), root.connect()
    root.do(f"send_as({number}, {root.question}, {HOSTILE}, {fd})")
    assert root.answer(number)[0] == GRANTED
    fd, number = hostile.open(prepare(host, "f", HOSTILE)), hostile.connect()
    child = hostile.do("(lambda pid: pid if pid else __import__('time').sleep(1000))(os.fork())")
    hostile.do(f"send({number}, {hostile.question}, {fd})")
    assert hostile.answer(number)[0] == GRANTED
    hostile.do(f"hang_up({number})")
    os.chmod(host.path("f"), 0o666)
    assert other.answer(other.send(other.question, other.open(host.path("f"))))[0] == GRANTED
    os.kill(child, signal.SIGKILL)
    served(host), served(host, HOSTILE)


# --- shares ---


def test_questions_that_the_store_answers(ground, redis):
    """It does not, so each question stays under way: some of a user's are, and the next is refused with a line. Others ask."""
    host, _, puppet = ground
    served(host)
    hostile, other = puppet(), puppet(OTHER)
    status = f"question({host.config!r}, op={STATUS})"

    def who(name):
        return f"question({host.config!r}, op={WHO}, text=b't/{name}')"

    redis.signal(signal.SIGSTOP)
    try:
        numbers = [hostile.send(status) for _ in range(5)]
        said = [hostile.answer(number) for number in numbers[2:]]
        assert all(s[0] == REFUSED and "has asked for the status 2 times and has no answer so far" in s[1] for s in said), said
        hostile.do(f"[hang_up(n) for n in {numbers}] and 0")
        said = hostile.answer(hostile.send(status))
        assert said[0] == REFUSED and "2 times" in said[1], "what was asked for and left counts as well"
        numbers = [hostile.send(who(f"f{i}")) for i in range(60)]
        said = [hostile.answer(number) for number in numbers[8:]]
        assert all(s[0] == REFUSED and "this user asks too often at once" in s[1] for s in said), said
        theirs = other.send(status), other.send(who("f"))
    finally:
        redis.signal(signal.SIGCONT)
    assert [other.answer(number)[0] for number in theirs] == [OK, OK]
    assert other.answer(other.send(status))[0] == OK
    assert [hostile.answer(number)[0] for number in numbers[:8]] == [OK] * 8
    for question in status, who("f"):
        wait_until(lambda: hostile.answer(hostile.send(question))[0] == OK, "it may ask again")
    turns(host)


LIMIT = (400 - 128) // 2  # connections of a keeper with 400 descriptors: keeper.c


@pytest.fixture
def small(make_system):
    """A system keeper with few descriptors, and clients of it."""
    host, puppets = make_system(limits=["prlimit", "--nofile=400"]), []

    def puppet(uid=HOSTILE):
        puppets.append(Puppet(host, uid))
        return puppets[-1]
    yield host, puppet
    for each in puppets:
        each.kill()
        each.end()


def told(client, number):
    """What the keeper says without being asked, if anything."""
    client.do(f"connections[{number}].settimeout(0.3)")
    said = client.answer(number)
    client.do(f"connections[{number}].settimeout(30)")
    return said


def test_connections(small):
    """One user has a quarter of them, all together seven eighths; each that is turned away is told, and root is served."""
    host, puppet = small
    client = puppet()
    numbers = [client.connect() for _ in range(LIMIT // 4 + 3)]
    assert ["a quarter of what the keeper can serve" in client.answer(n)[1] for n in numbers[LIMIT // 4:]] == [True] * 3
    assert told(client, numbers[LIMIT // 4 - 1]) == "nothing"
    served(host), served(host, OTHER)
    turned_away = 0
    for i in range(1, 5):
        more = puppet(HOSTILE + 1000 + i)
        numbers = [more.connect() for _ in range(LIMIT // 4)]
        if told(more, numbers[-1]) != "nothing":
            turned_away += 1
    assert turned_away
    for _ in range(3):
        served(host), turns(host)
    client.do("[c.close() for c in connections] and 0")
    wait_until(lambda: attempt(host, os.path.basename(prepare(host, "again", OTHER)), before=[*host.inside, *host.as_user(OTHER)]).word == "ok",
               "there is room for users again")


def test_answers_that_are_not_read(make_system):
    """
    Without CAP_SYS_RESOURCE the kernel lets a keeper have only so many descriptors under way to programs and fronts. A user who
    keeps an answer with one has its connection, too, also after ending that for writing.
    """
    host = make_system(limits=["prlimit", "--nofile=400", "setpriv", "--bounding-set=-sys_resource,-sys_admin"])
    client = Puppet(host)
    metrics = f"question({host.config!r}, op={METRICS})"
    try:
        served(host, OTHER)
        for _ in range(16):
            client.do(f"leave_unread({SYSTEM_DIR!r}, {metrics}, {LIMIT // 4})")
        served(host, OTHER)
        client.do("[c.close() for c in connections] and 0")
        wait_until(lambda: client.answer(client.send(metrics))[0] == OK, "it has its connections again")
    finally:
        client.kill()
        client.end()


# --- what they cannot end, and what they are told ---

HOLD = "echo got $$; exec sleep 1000"


def job(host, uid, name, script=HOLD):
    """A process that has the lock: flock(1), and what it has started."""
    process = host.popen(*host.as_user(uid, "flock", "-s", host.path(name), "sh", "-c", script), start_new_session=True)
    return process, int(process.stdout.readline().split()[1])


def dflock_break(host, uid, *words):
    return host.cli("break", "--yes", *words, before=host.as_user(uid), check=False)


def took_away(done):
    """On a busy machine it may say so before it is done."""
    return done.returncode == 0 or "is not done in time, and may still do it" in done.stderr


def runs(pid):
    return state(pid) not in ("Z", "X", "gone")


def test_another_users_lock(ground):
    """A user may end what is its own, and nothing else: not what another one holds, also under the same lease; nor a lease that stays for a moment
    after a lock. Root may."""
    host, _, _ = ground
    for name in "own", "other", "shared", "free":
        prepare(host, name, OTHER)
        os.chmod(host.path(name), 0o666)
    process, pid = job(host, OTHER, "own")
    done = dflock_break(host, OTHER, host.path("own"))
    assert took_away(done), done
    wait_until(lambda: not runs(pid), "it has ended")
    jobs = [process, *(job(host, uid, name)[0] for uid, name in ((OTHER, "other"), (OTHER, "shared"), (HOSTILE, "shared")))]
    for name in "other", "shared":
        done = dflock_break(host, HOSTILE, "t/" + name)
        assert done.returncode == 1 and "is not yours: only root or the keeper's user may do that" in done.stderr, done
    done = dflock_break(host, HOSTILE, "t/other")
    assert any(f"process {p} would have to end" in done.stderr for p in (jobs[1].pid, *children(jobs[1].pid))), done.stderr
    assert all(each.poll() is None for each in jobs[1:])
    assert all(took_away(dflock_break(host, 0, "t/" + name)) for name in ("other", "shared"))
    for each in jobs:
        each.communicate(timeout=40)
    job(host, OTHER, "free", "echo got $$")[0].communicate(timeout=20)
    done = dflock_break(host, HOSTILE, "t/free")
    assert done.returncode == 3 or "not yours" in done.stderr or "no process holds the lock now" in done.stdout, done
    assert "t/free (fence" not in host.log(), "at most it has gone back by itself"


def test_other_hosts_are_not_a_users(ground, make_host):
    host, b = ground[0], make_host("b", top="allow_break = true;")
    process = b.popen("flock", b.path("f"), "sh", "-c", HOLD)
    pid = int(process.stdout.readline().split()[1])
    for words, why in (["t/f"], "may take away what other hosts have"), (["--host", b.status()["host"]], "may do that"):
        done = dflock_break(host, HOSTILE, *words)
        assert done.returncode == 1 and "only root or the keeper's user " + why in done.stderr, done
    assert runs(pid)
    assert took_away(dflock_break(host, 0, "t/f"))
    wait_until(lambda: not runs(pid), "it has ended")
    process.communicate(timeout=20)


@pytest.mark.parametrize("how", ["passed", "mapped"])
def test_a_lock_that_another_users_process_gets_just_before_the_end(ground, folder, how):
    """
    `dflock break` of one's own lock, after the keeper has looked whose processes have it, and before its parent (which is stopped
    here for so long) ends them: the other user's process goes on.
    """
    host, _, puppet = ground
    served(host)
    name = os.path.basename(folder)
    hostile, victim = puppet(), puppet(OTHER)
    fd = hostile.open(prepare(host, "f", HOSTILE))
    os.truncate(host.path("f"), 4096)
    assert hostile.answer(hostile.send(hostile.question, fd))[0] == GRANTED
    hostile.do(f"__import__('fcntl').flock({fd}, 2)")
    if how == "mapped":
        hostile.do(f"map_only({fd})")
        victim.do(f"map_only(os.open({host.path('f')!r}, os.O_RDONLY))")
    listener = victim.do(f"listen({name!r})")
    parent = host.keeper_pids()[0]
    os.kill(parent, signal.SIGSTOP)
    try:
        breaking = subprocess.Popen([*host.inside, *host.as_user(HOSTILE, CLI, "break", "--yes", "t/f")], env=host.plain_env(), text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wait_until(lambda: [l for l in host.status()["leases"] if l["state"] == "ending"] or breaking.poll() is not None, "it is doomed")
        assert breaking.poll() is None, breaking.communicate()
        if how == "passed":
            victim.process.stdin.write(f"keep(take({listener}))\n")
            victim.process.stdin.flush()
            hostile.do(f"give({name!r}, {fd})")
            got = victim.process.stdout.readline()
            assert got.strip().isdigit(), got
        else:
            hostile.do(f"os.close({fd})")  # now only mappings keep the lock, and the victim has one
    finally:
        os.kill(parent, signal.SIGCONT)
    wait_until(lambda: hostile.process.poll() is not None, "the one that is the user's own has ended", 20)
    breaking.communicate(timeout=30)
    wait_until(lambda: "t/f" not in names(host), "the lease is gone", 20)
    assert runs(victim.process.pid) and victim.do("1 + 1") == 2
    turns(host)


def test_what_a_user_puts_in_the_place_of_a_lock_without_a_file(ground):
    """`dflock lock` of root ends with a line: a FIFO must not make it wait for ever."""
    host, _, puppet = ground
    served(host)
    hostile = puppet()
    for made in "mkfifo {}", "mkdir {}", "ln -s /etc/passwd {}":
        path = "/run/dflock/names/" + made.split()[0]
        assert hostile.do(f"__import__('subprocess').call({made.format(path)!r}, shell=True)") == 0
        done = host.cli("lock", "-n", made.split()[0], "echo", "ran", check=False)
        assert done.stdout == "" and done.returncode == 123 and path in done.stderr, done
        assert "ln" in made or f"uid {HOSTILE} has made it; remove it" in done.stderr
    assert host.cli("lock", "-n", "another", "echo", "ran").stdout == "ran\n"


def test_a_user_that_connects_all_the_time(ground):
    """Connections that end at once, as fast as four processes can: others have their turn in the queue of the socket."""
    host, _, puppet = ground
    served(host), served(host, OTHER)
    hostile = puppet()
    storms = [hostile.do("(lambda pid: pid if pid else storm('/run/dflock'))(os.fork())") for _ in range(4)]
    try:
        for _ in range(3):
            served(host, seconds=20), served(host, OTHER, seconds=20), turns(host)
    finally:
        for pid in storms:
            os.kill(pid, signal.SIGKILL)
    served(host, HOSTILE, seconds=20)


def test_what_the_status_tells(ground):
    """Names, processes and commands are what `ps` shows everybody; the token of a lease is root's."""
    host, _, _ = ground
    agent = agent_of(host, OTHER)  # it has the lock meanwhile: an unused lease goes back
    assert agent.do(f"open 0 {prepare(host, 'f', OTHER)} rw") == "ok" and agent.do("flock 0 ex") == "ok"

    def tokens(uid):
        said = json.loads(host.cli("status", "--json", before=host.as_user(uid)).stdout)
        return [lease["token"] for lease in said["leases"] if lease["name"] == "t/f"]
    assert len(tokens(0)) == 1 and tokens(0)[0]
    assert tokens(HOSTILE) == [""]
