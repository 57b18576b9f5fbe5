"""The dual graph: which nodes random walks meet together more often than by chance.

    F[a, b] = how often a and b lie on one walk, at most `window` steps apart
    PPMI[a, b] = max(0, log(F[a, b] ΣF / (F[a, ·] F[·, b])))

Zhuang, Ma (2018), "Dual Graph Convolutional Networks for Graph-Based Semi-Supervised
Classification", algorithm 1.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from graphode.graphs.graph import Graph
from graphode.graphs.pattern import Pattern


def ppmi(
    graph: Graph,
    walk_length: int = 5,
    walks_per_node: int = 100,
    window: int | None = None,
    seed: int = 0,
) -> Graph:
    """The positive pointwise mutual information of nodes on random walks, as a symmetric graph.

    It is not normalised: as the authors do, follow it with `normalize("sym")`.

    Args:
        graph: Where to walk: along the edges, each taken with a probability that goes with its
            weight. A walk ends where no edge leaves.
        walk_length: Steps of a walk.
        walks_per_node: Walks that start at every node.
        window: The largest distance, in steps, of nodes that count as met; the whole walk by
            default, as in the paper.
        seed: Seeds the walks; the same on every device.
    """
    window = walk_length if window is None else window
    if walk_length < 1 or walks_per_node < 1 or window < 1:
        raise ValueError(
            f"`walk_length`, `walks_per_node` and `window` must be 1 or more, but they are "
            f"{walk_length}, {walks_per_node} and {window}. The paper's walks have a few steps."
        )
    source = graph if graph.source is None else graph.source
    walks = walk(source, walk_length, walks_per_node, seed)
    # One code per unordered pair, counted for every distance in turn.
    nodes = source.num_nodes
    codes = []
    for distance in range(1, min(window, walk_length) + 1):
        first, second = walks[:-distance].flatten(), walks[distance:].flatten()
        met = (second >= 0) & (first != second)
        first, second = first[met], second[met]
        codes.append(torch.minimum(first, second) * nodes + torch.maximum(first, second))
    code, count = torch.unique(torch.cat(codes), return_counts=True)
    edge_index = torch.stack([code // max(nodes, 1), code % max(nodes, 1)])
    edge_index = torch.cat([edge_index, edge_index.flip(0)], 1).to(graph.device)
    frequency = torch.cat([count, count]).to(graph.device, torch.float64)

    marginal = frequency.new_zeros(nodes).index_add(0, edge_index[0], frequency)
    expected = marginal[edge_index[0]] * marginal[edge_index[1]]
    information = torch.log(frequency * frequency.sum() / expected)
    kept = (information > 0).nonzero()[:, 0]
    return Graph._trusted(
        Pattern(edge_index[:, kept], nodes, graph._pattern.sizes, graph._pattern.batch_shape),
        information[kept].to(graph.dtype),
    )


def walk(graph: Graph, length: int, walks_per_node: int, seed: int) -> Int[Tensor, "places walks"]:
    """Random walks along the edges, on the CPU; −1 after the end of a walk that got stuck."""
    weight = graph.edge_weight.detach().cpu().double()
    if bool((weight < 0).any()):
        raise ValueError(
            f"Random walks need weights of 0 or more, but the lowest is {float(weight.min()):.4g}. "
            "Use their absolute values or a kernel of them."
        )
    generator = torch.Generator().manual_seed(seed)
    out = graph.reverse().to("cpu")
    crow, col = (part.long() for part in out._pattern.places[:2])
    # Edges laid end to end, each as long as its weight: a uniform draw within the stretch of a
    # node falls on an edge with the right probability.
    ends = torch.cat([weight.new_zeros(1), out._pattern.arrange(weight).cumsum(0)])
    places = [torch.arange(graph.num_nodes).repeat(walks_per_node)]
    for _ in range(length):
        here = places[-1].clamp(min=0)
        low, high = ends[crow[here]], ends[crow[here + 1]]
        draw = torch.rand(len(here), generator=generator, dtype=torch.float64)
        edge = torch.searchsorted(ends, low + draw * (high - low), right=True) - 1
        edge = torch.minimum(edge, crow[here + 1] - 1).clamp(min=0)
        stuck = (places[-1] < 0) | (high <= low)
        following = col[edge] if col.numel() else torch.zeros_like(here)
        places.append(torch.where(stuck, -1, following))
    return torch.stack(places)
