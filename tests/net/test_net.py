"""What the net rests on: what docs/net.md says was found out about the kernel. `-s` prints what was seen."""
import os
import subprocess

import pytest

from harness import BUILD

PROGRAMS = os.path.join(BUILD, "tests", "net")
FINDINGS = {
    "signals": "early received leak storm lost callback elsewhere",
    "window": "window outage replaced left",
    "rights": "filters dead survivor tables setuid dumpable uring compat",
}


@pytest.mark.parametrize("program, finding", [(p, f) for p in FINDINGS for f in FINDINGS[p].split()])
def test_finding(program, finding):
    if finding == "compat" and os.uname().machine != "x86_64":
        pytest.skip("x86-64 only")
    run = subprocess.run([os.path.join(PROGRAMS, program), finding], capture_output=True, text=True, timeout=300)
    print(run.stdout + run.stderr)
    assert run.returncode == 0, run.stdout + run.stderr
