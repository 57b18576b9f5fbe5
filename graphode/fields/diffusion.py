"""Diffusion along the edges and against them, as fields.

Li, Yu, Shahabi, Liu (2018), "Diffusion Convolutional Recurrent Neural Network"; Atwood, Towsley
(2016), "Diffusion-Convolutional Neural Networks"; Poli et al. (2019), "Graph Neural Ordinary
Differential Equations", the comments of its source.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from graphode.fields.activation import Activation, find_activation
from graphode.fields.chebyshev import mixed
from graphode.fields.extension import WithStart
from graphode.fields.structure import made_once, source_of
from graphode.fields.validation import (
    check_channels,
    check_dtype,
    check_graph,
    check_packed,
    check_positive,
    check_widths,
)
from graphode.graphs import Graph, diffuse, random_walks


class DiffusionField(nn.Module):
    """The diffusion convolution of DCRNN, in both directions.

        dh/dt = σ(Σ_{k=0}^{K} P^k h W_k + Σ_{k=1}^{K} R^k h V_k + b)

    with P = D_in^(-1) A and R = D_out^(-1) Aᵀ, on the source of the graph passed in, whose edges
    say where things flow.

    Args:
        channels: Width of the state.
        steps: K.
        activation: σ; None for none.
        both_directions: Whether there are the terms of R.
        bias: Whether b is there.

    Shapes:
        - **h:** `[..., nodes, channels]`; the velocity has the same shape.
    """

    def __init__(
        self,
        channels: int,
        steps: int = 2,
        activation: str | Activation | None = "tanh",
        both_directions: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_widths(channels=channels)
        check_positive("steps", steps, "DCRNN uses 2 or 3.")
        self.channels, self.steps = channels, steps
        self.directions = 2 if both_directions else 1
        self.activation = find_activation(activation)
        terms = 1 + steps * self.directions
        self.weight = nn.Parameter(torch.empty(terms, channels, channels))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None
        for part in self.weight.detach():
            nn.init.xavier_uniform_(part)

    def forward(
        self, t: float | Tensor, h: Float[Tensor, "*batch nodes channels"], graph: Graph
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The velocity of `h`."""
        del t  # autonomous
        check_channels(self, h, self.channels)
        check_graph(self, graph)
        check_dtype(self, h, self.weight)
        walks = made_once(source_of(graph), "random_walks", random_walks)[: self.directions]
        return self.activation(mixed(diffuse(walks, h, self.steps), self.weight, self.bias))

    def extra_repr(self) -> str:
        """Width, steps and directions."""
        return f"{self.channels}, steps={self.steps}, directions={self.directions}"


class WalkPowerField(WithStart):
    """A walk that grows longer with depth, seen through the input only.

        dh/ds = σ(P^s x W),    P = (I + D^(-1) A) / 2

    the continuous form of diffusion-convolutional networks. The paper has P = D^(-1) A, whose
    powers exist for whole s only; the lazy walk has them all:

        P^s = (I − L/2)^s = Σ_k (s choose k) (−L/2)^k,    L = I − D^(-1) A

    cut off after `terms` products, exact for whole s up to that. Nodes at which nothing arrives
    stay where they are. The velocity does not depend on h; the input x travels with the state as
    channels of zero velocity, [h, x], which `pack` makes.

    Args:
        channels: Width of the state and of the input.
        terms: Products in the series; more are needed where the walk oscillates.
        activation: σ; None for none.

    Shapes:
        - **z:** `[..., nodes, 2 · channels]`
        - **t:** depth s, 0 or more.
    """

    def __init__(
        self, channels: int, terms: int = 8, activation: str | Activation | None = "tanh"
    ) -> None:
        super().__init__()
        check_widths(channels=channels)
        check_positive("terms", terms, "Some 8 are enough for s up to 1 or a few.")
        self.channels, self.terms = channels, terms
        self.activation = find_activation(activation)
        self.weight = nn.Parameter(torch.empty(channels, channels))
        nn.init.xavier_uniform_(self.weight)

    def forward(
        self, t: float | Tensor, z: Float[Tensor, "*batch nodes both"], graph: Graph
    ) -> Float[Tensor, "*batch nodes both"]:
        """The velocity of the state, and none of the input."""
        check_packed(self, z, 2 * self.channels, "the state and the input")
        check_graph(self, graph)
        check_dtype(self, z, self.weight)
        x = z[..., self.channels :]
        walk = made_once(source_of(graph), "lazy_walk", _walk)
        s = torch.as_tensor(t, dtype=z.dtype, device=z.device)
        term, total, coefficient = x, x, torch.ones_like(s)
        for k in range(self.terms):
            # (−L/2) x = (P − I) x, P being lazy: half of what the plain walk gains.
            term = 0.5 * walk.propagate(term)
            coefficient = coefficient * (s - k) / (k + 1)
            total = total + coefficient * term
        return functional.pad(self.activation(total @ self.weight), (0, self.channels))


def _walk(source: Graph) -> Graph:
    """D^(-1) A − I = −L; zero where nothing arrives."""
    laplacian = source.normalize("rw_laplacian")
    return laplacian.reweight(-laplacian.edge_weight)
