"""The derivative of a solution of r(z, θ) = 0, without differentiating the solver.

dz = − (∂r/∂z)⁻¹ dr,   so   a gradient g of z gives   −(∂r/∂z)⁻ᵀ g   to the residual.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _ImplicitFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, residual: Tensor, solution: Tensor, solve_transposed: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.solve_transposed = solve_transposed
        return solution.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return -ctx.solve_transposed(grad_outputs[0]), None, None


def implicit_value(
    residual: Tensor, solution: Tensor, solve_transposed: Callable[[Tensor], Tensor]
) -> Tensor:
    """`solution`, with the derivatives that `residual` (its value is about 0) implies.

    Args:
        residual: r at the solution, carrying gradients to all it depends on but the solution.
        solution: z with r(z, θ) = 0, detached.
        solve_transposed: v ↦ (∂r/∂z)⁻ᵀ v.
    """
    value = _ImplicitFunction.apply(residual, solution, solve_transposed)
    assert isinstance(value, Tensor)
    return value
