"""Cayley filters of the Laplacian as a field.

Levie, Monti, Bresson, Bronstein (2017), "CayleyNets: Graph Convolutional Neural Networks with
Complex Rational Spectral Filters".
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from graphode.fields.activation import Activation, find_activation
from graphode.fields.chebyshev import mixed
from graphode.fields.structure import made_once, source_of
from graphode.fields.validation import (
    check_channels,
    check_dtype,
    check_graph,
    check_positive,
    check_widths,
)
from graphode.graphs import Graph, cayley
from graphode.graphs.normalization import LAPLACIANS


class CayleyField(nn.Module):
    """Rational filters that zoom in on a part of the spectrum.

        dh/dt = σ(h W_0 + 2 Re Σ_{j=1}^{K} C^j h W_j + b),    C = (sL − iI)(sL + iI)^(-1)

    with complex W_j and L the symmetric normalised Laplacian of the source of the graph passed
    in; a graph that is a Laplacian is used as it is. The zoom s > 0 is learned.

    Args:
        channels: Width of the state.
        order: K.
        activation: σ; None for none.
        iterations: Jacobi iterations for each power of C.
        bias: Whether b is there.

    Shapes:
        - **h:** `[..., nodes, channels]`; the velocity has the same shape.
    """

    def __init__(
        self,
        channels: int,
        order: int = 2,
        activation: str | Activation | None = "tanh",
        iterations: int = 8,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_widths(channels=channels)
        check_positive("order", order, "0 mixes channels alone.", least=0)
        check_positive("iterations", iterations, "Some 8 are enough for a zoom of 1.", least=0)
        self.channels, self.order, self.iterations = channels, order, iterations
        self.activation = find_activation(activation)
        # Real parts of all powers, then imaginary parts of those that have one.
        self.weight = nn.Parameter(torch.empty(2 * order + 1, channels, channels))
        # softplus(raw_zoom) = 1 at first.
        self.raw_zoom = nn.Parameter(torch.tensor(1.0).expm1().log())
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None
        for part in self.weight.detach():
            nn.init.xavier_uniform_(part)

    @property
    def zoom(self) -> Float[Tensor, ""]:
        """The factor s."""
        return functional.softplus(self.raw_zoom)

    def forward(
        self, t: float | Tensor, h: Float[Tensor, "*batch nodes channels"], graph: Graph
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The velocity of `h`."""
        del t  # autonomous
        check_channels(self, h, self.channels)
        check_graph(self, graph)
        check_dtype(self, h, self.weight)
        if graph.kind not in LAPLACIANS:
            kind = "sym_laplacian"
            graph = made_once(source_of(graph), kind, lambda source: source.normalize(kind))
        # There are no complex numbers of less than float32 to reckon with.
        wide = h.to(torch.promote_types(h.dtype, torch.float32))
        powers = cayley(graph, wide, self.order, self.zoom.to(wide.dtype), self.iterations)
        # 2 Re(C h (A + iB)) = 2 Re(C h) A − 2 Im(C h) B
        terms = torch.cat([powers[:1].real, 2 * powers[1:].real, -2 * powers[1:].imag])
        return self.activation(mixed(terms.to(h.dtype), self.weight, self.bias))

    def extra_repr(self) -> str:
        """Width and order."""
        return f"{self.channels}, order={self.order}, iterations={self.iterations}"
