"""Who is within a radius, as a matrix: `radius_graph` for few nodes, at every evaluation."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.graphs.dense_graph import DenseGraph
from graphode.graphs.topology import located, widened
from graphode.graphs.validation import ArrayLike, checked_positions


def dense_radius_graph(
    positions: Float[Tensor, "*batch nodes dims"] | ArrayLike,
    radius: float | int,
    kernel: Callable[[Tensor], Tensor] | None = None,
) -> DenseGraph:
    """An edge, both ways, between any two nodes at most `radius` apart; no self-loops.

    The same graph as `radius_graph`, by the same formula. No value decides a shape, so that it may
    be mapped, compiled and captured; memory grows with the square of the nodes.

    Args:
        positions: Where the nodes are; leading dimensions make a batch.
        radius: The largest length of an edge.
        kernel: Lengths to weights of 0 or more, elementwise, with gradients to the positions. By
            default weights are 1, and no gradient passes through the choice of neighbours.
    """
    if not radius >= 0:
        raise ValueError(f"`radius` must be 0 or more, but it is {radius}. Give a distance.")
    positions = checked_positions(positions)
    if kernel is None:
        positions = positions.detach()
    squares: Tensor | float = 0.0
    # One dimension at a time: sums over two channels are slow.
    for x in located(widened(positions), radius).unbind(-1):
        squares = squares + (x[..., :, None] - x[..., None, :]).square()
    assert isinstance(squares, Tensor)
    others = ~torch.eye(positions.shape[-2], dtype=torch.bool, device=positions.device)
    near = (squares <= radius * radius) & others
    if kernel is None:
        return DenseGraph._of(near.to(positions.dtype), nonnegative=True)
    apart = near & (squares > 0)
    # The inner `where` keeps the gradient finite where the length is 0.
    lengths = torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0).to(positions.dtype)
    return DenseGraph._of(torch.where(near, kernel(lengths), 0.0), nonnegative=True)
