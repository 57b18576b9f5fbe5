"""Diffusion along the edges and against them.

    [h, P h, …, P^K h, R h, …, R^K h],    P = D_in^(-1) A,    R = D_out^(-1) Aᵀ

P averages over where edges come from, R over where they go. The two are what DCRNN calls the
reverse and the forward random walk: its W is our Aᵀ.

Li, Yu, Shahabi, Liu (2018), "Diffusion Convolutional Recurrent Neural Network: Data-Driven Traffic
Forecasting". Its authors' code runs a Chebyshev recursion on these matrices; the powers here are
those of the paper's text.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.graphs.graph import Graph


def random_walks(graph: Graph) -> tuple[Graph, Graph]:
    """P and R: averages over incoming and over outgoing edges, without added self-loops."""
    source = graph if graph.source is None else graph.source
    return (
        source.normalize("rw", self_loops=False),
        source.reverse().normalize("rw", self_loops=False),
    )


def diffuse(
    walks: tuple[Graph, ...], h: Float[Tensor, "*batch nodes channels"], steps: int
) -> Float[Tensor, "terms *batch nodes channels"]:
    """h and the first `steps` powers of every walk applied to it, with one product each.

    Args:
        walks: `random_walks(graph)`, both directions, or one of them.
        h: The state.
        steps: The highest power K, 0 or more; 1 + K · `len(walks)` terms come back.
    """
    if steps < 0:
        raise ValueError(f"`steps` must be 0 or more, but it is {steps}. Give the highest power.")
    terms = [h]
    for walk in walks:
        state = h
        for _ in range(steps):
            state = walk.propagate(state)
            terms.append(state)
    return torch.stack(terms)
