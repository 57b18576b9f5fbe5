"""Models compile without graph breaks, attention included."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def run_compiled_models(selection: str) -> None:
    """In a process of its own: dynamo cannot trace the checks that jaxtyping adds in tests."""
    file = Path(__file__).parent / "compiled_models.py"
    options = ["-q", "--override-ini=addopts=", "--import-mode=importlib", "-m", selection]
    command = [sys.executable, "-m", "pytest", *options, str(file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_compiled_models_equal_eager_ones():
    run_compiled_models("not slow")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_models_compiled_to_machine_code_equal_eager_ones():
    run_compiled_models("slow")
