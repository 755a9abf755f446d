"""Fixtures of the tests of the command line."""
import os
import subprocess
import tempfile

import pytest
from harness import write_text


@pytest.fixture
def programs():
    """A folder for programs: /dev/shm may be mounted noexec."""
    with tempfile.TemporaryDirectory(prefix="dflock-test-") as path:
        yield path


@pytest.fixture
def compiled(programs):
    """compiled(NAME, ...): a program that ends with 7, compiled with these options; text: more of it."""
    def make(name, *options, text=""):
        source, program = os.path.join(programs, name + ".c"), os.path.join(programs, name)
        write_text(source, text + "int main(void) { return 7; }\n")
        subprocess.run(["cc", *options, "-o", program, source], check=True)
        return program

    return make
