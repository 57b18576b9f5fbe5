"""Message passing on relative states: what neighbours do depends on how they differ.

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", appendix A, GMDE, with messages
as in Battaglia, Pascanu, Lai, Rezende, Kavukcuoglu (2016), "Interaction networks for learning about
objects, relations and physics". Inside `SecondOrder(…, sees_velocity=True)` they are accelerations.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.graphs import DenseGraph, Graph
from graphode.graphs.validation import checked_state


class RelativeMessageMap(nn.Module):
    """Messages from differences of states, summed, and a part of the node's own.

        out_v = g(h_v) + Σ_{u→v} w_uv m(h_u − h_v)

    Between any widths: [x, x′] to x″, for instance. Shifting all states changes g alone.

    Args:
        message: m, any module of one tensor, from the state's channels to those of the result.
        own: g, of the same widths; None for nothing.

    Shapes:
        - **h:** `[..., nodes, channels]` → `[..., nodes, out_channels]`
    """

    def __init__(
        self,
        message: Callable[[Tensor], Tensor],
        own: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.message: Any = message
        self.own: Any = own

    def forward(
        self, t: float | Tensor, h: Float[Tensor, "*batch nodes channels"], graph: Graph
    ) -> Float[Tensor, "*batch nodes out_channels"]:
        """The sum; the time makes no difference."""
        del t
        return _with_own(self, sum_over_neighbors(self.message, h, graph), h)


class PairForceMap(nn.Module):
    """Forces along the line between two nodes, of a size learned from distance and its rate.

        out_v = g(h_v) + Σ_{u→v} w_uv φ([d, ḋ]) n,    n = (x_v − x_u) / d,  d = ‖x_v − x_u‖

    Turning or mirroring the plane turns and mirrors the forces, and on an undirected graph what one
    node receives the other loses. Nodes in one place exert no force on each other.

    Args:
        force: φ, any module from the two channels [d, ḋ] to one; positive pushes apart.
        own: g, from [x, x′] to x″; None for nothing.

    Shapes:
        - **h:** `[..., nodes, 2 · dims]`, the state [x, x′] → `[..., nodes, dims]`
    """

    def __init__(
        self, force: Callable[[Tensor], Tensor], own: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        self.force: Any = force
        self.own: Any = own

    def forward(
        self, t: float | Tensor, h: Float[Tensor, "*batch nodes both"], graph: Graph
    ) -> Float[Tensor, "*batch nodes dims"]:
        """The sum of the forces; the time makes no difference."""
        del t
        if h.shape[-1] % 2:
            raise ValueError(
                f"PairForceMap acts on positions and velocities, an even number of channels, but "
                f"the state has {h.shape[-1]}. Use `SecondOrder(…, sees_velocity=True)`."
            )
        return _with_own(self, sum_over_neighbors(self._push, h, graph), h)

    def _push(self, difference: Tensor) -> Tensor:
        x, v = (-difference).chunk(2, -1)
        squares = x.square().sum(-1, keepdim=True)
        apart = squares > 0
        # Of two nodes in one place the force is asked at distance 1, and then not used: it may be
        # infinite at 0, and so may the gradient of the root.
        distance = torch.where(apart, squares, 1.0).sqrt()
        direction = torch.where(apart, x / distance, 0.0)
        rate = (direction * v).sum(-1, keepdim=True)
        return self.force(torch.cat([distance, rate], -1)) * direction


def sum_over_neighbors(
    message: Callable[[Tensor], Tensor], h: Float[Tensor, "*batch nodes channels"], graph: Graph
) -> Float[Tensor, "*batch nodes out_channels"]:
    """Σ_{u→v} w_uv m(h_u − h_v) at every node v: over all pairs of a matrix, or along edges.

    In a matrix too, a weight of 0 is no edge: nothing is sent, and the weight has no gradient.
    """
    if isinstance(graph, DenseGraph) and _is_stacked(h, graph.matrix):
        edges = graph.matrix != 0
        # Elsewhere a message is asked at 1, and not used: that of a node to itself may be infinite.
        differences = torch.where(edges[..., None], h[..., None, :, :] - h[..., :, None, :], 1.0)
        weights = torch.where(edges, graph.matrix.to(h.dtype), 0.0)
        return (weights[..., None, :] @ message(differences))[..., 0, :]
    flat = checked_state(graph.flatten(h), graph)
    source, target = graph.edge_index
    messages = message(flat.index_select(-2, source) - flat.index_select(-2, target))
    messages = messages * graph.edge_weight.to(h.dtype)[:, None]
    zeros = messages.new_zeros(*flat.shape[:-1], messages.shape[-1])
    summed = zeros.index_add(-2, target, messages)
    return summed.reshape(*h.shape[:-1], summed.shape[-1])


def _is_stacked(h: Tensor, matrix: Tensor) -> bool:
    """Whether a state ends in the dimensions of a batch of matrices, its nodes and its channels."""
    rows = matrix.shape[:-1]
    return h.shape[-1 - len(rows) : -1] == rows


def _with_own(module: Any, summed: Tensor, h: Tensor) -> Tensor:
    if module.own is None:
        return summed
    own = module.own(h)
    if own.shape != summed.shape:
        raise ValueError(
            f"{type(module).__name__} adds the node's own part to what its neighbours send, of "
            f"shape {list(summed.shape)}, but `own` returned {list(own.shape)}. Let its last layer "
            f"have {summed.shape[-1]} channels."
        )
    return own + summed
