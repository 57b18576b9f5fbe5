"""Gates and a field that tell a sensor from its neighbourhood, for the tuned models of traffic.

    C(h) = h W₀ + Â h W₁ + b

A graph convolution Â (h W) + b mixes a sensor with its neighbours before anything is learned: with
five neighbours its own speed is a sixth of what a gate sees. Two weights, one for the sensor and
one for what surrounds it, are the first two terms of a filter as in Seo et al. (2018), "Structured
Sequence Modeling with Graph Convolutional Recurrent Networks", and Li et al. (2018), DCRNN.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields import Dropout
from graphode.fields.activation import find_activation
from graphode.fields.fused_convolution import mix, spread
from graphode.fields.graphless import with_graph
from graphode.graphs import Graph


class OwnAndNeighbours(nn.Module):
    """h W₀ + Â h W₁ + b.

    Weights start uniform on ±1/√(in_channels), as those of `nn.Linear`; b starts at 0.

    Args:
        in_channels: Width of h.
        out_channels: Width of the result.

    Shapes:
        - **h:** `[..., nodes, in_channels]` → `[..., nodes, out_channels]`
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(in_channels)
        weights = torch.empty(2, in_channels, out_channels).uniform_(-bound, bound)
        self.own, self.neighbours = (nn.Parameter(weight.clone()) for weight in weights)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(
        self,
        h: Float[Tensor, "*batch nodes in_channels"],
        graph: Graph,
        activation: str | None = None,
    ) -> Float[Tensor, "*batch nodes out_channels"]:
        """Mix a node's channels with those of its neighbourhood, then σ if one is named."""
        own, sigma = mix(h, self.own), find_activation(activation)
        if self.own.shape[0] < self.own.shape[1]:  # the sparse product where it is narrower
            return sigma(mix(graph.propagate(h), self.neighbours) + own + self.bias)
        return spread(mix(h, self.neighbours), self.bias, graph, sigma, own)


class OwnAndNeighboursField(nn.Module):
    """dh/dt = C² ∘ tanh ∘ C¹ (h), C as above, of what dropout leaves.

    Args:
        widths: Channels before, between and after the layers.
        dropout: Share of each layer's input that is dropped in training.

    Shapes:
        - **h:** `[..., nodes, channels]`; the velocity has the same shape.
    """

    def __init__(self, widths: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        pairs = itertools.pairwise(widths)
        self.layers = nn.ModuleList(OwnAndNeighbours(before, after) for before, after in pairs)
        self.dropouts = nn.ModuleList(Dropout(dropout) for _ in self.layers)

    def forward(
        self, t: float | Tensor, h: Float[Tensor, "*batch nodes channels"], graph: Graph
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The velocity of `h`."""
        del t  # autonomous
        last = len(self.layers) - 1
        for index, (layer, dropout) in enumerate(zip(self.layers, self.dropouts, strict=True)):
            h = layer(dropout(h), graph, None if index == last else "tanh")
        return h


class Dropping(nn.Module):
    """gate(dropout(h), graph): in training a gate sees a part of [x, h] only.

    Within one key (`graphode.stochastic`) the mask is the same at every jump, as in Gal, Ghahramani
    (2016), "A theoretically grounded application of dropout in recurrent neural networks", and,
    unlike there, the same for all windows.

    Args:
        gate: Called as gate(h, graph), or as gate(h).
        rate: The share that is dropped.
    """

    def __init__(self, gate: Callable[..., Any], rate: float) -> None:
        super().__init__()
        self.dropout, self.gate = Dropout(rate), with_graph(gate, "gate")

    def forward(self, h: Tensor, graph: Any) -> Tensor:
        """What the gate says of the rest."""
        return self.gate(self.dropout(h), graph)
