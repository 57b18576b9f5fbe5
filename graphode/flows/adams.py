"""Adams–Bashforth–Moulton of order 4, in the form predict, evaluate, correct, evaluate.

    p  = y + dt/24 (55 f₀ − 59 f₋₁ + 37 f₋₂ − 9 f₋₃)
    y⁺ = y + dt/24 (9 f(t⁺, p) + 19 f₀ − 5 f₋₁ + f₋₂)

Hairer, Nørsett, Wanner, "Solving Ordinary Differential Equations I", 2nd ed., III.1. Two
evaluations a step, whatever the order; the first three steps are classical Runge–Kutta.
"""

from torch import Tensor

from graphode.flows.evaluation import Evaluation, advance
from graphode.flows.layout import Time
from graphode.flows.method import Carry, Method, Step
from graphode.flows.runge_kutta import RungeKutta
from graphode.flows.tableaus import RK4

_PREDICT = (55 / 24, -59 / 24, 37 / 24, -9 / 24)
_CORRECT = (9 / 24, 19 / 24, -5 / 24, 1 / 24)


class Adams(Method):
    """Needs equal steps; the carry holds the derivatives at the last points, newest first."""

    order = 4

    def __init__(self) -> None:
        self.starter = RungeKutta(RK4)

    def start(self, f: Evaluation, t: Time, y: Tensor) -> Carry:
        """The first derivative of the history."""
        return (f(t, y),)

    def step(self, f: Evaluation, t: Time, y: Tensor, dt: Time, carry: Carry) -> Step:
        """Predict and correct once the history is full, else one Runge–Kutta step."""
        if len(carry) < len(_PREDICT) or f.changes_by_step:
            start = self.starter.step(f, t, y, dt, carry[:1])
            first, y1 = start.stages[0], start.y1
        else:
            first = carry[0]
            predicted = advance(y, dt, _PREDICT, carry, f.layout)
            y1 = advance(y, dt, _CORRECT, (f(t + dt, predicted), *carry[:3]), f.layout)
        derivative = f(t + dt, y1)
        history = (derivative, *carry[:3])
        return Step(t, dt, y, y1, (first,), history, end=derivative)
