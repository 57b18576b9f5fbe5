"""Chebyshev filters of the Laplacian as a field.

Defferrard, Bresson, Vandergheynst (2016), "Convolutional Neural Networks on Graphs with Fast
Localized Spectral Filtering".
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.activation import Activation, find_activation
from graphode.fields.structure import made_once, source_of
from graphode.fields.validation import (
    check_channels,
    check_dtype,
    check_graph,
    check_positive,
    check_widths,
)
from graphode.graphs import Graph, chebyshev, scaled_laplacian


class ChebField(nn.Module):
    """Polynomial filters of neighbourhoods up to `order` steps wide.

        dh/dt = σ(Σ_{k=0}^{K} T_k(L̃) h W_k + b),    L̃ = 2 L / λ_max − I

    L̃ is made from the symmetric normalised Laplacian of the source of the graph passed in, once
    a graph; a graph of kind "scaled_laplacian" is used as it is. Equal to PyG's `ChebConv` with
    K + 1 terms, except that an isolated node has an empty row of L where PyG's has a 1.

    Args:
        channels: Width of the state.
        order: K.
        activation: σ; None for none.
        largest_eigenvalue: λ_max; 2 is a bound for every graph, None computes that of each.
        bias: Whether b is there.

    Shapes:
        - **h:** `[..., nodes, channels]`; the velocity has the same shape.
    """

    def __init__(
        self,
        channels: int,
        order: int = 2,
        activation: str | Activation | None = "tanh",
        largest_eigenvalue: float | None = 2.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_widths(channels=channels)
        check_positive("order", order, "0 mixes channels alone.", least=0)
        self.channels, self.order = channels, order
        self.largest_eigenvalue = largest_eigenvalue
        self.activation = find_activation(activation)
        self.weight = nn.Parameter(torch.empty(order + 1, channels, channels))
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
        if graph.kind != "scaled_laplacian":
            value = self.largest_eigenvalue
            graph = made_once(
                source_of(graph),
                ("scaled_laplacian", value),
                lambda source: scaled_laplacian(source, largest_eigenvalue=value),
            )
        return self.activation(mixed(chebyshev(graph, h, self.order), self.weight, self.bias))

    def extra_repr(self) -> str:
        """Width and order."""
        return f"{self.channels}, order={self.order}"


def mixed(
    terms: Float[Tensor, "terms *batch nodes channels"],
    weight: Float[Tensor, "terms channels out_channels"],
    bias: Float[Tensor, " out_channels"] | None,
) -> Float[Tensor, "*batch nodes out_channels"]:
    """Σ_k x_k W_k + b, as one matrix product over terms and channels."""
    # [..., nodes, terms · channels] @ [terms · channels, out_channels]
    out = terms.movedim(0, -2).flatten(-2) @ weight.flatten(0, 1)
    return out if bias is None else out + bias
