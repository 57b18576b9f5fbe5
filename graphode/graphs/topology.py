"""Graphs from where nodes are: who is within a radius, who is nearest.

Edges are a decision, not a function: no gradient passes through the choice of neighbours. It does
pass to the weights, where a `kernel` makes them from lengths, so that a field may rebuild its
graph from its state at every evaluation.

On a CPU, more than some hundred nodes are searched by SciPy's k-d tree; fewer, and those on a GPU,
by comparing all pairs, in pieces of bounded memory.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.graphs.graph import Graph
from graphode.graphs.pattern import Pattern
from graphode.graphs.validation import ArrayLike, checked_positions

# Measured in the plane: all pairs of 100 nodes take as long as a tree, those of 1000 take 8 ×.
ALL_PAIRS_NODES = 128
CHUNK_ELEMENTS = 1 << 24
Kernel = Callable[[Tensor], Tensor]


def radius_graph(
    positions: Float[Tensor, "*batch nodes dims"] | ArrayLike,
    radius: float | int,
    kernel: Kernel | None = None,
) -> Graph:
    """An edge, both ways, between any two nodes at most `radius` apart; no self-loops.

    Nodes in the same place are joined. A node whose position is not finite is isolated.

    Args:
        positions: Where the nodes are. Leading dimensions make a batch of graphs, perhaps of
            none, which acts on states `[*batch, nodes, channels]`.
        radius: The largest length of an edge.
        kernel: Lengths [edges] to weights [edges]; ones by default.
    """
    if not radius >= 0:
        raise ValueError(f"`radius` must be 0 or more, but it is {radius}. Give a distance.")
    positions = checked_positions(positions)
    source, target = _close_pairs(located(_samples(positions), radius), radius)
    return _graph(positions, source, target, kernel)


def nearest_graph(
    positions: Float[Tensor, "*batch nodes dims"] | ArrayLike,
    num_neighbors: int,
    kernel: Kernel | None = None,
) -> Graph:
    """To every node, an edge from each of its nearest nodes; ties are broken arbitrarily.

    Such a graph is directed: to be among the nearest is not mutual.

    Args:
        positions: Where the nodes are, with leading dimensions as in `radius_graph`.
        num_neighbors: Edges that arrive at each node.
        kernel: Lengths [edges] to weights [edges]; ones by default.
    """
    positions = checked_positions(positions)
    nodes = positions.shape[-2]
    if not 1 <= num_neighbors < nodes:
        raise ValueError(
            f"`num_neighbors` must be from 1 to one less than the {nodes} nodes, but it is "
            f"{num_neighbors}. Ask for fewer neighbours; `radius_graph` takes any number of nodes."
        )
    samples = _samples(positions)
    if not bool(torch.isfinite(samples).all()):
        raise ValueError(
            "`positions` must be finite for nodes to have nearest ones, but some are not. Drop "
            "those nodes, or see why the state diverged."
        )
    neighbors = torch.empty(0, nodes, num_neighbors, dtype=torch.int64, device=samples.device)
    if len(samples):
        neighbors = torch.stack([_nearest(sample, num_neighbors) for sample in samples.unbind()])
    start = torch.arange(len(samples), device=samples.device)[:, None, None] * nodes
    source = (neighbors + start).flatten()
    target = torch.arange(len(samples) * nodes, device=samples.device)
    return _graph(positions, source, target.repeat_interleave(num_neighbors), kernel)


def edge_lengths(
    graph: Graph, positions: Float[Tensor, "*batch nodes dims"] | ArrayLike
) -> Float[Tensor, " edges"]:
    """‖x_source − x_target‖ for every edge, with gradients: 0 between nodes in the same place."""
    positions = checked_positions(positions)
    if math.prod(positions.shape[:-1]) != graph.num_nodes:
        raise ValueError(
            f"`positions` must have shape [*batch, nodes, dims] with {graph.num_nodes} nodes in "
            f"all, as the graph has, but their shape is {list(positions.shape)}. Give the "
            "positions that the graph was made from."
        )
    points = widened(positions).reshape(graph.num_nodes, positions.shape[-1])
    squares = _squares(points, *graph.edge_index)
    apart = squares > 0
    # The inner `where` keeps the gradient finite where the length is 0.
    return torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0).to(positions.dtype)


def widened(positions: Tensor) -> Tensor:
    """Positions in the dtype that distances are found in: in half precision squares overflow."""
    return positions.float() if positions.dtype.itemsize < 4 else positions


def located(positions: Tensor, radius: float | int) -> Tensor:
    """Positions with NaN for what is not finite, where a radius would reach as far as ∞."""
    if radius * radius < torch.finfo(positions.dtype).max:
        return positions
    return torch.where(positions.isfinite(), positions, torch.nan)


def _graph(positions: Tensor, source: Tensor, target: Tensor, kernel: Kernel | None) -> Graph:
    *batch, nodes, _ = positions.shape
    edge_index = torch.stack([source, target])
    if batch:
        count = math.prod(batch)
        sizes = (nodes,) * count
        pattern = Pattern(edge_index, count * nodes, sizes, tuple(batch), lasts=False)
    else:
        pattern = Pattern(edge_index, nodes, lasts=False)
    graph = Graph._trusted(pattern, positions.new_ones(len(source)))
    return graph if kernel is None else graph.reweight(kernel(edge_lengths(graph, positions)))


def _samples(positions: Tensor) -> Tensor:
    *batch, nodes, dims = positions.shape
    return widened(positions.detach()).reshape(math.prod(batch), nodes, dims)


def _squares(points: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return (points.index_select(-2, source) - points.index_select(-2, target)).square().sum(-1)


def _close_pairs(samples: Tensor, radius: float | int) -> tuple[Tensor, Tensor]:
    """Ordered pairs of distinct nodes within the radius, numbered through all samples."""
    # Candidates from a slightly larger radius, decided by one formula: the answer does not depend
    # on the route, nor on the batch a sample is in.
    generous = radius * (1 + 1e-5)
    count, nodes, dims = samples.shape
    if count == 0:
        source = target = torch.empty(0, dtype=torch.int64, device=samples.device)
    elif samples.device.type == "cpu" and nodes > ALL_PAIRS_NODES:
        pairs = [_tree_pairs(sample, generous) + k * nodes for k, sample in enumerate(samples)]
        source, target = torch.cat(pairs, 1)
    else:
        rows = max(1, CHUNK_ELEMENTS // max(1, nodes * count))
        found = [
            (_all_distances(chunk, samples) <= generous).nonzero() + start
            for chunk, start in _row_chunks(samples, rows)
        ]
        which, target, source = torch.cat(found).unbind(1)
        source, target = source + which * nodes, target + which * nodes
    points = samples.reshape(count * nodes, dims)
    close = (_squares(points, source, target) <= radius * radius) & (source != target)
    return source[close], target[close]


def _row_chunks(samples: Tensor, rows: int) -> list[tuple[Tensor, Tensor]]:
    starts = range(0, max(1, samples.shape[1]), rows)
    offsets = [torch.tensor([0, start, 0], device=samples.device) for start in starts]
    return list(zip(samples.split(rows, dim=1), offsets, strict=True))


def _all_distances(a: Tensor, b: Tensor) -> Tensor:
    # The faster way by a matrix product cancels digits: nodes in one place would be apart.
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def _tree_pairs(points: Tensor, radius: float | int) -> Tensor:
    finite = torch.isfinite(points).all(-1).nonzero()[:, 0]
    tree = _tree(points[finite])
    pairs = finite[torch.from_numpy(tree.query_pairs(radius, output_type="ndarray")).t()]
    return torch.cat([pairs, pairs.flip(0)], 1)


def _tree(points: Tensor) -> Any:
    from scipy.spatial import KDTree  # here, since its import is slow

    return KDTree(points.double().numpy())


def _nearest(points: Tensor, num_neighbors: int) -> Tensor:
    """The nearest other nodes of each node [nodes, num_neighbors]."""
    nodes = len(points)
    own = torch.arange(nodes, device=points.device)[:, None]
    if points.device.type == "cpu" and nodes > ALL_PAIRS_NODES:
        tree = _tree(points)
        # One more than asked, since a node is its own nearest; among nodes in one place it may be
        # missing, and then the last goes instead.
        found = torch.from_numpy(tree.query(tree.data, num_neighbors + 1)[1]).long()
        others = found != own
        others[others.all(1), -1] = False
        return found[others].reshape(nodes, num_neighbors)
    rows = max(1, CHUNK_ELEMENTS // nodes)
    chunks = []
    for part, own_part in zip(points.split(rows), own.split(rows), strict=True):
        distances = _all_distances(part, points).scatter_(1, own_part, torch.inf)
        chunks.append(distances.topk(num_neighbors, largest=False)[1])
    return torch.cat(chunks)
