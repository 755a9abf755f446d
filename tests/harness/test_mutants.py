"""The mistakes that other tests must find (mistakes.py) fit the sources, and what mutants.py makes of a source is what it says."""
import os
import shlex
import subprocess

import pytest
from harness import mistakes, mutants

HISTORY = {name: changes for name, (_, changes) in mistakes.HISTORY.items()}
ALL = [(name, changes) for group in (mistakes.SIMULATOR, mistakes.MODEL, HISTORY, mistakes.PAGE, mistakes.PAST, *mistakes.PROGRAMS.values(),
                     *mistakes.UNIT.values())
       for name, changes in group.items()]
# The tests that must find these build them: they fail where one does not compile.
BUILT = [changes for group in (mistakes.MODEL, HISTORY, mistakes.PAGE, mistakes.PAST, *mistakes.PROGRAMS.values(), *mistakes.UNIT.values())
         for changes in group.values()]


def flags():
    packages = subprocess.run(["pkg-config", "--cflags", "libuv", "hiredis", "libconfig", "jansson"], stdout=subprocess.PIPE, text=True, check=True)
    return ["-I.", "-D_GNU_SOURCE", "-std=gnu11", '-DDFLOCK_VERSION=""', '-DDFLOCKD_INSTALLED=""', '-DSHIM_INSTALLED=""', *shlex.split(packages.stdout)]


def test_every_mistake_fits_the_sources():
    """Each marker is there once, and what is changed there compiles, if no other test builds it."""
    wrong, options = [], flags()
    for name, changes in ALL:
        try:
            texts = mutants.texts(changes)
        except mutants.Broken as problem:
            wrong.append(f"{name}: {problem}")
            continue
        for path, text in texts.items():
            if path.endswith(".c") and changes not in BUILT:
                run = subprocess.run(["cc", *options, "-fsyntax-only", "-x", "c", "-"], cwd=mutants.ROOT, input=text, text=True, stderr=subprocess.PIPE)
                if run.returncode != 0:
                    wrong.append(f"{name}: {path} does not compile: {run.stderr}")
    assert not wrong, "\n".join(wrong)


def test_every_marker_is_used():
    unused = set(mutants.markers()) - {change.marker for _, changes in ALL for change in changes}
    assert not unused


SOURCE = """
void f(void)
{
	struct s s = {.a = 1, .b = g(2, 3)}; /* mutant: declared */

	if (a && (b || ";)"[0])) /* mutant: condition */
		first(1, 2); /* ; */ /* mutant: body */
	else
		second(); /* mutant: other */
	HASH_ITER (hh, list, e, next)
		(void)third(e); /* mutant: loop */
	if (x) { /* mutant: block */
		fourth();
	}
	/* mutant: alone */
	fifth(1,
	      2);
	call(&(struct t){
		.one = a ? 1 : 2, /* mutant: element */
		.two = 2,
	});
	/* mutant: alone-condition */
	if (a ||
	    (b && c))
		sixth();
}
"""


@pytest.mark.parametrize("change, result", [
    (mutants.put("declared", "g(2, 3)", "0"), "struct s s = {.a = 1, .b = 0}; /* mutant: declared */\n"),
    (mutants.condition("condition", "c"), "\tif (c) /* mutant: condition */\n"),
    (mutants.skip("body"), "\n\t\t; /* ; */ /* mutant: body */\n"),
    (mutants.become("other", "2;"), "\telse\n\t\t2; /* mutant: other */\n"),
    (mutants.before("loop", "1;"), "next)\n\t\t1; (void)third(e); /* mutant: loop */\n"),
    (mutants.condition("block", "y"), "\tif (y) { /* mutant: block */\n"),
    (mutants.after("alone", "g();"), "\t/* mutant: alone */\n\tfifth(1,\n\t      2); g();\n"),
    (mutants.become("element", ".one = 3,"), "\t\t.one = 3, /* mutant: element */\n\t\t.two"),
    (mutants.condition("alone-condition", "c"), "\tif (c)\n\t\tsixth"),
], ids=lambda value: value.marker if isinstance(value, mutants.Change) else "")
def test_a_change_in_c(change, result):
    assert result in mutants.changed(SOURCE, change)


@pytest.mark.parametrize("change, result", [
    (mutants.condition("clash", "false"), "\tif false then -- mutant: clash\n"),
    (mutants.put("last", "1", "2"), "-- mutant: last\nreturn 2\n"),
], ids=["condition", "alone"])
def test_a_change_in_lua(change, result):
    assert result in mutants.changed("local a\n\tif a == b then -- mutant: clash\nend\n-- mutant: last\nreturn 1\n", change)


@pytest.mark.parametrize("change", [mutants.skip("nowhere"), mutants.put("body", "third", "4"), mutants.put("alone", "f", "4")],
                         ids=["no marker", "nothing to replace", "twice to replace"])
def test_a_change_that_does_not_fit(change):
    with pytest.raises(mutants.Broken):
        mutants.changed(SOURCE.replace("fifth", "fifthf"), change)


def test_a_marker_that_stands_twice(tmp_path):
    for name in mutants.SOURCES:
        os.mkdir(tmp_path / name)
    for name in "ab":
        (tmp_path / "keeper" / f"{name}.c").write_text("int a; /* mutant: a */\n")
    with pytest.raises(mutants.Broken, match="a.c and in .*b.c|b.c and in .*a.c"):
        mutants.markers(tmp_path)
