"""Keeps the steps of a solve so that they can be taken again, and its state at some of them."""

from typing import NamedTuple

import numpy as np
from torch import Tensor

from graphode.flows.method import Carry


class Snapshot(NamedTuple):
    """All that is needed to go on from between two steps."""

    y: Tensor
    carry: Carry
    next_output: np.ndarray


class Recorder:
    """All step sizes, and about √steps snapshots of the state.

    Whenever there are more than twice as many snapshots as steps between two of them, every other
    one is dropped, so that both numbers grow with the square root of a length not yet known.
    """

    def __init__(self) -> None:
        self.offsets: list[Tensor] = []
        self.sizes: list[Tensor] = []
        self.ends: list[np.ndarray] = []
        self.numbers: list[tuple[Tensor, int]] = []
        self.snapshots: dict[int, Snapshot] = {}
        self.stride = 1

    def before_step(self, index: int, y: Tensor, carry: Carry, next_output: np.ndarray) -> None:
        """Keep the state that step `index` starts from, if its turn has come."""
        if index % self.stride == 0:
            self.snapshots[index] = Snapshot(y, carry, next_output)
        if len(self.snapshots) > 2 * self.stride:
            self.stride *= 2
            self.snapshots = {i: s for i, s in self.snapshots.items() if i % self.stride == 0}

    def record(
        self, offset: Tensor, size: Tensor, end: np.ndarray, numbers: tuple[Tensor, int]
    ) -> None:
        """Keep a step: its start after t0, its size (0 where refused), its end, its numbers."""
        self.offsets.append(offset)
        self.sizes.append(size)
        self.ends.append(end)
        self.numbers.append(numbers)
