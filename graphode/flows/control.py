"""Step-size control: the first step, and the factor from one step to the next.

Hairer, Nørsett, Wanner, "Solving Ordinary Differential Equations I", 2nd ed., II.4 (first step);
Söderlind (2003), "Digital filters in adaptive time-stepping" (PID control).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphode.flows.evaluation import Evaluation


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
    """

    # Mildly PI: over six problems and three tolerances it needs the fewest evaluations at equal
    # error among those tried that have no bad case (benchmarks/flows.py).
    proportional: float = 0.1
    integral: float = 0.9
    derivative: float = 0.0
    safety: float = 0.9
    min_factor: float = 0.2
    max_factor: float = 10.0

    def factor(
        self, ratio: Tensor, previous: Tensor, before: Tensor, accept: Tensor, error_order: int
    ) -> Tensor:
        """The next step size over this one, per sample."""
        p, i, d = (
            value / (error_order + 1)
            for value in (self.proportional, self.integral, self.derivative)
        )
        # A step without error would ask for an infinite one.
        ratio = ratio.clamp(min=1e-10)
        factor = self.safety * ratio ** -(p + i + d)
        if p or d:
            factor = factor * previous ** (p + 2 * d) * before**-d
        factor = factor.clamp(self.min_factor, self.max_factor)
        factor = torch.where(accept, factor, factor.clamp(max=1.0))
        return torch.where(ratio.isfinite(), factor, self.min_factor)


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
) -> Tensor:
    """A first step size per sample, signed, from one explicit Euler step (one evaluation)."""
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
    # A non-finite trial says nothing but "smaller".
    step = torch.where(step.isfinite(), step, guess)
    return torch.minimum(step, span.abs()) * span.sign()
