"""What happens where a program is not installed: the test is skipped, and says so."""
import shutil

import pytest


def needs(program, package):
    """A mark: without the program the test is skipped, and says which package has it."""
    return pytest.mark.skipif(not shutil.which(program), reason=f"there is no {program}: apt-get install {package}")
