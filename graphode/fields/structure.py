"""What fields make of a graph before they use it, made once where that is safe.

A field has no state, and is evaluated hundreds of times on the same graph. So what depends on the
edges alone is remembered with the edges, what depends on the weights too with the graph, for as
long as these live. Nothing is remembered of weights that learn.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils import _pytree

from graphode.graphs import Graph

_remembered: WeakKeyDictionary[Any, dict[Hashable, Any]] = WeakKeyDictionary()


class AttributedGraph(NamedTuple):
    """A graph with attributes of its edges, to be passed where a graph is expected.

    Only fields that use the attributes take it. They receive gradients by every method.

    Args:
        graph: The graph.
        edge_attributes: One row per edge, in the order of `graph.edge_index`.
    """

    graph: Graph
    edge_attributes: Float[Tensor, "edges attributes"]

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the graph."""
        return self.graph.num_nodes

    @property
    def num_graphs(self) -> int:
        """How many graphs are batched in it, each of which has steps of its own in a flow."""
        return self.graph.num_graphs

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of nodes of each graph of a batch."""
        return self.graph.sizes

    @property
    def node_graph(self) -> Int[Tensor, " nodes"]:
        """The graph that each node of a batch belongs to."""
        return self.graph.node_graph

    def unbatch(self) -> list["AttributedGraph"]:
        """The graphs of a batch, in their order, with the attributes of their own edges."""
        graphs = self.graph.unbatch()
        by_graph = self.node_graph[self.graph.edge_index[0]].argsort(stable=True)
        parts = self.edge_attributes[by_graph].split([graph.num_edges for graph in graphs])
        return [AttributedGraph(*each) for each in zip(graphs, parts, strict=True)]

    def to(
        self,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> "AttributedGraph":
        """The same on another device, or with weights and attributes of another dtype."""
        attributes = self.edge_attributes.to(device=device, dtype=dtype)
        return AttributedGraph(self.graph.to(device, dtype), attributes)


def source_of(graph: Graph) -> Graph:
    """The graph itself, or the one it was normalised from."""
    return graph if graph.source is None else graph.source


def made_once(graph: Graph, name: Hashable, make: Callable[[Graph], Any]) -> Any:
    """`make(graph)`, a graph or a tuple, remembered with the graph unless its weights learn."""
    if not graph._is_constant or torch.compiler.is_compiling():
        return make(graph)
    return once(graph, name, lambda: _alone(make(graph)))


def repeated_edges(
    edge_index: Int[Tensor, "2 edges"], num_nodes: int, copies: int
) -> Int[Tensor, "2 all_edges"]:
    """The edges of `copies` of a graph, one after the other."""
    if copies == 1:
        return edge_index
    start = torch.arange(copies, device=edge_index.device) * num_nodes
    return (edge_index[:, None] + start[:, None]).flatten(1)


def once(owner: Any, name: Hashable, make: Callable[[], Any]) -> Any:
    """`make()`, remembered for as long as `owner` lives; made anew in code that is compiled."""
    if torch.compiler.is_compiling():
        return make()
    known = _remembered.setdefault(owner, {})
    if name not in known:
        with torch.inference_mode(False):  # a later call may need gradients
            known[name] = make()
    return known[name]


def latest(owner: Any, name: Hashable, key: Hashable, make: Callable[[], Any]) -> Any:
    """`make()`, remembered with `owner` until another `key` comes under that name.

    What a CUDA graph has recorded stays: its replays read it where it lies.
    """
    if torch.compiler.is_compiling():
        return make()
    known = _remembered.setdefault(owner, {})
    if (name, key) not in known:
        if _is_recording():  # it holds no values yet, and its memory is that of the recording
            return make()
        known.pop((name, known.get(name)), None)
        known[name] = key
    elif _is_recording() and known.get(name) == key:
        del known[name]  # it is not the one to go
    return once(owner, (name, key), make)


def _is_recording() -> bool:
    """Whether a CUDA graph is being recorded."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


@contextmanager
def recording(*arguments: Any) -> Iterator[tuple[Any, ...]]:
    """Out of inference mode, where nothing is recorded, with copies of tensors made in it."""

    def copy(leaf: Any) -> Any:
        return leaf.clone() if isinstance(leaf, Tensor) and leaf.is_inference() else leaf

    with torch.inference_mode(False):
        yield _pytree.tree_map(copy, arguments)


def _alone(made: Any) -> Any:
    """Graphs without their source, which what is remembered with the source must not hold."""
    if isinstance(made, Graph):
        return Graph._trusted(made._pattern, made.edge_weight, None, made.kind)
    return tuple(map(_alone, made)) if type(made) is tuple else made
