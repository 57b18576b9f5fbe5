"""Implicit Euler and the trapezoidal rule, for stiff fields.

    implicit_euler:  y⁺ = y + dt f(t⁺, y⁺)                    order 1, L-stable
    trapezoid:       y⁺ = y + dt/2 (f(t, y) + f(t⁺, y⁺))      order 2, A-stable

Newton's method without a matrix: each linear system is solved by GMRES, whose products J v come
from reverse-mode autograd applied twice, the more precisely the closer Newton is to its end. The
equation of a step is solved to nearly the precision of the state's dtype, whatever the tolerances:
a step has no other error control. Gradients come from the implicit function theorem, so that memory
does not grow with Newton's iterations.

Knoll, Keyes (2004), "Jacobian-free Newton–Krylov methods".
"""

from collections.abc import Callable

import torch
from torch import Tensor

from graphode.flows.evaluation import Evaluation
from graphode.flows.host import refuse_transforms
from graphode.flows.implicit_function import implicit_value
from graphode.flows.krylov import Operator, gmres, solved
from graphode.flows.layout import Layout, Time
from graphode.flows.method import Carry, Method, Step, linear

_MAX_ITERATIONS = 25
_LINEAR_TOLERANCE = 1e-2
# What a linear solve may leave of its right side and still be a step of Newton's method.
_USABLE_RESIDUAL = 0.5


class ImplicitOneStep(Method):
    """y⁺ = y + dt ((1 − weight) f(t, y) + weight f(t⁺, y⁺)).

    Args:
        weight: 1 for implicit Euler, 1/2 for the trapezoidal rule.
        order: Order of convergence.
    """

    can_be_recorded = False  # Newton's method asks the host, and differentiates twice

    def __init__(self, weight: float, order: int) -> None:
        self.weight = weight
        self.order = order

    def start(self, f: Evaluation, t: Time, y: Tensor) -> Carry:
        """The derivative at the start, where the method uses it."""
        return () if self.weight == 1 else (f(t, y),)

    def step(self, f: Evaluation, t: Time, y: Tensor, dt: Time, carry: Carry) -> Step:
        """Solve for the new state."""
        if torch.is_inference_mode_enabled():
            raise RuntimeError(
                "Implicit solvers differentiate the field, which `torch.inference_mode()` forbids. "
                "Use `torch.no_grad()`."
            )
        refuse_transforms("A solve by an implicit solver")
        layout = f.layout
        scale = layout.scale(dt)
        base = y
        if self.weight != 1:
            base = y + (1 - self.weight) * scale * f.at_start(t, y, carry[0])
        gain = self.weight * scale

        def left(z: Tensor) -> Tensor:
            return z - gain * f(t + dt, z)

        with torch.no_grad():
            known = base.detach()
            solution, failed = newton(lambda z: left(z) - known, y.detach(), layout)
        if not torch.is_grad_enabled():
            derivative = () if self.weight == 1 else (f(t + dt, solution),)
            return Step(t, dt, y, solution, (), derivative, failed)
        tolerance = solution_tolerance(layout.dtype)
        y1 = implicit_value(
            left, base, solution, lambda a, b: solved(a, b, layout, tolerance=tolerance)
        )
        # f(t⁺, y1) by the equation saves evaluating it; a sample of zero span has no use for it.
        divisor = torch.where(gain == 0, 1.0, gain) if isinstance(gain, Tensor) else gain
        derivative = () if self.weight == 1 else ((y1 - base) / divisor,)
        return Step(t, dt, y, y1, (), derivative, failed)

    def interpolate(self, f: Evaluation, step: Step, theta: Tensor) -> Tensor:
        """The chord: as accurate as the method, and without overshoot."""
        return linear(f, step, theta)


def solution_tolerance(dtype: torch.dtype) -> float:
    """How far an implicit equation is solved, relative to the state, if the field has `dtype`."""
    return torch.finfo(dtype).eps ** 0.8


def newton(
    residual: Callable[[Tensor], Tensor], start: Tensor, layout: Layout
) -> tuple[Tensor, Tensor]:
    """Solve residual(z) = 0 for each sample.

    Returns:
        The solution, and which samples did not converge.
    """
    z = start
    tolerance = solution_tolerance(layout.dtype)
    small = torch.zeros(layout.batch_shape, dtype=torch.bool, device=layout.device)
    fair = small
    before = torch.full_like(layout.rms(start), torch.inf)
    size_before = torch.zeros_like(before)
    tiny = torch.finfo(start.dtype).tiny
    for _ in range(_MAX_ITERATIONS):
        value, product = _linearize(residual, z)
        size = layout.rms(value)
        # The closer to the solution, the better the linear model, and the more it is worth.
        worth = (size / size_before.clamp(min=tiny)).square().clamp(tolerance, _LINEAR_TOLERANCE)
        update, left, stretch = gmres(product, -value, layout, tolerance=worth)
        # A sample that is solved stays as it is, as if it were alone.
        z = torch.where(layout.spread(small), z, z + update)
        change, scale = layout.rms(update), torch.maximum(layout.rms(start), layout.rms(z))
        # Without a residual there is no update, nor is there where the matrix is singular: neither
        # must pass for a small one.
        finite = change.isfinite() & size.isfinite()
        usable = (left <= _USABLE_RESIDUAL) | (size <= tolerance * scale)
        # No better is to be had where what is left is the rounding of stiff terms, which is as
        # large as the matrix, or that of a field whose terms are larger than the state.
        rounding = (size <= tolerance * stretch * scale) | (change <= tolerance * (1 + scale))
        fair = finite & usable & rounding
        stalls = change > before / 2
        small = small | finite & usable & ((change <= tolerance * scale) | (stalls & rounding))
        before, size_before = change, size
        if bool((small | ~finite).all()):
            break
    return z, ~(small | fair)


def _linearize(residual: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Operator]:
    """The residual at `z`, and its Jacobian there as a product with vectors."""
    with torch.enable_grad():
        point = z.detach().requires_grad_()
        value = residual(point)
        dual = torch.zeros_like(value, requires_grad=True)
        (pulled,) = torch.autograd.grad(value, point, dual, create_graph=True)
    return value.detach(), lambda v: torch.autograd.grad(pulled, dual, v, retain_graph=True)[0]
