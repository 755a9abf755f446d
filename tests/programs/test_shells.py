"""The ways in which shell scripts lock, in bash and dash; and kill -9 of every process that has a part in it."""
import contextlib
import os
import signal

import pytest
from harness import Job, wait_until, write_text
from harness.processes import files_of, stat

pytestmark = pytest.mark.parametrize("shell", ["bash", "dash"])


def script(pair, shell, text, host=None, name="f"):
    """The script sees the lock file as $1."""
    host = host or pair.a
    return Job(host, shell, "-c", text, "-", host.path(name))


def test_the_nightly_job(pair, shell):
    text = '( flock -n 9 || exit 1; echo held; read line; echo done ) 9>"$1"'
    first = script(pair, shell, text).held()
    second = script(pair, shell, text, pair.b)
    if pair.excludes:
        assert second.line() is None and second.end() == 1
    else:
        assert second.line() == "held"
        second.end()
    first.say("on")
    assert first.line() == "done" and first.end() == 0
    third = script(pair, shell, text, pair.b).held()
    third.end()


@pytest.mark.parametrize("text, then, status", [
    ('exec 9>"$1"; flock 9; echo held; read line; exec 9>&-; echo closed; read line', "closed", 1),
    # The lock is taken in the first part, and held by it alone: the parts after it do not have the descriptor.
    ('( flock 9; echo held; read line; echo more ) 9>"$1" | while read x; do echo "$x"; done | cat', "more", 0),
    ('( flock 9; echo held; read line ) 9>"$1"; echo left', "left", 0),
], ids=["exec", "pipeline", "subshell"])
def test_a_shell_that_leaves_the_lock(pair, shell, text, then, status):
    job = script(pair, shell, text).held()
    pair.check_held()
    waiter = pair.waiter(shell, "-c", '( flock 9; echo held ) 9>"$1"', "-", pair.b.path("f"))
    job.say("on")
    assert job.line() == then
    pair.check_gets(waiter)
    assert job.end() == status


@pytest.mark.parametrize("closes", ["", "9>&-"], ids=["has the descriptor", "has it not"])
def test_a_background_job_that_is_left(pair, shell, closes):
    """The script ends; what it left in the background holds, if it has the descriptor."""
    job = script(pair, shell, f'exec 9>"$1"; flock 9; sleep 600 {closes} >/dev/null 2>&1 & echo $!; read line')
    sleeper = int(job.line())
    waiter = pair.waiter()
    job.end()
    if not closes:
        pair.check_held()
        os.kill(sleeper, signal.SIGKILL)
    pair.check_gets(waiter)
    if closes:
        os.kill(sleeper, 0)


def test_command_substitution(pair, shell):
    job = script(pair, shell, 'out=$( flock "$1" echo inside ); echo "$out"; exec 9>"$1"; '
                              'out=$( flock 9 && echo inside ); echo "$out"; read line')
    assert (job.line(), job.line()) == ("inside", "inside")
    pair.check_held()  # the lock is the description's, not the subshell's
    job.end()
    pair.check_free()


def test_a_script_that_locks_itself(pair, shell):
    """The idiom of flock(1)'s manual page."""
    text = f'#!/bin/{shell}\n[ "${{FLOCKER}}" != "$0" ] && exec env FLOCKER="$0" flock -en "$0" "$0" "$@" || :\n' \
           'echo held; read line\n'
    for host in (pair.a, pair.b):
        write_text(host.path("job.sh"), text)
        os.chmod(host.path("job.sh"), 0o755)
    first = Job(pair.a, pair.a.path("job.sh")).held()
    second = Job(pair.b, pair.b.path("job.sh"))
    assert second.line() == (None if pair.excludes else "held")
    second.end()
    first.end()
    third = Job(pair.b, pair.b.path("job.sh")).held()


def test_a_trap_ends_a_wait(pair, shell):
    holder = script(pair, shell, 'exec 9>"$1"; flock 9; echo held; read line').held()
    waiter = script(pair, shell, "trap 'kill $!; echo terminated; exit 3' TERM; exec 9>\"$1\"; flock 9 & echo waits; "
                                 "wait $!; echo held", pair.b)
    assert waiter.line() == "waits"
    if pair.excludes:
        wait_until(lambda: pair.waiters() == 1, "it waits in the store")
        os.kill(waiter.pid, signal.SIGTERM)
        assert waiter.line() == "terminated" and waiter.end() == 3
        wait_until(lambda: pair.waiters() == 0, "nobody waits in the store")
    else:
        assert waiter.line() == "held"
    holder.end()


# Scripts whose first process does not end by itself, and how many processes have the descriptor when flock(1) itself has ended.
STRUCTURES = {
    "subshell": (2, '( flock 9; sleep 600 >/dev/null & echo held; read line ) 9>"$1"'),
    "three generations": (3, 'exec 9>"$1"; flock 9; sh -c "sh -c \'echo held; read line; :\'; read line; :"; read line; :'),
    "two jobs": (3, 'exec 9>"$1"; flock 9; sleep 600 >/dev/null & sleep 600 >/dev/null & echo held; read line'),
    "pipeline": (3, 'exec 9>"$1"; flock 9; { sleep 600 | sleep 600; } >/dev/null & echo held; read line'),
}


@pytest.mark.parametrize("structure, youngest", [*((name, False) for name in STRUCTURES), ("pipeline", True)])
def test_kill_each_process(pair, shell, structure, youngest):
    """Whichever process is killed, the lock lives as long as the last copy of the descriptor, and no longer."""
    count, text = STRUCTURES[structure]
    job = script(pair, shell, text).held()

    def owners():
        return sorted((pid for pid in job.processes() if has_file(pid, pair.a.path("f"))), key=started)

    wait_until(lambda: len(owners()) >= count, f"{count} processes have the descriptor")
    waiter = pair.waiter()
    left = owners()
    while left:
        pair.check_held()
        if pair.excludes:
            assert waiter.silent(0.05)
        victim = left[-1 if youngest else 0]
        with contextlib.suppress(ProcessLookupError):  # bash's part that waited for the pipeline has ended with it
            os.kill(victim, signal.SIGKILL)
        wait_until(lambda: victim not in owners(), "it has ended")
        left = owners()
    pair.check_gets(waiter)


def has_file(pid, path):
    try:
        return path in files_of(pid)
    except OSError:
        return False


def started(pid):
    fields = stat(pid)
    return int(fields[19]) if fields else 0, pid
