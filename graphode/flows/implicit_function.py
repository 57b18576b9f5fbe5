"""The derivative of a solution of r(z, θ) = 0, without differentiating the solver.

dz = − (∂r/∂z)⁻¹ dr,   so   a gradient g of z gives   −(∂r/∂z)⁻ᵀ g   to the residual.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphode.flows.gradients import refuse_second_derivatives
from graphode.flows.krylov import Operator


class _ImplicitFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, value: Tensor, point: Tensor, solve: Callable[[Operator, Tensor], Tensor]
    ) -> Tensor:
        ctx.value, ctx.point, ctx.solve = value, point, solve
        return point.detach().clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        refuse_second_derivatives("an implicit equation", "an explicit solver")

        def transposed(v: Tensor) -> Tensor:
            return torch.autograd.grad(ctx.value, ctx.point, v, retain_graph=True)[0]

        return -ctx.solve(transposed, grad_outputs[0]), None, None


def implicit_value(
    residual: Callable[[Tensor], Tensor],
    solution: Tensor,
    solve: Callable[[Operator, Tensor], Tensor],
) -> Tensor:
    """`solution` of residual(z) = 0, with the derivatives that the equation implies.

    Args:
        residual: r, carrying gradients to all it depends on.
        solution: z.
        solve: A, b ↦ A⁻¹ b for a linear map A.
    """
    point = solution.detach().requires_grad_()
    value = _ImplicitFunction.apply(residual(point), point, solve)
    assert isinstance(value, Tensor)
    return value
