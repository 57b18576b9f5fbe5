"""Graphs as trees of weights over a fixed pattern.

Whoever maps over the tensors of an argument (gradient methods, above all) finds the weights that
`propagate` uses, and those of the source, as leaves; of a graph that lost edges, the mask too.
"""

from typing import Any

from torch.utils import _pytree

from graphode.graphs.graph import Graph


class _Context:
    """What tree functions carry past the leaves: the pattern, and the graph it came from."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Context) and (
            self.graph._pattern is other.graph._pattern
            and self.graph.kind == other.graph.kind
            and (self.graph._keep_mask is None) == (other.graph._keep_mask is None)
        )

    def __hash__(self) -> int:
        return hash((id(self.graph._pattern), self.graph.kind))


def _flatten(graph: Graph) -> tuple[list[Any], _Context]:
    optional = (graph.source, graph._keep_mask)
    return [graph.edge_weight, *(one for one in optional if one is not None)], _Context(graph)


def _unflatten(children: Any, context: _Context) -> Graph:
    origin, rest = context.graph, iter(children)
    edge_weight = next(rest)
    source = None if origin.source is None else next(rest)
    mask = None if origin._keep_mask is None else next(rest)
    if edge_weight is origin.edge_weight and source is origin.source and mask is origin._keep_mask:
        return origin  # and with it what it has prepared
    return Graph._trusted(origin._pattern, edge_weight, source, origin.kind, False, mask)


_pytree.register_pytree_node(
    Graph, _flatten, _unflatten, serialized_type_name="graphode.graphs.graph.Graph"
)
