"""Fields whose graph follows their state: who is near whom, asked anew at every evaluation.

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", multi-agent trajectories: the
adjacency A_t joins particles within a radius. In a forecast their positions are those predicted.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.fields.extension import Extension
from graphode.fields.validation import check_positive
from graphode.graphs import Graph, dense_radius_graph, radius_graph


class RadiusField(Extension):
    """A field on the graph of its own state.

        dh/dt = F(t, h, G(h)),    G(h) joins nodes whose positions are at most `radius` apart

    Positions are the first channels of the state, so that they are those of [x, x′] and of a state
    augmented behind them. Of the graph that a flow hands on only this is used, that nodes of
    different graphs of a batch are never joined; it may be None. To give the true graph instead, as
    an oracle, call the field inside. No gradient passes through the choice of neighbours, only
    through the weights, where a `kernel` makes them.

    Args:
        field: F, any field or extension, such as `SecondOrder`.
        radius: The largest length of an edge.
        position_channels: How many channels are positions.
        normalize: How F wants its graph ("sym" for graph convolutions); None for as it is.
        kernel: Lengths to weights of 0 or more; ones by default.
        dense_nodes: Up to so many nodes the graph is a matrix; beyond, a list of edges.

    Shapes:
        - **z:** `[..., nodes, channels]`; the velocity has the same shape.
    """

    def __init__(
        self,
        field: Callable[..., Tensor],
        radius: float,
        *,
        position_channels: int = 2,
        normalize: str | None = "sym",
        kernel: Callable[[Tensor], Tensor] | None = None,
        dense_nodes: int = 64,
    ) -> None:
        super().__init__()
        if not radius > 0:
            raise ValueError(f"`radius` must be positive, but is {radius}. Give a distance.")
        check_positive("position_channels", position_channels, "In the plane it is 2.")
        self.field: Any = field
        self.radius = radius
        self.position_channels = position_channels
        self.normalize = normalize
        self.kernel = kernel
        self.dense_nodes = dense_nodes

    def forward(
        self, t: float | Tensor, z: Float[Tensor, "*batch nodes channels"], graph: Any = None
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The velocity on the graph of `z`."""
        return self.field(t, z, self.graph_of(z, graph))

    def graph_of(self, z: Float[Tensor, "*batch nodes channels"], graph: Any = None) -> Graph:
        """The graph that the field inside sees at `z`, in the blocks of `graph`, if any."""
        if z.shape[-1] < self.position_channels:
            raise ValueError(
                f"RadiusField reads positions from the first {self.position_channels} channels, "
                f"but the state has {z.shape[-1]} (shape {list(z.shape)}). Put positions first, or "
                f"set `position_channels`."
            )
        make = dense_radius_graph if z.shape[-2] <= self.dense_nodes else radius_graph
        # In half precision distances are coarse, and the places of 300 graphs are not apart.
        precise = torch.promote_types(z.dtype, torch.float32)
        positions = z[..., : self.position_channels].to(precise)
        if getattr(graph, "num_graphs", 1) > 1 and graph.num_nodes == z.shape[-2]:
            # One more dimension, in which the graphs of a batch are out of each other's reach.
            _check_finite(self.radius)
            apart = (2 * self.radius * graph.node_graph).to(positions.dtype)[:, None]
            positions = torch.cat([positions, apart.expand(*z.shape[:-1], 1)], -1)
        near = make(positions, self.radius, self.kernel)
        return near if self.normalize is None else near.normalize(self.normalize)

    def extra_repr(self) -> str:
        """Radius and normalisation."""
        return f"radius={self.radius}, normalize={self.normalize!r}"


def _check_finite(radius: float) -> None:
    if math.isinf(radius):
        raise ValueError(
            "An infinite `radius` reaches across the graphs of a batch. Give one that exceeds all "
            "distances, or stack graphs of one size in a dimension of their own."
        )
