"""The spectral basis of a small graph, in which convolutions are multiplications.

    L = U diag(λ) Uᵀ,    filter(h) = U diag(g) Uᵀ h

Bruna, Zaremba, Szlam, LeCun (2014), "Spectral Networks and Locally Connected Networks on Graphs".
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.graphs.graph import Graph


class SpectralBasis(NamedTuple):
    """Eigenvalues, ascending, and orthonormal eigenvectors of a symmetric matrix."""

    eigenvalues: Float[Tensor, " modes"]
    eigenvectors: Float[Tensor, "nodes modes"]

    def to_modes(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*batch modes channels"]:
        """Uᵀ h: the state's coefficient on every mode."""
        return self.eigenvectors.t() @ h

    def from_modes(
        self, coefficients: Float[Tensor, "*batch modes channels"]
    ) -> Float[Tensor, "*batch nodes channels"]:
        """U c: the state with these coefficients."""
        return self.eigenvectors @ coefficients

    def multiply(
        self,
        h: Float[Tensor, "*batch nodes channels"],
        multipliers: Float[Tensor, " modes"] | Float[Tensor, "modes channels"],
    ) -> Float[Tensor, "*batch nodes channels"]:
        """U diag(g) Uᵀ h, with one multiplier per mode or per mode and channel."""
        if multipliers.dim() == 1:
            multipliers = multipliers[:, None]
        return self.from_modes(multipliers * self.to_modes(h))


def spectral_basis(graph: Graph, num_modes: int | None = None) -> SpectralBasis:
    """The `num_modes` smoothest modes of a Laplacian; all of them by default.

    One dense eigendecomposition, nodes³ operations: for graphs of some thousand nodes at most.
    Compute it once; gradients do not pass to the edge weights.

    Args:
        graph: A symmetric matrix, for instance `graph.normalize("sym_laplacian")`.
        num_modes: How many modes to keep, those of the smallest eigenvalues first.
    """
    if not graph.is_symmetric:
        raise ValueError(
            "A spectral basis needs a symmetric matrix, but the graph is directed or normalised by "
            'rows. Use `graph.normalize("sym_laplacian")` of an undirected graph.'
        )
    num_modes = graph.num_nodes if num_modes is None else num_modes
    if not 0 <= num_modes <= graph.num_nodes:
        raise ValueError(
            f"`num_modes` must be from 0 to the number of nodes, {graph.num_nodes}, but it is "
            f"{num_modes}. Leave it out for all modes."
        )
    eigenvalues, eigenvectors = torch.linalg.eigh(graph.to_dense().detach())
    return SpectralBasis(eigenvalues[:num_modes], eigenvectors[:, :num_modes])
