"""A kernel is launched again without a search where that is safe, and by Triton everywhere else.

Stand-ins for Triton's kernels and for the driver: neither a GPU nor Triton is needed.
"""

from types import SimpleNamespace

import pytest
import torch

from graphode.flows import launch as launching
from graphode.flows.launch import launch

GRID = (4, 1, 1)


class Kernel:
    """What `triton.jit` makes: searches, and gives what it has compiled."""

    __name__ = "kernel"

    def __init__(self, lacks: str = "", refuses: bool = False) -> None:
        self.searches, self.runs, self.refuses = [], [], refuses
        parts = {"run": self.run, "function": "function", "packed_metadata": "metadata"}
        parts.pop(lacks, None)
        self.compiled = SimpleNamespace(**parts)

    def __getitem__(self, grid: tuple[int, int, int]):
        def search(*args: object) -> SimpleNamespace:
            self.searches.append(args[-1])
            return self.compiled

        return search

    def run(self, *args: object) -> None:
        if self.refuses:
            raise TypeError("function takes exactly 12 arguments")
        self.runs.append(args)


@pytest.fixture(autouse=True)
def current(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The device that is current; that of tensors on a CPU is −1."""
    state = SimpleNamespace(device=-1)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: state.device, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 5, raising=False)
    monkeypatch.setattr(launching, "_launchers", {})
    monkeypatch.setattr(launching, "_can_run", True)
    return state


def numbers_run(kernel: Kernel) -> list[object]:
    return [args[-1] for args in kernel.runs]


def test_a_form_that_was_launched_is_not_searched_for_again():
    kernel, x = Kernel(), torch.zeros(8)
    launch(kernel, ("form",), GRID, (x,), 1)
    launch(kernel, ("form",), GRID, (x,), 2)
    launch(kernel, ("form",), GRID, (x[1:],), 3)  # at another alignment
    launch(kernel, ("another",), GRID, (x,), 4)
    assert kernel.searches == [1, 3, 4]
    expected = (*GRID, 5, "function", "metadata", None, None, None, x.data_ptr(), 2)
    assert kernel.runs == [expected]


def test_what_was_compiled_for_another_device_is_not_kept(current: SimpleNamespace):
    kernel, x = Kernel(), torch.zeros(8)
    current.device = 0
    launch(kernel, (), GRID, (x,), 1)
    current.device = -1
    launch(kernel, (), GRID, (x,), 2)
    launch(kernel, (), GRID, (x,), 3)
    current.device = 0
    launch(kernel, (), GRID, (x,), 4)
    assert kernel.searches == [1, 2, 4]
    assert numbers_run(kernel) == [3]


def test_kernels_of_one_name_are_not_taken_for_each_other():
    first, second, x = Kernel(), Kernel(), torch.zeros(8)
    for kernel in (first, second, first, second):
        launch(kernel, (), GRID, (x,), 1)
    for kernel in (first, second):
        assert len(kernel.searches) == len(kernel.runs) == 1


def test_another_way_to_call_kernels_leaves_every_launch_to_triton():
    kernel, other, x = Kernel(refuses=True), Kernel(), torch.zeros(8)
    for number in (1, 2, 3):
        launch(kernel, (), GRID, (x,), number)
        launch(other, (number,), GRID, (x,), number)
    launch(other, (3,), GRID, (x,), 4)
    assert kernel.searches == [1, 2, 3]
    assert other.searches == [1, 2, 3, 4]
    assert not other.runs
    assert not launching._launchers


@pytest.mark.parametrize("part", ["run", "function", "packed_metadata"])
def test_a_kernel_without_a_known_part_is_left_to_triton(part: str):
    kernel, x = Kernel(lacks=part), torch.zeros(8)
    for number in (1, 2):
        launch(kernel, (), GRID, (x,), number)
    assert kernel.searches == [1, 2]
    assert not kernel.runs


def test_other_errors_of_a_launch_are_shown():
    kernel, x = Kernel(), torch.zeros(8)
    launch(kernel, (), GRID, (x,), 1)
    key, (_, *rest) = launching._launchers.popitem()

    def fail(*args: object) -> None:
        raise RuntimeError("Triton Error [CUDA]: out of memory")

    launching._launchers[key] = (fail, *rest)
    with pytest.raises(RuntimeError, match="out of memory"):
        launch(kernel, (), GRID, (x,), 2)
