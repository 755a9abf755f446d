"""What the tests of dflock break share."""
import subprocess

from harness import text_of, wait_until, write_text
from harness.host import CLI

from jobs import state

LEASE = "ttl_ms = 6000; freeze_margin_ms = 1500;"


def allow(host):
    """This host lets others break its locks."""
    text = text_of(host.config)
    write_text(host.config, "allow_break = true;\n" + text)
    host.cli("reload")
    return host


def runs(pid):
    return state(pid) not in ("gone", "Z")


def taker(host, *how):
    """A job that waits for the lock; it writes one line when it has it."""
    return host.popen("flock", *how, host.path("f"), "sh", "-c", "echo got; exec sleep 1000")


def waits(host, count=1):
    def waiting():
        return len([w for lock in host.status()["cluster"]["locks"] for w in lock["waiters"]])

    wait_until(lambda: waiting() >= count, "other hosts wait")


def broken(host, *words, check=True):
    return host.cli("break", "--yes", *words, check=check)


def breaking(host, *words):
    """The same, while the test goes on."""
    env = host.env()
    env.pop("LD_PRELOAD", None)
    return subprocess.Popen([CLI, "break", "--yes", *words], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
