"""Lines of the manuals that people paste into a crontab: they work with the little that cron gives to a job."""
import glob
import os
import re
import shlex
import subprocess

import pytest
from harness.host import BUILD, ROOT

SCHEDULE = r"^(?:\.Dl )?\s*(?:[-\d*/,]+ ){5}\s*(\S.*)$"
CRON = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "nobody"}


def crontab_lines():
    pages = [os.path.join(ROOT, "README.md"), *glob.glob(os.path.join(ROOT, "docs/*.md")), *glob.glob(os.path.join(ROOT, "man/*"))]
    for page in sorted(pages):
        with open(page) as f:
            for line in re.findall(SCHEDULE, f.read(), re.M):
                yield pytest.param(line.replace("\\-", "-"), id=f"{os.path.basename(page)}: {line[:40]}")


def test_there_are_some():
    assert len([line for line in crontab_lines() if "dflock" in line.values[0]]) >= 2


@pytest.mark.parametrize("line", crontab_lines())
def test_a_line_of_a_crontab(line, make_host):
    """With this build for the installed dflock, and something quick for the job."""
    if "dflock" not in line:
        assert "/bin/dflock" not in line  # the line that README begins with, without dflock
        return
    line = re.sub(r"^root\s+", "", line)  # as in /etc/crontab
    host = make_host("a")
    os.mkdir(host.path("once"))
    command, count = re.subn(r"/usr(/local)?/bin/dflock(?= )", shlex.quote(os.path.join(BUILD, "dflock")), line)
    assert count == 1, "cron does not look in /usr/local/bin"
    command = command.replace("/usr/local/bin/nightly", "echo ran").replace("/var/lock", host.files)
    command = command.replace("/var/lib/prometheus/node-exporter", host.files)
    env = {**CRON, "HOME": host.files, "DFLOCK_CONFIG": host.config, "DFLOCK_RUNTIME_DIR": host.runtime}
    done = subprocess.run(["/bin/sh", "-c", command], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "" if " metrics " in line else "ran\n"), done
    assert " metrics " not in line or os.path.exists(host.path("dflock.prom"))
