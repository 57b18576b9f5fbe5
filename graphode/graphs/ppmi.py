"""The dual graph: which nodes random walks meet together more often than by chance.

    F[a, b] = how often a and b lie on one walk, at most `window` steps apart
    PPMI[a, b] = max(0, log(F[a, b] ΣF / (F[a, ·] F[·, b])))

F is counted on walks that are drawn, as by its authors, or expected, from powers of the transition
matrix P. Of walks of L steps that start everywhere once, 1ᵀP^k pass each node at step k, so that

    F = Σ_{d=1}^{window} diag(1ᵀ Σ_{k=0}^{L−d} P^k) P^d,    made symmetric, without its diagonal

Zhuang, Ma (2018), "Dual Graph Convolutional Networks for Graph-Based Semi-Supervised
Classification", algorithm 1.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphode.graphs.graph import Graph
from graphode.graphs.pattern import Pattern

# Information below this is rounding: pairs met exactly as often as by chance share none.
NEGLIGIBLE = 1e-9


def ppmi(
    graph: Graph,
    walk_length: int = 5,
    walks_per_node: int | None = 100,
    window: int | None = None,
    seed: int = 0,
) -> Graph:
    """The positive pointwise mutual information of nodes on random walks, as a symmetric graph.

    It is not normalised: as the authors do, follow it with `normalize("sym")`. What is met by
    chance is a matter of each graph of a batch alone.

    Args:
        graph: Where to walk: along the edges, each taken with a probability that goes with its
            weight. A walk ends where no edge leaves.
        walk_length: Steps of a walk.
        walks_per_node: Walks that start at every node. None for what infinitely many would find,
            by dense products, nodes × nodes: for some thousand nodes at most. It does not depend
            on how nodes are numbered, and has gradients to the edge weights.
        window: The largest distance, in steps, of nodes that count as met; the whole walk by
            default, as in Zhuang and Ma.
        seed: Seeds the walks; the same on every device.
    """
    window = walk_length if window is None else min(window, walk_length)
    if walk_length < 1 or window < 1 or (walks_per_node is not None and walks_per_node < 1):
        raise ValueError(
            f"`walk_length`, `walks_per_node` and `window` must be 1 or more, but they are "
            f"{walk_length}, {walks_per_node} and {window}. The paper's walks have a few steps."
        )
    source = graph if graph.source is None else graph.source
    _check_weights(source)
    if source.num_edges == 0:
        return source.reweight(source.edge_weight)
    duals = []
    for one in source.unbatch():
        if walks_per_node is None:
            edge_index, frequency = _expected(one, walk_length, window)
        else:
            edge_index, frequency = _counted(walk(one, walk_length, walks_per_node, seed), window)
        duals.append(_informative(one, edge_index.to(graph.device), frequency.to(graph.device)))
    if source._pattern.sizes is None:
        return duals[0]
    edge_index = Graph.batch(duals).edge_index
    like = source._pattern
    return Graph._trusted(
        Pattern(edge_index, like.num_nodes, like.sizes, like.batch_shape),
        torch.cat([dual.edge_weight for dual in duals]),
    )


def _informative(graph: Graph, edge_index: Tensor, frequency: Tensor) -> Graph:
    """Pairs met more often than by chance, weighed by how much."""
    marginal = frequency.new_zeros(graph.num_nodes).index_add(0, edge_index[0], frequency)
    expected = marginal[edge_index[0]] * marginal[edge_index[1]]
    information = torch.log(frequency * frequency.sum() / expected)
    kept = (information > NEGLIGIBLE).nonzero()[:, 0]
    pattern = Pattern(edge_index[:, kept], graph.num_nodes)
    return Graph._trusted(pattern, information[kept].to(graph.dtype))


def _counted(walks: Int[Tensor, "places walks"], window: int) -> tuple[Tensor, Tensor]:
    """Pairs met on walks, in both directions, and how often."""
    nodes = int(walks[0].max()) + 1 if walks.numel() else 1
    # One code per unordered pair, counted for every distance in turn.
    codes = []
    for distance in range(1, window + 1):
        first, second = walks[:-distance].flatten(), walks[distance:].flatten()
        met = (second >= 0) & (first != second)
        first, second = first[met], second[met]
        codes.append(torch.minimum(first, second) * nodes + torch.maximum(first, second))
    code, count = torch.unique(torch.cat(codes), return_counts=True)
    edge_index = torch.stack([code // nodes, code % nodes])
    both = torch.cat([edge_index, edge_index.flip(0)], 1)
    return both, torch.cat([count, count]).double()


def _expected(graph: Graph, length: int, window: int) -> tuple[Tensor, Tensor]:
    """The same for infinitely many walks: pairs that can meet, and how often they are expected."""
    walks = graph.to(dtype=torch.float64).reverse().normalize("rw", self_loops=False)
    transition = walks.to_dense()
    passing: list[Float[Tensor, " nodes"]] = [transition.new_ones(len(transition))]
    for _ in range(length - 1):
        passing.append(passing[-1] @ transition)
    frequency = torch.zeros_like(transition)
    reached = transition
    for distance in range(1, window + 1):
        starts = torch.stack(passing[: length - distance + 1]).sum(0)
        frequency = frequency + starts[:, None] * reached
        reached = reached @ transition
    frequency = (frequency + frequency.t()).fill_diagonal_(0)
    first, second = frequency.detach().nonzero(as_tuple=True)
    return torch.stack([first, second]), frequency[first, second]


def _check_weights(graph: Graph) -> None:
    weight = graph.edge_weight
    if bool((weight < 0).any()):
        raise ValueError(
            f"Random walks need weights of 0 or more, but the lowest is {float(weight.min()):.4g}. "
            "Use their absolute values or a kernel of them."
        )


def walk(graph: Graph, length: int, walks_per_node: int, seed: int) -> Int[Tensor, "places walks"]:
    """Random walks along the edges, on the CPU; −1 after the end of a walk that got stuck."""
    weight = graph.edge_weight.detach().cpu().double()
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
