"""Files that no rule can name, and programs that have left the root directory: their calls are the kernel's alone."""
import os
import shutil

import pytest

import fake_keeper as fk

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="chroot() needs root")
ALL = ["flock: 0 -", "waiting: 0 -", "unlock: 0 -", "record: 0 -", "getlk: 0 -"]


def run(world, kind, **more):
    done = world.run("limits", kind, world.lock.parent / "file", world.lock.parent, **more)
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


@pytest.mark.parametrize("kind", ["deleted", "linked"])
def test_these_had_or_have_a_name(world, kind):
    """A lock file that was deleted stays what it was; the keeper refuses one whose name it cannot see."""
    with world.keeper(fk.refuse_all, tree(world)) as keeper:
        out, err = run(world, kind)
        assert out[0] == "flock: -1 ENOLCK" and "so it is" in err and keeper.requests > 0


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
    assert out[0] == "flock: -1 ENOLCK" and "after chroot() the configuration cannot be read" in err
    assert ("it is protected" in err) == (kind == "before")


@needs_root
def test_a_protected_file_that_was_open_and_is_not_in_the_new_root(world):
    """Which files were open is noted; that no rule speaks of the new root does not make them unprotected."""
    (world.folder / "jail").mkdir()
    with world.keeper(fk.refuse_all, [(fk.PATH, str(world.lock.parent / "file"))]):
        out, err = run(world, "outside")
    assert out[0] == "flock: -1 ENOLCK" and "it is protected" in err


@needs_root
def test_the_page_that_is_mapped_is_read_after_chroot(world):
    """With /proc in the new root each file is known by its name."""
    proc = world.lock.parent / "proc"
    proc.mkdir()
    for name, out in (("file", "flock: -1 ENOLCK"), ("fil", "flock: 0 -")):
        with world.keeper(fk.refuse_all, [(fk.PATH, str(world.lock.parent / name))]):
            said, _ = run(world, "chroot", wrap=["unshare", "-m", "sh", "-c", f"mount -t proc none {proc} && exec \"$@\"", "sh"])
        assert said[0] == out, said


@needs_root
def test_without_a_page_nobody_knows(world):
    with world.keeper(fk.refuse_all, with_page=False):
        out, err = run(world, "chroot")
    assert out[0] == "flock: -1 ENOLCK" and "it cannot be known" in err


@needs_root
def test_without_chroot_a_configuration_that_is_gone_changes_nothing(world):
    """The rules in force stay so."""
    with world.keeper(rules=[(fk.PATH, "/another")]):
        world.config.unlink()
        out, err = run(world, "deleted")
    assert (out[0], err) == ("flock: 0 -", "")
