"""A program that trains keeps the memory it frees, and computes the same."""

import dataclasses
import io
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from graphode.experiments.run_folder import RunFolder
from graphode.experiments.side_by_side import make_side_by_side

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep what is freed"
)

# In a program of its own, as the choice is for all that runs in a process.
PROGRAM = """
import tempfile
from pathlib import Path

from graphode.experiments.heap import keep_freed_memory
from karate_runs import train_in
from test_heap import pages_asked_for

folder = Path(tempfile.mkdtemp())
before = train_in(folder / "before"), pages_asked_for()
assert keep_freed_memory()
after = train_in(folder / "after"), pages_asked_for()

assert before[1] > 1000 > 100 > after[1], (before[1], after[1])
assert before[0].selected == after[0].selected
for ours, theirs in zip(before[0].ensemble.parameters(), after[0].ensemble.parameters()):
    assert ours.equal(theirs)
"""


def pages_asked_for() -> int:
    """Pages that the kernel hands out for ten times the same 64 MB, once there was room for them.

    What was computed before may have left no free block of that size.
    """
    import resource

    before = 0
    for time in range(20):
        if time == 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(1 << 24, dtype=torch.float32)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_the_kernel_is_not_asked_again_and_training_gives_the_same_bits():
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=here, timeout=120)
    assert done.returncode == 0


def test_the_command_line_keeps_what_it_frees():
    program = """
from graphode import cli
from test_heap import pages_asked_for
cli.main(["data", "list"])
assert pages_asked_for() < 100
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, timeout=120)
    assert done.returncode == 0


@dataclasses.dataclass(frozen=True)
class Counted:
    out: Path
    fresh: bool = False

    def resolved(self) -> "Counted":
        return self


def count_pages(config: Counted, console: Console) -> None:
    del console
    folder = RunFolder(config.out, config)
    folder.open()
    folder.finish({"pages": pages_asked_for()})


def test_programs_side_by_side_keep_what_they_free(tmp_path):
    config = Counted(tmp_path / "run")
    make_side_by_side(count_pages, [("run", config)], 2, Console(file=io.StringIO()))
    result = RunFolder(config.out, config).result
    assert result is not None
    assert result["pages"] < 100
