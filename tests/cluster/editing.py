"""A host's configuration file, how a test changes it, and what a program sees of it."""
import json
import os
import re

from harness import Job, text_of, wait_until, write_text

LEASE = "ttl_ms = 20000;"


def flock(host, name="f", before=()):
    """flock -n's exit status (1: busy, 71: refused by the system) and what was said."""
    done = host.run(*before, "flock", "-n", host.path(name), "true")
    return done.returncode, done.stderr


def works(host, name="f"):
    return flock(host, name) == (0, "")


def is_busy(host, name="f"):
    status, said = flock(host, name)
    assert status in (0, 1) and said == "", said
    return status == 1


def check_refused(host, line, name="f"):
    """ENOLCK, and one line that says why."""
    status, said = flock(host, name)
    ours = [l for l in said.splitlines() if l.startswith("dflock:")]
    assert status == 71 and "No locks available" in said, said
    assert len(ours) == 1 and re.search(line, ours[0]), said
    agent = host.opened(name)
    assert [agent.do("flock 0 " + how) for how in ("ex nb", "sh", "ex")] == ["ENOLCK"] * 3
    assert agent.do("flock 0 un") == "ok"  # needs nobody


def eventually(agent, answer):
    """A program that has just seen that its file was not protected may go by that for up to a second."""
    def matches():
        said = agent.do("flock 0 ex nb")
        assert said in ("ok", answer)
        agent.do("flock 0 un")
        return said == answer
    wait_until(matches, f"flock() answers {answer}")


def read(host):
    return text_of(host.config)


def write(host, text):
    """In the way of an editor: a new file over the old one."""
    write_text(host.config + ".new", text)
    os.rename(host.config + ".new", host.config)


def holder(host, name="f"):
    return Job(host, "flock", host.path(name), "sh", "-c", "echo held; read line").held()


def file_state(host):
    return host.status()["rules"]["file"]


def settled(host, state):
    """The keeper has looked at the file as it is now, and says this of it."""
    def so():
        status = host.cli("status", "--json", check=False)
        if status.returncode != 0:
            return False  # a keeper that was killed is being replaced
        rules = json.loads(status.stdout)["rules"]
        seen = list(os.stat(host.config)[1:3]) if os.path.isfile(host.config) else [0, 0]
        return rules["file"] == state and rules["seen"] == seen
    wait_until(so, f"the keeper of {host.name} says that the configuration is {state}")
