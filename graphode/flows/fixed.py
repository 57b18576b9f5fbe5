"""The loop over steps that are known beforehand: a uniform grid, or one recorded earlier."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from graphode.flows.evaluation import Evaluation
from graphode.flows.layout import Time
from graphode.flows.method import Carry, Method, Step
from graphode.flows.outputs import Outputs
from graphode.flows.recorder import Recorder


@dataclass(frozen=True)
class UniformGrid:
    """`num_steps` equal steps from `t0` to `t1`, each sample over its own span."""

    t0: Time
    t1: Time
    num_steps: int

    def __len__(self) -> int:
        return self.num_steps

    def __getitem__(self, index: int) -> tuple[Time, Time]:
        dt = (self.t1 - self.t0) / self.num_steps
        return self.t0 + index * dt, dt

    def counters(self, index: int) -> tuple[int, int]:
        """The numbers of a step and of its attempt, for masks drawn anew."""
        return index, index

    def host_end(self, index: int, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Where step `index` ends, per sample, with the slack of one rounding error."""
        if index == self.num_steps - 1:
            return last
        return first + (index + 1 + 1e-9) * (last - first) / self.num_steps


@dataclass(frozen=True)
class RecordedGrid:
    """Steps an adaptive solve has chosen, to be taken again exactly.

    Args:
        t0: The start, which may carry a gradient.
        offsets: Start of each step after `t0`, per sample.
        sizes: Each step's size, 0 for samples that rested or rejected then.
        ends: Where each step ended, per sample, on the host.
        numbers: How many steps each sample had taken before, and how many were tried.
    """

    t0: Tensor
    offsets: list[Tensor]
    sizes: list[Tensor]
    ends: list[np.ndarray]
    numbers: list[tuple[Tensor, int]]

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> tuple[Time, Time]:
        return self.t0 + self.offsets[index], self.sizes[index]

    def counters(self, index: int) -> tuple[Tensor, int]:
        """The numbers of a step, per sample, and of its attempt, for masks drawn anew."""
        return self.numbers[index]

    def host_end(self, index: int, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Where step `index` ended."""
        del first, last
        return self.ends[index]


Grid = UniformGrid | RecordedGrid


def march(
    method: Method,
    f: Evaluation,
    y: Tensor,
    grid: Grid,
    *,
    carry: Carry | None = None,
    span: range | None = None,
    outputs: Outputs | None = None,
    recorder: Recorder | None = None,
    kept: list[Step] | None = None,
) -> tuple[Tensor, Carry, list[Tensor]]:
    """Take the steps `span` (default: all) of `grid` from `y`.

    Args:
        carry: What the step before `span` handed over; None at the start of a solve.
        outputs: Collects the states at output times.
        recorder: Keeps the state now and then.
        kept: Collects the steps, for dense output.

    Returns:
        The final state, what a further step would take over, and a mask per step whose implicit
        equation was not solved.
    """
    span = range(len(grid)) if span is None else span
    if carry is None:
        f.noise.begin_step(-1, -1)
        carry = method.start(f, grid[span.start][0], y)
    failed = []
    for index in span:
        t, dt = grid[index]
        if recorder is not None and outputs is not None:
            recorder.before_step(index, y, carry, outputs.next)
        f.noise.begin_step(*grid.counters(index))
        step = method.step(f, t, y, dt, carry)
        if outputs is not None:
            end = grid.host_end(index, outputs.host[0], outputs.host[-1])
            outputs.collect(method, f, step, end, np.ones_like(end, dtype=bool))
        if kept is not None:
            kept.append(step)
        if step.failed is not None:
            failed.append(step.failed)
        # A derivative that dense output has asked for saves the next step its first evaluation.
        carry = step.carry or (() if step.end is None else (step.end,))
        y = step.y1
    return y, carry, failed
