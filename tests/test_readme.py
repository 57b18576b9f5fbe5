"""The README's first example runs as it is printed."""

import re
import subprocess
import sys
from pathlib import Path

MOST_LINES = 12


def first_example() -> str:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    block = re.search(r"^```python\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)
    assert block, "README.md has no ```python block."
    return block[1]


def test_first_example_runs_as_printed(tmp_path):
    command = [sys.executable, "-c", first_example()]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr


def test_first_example_is_short():
    lines = [line.strip() for line in first_example().splitlines()]
    code = [line for line in lines if line and not line.startswith("#")]
    assert 0 < len(code) <= MOST_LINES
