"""
A front looks at other users' files, but the keeper of a whole system still has to know: which configuration the program goes by,
what its process holds, and what becomes of a file whose front has ended.
"""
import os
import shutil
import signal
import time

import pytest
from common import attempt, kill_keeper
from fronted import (GRANTED, HOSTILE, OTHER, REFUSED, agent_of, fronts, ground, open_in, prepare,  # noqa: F401
                     served)
from harness import wait_until

pytestmark = pytest.mark.root("needs root, for users and mounts")

YOUNG_S = 10  # wire/msg.h


@pytest.fixture
def elsewhere(make_host):
    """A host that has the files of the mount under the same names."""
    return make_host("b", rules='{ tree = "%s"; name = "fuse/m"; }')


def test_a_state_of_the_configuration_that_no_keeper_has_looked_at(ground, elsewhere):
    """The question waits for a look, and so does the front that has the file: it keeps it, so that another host gets the lock."""
    host, mount, puppet = ground
    mount()
    served(host, OTHER)
    client = puppet(OTHER)
    files = [(away, i, client.open(f"/run/fuse/m/f{i}" if away else prepare(host, f"f{i}", OTHER))) for away in (False, True) for i in range(4)]
    keeper, other = host.keeper_pids()[1], elsewhere.agent()
    copies = [shutil.copy(host.config, f"{host.config}.{i}") for i in range(len(files))]
    wait_until(lambda: time.time() - os.stat(copies[-1]).st_ctime > YOUNG_S, "they are so old that the keeper should know them", 30)
    for (away, i, fd), copy in zip(files, copies):
        client.do(f"__import__('fcntl').flock({fd}, 2)")
        os.symlink(copy, host.config + ".new")
        os.rename(host.config + ".new", host.config)
        number = client.send(client.question, fd)
        assert client.answer(number)[0] == GRANTED
        client.do(f"hang_up({number})")
        if not away:
            continue
        assert other.do(f"open 0 {elsewhere.path('f%d' % i)} rwc") == "ok"
        other.say("flock 0 ex")
        assert other.silent()
        assert open_in(keeper, "/run/fuse") == 0
        client.do(f"__import__('fcntl').flock({fd}, 8)")
        assert other.heard()[0] == "ok" and other.do("flock 0 un") == "ok"


def test_another_configuration(ground, folder):
    """It is refused as from any user, and the fronts that looked at its files are free again."""
    host, mount, puppet = ground
    mount()
    served(host, HOSTILE)
    own = shutil.copy(host.config, os.path.join(folder, "own.conf"))
    client = puppet()
    for path in prepare(host, "f", HOSTILE), "/run/fuse/m/f":
        fd = client.open(path)
        numbers = [client.send(f"question({own!r})", fd) for _ in range(10)]
        for number in numbers[::2]:
            client.do(f"hang_up({number})")
        for number in numbers[1::2]:
            verdict, reason = client.answer(number)
            assert verdict == REFUSED and "goes by another configuration" in reason, reason
        served(host, HOSTILE)
        assert client.answer(client.send(client.question, fd))[0] == GRANTED
        client.do(f"hang_up({numbers[1]})")
    wait_until(lambda: len(fronts(host)) <= 3, "fronts that nobody needs have ended", 30)


def test_what_a_process_holds(ground):
    """Its POSIX locks: the program must undo nothing that it had before, however many descriptors it has."""
    host, mount, puppet = ground
    mount()
    served(host, OTHER)
    for descriptors in 0, 5000:
        client = puppet(OTHER)
        for path in f"/run/fuse/m/f{descriptors}", prepare(host, f"f{descriptors}", OTHER):
            fd = client.open(path)
            client.do(f"[keep(os.dup({fd})) for _ in range({descriptors})] and 0")
            client.do(f"__import__('fcntl').lockf({fd}, 2, 10, 100)")
            number = client.send(f"question({host.config!r}, space=1, owner=1)", fd)
            assert client.do(f"granted({number})") == (GRANTED, (1, 100, 110))


def test_made_without_a_name(ground):
    """The front's answer says so: no rule names such a file; one that was given a name later is refused, as its path is not that."""
    host, mount, puppet = ground
    served(host, OTHER)
    client = puppet(OTHER)
    place_of_it = os.path.join(host.files, "theirs")
    os.mkdir(place_of_it)
    os.chown(place_of_it, OTHER, OTHER)
    fd = client.do(f"keep(os.open({place_of_it!r}, os.O_TMPFILE | os.O_RDWR))")
    verdict, _ = client.answer(client.send(client.question, fd))
    assert verdict not in (GRANTED, REFUSED)
    link = f"linkat(-100, b'/proc/self/fd/{fd}', -100, {os.fsencode(place_of_it + '/named')!r}, 0x400)"
    assert client.do(f"__import__('ctypes').CDLL(None).{link}") == 0
    assert client.answer(client.send(client.question, fd))[0] == REFUSED
    served(host, OTHER)


def test_the_fronts_that_keep_files_are_killed(ground, elsewhere):
    """Their files have no description then, and are opened anew as after a restart: the lock goes on to the host that waits."""
    host, mount, _ = ground
    mount()
    one, other = agent_of(host, OTHER), elsewhere.agent()
    assert one.do("open 0 /run/fuse/m/f rwc") == "ok" and other.do(f"open 0 {elsewhere.path('f')} rwc") == "ok"
    for waits_already in (False, True):
        assert one.do("flock 0 ex") == "ok"
        if waits_already:
            other.say("flock 0 ex")
            assert other.silent()
        before = fronts(host)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not set(before) & set(fronts(host)), "they have ended")
        if not waits_already:
            other.say("flock 0 ex")
            assert other.silent()
        assert one.do("flock 0 un") == "ok" and other.heard()[0] == "ok"
        assert other.do("flock 0 un") == "ok"


def test_taken_up_from_the_table(ground, elsewhere):
    """The next keeper has no description, and gets one of a front, or opens the path: the lock goes to and fro as before."""
    host, mount, _ = ground
    mount()
    one, two, other = agent_of(host, OTHER), agent_of(host, OTHER), elsewhere.agent()
    for agent in (one, two):
        assert agent.do("open 0 /run/fuse/m/f rwc") == "ok"
    assert other.do(f"open 0 {elsewhere.path('f')} rwc") == "ok"
    assert one.do("flock 0 sh") == "ok"
    kill_keeper(host, 10)
    assert two.do("flock 0 sh") == "ok"
    other.say("flock 0 ex")
    assert other.silent()
    for agent in (one, two):
        assert agent.do("flock 0 un") == "ok"
    assert other.heard()[0] == "ok" and other.do("flock 0 un") == "ok"
    assert attempt(host, "/run/fuse/m/f", before=[*host.inside, *host.as_user(OTHER)]).word == "ok"
