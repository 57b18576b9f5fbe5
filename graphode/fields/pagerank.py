"""Diffusion that keeps returning to where it began: personalised PageRank as a flow.

Gasteiger, Bojchevski, Günnemann (2019), "Predict then Propagate: Graph Neural Networks meet
Personalized PageRank", with a depth that is continuous.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.fields.extension import WithStart
from graphode.fields.validation import check_channels, check_graph, check_packed, check_widths
from graphode.graphs import Graph


class PageRankField(WithStart):
    """Relaxation towards the mean of the neighbours and the state at the start.

        dh/ds = (1 − α) Â h + α h(0) − h

    Without weights. Steps of Euler's method of length 1 are the iterations of APPNP, and for α = 0
    the powers Â^k h(0); other solvers and steps follow the same equation. It comes to rest at
    α (I − (1 − α) Â)⁻¹ h(0). Where α > 0, h(0) travels with the state as channels of zero velocity,
    [h, h(0)].

    Args:
        channels: Width of the state.
        alpha: α, the share of the state at the start.

    Shapes:
        - **z:** `[..., nodes, channels]`, twice that if α > 0.
    """

    def __init__(self, channels: int, alpha: float = 0.1) -> None:
        super().__init__()
        check_widths(channels=channels)
        if not 0 <= alpha <= 1:
            raise ValueError(
                f"`alpha` must be between 0 and 1, but is {alpha}. APPNP has 0.1; 0 is diffusion."
            )
        self.channels, self.alpha = channels, alpha

    @property
    def remembers(self) -> bool:
        """Whether h(0) travels with the state."""
        return self.alpha > 0

    def forward(
        self, t: float | Tensor, z: Float[Tensor, "*batch nodes all_channels"], graph: Graph
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """The velocity of the state, and none of its start."""
        del t  # autonomous
        check_graph(self, graph)
        if not self.remembers:
            check_channels(self, z, self.channels)
            return graph.propagate(z) - z
        check_packed(self, z, 2 * self.channels, "the state and its start")
        h, start = z.chunk(2, -1)
        dh = torch.lerp(graph.propagate(h), start, self.alpha) - h
        return torch.cat([dh, torch.zeros_like(dh)], -1)

    def extra_repr(self) -> str:
        """Width and share."""
        return f"{self.channels}, alpha={self.alpha}"
