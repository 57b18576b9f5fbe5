"""Cayley transforms of a Laplacian, applied to a state by Jacobi iterations.

    C = (sL − iI) (sL + iI)^(-1),    filter(h) = c_0 h + 2 Re Σ_j c_j C^j h

Each power solves (sL + iI) y_j = (sL − iI) y_{j−1} by

    y ← Diag^(-1) ((sL − iI) y_{j−1} − Off y),    sL + iI = Diag + Off

which converges for every zoom s > 0: the rows of Diag^(-1) Off sum to s l_ii / |s l_ii + i| < 1.

Levie, Monti, Bresson, Bronstein (2017), "CayleyNets: Graph Convolutional Neural Networks with
Complex Rational Spectral Filters".
"""

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from graphode.graphs.graph import Graph
from graphode.graphs.normalization import LAPLACIANS


def cayley(
    graph: Graph,
    h: Float[Tensor, "*batch nodes channels"],
    order: int,
    zoom: float | int | Float[Tensor, ""] = 1.0,
    iterations: int = 10,
) -> Complex[Tensor, "terms *batch nodes channels"]:
    """C^0 h, …, C^order h, with `order` · (`iterations` + 1) sparse products.

    Args:
        graph: A Laplacian: kind "laplacian", "sym_laplacian" or "rw_laplacian".
        h: The state.
        order: The highest power, 0 or more; order + 1 terms come back.
        zoom: The factor s, which decides on which part of the spectrum the filter looks; it may
            be a parameter.
        iterations: Jacobi iterations per power; the error falls by s l / √(s² l² + 1) in each, l
            being the largest entry on the diagonal.
    """
    if graph.kind not in LAPLACIANS:
        raise ValueError(
            f"Cayley filters need a Laplacian, but the graph is of kind {graph.kind!r}. Use "
            '`graph.normalize("sym_laplacian")`.'
        )
    if order < 0 or iterations < 0:
        raise ValueError(
            f"`order` and `iterations` must be 0 or more, but they are {order} and {iterations}. "
            "Give the highest power, and about 10 iterations."
        )
    # All nodes of a batch in one dimension, in which the diagonal counts them.
    flat = graph.flatten(h)
    diagonal = graph.diagonal.to(h.dtype)[:, None]
    imaginary = torch.complex(torch.zeros_like(diagonal), torch.ones_like(diagonal))
    inverse = 1 / (zoom * diagonal + imaginary)

    def laplacian(y: Tensor) -> Tensor:
        return zoom * _propagate_complex(graph, y)

    terms = [torch.complex(flat, torch.zeros_like(flat))]
    for _ in range(order):
        right = laplacian(terms[-1]) - imaginary * terms[-1]
        y = inverse * right
        for _ in range(iterations):
            y = inverse * (right - laplacian(y) + zoom * diagonal * y)
        terms.append(y)
    return torch.stack(terms).reshape(order + 1, *h.shape)


def _propagate_complex(graph: Graph, y: Tensor) -> Tensor:
    """A y for complex y: real and imaginary parts are channels of one sparse product."""
    parts = graph.propagate(torch.view_as_real(y).flatten(-2))
    return torch.view_as_complex(parts.unflatten(-1, (-1, 2)).contiguous())
