"""Commands beside flock(1) that hold a lock while another command runs: by flock() or by record locks."""
import pytest
from harness import Job

from installed import needs

HOLD = ["sh", "-c", "echo held; read line"]
# Words that wait; words that do not, what these say if the lock is taken, and with which status they end.
COMMANDS = {
    "lckdo": (["lckdo", "-w"], ["lckdo"], "is already locked", 75),
    "setlock": (["setlock"], ["setlock", "-n"], "unable to lock", 111),
    "chpst": (["chpst", "-l"], ["chpst", "-L"], "unable to lock", 111),
    "with-lock-ex": (["with-lock-ex", "-w"], ["with-lock-ex", "-f"], "could not acquire lock", 255),
}
command = pytest.mark.parametrize("command", [
    pytest.param("lckdo", marks=needs("lckdo", "moreutils")), pytest.param("setlock", marks=needs("setlock", "daemontools")),
    pytest.param("chpst", marks=needs("chpst", "runit")), pytest.param("with-lock-ex", marks=needs("with-lock-ex", "chiark-utils-bin"))])


@command
def test_refused_while_held(pair, command):
    waits, tries, said, status = COMMANDS[command]
    job = Job(pair.a, *waits, pair.a.path("f"), *HOLD).held()
    done = pair.b.run(*tries, pair.b.path("f"), "echo", "got it")
    if pair.excludes:
        assert (done.returncode, done.stdout) == (status, "") and said in done.stderr, done
    else:
        assert (done.returncode, done.stdout) == (0, "got it\n"), done
    job.end()
    done = pair.b.run(*tries, pair.b.path("f"), "echo", "got it")
    assert (done.returncode, done.stdout, done.stderr) == (0, "got it\n", "")


@command
def test_waits_and_gets_it_when_the_holder_is_killed(pair, command):
    waits = COMMANDS[command][0]
    job = Job(pair.a, *waits, pair.a.path("f"), *HOLD).held()
    waiter = Job(pair.b, *waits, pair.b.path("f"), "echo", "held")
    pair.check_waits(waiter)
    job.kill()
    pair.check_gets(waiter)


@needs("lckdo", "moreutils")
def test_lckdo_with_a_limit_and_shared(pair):
    job = Job(pair.a, "lckdo", "-s", pair.a.path("f"), *HOLD).held()
    assert pair.b.run("lckdo", "-s", pair.b.path("f"), "true").returncode == 0
    assert pair.b.run("lckdo", "-W", "1", pair.b.path("f"), "true").returncode == (75 if pair.excludes else 0)
    job.end()
