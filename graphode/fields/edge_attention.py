"""Attention along edges: softmax over the edges that arrive at a node, and the weighted sum.

    α_uv = exp(e_uv) / Σ_{u′→v} exp(e_u′v),    out_v = Σ_{u→v} α_uv x_u

Scores and weights are edges × heads; no tensor of size edges × channels is made.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.graphs import Graph


def edge_softmax(
    scores: Float[Tensor, "edges heads"], graph: Graph
) -> Float[Tensor, "edges heads"]:
    """The softmax of scores over the edges with the same target, for each head."""
    target = graph.edge_index[1]
    with torch.no_grad():
        # The largest score of each target: exp of the difference cannot overflow.
        lowest = scores.new_full((graph.num_nodes, scores.shape[1]), -torch.inf)
        index = target[:, None].expand_as(scores)
        largest = lowest.scatter_reduce(0, index, scores.detach(), "amax")
    shares = (scores - largest.index_select(0, target)).exp()
    zeros = shares.new_zeros(graph.num_nodes, shares.shape[1])
    return shares / zeros.index_add(0, target, shares).index_select(0, target)


def attend(
    weights: Float[Tensor, "edges heads"],
    values: Float[Tensor, "nodes heads channels"],
    graph: Graph,
) -> Float[Tensor, "nodes heads channels"]:
    """Σ_{u→v} α_uv x_u for each head: one sparse product a head."""
    heads = zip(weights.unbind(1), values.unbind(1), strict=True)
    return torch.stack([graph.reweight(alpha).propagate(x) for alpha, x in heads], 1)
