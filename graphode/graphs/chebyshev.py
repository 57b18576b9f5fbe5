"""Chebyshev polynomials of a graph's matrix, applied to a state.

    T_0 h = h,    T_1 h = L̃ h,    T_k h = 2 L̃ T_{k−1} h − T_{k−2} h

Defferrard, Bresson, Vandergheynst (2016), "Convolutional Neural Networks on Graphs with Fast
Localized Spectral Filtering".
"""

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.graphs.graph import Graph

BOUNDED = ("scaled_laplacian", "sym", "rw")


def chebyshev(
    graph: Graph, h: Float[Tensor, "*batch nodes channels"], order: int
) -> Float[Tensor, "terms *batch nodes channels"]:
    """T_0 h, …, T_order h, with `order` sparse products.

    Args:
        graph: A matrix with its spectrum in [−1, 1]: `scaled_laplacian(graph)`, or a graph
            normalised as "sym" or "rw".
        h: The state.
        order: The highest degree, 0 or more; order + 1 terms come back.
    """
    if graph.kind not in BOUNDED:
        raise ValueError(
            f"Chebyshev polynomials need a matrix with its spectrum in [−1, 1], but the graph is "
            f"of kind {graph.kind!r}. Use `scaled_laplacian(graph)`."
        )
    if order < 0:
        raise ValueError(f"`order` must be 0 or more, but it is {order}. Give the highest degree.")
    terms = [h]
    if order > 0:
        terms.append(graph.propagate(h))
    for _ in range(order - 1):
        terms.append(2 * graph.propagate(terms[-1]) - terms[-2])
    return torch.stack(terms)
