"""A field that makes its own graph, by attention between all nodes.

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", discussion (unknown or dynamic
topology); Vaswani et al. (2017), "Attention Is All You Need".
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from graphode.fields.activation import Activation, find_activation
from graphode.fields.validation import (
    check_channels,
    check_dtype,
    check_graph,
    check_positive,
    check_widths,
)
from graphode.graphs import Graph
from graphode.graphs.pattern import Pattern
from graphode.graphs.product import sampled_product
from graphode.graphs.validation import checked_state

# Scores held at once while the best are looked for: 64 MiB of float32.
CHUNK_ELEMENTS = 1 << 24


class AdaptiveField(nn.Module):
    """The right-hand side σ(S H Θ) with an adjacency S computed from the state and the depth.

        dh/ds = σ(S(s, h) h Θ + b),    S_vu = softmax_u((Q h_v + s q) · (K h_u) / √d)

    S is dense, nodes × nodes, or keeps for each node the `neighbors` of largest score: no more
    than a chunk of rows is then dense at a time, and the softmax is over those kept. Of the graph
    passed in only the nodes matter, and to which graph of a batch they belong: graphs do not see
    each other. Which neighbours are kept is a decision, and jumps as states move.

    Args:
        channels: Width of the state.
        attention_channels: Width d of keys and queries.
        neighbors: How many nodes each looks at; None for all.
        activation: σ; None for none.
        bias: Whether b is there.

    Shapes:
        - **h:** `[..., nodes, channels]`; the velocity has the same shape.
    """

    def __init__(
        self,
        channels: int,
        attention_channels: int = 16,
        neighbors: int | None = None,
        activation: str | Activation | None = "tanh",
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_widths(channels=channels, attention_channels=attention_channels)
        if neighbors is not None:
            check_positive("neighbors", neighbors, "None looks at all nodes.")
        self.channels, self.neighbors = channels, neighbors
        self.activation = find_activation(activation)
        self.query = nn.Linear(channels, attention_channels, bias=False)
        self.key = nn.Linear(channels, attention_channels)
        self.depth = nn.Parameter(torch.empty(attention_channels))
        self.linear = nn.Linear(channels, channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None
        nn.init.normal_(self.depth, std=1 / math.sqrt(attention_channels))

    def forward(
        self, t: float | Tensor, h: Float[Tensor, "*batch nodes channels"], graph: Graph
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The velocity of `h` at depth `t`."""
        check_channels(self, h, self.channels)
        check_graph(self, graph)
        check_dtype(self, h, self.depth)
        checked_state(graph.flatten(h), graph)
        s = torch.as_tensor(t, dtype=h.dtype, device=h.device)
        queries = self.query(h) + s * self.depth
        queries = queries / math.sqrt(queries.shape[-1])
        # Under autocast linear layers give another dtype.
        keys, values = (part(h).to(queries.dtype) for part in (self.key, self.linear))
        # Stacked states keep graphs apart by themselves; nodes in a row are told apart.
        apart = None
        if graph.num_graphs > 1 and h.shape[-2] == graph.num_nodes:
            apart = graph.node_graph
        if self.neighbors is None or self.neighbors >= h.shape[-2] or h.numel() == 0:
            out = _dense(queries, keys, values, apart)
        else:
            out = _sparse(queries, keys, values, apart, self.neighbors)
        return self.activation(out if self.bias is None else out + self.bias)

    def extra_repr(self) -> str:
        """Widths and neighbours."""
        return f"{self.channels}, {len(self.depth)}, neighbors={self.neighbors}"


def _dense(queries: Tensor, keys: Tensor, values: Tensor, apart: Tensor | None) -> Tensor:
    scores = queries @ keys.mT
    if apart is not None:
        scores = scores.masked_fill(apart[:, None] != apart, -torch.inf)
    return scores.softmax(-1) @ values


def _sparse(
    queries: Tensor, keys: Tensor, values: Tensor, apart: Tensor | None, count: int
) -> Tensor:
    """The same over the `count` best of each row, as one sparse product for all samples."""
    *lead, nodes, _ = queries.shape
    samples = math.prod(lead)
    q, k, v = (part.flatten(0, -2) for part in (queries, keys, values))
    chosen = [
        _best(q[i * nodes : (i + 1) * nodes], k[i * nodes : (i + 1) * nodes], apart, count)
        + i * nodes
        for i in range(samples)
    ]
    # Rows in the order of columns: that of the matrix.
    source = torch.cat(chosen).sort(-1)[0].flatten()
    target = torch.arange(samples * nodes, device=q.device).repeat_interleave(count)
    pattern = Pattern(torch.stack([source, target]), samples * nodes, lasts=False)
    graph = Graph._trusted(pattern, q.new_ones(len(source)), prepare=False)
    scores = sampled_product(q, k, pattern.places)
    if apart is not None:
        of_node = apart.repeat(samples)
        scores = scores.masked_fill(of_node[source] != of_node[target], -torch.inf)
    weights = scores.reshape(-1, count).softmax(-1).flatten()
    return graph.reweight(weights).propagate(v).reshape(values.shape)


@torch.no_grad()
def _best(
    queries: Tensor, keys: Tensor, apart: Tensor | None, count: int
) -> Int[Tensor, "nodes count"]:
    """For each node, the nodes of largest score."""
    rows = max(1, CHUNK_ELEMENTS // max(1, len(keys)))
    found = []
    for start in range(0, len(queries), rows):
        scores = queries[start : start + rows] @ keys.t()
        if apart is not None:
            scores.masked_fill_(apart[start : start + rows, None] != apart, -torch.inf)
        found.append(scores.topk(count)[1])
    return torch.cat(found)
