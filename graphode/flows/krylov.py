"""GMRES without a matrix, one system per sample, all samples in one iteration.

Saad, Schultz (1986), "GMRES: a generalized minimal residual algorithm for solving nonsymmetric
linear systems".
"""

from collections.abc import Callable

import torch
from torch import Tensor

from graphode.flows.layout import Layout

Operator = Callable[[Tensor], Tensor]

_BASIS_SIZE = 30  # Krylov vectors before a restart
_RESTARTS = 10  # from the residual


@torch.no_grad()
def gmres(
    operator: Operator, right: Tensor, layout: Layout, *, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Solve `operator(x) = right` until every sample's residual is `tolerance · ‖right‖`.

    Args:
        operator: A linear map of tensors shaped as `right`, acting on each sample alone.
        right: `[..., *state]`; dimensions before the state belong to the system.

    Returns:
        The solution, and ‖right − operator(x)‖ / ‖right‖ per sample, which stays near 1 where the
        system is singular (and is NaN where there is nothing to solve).
    """
    tiny = torch.finfo(right.dtype).tiny
    whole = norm = _norm(right, layout)
    goal = tolerance * whole
    x = torch.zeros_like(right)
    residual = right
    for _ in range(_RESTARTS):
        # A sample that overflows is given up; it must not keep the others from their solution.
        if bool(((norm <= goal) | ~norm.isfinite()).all()):
            break
        basis = [residual / layout.spread(norm.clamp(min=tiny))]
        columns: list[Tensor] = []
        weights = norm.new_zeros((*norm.shape, 0))
        for size in range(1, _BASIS_SIZE + 1):
            vector = operator(basis[-1])
            column = []
            for previous in basis:
                overlap = _dot(previous, vector, layout)
                vector = vector - layout.spread(overlap) * previous
                column.append(overlap)
            length = _norm(vector, layout)
            broken = ~length.isfinite()
            columns.append(torch.stack([*column, length], -1).masked_fill(broken[..., None], 0.0))
            weights, error = _least_squares(columns, norm.masked_fill(broken, 0.0))
            # A sample whose space is exhausted (length 0) is solved exactly.
            done = (error <= goal) | (length <= tiny) | broken
            if bool(done.all()) or size == _BASIS_SIZE:
                break
            basis.append(vector / layout.spread(length.clamp(min=tiny)))
        for index in range(weights.shape[-1]):
            x = x + layout.spread(weights[..., index]) * basis[index]
        residual = right - operator(x)
        norm = _norm(residual, layout)
    return x, norm / whole


def _dot(a: Tensor, b: Tensor, layout: Layout) -> Tensor:
    """Inner product per sample; dimensions before the state belong to the system."""
    value = layout.dot(a, b)
    return (
        value.flatten(0, -layout.batch_dims - 1).sum(0) if value.ndim > layout.batch_dims else value
    )


def _norm(a: Tensor, layout: Layout) -> Tensor:
    return _dot(a, a, layout).sqrt()


def _least_squares(columns: list[Tensor], norm: Tensor) -> tuple[Tensor, Tensor]:
    """min_w ‖norm e₁ − H w‖ per sample for the Hessenberg matrix of `columns`."""
    size = len(columns)
    hessenberg = norm.new_zeros((*norm.shape, size + 1, size))
    for index, column in enumerate(columns):
        hessenberg[..., : index + 2, index] = column
    target = norm.new_zeros((*norm.shape, size + 1, 1))
    target[..., 0, 0] = norm
    weights = torch.linalg.pinv(hessenberg) @ target
    error = torch.linalg.vector_norm(target - hessenberg @ weights, dim=(-2, -1))
    return weights[..., 0], error
