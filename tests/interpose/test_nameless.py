"""Files that no rule can name, and programs that have left the root directory: their calls are the kernel's alone."""
import os
import shutil
import subprocess

import pytest

import fake_keeper as fk

needs_root = pytest.mark.root("chroot() needs root")
ALL = ["ok"] * 5


# All kinds of calls on a file that has no name, or none that this process could know: KIND FOLDER
PROGRAM = """
import errno, fcntl, os, sys
kind, folder = sys.argv[1:]
def named():
    return os.open(folder + "/file", os.O_RDWR | os.O_CREAT)
def deep():  # under a path longer than PATH_MAX
    fd = os.open(folder, os.O_DIRECTORY)
    for _ in range(17):
        os.mkdir("n" * 255, dir_fd=fd)
        fd = os.open("n" * 255, os.O_DIRECTORY, dir_fd=fd)
    return os.open("file", os.O_RDWR | os.O_CREAT, dir_fd=fd)
def tmpfile():
    return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
def linked():
    fd = tmpfile()
    os.link("proc/self/fd/%d" % fd, folder + "/named", src_dir_fd=os.open("/", 0), follow_symlinks=True)  # without it Python calls link()
    return fd
def then(fd, *actions):
    for action, *arguments in actions:
        action(*arguments)
    return fd
def late():  # the first lock was before it
    fd = named()
    return then(fd, (fcntl.flock, fd, fcntl.LOCK_EX), (fcntl.flock, fd, fcntl.LOCK_UN), (os.chroot, folder))
def chroot():
    os.chroot(folder)
    return os.open("/file", os.O_RDWR | os.O_CREAT)
kinds = {"deep": deep, "tmpfile": tmpfile, "linked": linked, "late": late, "chroot": chroot,
         "reopened": lambda: os.open("/proc/self/fd/%d" % tmpfile(), os.O_RDWR), "deleted": lambda: then(named(), (os.unlink, folder + "/file")),
         "another-link": lambda: then(named(), (os.link, folder + "/file", folder + "/../other"), (os.unlink, folder + "/file")),
         "before": lambda: then(named(), (os.chroot, folder)), "outside": lambda: then(named(), (os.chroot, folder + "/../jail"))}
fd = kinds[kind]()
for how in (lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda: fcntl.flock(fd, fcntl.LOCK_EX), lambda: fcntl.flock(fd, fcntl.LOCK_UN),
            lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10), lambda: fcntl.fcntl(fd, fcntl.F_GETLK, bytes(32))):
    try:
        how()
        print("ok")
    except OSError as e:
        print(errno.errorcode[e.errno])
"""


