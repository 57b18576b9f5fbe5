"""Graphs as hypothesis draws them: empty, single-node, disconnected, directed, with loops."""

import torch
from hypothesis import strategies
from hypothesis.strategies import DrawFn, composite
from torch import Tensor


@composite
def matrices(draw: DrawFn, max_nodes: int = 7, positive: bool = False) -> Tensor:
    """A square matrix, the adjacency of a graph; a third of them symmetric."""
    nodes = draw(strategies.integers(0, max_nodes))
    weights = [0.0, 0.0, 0.5, 1.0, 3.0] if positive else [0.0, 0.0, 1.0, -0.5, 2.0]
    entries = strategies.lists(
        strategies.sampled_from(weights), min_size=nodes * nodes, max_size=nodes * nodes
    )
    matrix = torch.tensor(draw(entries), dtype=torch.float64).reshape(nodes, nodes)
    if draw(strategies.sampled_from(["directed", "directed", "symmetric"])) == "symmetric":
        matrix = matrix.tril() + matrix.tril(-1).t()
    return matrix
