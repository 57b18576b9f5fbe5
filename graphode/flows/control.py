"""Step-size control: the first step, and the factor from one step to the next.

Hairer, Nørsett, Wanner, "Solving Ordinary Differential Equations I", 2nd ed., II.4 (first step);
Söderlind (2003), "Digital filters in adaptive time-stepping" (PID control).
"""

import math
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from graphode.flows.evaluation import Evaluation
from graphode.flows.problem import check_positive

# A step without error would ask for an infinite one.
_SMALLEST_RATIO = 1e-10

# Of the first step: its error over what is tolerated, and how far it may exceed the book's.
_FIRST_ERROR = 0.1
_FIRST_GROWTH = 10.0

Ratio = TypeVar("Ratio", float, Tensor)


@dataclass(frozen=True, kw_only=True)
class StepControl:
    """How step sizes follow the error.

        dt⁺ = dt · safety · r_n^(−(p+i+d)/k) · r_{n−1}^((p+2d)/k) · r_{n−2}^(−d/k)

    with r the ratio of estimated to tolerated error and k the order of the estimate plus one. The
    factor is kept within [min_factor, max_factor], and does not exceed 1 after a rejection.

    Args:
        proportional: Answers to the change of the error; damps oscillation of the step size.
        integral: Answers to the error itself; alone (1) it is the classical controller.
        derivative: Answers to the change of the change.
        safety: Aims this far below the tolerance.
        min_factor: Strongest shrinking of a step.
        max_factor: Strongest growth of a step.
        may_shrink: Whether a step that was accepted may be followed by a shorter one. In
            torchdiffeq it may not, which spares evaluations where the error is noise.
    """

    # Mildly PI: over six problems and three tolerances it needs the fewest evaluations at equal
    # error among those tried that have no bad case (benchmarks/flows.py).
    proportional: float = 0.1
    integral: float = 0.9
    derivative: float = 0.0
    safety: float = 0.9
    min_factor: float = 0.2
    max_factor: float = 10.0
    may_shrink: bool = True

    def __post_init__(self) -> None:
        check_positive("safety", self.safety, "Use for example 0.9.")
        if not 0 < self.min_factor < 1 <= self.max_factor:
            raise ValueError(
                f"`min_factor` must lie between 0 and 1 and `max_factor` must be at least 1, but "
                f"they are {self.min_factor} and {self.max_factor}. A refused step is made shorter "
                f"by the one, and an accepted one longer by at most the other."
            )

    def factor(
        self, ratio: Tensor, previous: Tensor, before: Tensor, accept: Tensor, error_order: int
    ) -> Tensor:
        """The next step size over this one, per sample."""
        factor = self._wanted(ratio.clamp(min=_SMALLEST_RATIO), previous, before, error_order)
        smallest = self.min_factor if self.may_shrink else 1.0
        accepted = factor.clamp(smallest, self.max_factor)
        factor = torch.where(accept, accepted, factor.clamp(self.min_factor, 1.0))
        return torch.where(ratio.isfinite(), factor, self.min_factor)

    def lone_factor(
        self, ratio: float, previous: float, before: float, accept: bool, error_order: int
    ) -> float:
        """The same for one sample."""
        if not math.isfinite(ratio):
            return self.min_factor
        factor = self._wanted(max(ratio, _SMALLEST_RATIO), previous, before, error_order)
        smallest = 1.0 if accept and not self.may_shrink else self.min_factor
        factor = min(max(factor, smallest), self.max_factor)
        return factor if accept else min(factor, 1.0)

    def _wanted(self, ratio: Ratio, previous: Ratio, before: Ratio, error_order: int) -> Ratio:
        p, i, d = (
            value / (error_order + 1)
            for value in (self.proportional, self.integral, self.derivative)
        )
        factor = self.safety * ratio ** -(p + i + d)
        if p or d:
            factor = factor * previous ** (p + 2 * d) * before**-d
        return factor  # pyright: ignore[reportReturnType]


