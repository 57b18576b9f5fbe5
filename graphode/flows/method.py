"""What every solver offers the loops: start, step, and the solution inside a step."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphode.flows.evaluation import Evaluation
from graphode.flows.layout import Layout, Time

Carry = tuple[Tensor, ...]


@dataclass
class Step:
    """One step from `y0` at `t` to `y1` at `t + dt`.

    Args:
        stages: Derivatives (or other tensors) the solution inside the step is made from.
        carry: What the next step takes over: a derivative already known, a history.
        failed: Samples whose implicit equation was not solved.
        end: Derivative at the end, filled in when something asks for it.
    """

    t: Time
    dt: Time
    y0: Tensor
    y1: Tensor
    stages: tuple[Tensor, ...]
    carry: Carry = ()
    failed: Tensor | None = None
    end: Tensor | None = None

    @property
    def handed_over(self) -> Carry:
        """The carry; a derivative that dense output has asked for is one too.

        It saves the next step its first evaluation.
        """
        return self.carry or (() if self.end is None else (self.end,))


@dataclass
class KeptStep:
    """A step for dense output: who took it, and where it ended, on the host."""

    step: Step
    end: np.ndarray
    moved: np.ndarray


class Method:
    """A one-step or multi-step method.

    Attributes:
        order: Order of convergence.
        can_be_recorded: Whether a step can be part of a compiled program or a CUDA graph.
    """

    order: int
    can_be_recorded: bool = True

    def start(self, f: Evaluation, t: Time, y: Tensor) -> Carry:
        """What the first step takes over."""
        del f, t, y
        return ()

    def step(self, f: Evaluation, t: Time, y: Tensor, dt: Time, carry: Carry) -> Step:
        """Advance `y` by `dt`."""
        raise NotImplementedError

    def interpolate(self, f: Evaluation, step: Step, theta: Tensor) -> Tensor:
        """The solution at `t + θ dt`; θ `[count, *batch]` in float64 → `[count, *state]`."""
        return hermite(f, step, theta)


def end_derivative(f: Evaluation, step: Step) -> Tensor:
    """f at the end of `step`, evaluated at most once."""
    if step.end is None:
        step.end = f(step.t + step.dt, step.y1)
    return step.end


def blend(layout: Layout, base: Tensor, terms: list[tuple[Tensor, Tensor]]) -> Tensor:
    """base + Σ w x for weights `[count, *batch]` and tensors of the state's shape."""
    total = base
    for weight, tensor in terms:
        total = torch.addcmul(total, layout.spread(weight).to(layout.working_dtype), tensor)
    return total


def hermite(f: Evaluation, step: Step, theta: Tensor) -> Tensor:
    """The cubic through both states with both derivatives: error O(dt⁴)."""
    square, cube = theta**2, theta**3
    return blend(
        f.layout,
        step.y0,
        [
            (3 * square - 2 * cube, step.y1 - step.y0),
            ((theta - 2 * square + cube) * step.dt, step.stages[0]),
            ((cube - square) * step.dt, end_derivative(f, step)),
        ],
    )


def linear(f: Evaluation, step: Step, theta: Tensor) -> Tensor:
    """The chord between both states: error O(dt²), and no overshoot where the field is stiff."""
    return blend(f.layout, step.y0, [(theta, step.y1 - step.y0)])
