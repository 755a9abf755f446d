"""What the net rests on: what docs/net.md says was found out about the kernel. `-s` prints what was seen."""
import os
import subprocess

import pytest

from harness import BUILD

OF_ROOT = "window dumpable".split()
FINDINGS = "early leak lost elsewhere replaced filters uring compat".split()


@pytest.mark.parametrize("finding", FINDINGS + [pytest.param(name, marks=pytest.mark.root("needs root")) for name in OF_ROOT])
def test_finding(folder, finding):
    if finding == "compat" and os.uname().machine != "x86_64":
        pytest.skip("x86-64 only")
    os.chmod(folder, 0o755)
    files = [os.path.join(folder, name) for name in "fg"]
    for path in files:
        open(path, "w").close()
    run = subprocess.run([os.path.join(BUILD, "tests/net/findings"), *files, finding], capture_output=True, text=True, timeout=300)
    print(run.stdout + run.stderr)
    assert run.returncode == 0, run.stdout + run.stderr
