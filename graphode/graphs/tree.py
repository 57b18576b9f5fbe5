"""Graphs as trees of weights over a fixed pattern.

Whoever maps over the tensors of an argument (gradient methods, above all) finds the weights that
`propagate` uses, and those of the source, as leaves.
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
            and self.graph._is_thinned == other.graph._is_thinned
        )

    def __hash__(self) -> int:
        return hash((id(self.graph._pattern), self.graph.kind))


def _flatten(graph: Graph) -> tuple[list[Any], _Context]:
    children = [graph.edge_weight] if graph.source is None else [graph.edge_weight, graph.source]
    return children, _Context(graph)


def _unflatten(children: Any, context: _Context) -> Graph:
    edge_weight, source = children if len(children) == 2 else (*children, None)
    origin = context.graph
    if edge_weight is origin.edge_weight and source is origin.source:
        return origin  # and with it what it has prepared
    thinned = origin._is_thinned
    return Graph._trusted(origin._pattern, edge_weight, source, origin.kind, False, thinned)


_pytree.register_pytree_node(
    Graph, _flatten, _unflatten, serialized_type_name="graphode.graphs.graph.Graph"
)
