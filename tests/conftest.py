"""What every test stands on: float64, a fixed seed, and real data only where it is at hand."""

import importlib.machinery
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
import torch

# A skip whose reason begins so is counted in the summary's last line.
NO_DATA = "no data:"


class KernelFinder:
    """Loads the modules of GPU kernels as they are, without the type checks tests add.

    Triton compiles a kernel from its source, where the names of a wrapper's module mean nothing.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.startswith("graphode.") and name.endswith("_kernel"):
            return importlib.machinery.PathFinder.find_spec(name, path, target)
        return None


sys.meta_path.insert(0, KernelFinder)  # before jaxtyping's, which conftest files come after


class TorchRandom:
    """Torch's generator, in the form hypothesis seeds before each example."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


torch_random = TorchRandom()  # hypothesis keeps a weak reference only
hypothesis.register_random(torch_random)
hypothesis.settings.register_profile(
    "graphode", derandomize=True, database=None, deadline=None, max_examples=40
)
hypothesis.settings.load_profile("graphode")


# Small tensors gain nothing from threads, which wait for each other on a busy machine.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def float64_and_seed() -> Iterator[None]:
    """Make float64 the default type and every test's randomness its own."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def without_type_checks() -> Iterator[None]:
    """Switch off the checks added in tests.

    For what they make slow (thousands of steps), what torch cannot trace, and errors of ours that
    they would anticipate.
    """
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """No compiled code of one test serves another."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data sets, one folder each."""
    root = os.environ.get("GRAPHODE_DATA")
    if not root:
        pytest.skip(f"{NO_DATA} set GRAPHODE_DATA to the folder of data sets")
    path = Path(root)
    assert path.is_dir(), f"GRAPHODE_DATA names {root}, which is not a folder."
    return path


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without data sets and without a net."""

    def offline(url: str, size: int) -> bytes:
        raise OSError("no net")

    monkeypatch.delenv("GRAPHODE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("graphode.data.store.download", offline)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that read real data, so that `-m data` selects them."""
    for item in items:
        if "data_root" in getattr(item, "fixturenames", ()):
            item.add_marker("data")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests did not run because their data is not here."""
    skipped = terminalreporter.stats.get("skipped", [])
    missing = sum(NO_DATA in str(report.longrepr) for report in skipped)
    if missing:
        terminalreporter.write_line(
            f"{missing} skipped for want of data: set GRAPHODE_DATA to run them.", yellow=True
        )
    else:
        terminalreporter.write_line("0 skipped for want of data.")
