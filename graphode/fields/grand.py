"""Graph neural diffusion: attention as a diffusivity.

Chamberlain, Rowbottom, Gorinova, Webb, Rossi, Bronstein (2021), "GRAND: Graph Neural Diffusion".
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.edge_attention import edge_softmax
from graphode.fields.extension import Extension
from graphode.fields.structure import with_self_loops
from graphode.fields.validation import check_channels, check_positive
from graphode.graphs import Graph
from graphode.graphs.product import sampled_product


class GRANDField(Extension):
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
        check_positive("heads", heads, "One is enough to begin with.")
        self.field: Any = None
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
        check_channels(self, z, width, " (the state and its start)" if self.remembers else "")
        flat = graph.flatten(z)
        looped = with_self_loops(graph, copies=math.prod(flat.shape[:-2]))
        flat = flat.reshape(-1, width)
        x, start = flat[:, : self.channels], flat[:, -self.channels :]
        weights = self._attention(start if self.linear else x, looped)
        dx = looped.reweight(weights).propagate(x) - x
        if self.beta is not None:
            dx = dx + self.beta * start
        if self.remembers:
            dx = torch.cat([dx, torch.zeros_like(dx)], -1)
        return dx.reshape(z.shape)

    def _attention(self, x: Tensor, graph: Graph) -> Tensor:
        """The entries of A(x), one per edge."""
        heads = (self.heads, -1)
        keys, queries = self.key(x).unflatten(-1, heads), self.query(x).unflatten(-1, heads)
        keys = keys / math.sqrt(keys.shape[-1])
        pairs = zip(keys.unbind(1), queries.unbind(1), strict=True)
        # Edges with loops come in the order of the matrix, as the sampled products do.
        scores = [inner_products(key, query, graph) for key, query in pairs]
        return edge_softmax(torch.stack(scores, 1), graph).mean(1)

    def pack(self, h: Float[Tensor, "*batch nodes channels"]) -> Tensor:
        """The state, and again as x(0) where that is needed."""
        return torch.cat([h, h], -1) if self.remembers else h

    def unpack(self, z: Float[Tensor, "*lead nodes all_channels"]) -> Tensor:
        """The state alone."""
        return z[..., : self.channels]

    def extra_repr(self) -> str:
        """Width, heads and kind."""
        return f"{self.channels}, heads={self.heads}, linear={self.linear}"


def inner_products(
    of_target: Float[Tensor, "nodes channels"],
    of_source: Float[Tensor, "nodes channels"],
    graph: Graph,
) -> Float[Tensor, " edges"]:
    """⟨a_v, b_u⟩ at every edge u → v of a graph whose edges are in the order of its matrix."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        source, target = graph.edge_index
        return (of_target.index_select(0, target) * of_source.index_select(0, source)).sum(-1)
    assert graph._pattern.order is None
    return sampled_product(of_target, of_source, graph._pattern.places)
