"""What the shim concludes from the page and the configuration, and when it asks instead."""
import os
import re
import subprocess

import pytest

import fake_keeper as fk
from harness.host import ROOT
from world import not_with_musl, wait_until_old

needs_root = pytest.mark.root("needs other users or mounts, and so root")


def lock(world, *args):
    done = world.run(*(args or ("waits", "restart", "x", world.lock)))
    return next(line[7:] for line in done.stdout.splitlines() if line.startswith("flock: ")), done.stderr


def test_a_page_that_says_no_is_believed(world):
    with world.keeper(rules=[(fk.PATH, "/another")]) as keeper:
        assert lock(world) == ("0 -", "") and keeper.requests == 0
    # Without a keeper, too.
    assert lock(world) == ("0 -", "")


@pytest.mark.parametrize("change, size", [
    (dict(with_page=False), None), (dict(state=fk.EMPTY), None), (dict(seq=3), None), (dict(root=os.stat("/dev/shm")), None),
    ({}, 4096), ({}, fk.PAGE_BYTES)
], ids=["no page", "empty", "being written", "another root", "being made", "without memory"])
def test_a_page_that_cannot_say_it(world, change, size):
    """One that is being made is not mapped, nor one that an earlier keeper made without memory for all of it: to read there may be SIGBUS."""
    with world.keeper(rules=[], **change) as keeper:
        if size:
            os.truncate(world.runtime / "page", 4096)
            os.truncate(world.runtime / "page", size)
        assert lock(world) == ("0 -", "") and keeper.requests == 1


OLD = os.path.join(ROOT, "LICENSE")  # a file that was not changed within the last seconds
OTHER = (1, 2, 3, 4, 5)


def asks(world, config=None, **page):
    """Does a program ask, whose page says that its file is not protected?"""
    with world.keeper(rules=[(fk.PATH, "/another")], **page) as keeper:
        done = world.run("waits", "restart", "x", world.lock,
                              env=world.environment(DFLOCK_CONFIG=str(config or world.config)))
        assert "flock: 0 -" in done.stdout and done.stderr == ""
        return keeper.requests > 0


def test_a_page_of_another_configuration_is_not_believed(world):
    assert asks(world, ids=(OTHER, OTHER), path="/another.conf")


@pytest.mark.parametrize("change", [
    lambda path: path.write_text("changed"), lambda path: path.write_text(""), lambda path: path.chmod(0), os.unlink,
    lambda path: (path.unlink(), path.write_text("another file")), lambda path: (path.unlink(), path.mkdir()),
], ids=["changed", "emptied", "mode", "removed", "replaced", "a directory"])
def test_the_rules_of_its_file_are_in_force_whatever_it_says(world, change):
    with world.keeper(rules=[(fk.PATH, "/another")]) as keeper:
        change(world.config)
        assert lock(world) == ("0 -", "") and keeper.requests == 0


def test_a_file_that_no_keeper_has_looked_at_since_it_was_changed(world):
    """The change is older than a keeper's looks are apart: none runs, or it sees another file."""
    assert asks(world, OLD, ids=(OTHER, OTHER), path=OLD)
    assert not asks(world, OLD, ids=(fk.config_id(OLD), OTHER), path=OLD)
    assert not asks(world, OLD, ids=(fk.NONE, fk.config_id(OLD)), path=OLD)


@not_with_musl("the second preload is glibc's")
def test_new_rules_where_clocks_stand_still(world, lockers):
    with world.keeper(rules=[(fk.PATH, "/another")]) as keeper:
        one = lockers(**world.standing_clock())
        wait_until_old(world.lock)
        for _ in range(3):
            assert one.do("flock 0 ex") == "ok"
        assert keeper.requests == 0
        world.order(rules=[], changed=True)
        fk.write_page(world.runtime, world.config, [(fk.PATH, str(world.lock))])
        wait_until_old(world.config)  # the kernel's clock has gone on
        assert one.do("flock 0 ex") == "ok" and keeper.requests == 1


