"""The loop over steps that are known beforehand: a uniform grid, or one listed step by step."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
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
        return _end(index, self.num_steps, first, last)


@dataclass(frozen=True)
class ListedGrid:
    """Steps that differ from sample to sample, such as those an adaptive solve has chosen.

    Args:
        t0: The start, which may carry a gradient.
        offsets: Start of each step after `t0`, per sample.
        sizes: Each step's size, 0 for samples that rest or rejected it.
        ends: Where each step ends, per sample, on the host.
        numbers: How many steps each sample has taken before, and how many were tried.
    """

    t0: Tensor
    offsets: list[Tensor]
    sizes: list[Tensor]
    ends: list[np.ndarray]
    numbers: Sequence[tuple[int | Tensor, int]]

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> tuple[Time, Time]:
        return self.t0 + self.offsets[index], self.sizes[index]

    def counters(self, index: int) -> tuple[int | Tensor, int]:
        """The numbers of a step, per sample, and of its attempt, for masks drawn anew."""
        return self.numbers[index]

    def host_end(self, index: int, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Where step `index` ends."""
        del first, last
        return self.ends[index]


Grid = UniformGrid | ListedGrid


def equal_steps(t0: Tensor, t1: Tensor, counts: np.ndarray, host: np.ndarray) -> ListedGrid:
    """Each sample's own number of equal steps; who has fewer rests at its end.

    Args:
        t0: Start times `[*batch]`, which may carry a gradient, as may the end.
        t1: End times.
        counts: Steps of each sample `[samples]`.
        host: The times on the host, `[time, samples]`.
    """
    taken = torch.from_numpy(counts).to(t0.device).reshape(t0.shape)
    dt = (t1 - t0) / taken
    indices = range(int(counts.max()))
    return ListedGrid(
        t0,
        [taken.clamp(max=index) * dt for index in indices],
        [torch.where(index < taken, dt, 0.0) for index in indices],
        [_end(index, counts, host[0], host[-1]) for index in indices],
        [(index, index) for index in indices],
    )


def _end(
    index: int, num_steps: int | np.ndarray, first: np.ndarray, last: np.ndarray
) -> np.ndarray:
    """Where step `index` of equal ones ends, with the slack of one rounding error."""
    end = first + (index + 1 + 1e-9) * (last - first) / num_steps
    return np.where(index + 1 < num_steps, end, last)


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
    calls: list[int] | None = None,
) -> tuple[Tensor, Carry, list[Tensor]]:
    """Take the steps `span` (default: all) of `grid` from `y`.

    Args:
        carry: What the step before `span` handed over; None at the start of a solve.
        outputs: Collects the states at output times.
        recorder: Keeps the state now and then.
        kept: Collects the steps, for dense output.
        calls: Collects how often the field was called up to the end of each step.

    Returns:
        The final state, what a further step would take over, and a mask per step whose implicit
        equation was not solved.
    """
    span = range(len(grid)) if span is None else span
    if carry is None:
        f.noise.begin_step(-1, -1)
        carry = method.start(f, grid.t0, y) if span else ()
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
        if calls is not None:
            calls.append(f.calls)
        if step.failed is not None:
            failed.append(step.failed)
        new = step.handed_over
        if step.carry and isinstance(grid, ListedGrid):
            new = _unless_at_rest(f, dt, new, carry)
        carry = new
        y = step.y1
    return y, carry, failed


def _unless_at_rest(f: Evaluation, dt: Time, new: Carry, old: Carry) -> Carry:
    """`new` for the samples that moved; one that rejected its step tries it again from `old`.

    Both are the same derivative at the same place, unless masks were redrawn in between.
    """
    assert isinstance(dt, Tensor)
    moved = f.layout.spread(dt != 0)
    # A history that still grows (adams) has nothing older to keep.
    older = (*old, *new[len(old) :])
    return tuple(torch.where(moved, ours, theirs) for ours, theirs in zip(new, older, strict=True))