def run(world, kind, folder=None, wrap=()):
    done = subprocess.run([*wrap, "/usr/bin/python3", "-c", PROGRAM, kind, folder or world.lock.parent], env=world.environment(), capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done
    return done.stdout.splitlines(), done.stderr


def tree(world):
    return [(fk.TREE, str(world.lock.parent))]


@pytest.mark.parametrize("kind", ["deep", "tmpfile", "reopened"])
@pytest.mark.parametrize("with_page", [True, False])
def test_no_keeper_is_asked(world, kind, with_page):
    with world.keeper(fk.refuse_all, tree(world), with_page=with_page) as keeper:
        assert run(world, kind) == (ALL, "")
        assert keeper.requests == 0
    shutil.rmtree(world.lock.parent)


@pytest.mark.parametrize("kind, rule", [("deleted", (fk.PATH, "/file")), ("another-link", (fk.PATH, "/file")), ("linked", (fk.TREE, ""))])
def test_these_had_or_have_a_name(world, kind, rule):
    """A lock file that was deleted stays what it was, also if another link is left; the keeper refuses one whose name it cannot see."""
    with world.keeper(fk.refuse_all, [(rule[0], f"{world.lock.parent}{rule[1]}")]) as keeper:
        out, err = run(world, kind)
        assert out[0] == "ENOLCK" and "so it is" in err and keeper.requests > 0


@needs_root
@pytest.mark.parametrize("kind", ["chroot", "before", "late"])
@pytest.mark.parametrize("rule", ["/another", "{folder}/dat", "{folder}/data2"])
def test_unprotected_after_chroot(world, kind, rule):
    """Nothing of the configuration, /proc or the keeper is there."""
    rule = rule.format(folder=world.folder)
    with world.keeper(fk.refuse_all, [(fk.PATH, rule), (fk.TREE, rule), (fk.GLOB, rule + "/*")]) as keeper:
        out, err = run(world, kind)
        assert (out[-len(ALL):], err, keeper.requests) == (ALL, "", 0)


@needs_root
@pytest.mark.parametrize("kind", ["chroot", "before"])
@pytest.mark.parametrize("rule", [(fk.PATH, "{folder}/data/file"), (fk.GLOB, "{folder}/data/f*"), (fk.GLOB, "{folder}/*/file"),
                                  (fk.TREE, "{folder}/data"), (fk.TREE, "{folder}")], ids=str)
def test_protected_after_chroot(world, kind, rule):
    """It is never taken without a lease."""
    with world.keeper(fk.refuse_all, [(rule[0], rule[1].format(folder=world.folder))]):
        out, err = run(world, kind)
    assert out[0] == "ENOLCK" and "after chroot() the configuration cannot be read" in err
    assert ("it is protected" in err) == (kind == "before")


@needs_root
def test_a_protected_file_that_was_open_and_is_not_in_the_new_root(world):
    """Which files were open is noted; that no rule speaks of the new root does not make them unprotected."""
    (world.folder / "jail").mkdir()
    with world.keeper(fk.refuse_all, [(fk.PATH, str(world.lock.parent / "file"))]):
        out, err = run(world, "outside")
    assert out[0] == "ENOLCK" and "it is protected" in err


@needs_root
def test_the_page_that_is_mapped_is_read_after_chroot(world):
    """With /proc in the new root each file is known by its name."""
    proc = world.lock.parent / "proc"
    proc.mkdir()
    for name, out in (("file", "ENOLCK"), ("fil", "ok")):
        with world.keeper(fk.refuse_all, [(fk.PATH, str(world.lock.parent / name))]):
            said, _ = run(world, "chroot", wrap=["unshare", "-m", "sh", "-c", f"mount -t proc none {proc} && exec \"$@\"", "sh"])
        assert said[0] == out, said


@needs_root
def test_without_a_page_nobody_knows(world):
    with world.keeper(fk.refuse_all, with_page=False):
        out, err = run(world, "chroot")
    assert out[0] == "ENOLCK" and "it cannot be known" in err


@needs_root
def test_without_chroot_a_configuration_that_is_gone_changes_nothing(world):
    """The rules in force stay so."""
    with world.keeper(rules=[(fk.PATH, "/another")]):
        world.config.unlink()
        out, err = run(world, "deleted")
    assert (out[0], err) == ("ok", "")


@needs_root
def test_in_a_chroot_the_keeper_is_asked(world):
    root = world.folder / "root"
    inside = root / str(world.folder).lstrip("/")
    inside.mkdir(parents=True)
    # What is in a chroot must be there under the same names; these are the same files.
    os.link(world.config, inside / "dflock.conf")
    (inside / "run").mkdir(mode=0o700)
    asked = []

    def handler(connection):
        while request := connection.receive():
            asked.append(request.fds)
            connection.send(fk.NOT_PROTECTED)

    with world.keeper(handler, rules=[]):
        os.link(world.runtime / "page", inside / "run/page")
        # A link to a socket is the socket, too.
        os.link(world.runtime / "keeper.sock", inside / "run/keeper.sock")
        for kind in ("before", "chroot"):
            asked.clear()
            said, _ = run(world, kind, root)
            assert said[0] == "ok" and asked[0] == [str(root / "file")]
