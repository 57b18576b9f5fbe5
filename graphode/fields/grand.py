"""Graph neural diffusion: attention as a diffusivity.

Chamberlain, Rowbottom, Gorinova, Webb, Rossi, Bronstein (2021), "GRAND: Graph Neural Diffusion".
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.edge_attention import Neighbours, Weights, attend, edge_softmax, neighbours
from graphode.fields.extension import WithStart
from graphode.fields.validation import (
    check_channels,
    check_dtype,
    check_graph,
    check_packed,
    check_positive,
    check_widths,
)
from graphode.graphs import Graph
from graphode.graphs.product import sampled_product
from graphode.graphs.validation import checked_state


class GRANDField(WithStart):
    """Heat flow with learned conductivities.

        nonlinear    dx/dt = (A(x) − I) x
        linear       dx/dt = (A(x(0)) − I) x

        A(x)_vu = mean over heads of softmax_u((K x_v) · (Q x_u) / √d),    u ∈ N(v) ∪ v

    on the edges of the source of the graph passed in, and, as an option, a source β x(0) with a
    learned β, which the authors use too. Rows of A sum to 1: without the source, constants are at
    rest and no component grows. The paper divides scores by d; √d is what its code does. x(0)
    travels with the state as channels of zero velocity, [x, x(0)], where it is needed.

    Args:
        channels: Width of the state.
        heads: Number of attention heads.
        attention_channels: Width d of a head's keys and queries.
        linear: Whether attention looks at the state at the start only.
        source: Whether there is the term β x(0); β starts at 0.

    Shapes:
        - **z:** `[..., nodes, channels]`, twice that if linear or with a source.
    """

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        attention_channels: int = 16,
        linear: bool = False,
        source: bool = False,
    ) -> None:
        super().__init__()
        check_widths(channels=channels, attention_channels=attention_channels)
        check_positive("heads", heads, "One is enough to begin with.")
        self.channels, self.heads, self.linear = channels, heads, linear
        self.key = nn.Linear(channels, heads * attention_channels)
        self.query = nn.Linear(channels, heads * attention_channels)
        self.beta = nn.Parameter(torch.zeros(())) if source else None

    @property
    def remembers(self) -> bool:
        """Whether x(0) travels with the state."""
        return self.linear or self.beta is not None

    def forward(
        self, t: float | Tensor, z: Float[Tensor, "*batch nodes all_channels"], graph: Graph
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """The velocity of the state, and none of x(0)."""
        del t  # autonomous
        width = self.channels * (2 if self.remembers else 1)
        if self.remembers:
            check_packed(self, z, width, "the state and its start")
        else:
            check_channels(self, z, width)
        check_graph(self, graph)
        check_dtype(self, z, self.key.weight)
        flat = checked_state(graph.flatten(z), graph)
        around = neighbours(graph, copies=math.prod(flat.shape[:-2]))
        flat = flat.reshape(-1, width)
        x, start = flat[:, : self.channels], flat[:, -self.channels :]
        weights = self._attention(start if self.linear else x, around)
        dx = attend(weights, x[:, None], around)[:, 0] - x
        if self.beta is not None:
            dx = dx + self.beta * start
        if self.remembers:
            dx = torch.cat([dx, torch.zeros_like(dx)], -1)
        return dx.reshape(z.shape)

    def _attention(self, x: Tensor, around: Neighbours) -> Weights:
        """The entries of A(x), off the diagonal and on it, as of one head."""
        keys, queries = self.key(x).to(x.dtype), self.query(x).to(x.dtype)  # as without autocast
        keys = keys / math.sqrt(keys.shape[-1] // self.heads)
        scores = sampled_product(keys, queries, around.places, self.heads)
        own = (keys * queries).unflatten(-1, (self.heads, -1)).sum(-1)
        weights = edge_softmax(scores, own, around)
        return Weights(*(part.mean(1, keepdim=True) for part in weights))

    def extra_repr(self) -> str:
        """Width, heads and kind."""
        return f"{self.channels}, heads={self.heads}, linear={self.linear}"
