"""Readouts of whole graphs: one prediction for each graph of a batch.

A graph without nodes reads as zeros, never as NaN or −∞.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields import AttributedGraph
from graphode.fields.graphless import Graphless, with_graph
from graphode.fields.validation import check_graph
from graphode.graphs import Graph
from graphode.models.encoder import LinearEncoder

How = Literal["sum", "mean", "max"]


class GlobalPool(nn.Module):
    """The sum, mean or maximum of the states of each graph's nodes.

    Args:
        how: One of sum, mean, max.

    Shapes:
        - **h:** `[..., nodes, channels]` on one graph → `[..., channels]`
        - **h:** `[..., graphs, nodes, channels]` on a batch of one size → `[..., graphs, channels]`
        - **h:** `[..., all_nodes, channels]` on any batch → `[..., graphs, channels]`
    """

    def __init__(self, how: How = "mean") -> None:
        super().__init__()
        if how not in get_args(How):
            raise ValueError(
                f"Unknown pooling {how!r}. Choose one of: {', '.join(sorted(get_args(How)))}; or "
                f"use `AttentionPool`."
            )
        self.how = how

    def forward(
        self, h: Float[Tensor, "*batch nodes channels"], graph: Graph | AttributedGraph
    ) -> Float[Tensor, "*out channels"]:
        """One state a graph."""
        graph = _without_attributes(self, graph)
        flat = _nodes_in_one_dimension(h, graph)
        pooled = (_largest if self.how == "max" else _summed)(flat, graph)
        if self.how == "mean":
            sizes = graph.node_graph.bincount(minlength=graph.num_graphs)
            pooled = pooled / sizes.clamp(min=1).to(h.dtype)[:, None]
        return pooled.reshape(_pooled_shape(h, graph))

    def extra_repr(self) -> str:
        """The way."""
        return repr(self.how)


class AttentionPool(nn.Module):
    """A mean of each graph's nodes, weighted by how much attention they draw.

        y = Σ_v α_v value(h_v),    α = softmax over the nodes v of a graph of score(h_v)

    Li, Tarlow, Brockschmidt, Zemel (2016), "Gated graph sequence neural networks", with a softmax
    for the gate.

    Args:
        channels: Width of the state.
        score: From a state to one number; a linear map by default.
        value: What is averaged; the state by default.

    Shapes:
        As `GlobalPool`.
    """

    def __init__(
        self,
        channels: int,
        score: Callable[..., Tensor] | None = None,
        value: Callable[..., Tensor] | None = None,
    ) -> None:
        super().__init__()
        # A bias would cancel in the softmax.
        own = LinearEncoder(channels, 1, activation=None, bias=False)
        self.score = own if score is None else with_graph(score, "score")
        self.value = with_graph(value, "value")

    def forward(
        self, h: Float[Tensor, "*batch nodes channels"], graph: Graph | AttributedGraph
    ) -> Float[Tensor, "*out channels"]:
        """One state a graph."""
        alone = _without_attributes(self, graph)
        scores, value = self.score(h, graph), self.value(h, graph)
        if scores.shape != (*h.shape[:-1], 1):
            raise ValueError(
                f"`score` must give one number a node, shape {[*h.shape[:-1], 1]}, but gave "
                f"{list(scores.shape)}. Let its last layer have one channel."
            )
        scores = _nodes_in_one_dimension(scores, alone)
        flat = _nodes_in_one_dimension(value, alone)
        with torch.no_grad():
            largest = _largest(scores, alone).index_select(-2, alone.node_graph)
        shares = (scores - largest).exp()
        sums = _summed(shares, alone).index_select(-2, alone.node_graph)
        return _summed(flat * (shares / sums), alone).reshape(_pooled_shape(value, alone))


class PooledReadout(nn.Module):
    """A pooling, then a head on each graph's vector: y = head(pool(h, graph)).

    Args:
        pool: sum, mean, max, or any function of (h, graph) such as `AttentionPool`.
        head: From a pooled state to a prediction; None for the pooled state itself.

    Shapes:
        As `GlobalPool`, with the channels of the head.
    """

    def __init__(
        self,
        pool: str | Callable[..., Tensor] = "mean",
        head: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.pool = GlobalPool(pool) if isinstance(pool, str) else with_graph(pool, "pool")  # pyright: ignore[reportArgumentType]
        self.head = Graphless(head)

    def forward(
        self, h: Float[Tensor, "*batch nodes channels"], graph: Graph | AttributedGraph
    ) -> Any:
        """One prediction a graph."""
        return self.head(self.pool(h, graph))


def _without_attributes(pool: nn.Module, graph: Graph | AttributedGraph) -> Graph:
    alone = graph.graph if isinstance(graph, AttributedGraph) else graph
    check_graph(pool, alone)
    return alone


def _stacked_dims(h: Tensor, graph: Graph) -> int:
    """How many dimensions of `h` count graphs: 0 unless it is [..., *graphs, nodes, channels]."""
    batch = graph._pattern.batch_shape
    if batch is None:
        return 0
    stacked = (*batch, graph.sizes[0] if graph.sizes else h.shape[-2])
    return len(batch) if tuple(h.shape[-1 - len(stacked) : -1]) == stacked else 0


def _nodes_in_one_dimension(h: Tensor, graph: Graph) -> Tensor:
    dims = _stacked_dims(h, graph)
    flat = h.flatten(-2 - dims, -2) if dims else h
    if flat.ndim < 2 or flat.shape[-2] != graph.num_nodes:
        raise ValueError(
            f"Pooling needs states [..., nodes, channels] of the graph's {graph.num_nodes} nodes "
            f"({graph.num_graphs} graphs), but the shape is {list(h.shape)}. Pool with the graph, "
            f"or the batch of graphs, that the state lives on."
        )
    return flat


def _pooled_shape(h: Tensor, graph: Graph) -> tuple[int, ...]:
    """Shape of what is pooled: nodes go, and graphs come where they have no dimension yet."""
    is_alone = graph._pattern.sizes is None
    graphs = () if is_alone or _stacked_dims(h, graph) else (graph.num_graphs,)
    return (*h.shape[:-2], *graphs, h.shape[-1])


def _summed(flat: Tensor, graph: Graph) -> Tensor:
    zeros = flat.new_zeros(*flat.shape[:-2], graph.num_graphs, flat.shape[-1])
    return zeros.index_add(-2, graph.node_graph, flat)


def _largest(flat: Tensor, graph: Graph) -> Tensor:
    zeros = flat.new_zeros(*flat.shape[:-2], graph.num_graphs, flat.shape[-1])
    index = graph.node_graph[:, None].expand_as(flat)
    return zeros.scatter_reduce(-2, index, flat, "amax", include_self=False)