def test_a_page_that_has_the_file_under_another_path(world):
    """By a link, by the link of a directory, and by another name of the same state."""
    link, folder = world.folder / "link.conf", world.folder / "folder"
    link.symlink_to(world.config)
    folder.symlink_to(world.folder)
    for path in (link, folder / world.config.name):
        assert not asks(world, path, ids=(OTHER, OTHER), path=world.config)
        assert not asks(world, ids=(OTHER, OTHER), path=path)
    assert not asks(world, ids=(fk.config_id(world.config), OTHER), path="/another.conf")
    assert asks(world, link, ids=(OTHER, OTHER), path=world.folder / "another.conf")
    world.config.unlink()
    assert not asks(world, folder / world.config.name, ids=(OTHER, fk.NONE), path=world.config)


def test_a_file_that_is_missing_and_no_rules_are_known(world):
    for page in (dict(state=fk.EMPTY), dict(path="/another.conf", ids=(OTHER, fk.NONE))):
        page.setdefault("ids", (OTHER, OTHER))
        with world.keeper(rules=[], **page) as keeper:
            world.config.unlink(missing_ok=True)
            result, said = lock(world)
            assert (result, keeper.requests) == ("-1 ENOLCK", 0) and "configuration cannot be read" in said


@needs_root
def test_a_page_on_which_something_is_mounted(world):
    """A user may mount a file system whose server says whose its files are, and how large."""
    mount = 'mount --bind "$0" "$1" && shift && exec "$@"'
    with world.keeper() as keeper:
        done = world.run("waits", "restart", "x", world.lock,
                         wrap=["unshare", "--mount", "sh", "-c", mount, OLD, world.runtime / "page"])
        assert "flock: -1 ENOLCK" in done.stdout and "something is mounted there" in done.stderr and keeper.requests == 0


def test_an_invalid_configuration(world):
    with world.keeper(state=fk.INVALID, message="dflock.conf:7: 'ttl' is no setting") as keeper:
        result, said = lock(world)
        assert (result, keeper.requests) == ("-1 ENOLCK", 0) and "dflock.conf:7: 'ttl' is no setting" in said


@pytest.mark.parametrize("spoil, line", [
    (lambda world: os.chmod(world.runtime / "page", 0o666), "others can write it"),
    pytest.param(lambda world: os.chown(world.runtime / "page", 12345, -1), "neither to you nor to root", marks=needs_root),
    (lambda world: os.chmod(world.runtime, 0o777), "can be written by others"),
    pytest.param(lambda world: os.chown(world.runtime, 12345, -1), "belongs to uid 12345", marks=needs_root),
    (lambda world: os.rename(world.runtime / "page", world.runtime / "x") or
     os.symlink("x", world.runtime / "page"), "symbolic link"),
], ids=["page mode", "page owner", "directory mode", "directory owner", "link"])
def test_what_is_not_to_be_trusted_is_refused(world, spoil, line):
    with world.keeper() as keeper:
        spoil(world)
        result, said = lock(world)
        assert (result, keeper.requests) == ("-1 ENOLCK", 0) and line in said and said.count("\n") == 1


@needs_root
@pytest.mark.parametrize("mapped, become", [(True, "setresuid(user, user, 0)"), (False, "seteuid(user)")], ids=["wholly", "effectively"])
def test_another_users_page_is_forgotten_with_that_user(world, mapped, become):
    """
    A process that is another user for a while, and then root again: that user may have made the page, too. Unless the user may
    kill the process, it does not map that page, which the user could make shorter at any time: that would be SIGBUS.
    """
    user = 12345
    for path in (world.folder, world.lock.parent):
        os.chmod(path, 0o755)
    world.lock.touch()
    wait_until_old(world.lock)
    program = ("import ctypes, fcntl, sys\nlibc = ctypes.CDLL(None)\nwith open(sys.argv[1]) as file:\n"
               f"    for user in (12345, 12345, 0):\n        libc.{become}\n"
               "        try:\n            print(fcntl.flock(file, fcntl.LOCK_EX))\n"
               "        except OSError as e:\n            print(e.errno == 37)\n")
    with world.keeper(rules=[]) as keeper:
        os.chown(world.runtime, user, -1)
        os.chown(world.runtime / "page", user, -1)
        os.chown(world.runtime / "keeper.sock", user, -1)
        done = subprocess.run(["/usr/bin/python3", "-c", program, world.lock], env=world.environment(), capture_output=True, text=True)
        os.chown(world.runtime, 0, -1)
    assert done.stdout == "None\nNone\nTrue\n" and "belongs to uid 12345" in done.stderr
    assert (keeper.requests == 0) == mapped


