"""Fixtures of the tests of the command line."""
import os
import subprocess
import tempfile

import pytest
from harness import write_text

from lines import written


@pytest.fixture
def programs():
    """A folder for programs that every user can run: /dev/shm may be mounted noexec."""
    with tempfile.TemporaryDirectory(prefix="dflock-test-") as path:
        os.chmod(path, 0o755)
        yield path


@pytest.fixture
def built(programs):
    """built(NAME, *OPTIONS): a program, or with -shared a library. text: its C, or it ends with 7; compiler: another cc."""
    def make(name, *options, text="int main(void) { return 7; }\n", compiler="cc"):
        source, path = os.path.join(programs, name + ".c"), os.path.join(programs, name)
        write_text(source, text)
        # Before the options, in which libraries are, whose symbols are resolved then.
        subprocess.run([compiler, "-O2", "-w", "-o", path, source, *options], check=True)
        return path

    return make


@pytest.fixture
def old(built, programs):
    """A program with a libc that is too old for the library. No program of the distribution has one."""
    built("libc.so.6", "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libc.so.6",
          text='#include <stddef.h>\nconst char versions[] = "GLIBC_2.2.5\\0GLIBC_2.17\\0GLIBC_2.27";\nint seven(void) { return 7; }\n')
    return built("old", "-nostdlib", "-L" + programs, "-l:libc.so.6", f"-Wl,-rpath,{programs}",
                 text="int seven(void);\nvoid _start(void) { seven(); for (;;); }\n")


@pytest.fixture
def unable(host_of):
    """A host without a valid configuration: nothing is started, and `dflock doctor` looks at programs all the same."""
    host = host_of("unix:/none", foreground=False)
    written(host, "colour = 1;\n")
    return host
