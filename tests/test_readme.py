"""The README's examples run as they are printed, one after the other."""

import re
import subprocess
import sys
from pathlib import Path

MOST_LINES = 12


def examples() -> list[str]:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)
    assert blocks, "README.md has no ```python block."
    return blocks


def test_examples_run_as_printed(tmp_path):
    command = [sys.executable, "-c", "\n".join(examples())]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr


def test_first_example_is_short():
    lines = [line.strip() for line in examples()[0].splitlines()]
    code = [line for line in lines if line and not line.startswith("#")]
    assert 0 < len(code) <= MOST_LINES