def check_named(world, agent, how, other):
    """Locked under the name `other`, and at once under the protected name, which it has before (linked) or then."""
    give = [f"{'link' if how == 'linked' else how} {other} {world.lock}"]
    commands = [f"open 0 {other} rwc", *(give if how == "linked" else []), "flock 0 ex", "flock 0 ex", *(give if how != "linked" else []),
                *(["close 0", f"open 0 {world.lock} rw"] if how != "rename" else []), "flock 0 ex"]
    with world.keeper() as keeper:
        agent.say("\n".join(commands))
        assert [agent.heard()[0] for _ in commands] == ["ok"] * len(commands) and keeper.requests == 1


@pytest.mark.parametrize("how", ["rename", "link", "linked"])
def test_a_file_that_gets_a_protected_name(world, lockers, how):
    check_named(world, lockers(path="/dev/null", flags="rw"), how, world.lock.parent / "other")


@needs_root
def test_a_file_of_a_server_that_gets_a_protected_name(world, lockers):
    """Its change time is the server's, and the kernel goes by the last one that it has heard of."""
    view = world.folder / "view"
    view.mkdir()
    subprocess.run(["bindfs", world.lock.parent, view], check=True)
    try:
        world.lock = view / "the.lock"
        (view / "other").touch()
        wait_until_old(view / "other")
        agent = lockers(path="/dev/null", flags="rw")
        check_named(world, agent, "rename", view / "other")
        agent.kill()
    finally:
        subprocess.run(["umount", view], check=True)


@needs_root
@pytest.mark.skipif(tuple(map(int, os.uname().release.split(".")[:2])) < (6, 8), reason="before, the number of a mount comes again at once")
def test_a_folder_that_is_mounted_in_another_place(world, lockers):
    """The second mount gets the number that the first one had in mountinfo."""
    agent, source, places = lockers(path="/dev/null", flags="rw"), world.folder / "source", [world.folder / "other", world.lock.parent]

    def flocks(place):
        subprocess.run(["mount", "--bind", source, place], check=True)
        try:
            for command in f"open 0 {place / world.lock.name} rw", "flock 0 ex", "flock 0 ex", "close 0":
                assert agent.do(command) == "ok"
        finally:
            subprocess.run(["umount", place], check=True)

    for folder in source, places[0]:
        folder.mkdir()
    (source / world.lock.name).touch()
    wait_until_old(source / world.lock.name)
    with world.keeper() as keeper:
        for place in places:
            assert keeper.requests == 0
            flocks(place)
        assert keeper.requests == 2


def test_a_file_that_is_called_deleted(world):
    name = world.lock.parent / "x (deleted)"
    with world.keeper(rules=[(fk.PATH, str(name)), (fk.PATH, str(name)[:-10])]) as keeper:
        assert lock(world, "waits", "restart", "x", name) == ("0 -", "") and keeper.requests == 1
    with world.keeper(rules=[(fk.PATH, str(name)[:-10])]) as keeper:
        assert lock(world, "waits", "restart", "x", name) == ("0 -", "") and keeper.requests == 0


def test_debug_lines(world):
    def handler(connection):
        request = connection.receive()
        connection.send(fk.WAITING)
        connection.grant(request)

    with world.keeper(handler):
        done = world.run("waits", "restart", "x", world.lock, env=world.environment(DFLOCK_LOG="debug"))
    assert re.search(rf"^dflock: debug: pid \d+: {re.escape(str(world.lock))}: waiting for another host$", done.stderr, re.M)
