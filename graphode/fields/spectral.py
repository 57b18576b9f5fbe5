"""Spectral filters as a field, for small graphs.

Bruna, Zaremba, Szlam, LeCun (2014), "Spectral Networks and Locally Connected Networks on Graphs".
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

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
from graphode.graphs import Graph, SpectralBasis, spectral_basis
from graphode.graphs.validation import checked_state


class SpectralField(nn.Module):
    """A free multiplier for every part of the spectrum.

        dh/dt = σ(U Σ_k φ_k(Λ) Uᵀ h W_k + b),    L = U Λ Uᵀ

    with L the symmetric normalised Laplacian, λ in [0, 2], and φ_k the piecewise linear functions
    on equally spaced knots. Bruna et al. learn one multiplier for each eigenvector, or smooth
    ones on its number; a function of the eigenvalue instead makes the field independent of how
    nodes are numbered and eigenvectors chosen, and usable on other graphs.

    One dense eigendecomposition per graph: for some thousand nodes at most. No gradient reaches
    the edge weights.

    Args:
        channels: Width of the state.
        knots: Number of functions φ_k.
        activation: σ; None for none.
        num_modes: Keep only the smoothest modes, of each graph of a batch; all by default.
        bias: Whether b is there.

    Shapes:
        - **h:** `[..., nodes, channels]`; the velocity has the same shape.
    """

    def __init__(
        self,
        channels: int,
        knots: int = 8,
        activation: str | Activation | None = "tanh",
        num_modes: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_widths(channels=channels)
        if knots < 2:
            raise ValueError(
                f"`knots` must be 2 or more, but is {knots}. A piecewise linear function on [0, 2] "
                f"has knots at both ends."
            )
        if num_modes is not None:
            check_positive("num_modes", num_modes, "None keeps all.")
        self.channels, self.knots, self.num_modes = channels, knots, num_modes
        self.activation = find_activation(activation)
        self.weight = nn.Parameter(torch.empty(knots, channels, channels))
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
        source = source_of(graph)
        basis: SpectralBasis = made_once(
            source, ("spectral_basis", self.num_modes), self._decomposed
        )
        basis = SpectralBasis(*(part.to(h.dtype) for part in basis))
        modes = basis.to_modes(checked_state(source.flatten(h), source))
        shares = self._hats(basis.eigenvalues).t()  # [knots, modes]
        lead = (1,) * (modes.dim() - 2)
        terms = shares.reshape(self.knots, *lead, -1, 1) * modes
        out = basis.from_modes(mixed(terms, self.weight, None)).reshape(h.shape)
        return self.activation(out if self.bias is None else out + self.bias)

    def _decomposed(self, source: Graph) -> SpectralBasis:
        """The modes of every graph of a batch, one graph after the other."""
        parts = source.normalize("sym_laplacian").unbatch()
        bases = [spectral_basis(one, self.num_modes) for one in parts]
        none = source.edge_weight.new_zeros(0, 0)  # all there is in a batch of no graph
        return SpectralBasis(
            torch.cat([none.flatten(), *(basis.eigenvalues for basis in bases)]),
            torch.block_diag(none, *(basis.eigenvectors for basis in bases)),
        )

    def _hats(self, eigenvalues: Float[Tensor, " modes"]) -> Float[Tensor, "modes knots"]:
        """φ_k(λ): 1 at its own knot, 0 at all others, linear between."""
        place = (eigenvalues.clamp(0, 2) * ((self.knots - 1) / 2))[:, None]
        number = torch.arange(self.knots, dtype=place.dtype, device=place.device)
        return (1 - (place - number).abs()).clamp(min=0)

    def extra_repr(self) -> str:
        """Width and knots."""
        return f"{self.channels}, knots={self.knots}"
