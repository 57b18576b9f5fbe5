"""The derivatives of a solution of r(z, θ) = 0, without differentiating the solver.

At the solution, with M = ∂r/∂z held fixed, the correction

    z ← z − M⁻¹ r(z, θ)

changes no value, but one correction carries the first derivatives of z in θ (the implicit function
theorem), and two the second ones: each further one is exact in one order more, because the
correction's own derivative in z vanishes there.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphode.flows.dependencies import leaves_behind
from graphode.flows.krylov import Operator

LinearSolve = Callable[[Operator, Tensor], Tensor]


class _Linearization:
    """M and Mᵀ at a point, as products from the graph of r there."""

    def __init__(self, value: Tensor, point: Tensor, solve: LinearSolve) -> None:
        self.value, self.point, self.solve = value, point, solve

    def transposed(self, v: Tensor) -> Tensor:
        return torch.autograd.grad(self.value, self.point, v, retain_graph=True)[0]

    def product(self, v: Tensor) -> Tensor:
        with torch.enable_grad():
            dual = torch.zeros_like(self.value, requires_grad=True)
            (pulled,) = torch.autograd.grad(self.value, self.point, dual, create_graph=True)
        return torch.autograd.grad(pulled, dual, v)[0]

    def solved(self, right: Tensor, transposed: bool) -> Tensor:
        """M⁻¹ or M⁻ᵀ times `right`."""
        return self.solve(self.transposed if transposed else self.product, right.detach())


class _Solve(torch.autograd.Function):
    """M⁻¹ b or M⁻ᵀ b, linear in b; each is the other's derivative."""

    @staticmethod
    def forward(ctx: Any, right: Tensor, system: _Linearization, transposed: bool, zero: bool):
        ctx.system, ctx.transposed = system, transposed
        # The residual of a solution is zero, and so is its correction.
        return torch.zeros_like(right) if zero else system.solved(right, transposed)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        back = _Solve.apply(grad_outputs[0], ctx.system, not ctx.transposed, False)
        return back, None, None, None


def implicit_value(
    left: Callable[[Tensor], Tensor], right: Tensor, solution: Tensor, solve: LinearSolve
) -> Tensor:
    """`solution` of left(z) = right, with its first and second derivatives, if it has any.

    The matrix is that of `left` alone. What a step starts from is on the right, so that the systems
    of a step are solved without a walk through the graph of all steps before it.

    Args:
        left: Of z, carrying gradients to all it depends on.
        right: Carries gradients too.
        solution: Its value.
        solve: Solves M x = b, given the product with M.
    """
    point = solution.detach().requires_grad_()
    value = left(point)
    if not (right.requires_grad or depends_on_more(value, point)):
        return solution.detach()
    system = _Linearization(value, point, solve)
    once = solution.detach() - _Solve.apply(value - right, system, False, True)
    return once - _Solve.apply(left(once) - right, system, False, True)


def depends_on_more(value: Tensor, point: Tensor) -> bool:
    """Whether anything besides the leaf `point` receives a gradient from `value`."""
    return any(leaf is not point for leaf in leaves_behind([value.grad_fn]))
