"""Many graphs as one: block after block on the diagonal of one sparse matrix.

    A = diag(A_1, …, A_B),    propagate(h) = [A_1 h_1; …; A_B h_B]

so that a batch costs one sparse product, whatever the sizes of its graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphode.graphs.pattern import Pattern
from graphode.graphs.validation import maker_of

if TYPE_CHECKING:
    from graphode.graphs.graph import Graph


def checked(graphs: Iterable[Graph]) -> list[Graph]:
    """The graphs as a list, if they can be batched."""
    try:
        graphs = list(graphs)
    except TypeError:  # in list's own words
        raise TypeError(
            f"`Graph.batch` takes graphs in a list, but it got a {type(graphs).__name__}. A batch "
            "of one is `Graph.batch([graph])`."
        ) from None
    if len(graphs) == 0:
        raise ValueError(
            "`Graph.batch` needs at least one graph, but the list is empty. Skip empty batches."
        )
    for k, graph in enumerate(graphs):
        if not hasattr(graph, "_pattern"):
            make = maker_of(graph) or "Graph(edge_index, num_nodes)"
            raise TypeError(
                f"`Graph.batch` takes graphs, but number {k} is a {type(graph).__name__}. Use "
                f"`{make}` for each."
            )
    for what, remedy in (
        ("kind", 'Normalise all of them alike, for instance `graph.normalize("sym")`'),
        ("device", "Move them first with `graph.to(device)`"),
        ("dtype", "Convert them first with `graph.to(dtype=…)`"),
    ):
        found = list(dict.fromkeys(str(getattr(graph, what)) for graph in graphs))
        if len(found) > 1:
            raise ValueError(
                f"The graphs of a batch must have the same {what}, but they have "
                f"{', '.join(found)}. {remedy}."
            )
    return graphs


def joined(graphs: Sequence[Graph]) -> tuple[Pattern, Tensor, Tensor | None]:
    """The block-diagonal pattern of graphs, its weights, and the mask of what was dropped."""
    starts = torch.tensor([graph.num_nodes for graph in graphs]).cumsum(0).tolist()
    edge_index = torch.cat(
        [
            graph.edge_index + start - graph.num_nodes
            for graph, start in zip(graphs, starts, strict=True)
        ],
        1,
    )
    sizes = tuple(size for graph in graphs for size in graph.sizes)
    weight = torch.cat([graph.edge_weight for graph in graphs])
    lasts = all(graph._pattern.lasts for graph in graphs)
    return Pattern(edge_index, starts[-1], sizes, lasts=lasts), weight, _joined_masks(graphs)


def _joined_masks(graphs: Sequence[Graph]) -> Tensor | None:
    """The masks of graphs, which are ones where nothing was dropped of a graph."""
    if all(graph._keep_mask is None for graph in graphs):
        return None
    return torch.cat(
        [
            torch.ones_like(graph.edge_weight) if graph._keep_mask is None else graph._keep_mask
            for graph in graphs
        ]
    )


def separated(graph: Graph) -> list[tuple[Pattern, Tensor, Tensor | None]]:
    """Pattern, weights and mask of each block."""
    graph_of_edge = graph.node_graph[graph.edge_index[0]]
    order = graph_of_edge.argsort(stable=True)
    counts = graph_of_edge.bincount(minlength=graph.num_graphs).tolist()
    edges = graph.edge_index[:, order].split(counts, dim=1)
    weights = graph.edge_weight.index_select(0, order).split(counts)
    masks = [None] * graph.num_graphs
    if graph._keep_mask is not None:
        masks = graph._keep_mask.index_select(0, order).split(counts)
    parts, start = [], 0
    for size, edge_index, weight, mask in zip(graph.sizes, edges, weights, masks, strict=True):
        parts.append((Pattern(edge_index - start, size, lasts=graph._pattern.lasts), weight, mask))
        start += size
    return parts