# As torchdiffeq has it.
TORCHDIFFEQ = StepControl(proportional=0.0, integral=1.0, may_shrink=False)


def first_step(
    f: Evaluation,
    t0: Tensor,
    y0: Tensor,
    derivative: Tensor,
    span: Tensor,
    *,
    error_order: int,
    rtol: float,
    atol: float,
    error_constant: float | None = None,
) -> Tensor:
    """A first step size per sample, signed, from one explicit Euler step (one evaluation).

    NaN where state or derivative are: no step leads on from there.

    The book's guess supposes that all derivatives are as large as the larger of the first two, and
    that the method's error has the factor 1. Where `error_constant` C is known it is corrected, up
    to ten times: of y′ = λ y, with the λ that the Euler step has seen, a step dt has the error
    C (λ dt)^p dt |y′|, which may be a tenth of what is tolerated.
    """
    layout = f.layout
    tolerated = atol + rtol * y0.abs()
    d0 = layout.rms(y0 / tolerated).to(layout.time_dtype)
    d1 = layout.rms(derivative / tolerated).to(layout.time_dtype)
    guess = torch.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1)
    guess = torch.where(guess.isfinite(), guess, 1e-6)
    # The trial must not leave the span: the field may not be defined beyond it.
    guess = torch.minimum(guess, span.abs())
    trial = guess * span.sign()
    moved = f(t0 + trial, y0 + layout.scale(trial) * derivative)
    d2 = layout.rms((moved - derivative) / tolerated).to(layout.time_dtype) / guess
    largest = torch.maximum(d1, d2)
    refined = torch.where(
        largest <= 1e-15,
        (guess * 1e-3).clamp(min=1e-6),
        (0.01 / largest) ** (1 / (error_order + 1)),
    )
    step = torch.minimum(100 * guess, refined)
    if error_constant is not None:
        slope = error_constant * d1 * (d2 / d1) ** error_order
        linear = (_FIRST_ERROR / slope) ** (1 / (error_order + 1))
        wanted = torch.minimum(linear, _FIRST_GROWTH * step)
        step = torch.where(wanted > step, wanted, step)
    # A non-finite trial says nothing but "smaller".
    step = torch.where(step.isfinite() & d2.isfinite(), step, guess)
    step = torch.where(d1.isnan(), torch.nan, step)
    return torch.minimum(step, span.abs()).detach() * span.sign()


def lone_first_step(
    f: Evaluation,
    t0: float,
    y0: Tensor,
    derivative: Tensor,
    span: float,
    *,
    error_order: int,
    rtol: float,
    atol: float,
    error_constant: float | None,
) -> float:
    """`first_step` of one sample."""
    layout = f.layout
    tolerated = y0.abs().mul_(rtol).add_(atol)
    d0 = layout.rms(y0 / tolerated).item()
    d1 = layout.rms(derivative / tolerated).item()
    if math.isnan(d1):
        return math.nan
    guess = 1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1
    guess = min(guess if math.isfinite(guess) else 1e-6, abs(span))
    trial = math.copysign(guess, span)
    moved = f(t0 + trial, torch.add(y0, derivative, alpha=trial))
    change = layout.rms((moved - derivative).div_(tolerated)).item()
    if guess == 0 or not math.isfinite(change):
        return trial
    largest = max(d1, change / guess)
    if largest <= 1e-15:
        refined = max(guess * 1e-3, 1e-6)
    else:
        refined = (0.01 / largest) ** (1 / (error_order + 1))
    step = min(100 * guess, refined)
    if error_constant is not None and d1 > 0:
        # The root first: powers of floats overflow where those of tensors are infinite.
        power = error_order / (error_order + 1)
        times_slower = d1 * guess / change if change > 0 else math.inf
        linear = (_FIRST_ERROR / (error_constant * d1)) ** (1 - power) * times_slower**power
        step = max(step, min(linear, _FIRST_GROWTH * step))
    return math.copysign(min(step, abs(span)), span)
