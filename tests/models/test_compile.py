"""Models compile without graph breaks, attention included."""

import shutil
from pathlib import Path

import pytest

from tests.compiled import run_compiled

FILE = Path(__file__).parent / "compiled_models.py"


def test_compiled_models_equal_eager_ones():
    run_compiled(FILE, "not slow")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_models_compiled_to_machine_code_equal_eager_ones():
    run_compiled(FILE, "slow")
