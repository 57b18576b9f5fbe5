"""Tests under `torch.compile`, which cannot trace the checks that jaxtyping adds to all others."""

import subprocess
import sys
from pathlib import Path


def run_compiled(file: Path, selection: str) -> None:
    """Run the tests of a file in a process of its own, without type checks."""
    options = ["-q", "--override-ini=addopts=", "--import-mode=importlib", "-m", selection]
    command = [sys.executable, "-m", "pytest", *options, str(file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
