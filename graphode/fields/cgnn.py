"""Continuous graph neural networks: a linear field, with its solution in closed form.

Xhonneux, Qu, Tang (2020), "Continuous Graph Neural Networks".
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from graphode.fields.extension import WithStart
from graphode.fields.validation import check_dtype, check_graph, check_packed, check_widths
from graphode.graphs import Graph


class CGNNField(WithStart):
    """Diffusion, mixing of channels, and the input as a constant source.

        dh/dt = (A − I) h + h (W − I) + e,    A = α/2 (I + Â),  W = U diag(ω) Uᵀ

    Â is the graph passed in, normalised as "sym". α and ω are learned within (0, 1) and U is
    orthogonal, so that all solutions stay bounded. The authors learn α for each node and push U
    towards orthogonality after each training step; here α is one number, so that any graph will
    do, and U = exp(B − Bᵀ). The input e travels with the state as channels of zero velocity,
    [h, e], which `pack` makes.

    Args:
        channels: Width of the state and of the input.
        mixes: Whether there is W; without it the term h (W − I) is not there either.
        alpha: α at the start.

    Shapes:
        - **z:** `[..., nodes, 2 · channels]`
    """

    def __init__(self, channels: int, mixes: bool = True, alpha: float = 0.9) -> None:
        super().__init__()
        check_widths(channels=channels)
        if not 0 < alpha < 1:
            raise ValueError(
                f"`alpha` must be between 0 and 1, but is {alpha}. Solutions are bounded below 1."
            )
        self.channels = channels
        self.raw_alpha = nn.Parameter(torch.logit(torch.tensor(alpha)))
        self.raw_spectrum = nn.Parameter(torch.full((channels,), 2.0)) if mixes else None
        self.generator = nn.Parameter(torch.randn(channels, channels) * 0.1) if mixes else None

    @property
    def alpha(self) -> Float[Tensor, ""]:
        """How much of a state diffusion keeps."""
        return torch.sigmoid(self.raw_alpha)

    def modes(self) -> tuple[Float[Tensor, " channels"], Float[Tensor, "channels channels"]] | None:
        """ω and U, the eigenvalues and the eigenvectors of W."""
        if self.generator is None or self.raw_spectrum is None:
            return None
        # torch's exponential of a matrix in half precision is wrong, NaN on a CPU.
        precise = torch.promote_types(self.generator.dtype, torch.float32)
        generator = self.generator.to(precise)
        basis = torch.matrix_exp(generator - generator.t())
        return torch.sigmoid(self.raw_spectrum.to(precise)), basis

    def mixing(self) -> Float[Tensor, "channels channels"] | None:
        """W, symmetric with eigenvalues in (0, 1)."""
        modes = self.modes()
        if modes is None:
            return None
        spectrum, basis = modes
        return ((basis * spectrum) @ basis.t()).to(self.raw_alpha.dtype)

    def forward(
        self, t: float | Tensor, z: Float[Tensor, "*batch nodes both"], graph: Graph
    ) -> Float[Tensor, "*batch nodes both"]:
        """The velocity of the state, and none of the input."""
        del t  # autonomous
        check_packed(self, z, 2 * self.channels, "the state and the input")
        check_graph(self, graph)
        check_dtype(self, z, self.generator)
        h, e = z.chunk(2, -1)
        dh = self.alpha / 2 * (h + graph.propagate(h)) - h + e
        mixing = self.mixing()
        if mixing is not None:
            dh = dh + h @ mixing - h
        return functional.pad(dh, (0, self.channels))


def cgnn_solution(
    field: CGNNField,
    z: Float[Tensor, "*batch nodes both"],
    graph: Graph,
    t: float | Tensor,
) -> Float[Tensor, "*batch nodes both"]:
    """Where `CGNNField` carries the packed state `z` in time `t`, in closed form.

    In the eigenvectors of Â (nodes) and W (channels), with eigenvalues μ and ω, each component
    moves alone: x(t) = exp(λt) x(0) + (exp(λt) − 1)/λ e, λ = α/2 (1 + μ) − 1 + ω − 1. One dense
    decomposition of Â for each graph of a batch: for graphs of some thousand nodes at most. α, ω
    and U are known and differentiate like anything else; gradients to weights of the graph need
    eigenvalues μ that are distinct.

    Args:
        field: The field.
        z: The state at time 0, as `field.pack` makes it.
        graph: A symmetric matrix, as `graph.normalize("sym")` of an undirected graph is.
        t: A number, or one for each sample, broadcastable to `z`.
    """
    if not graph.is_symmetric:
        raise ValueError(
            "The closed form needs a symmetric matrix, but the graph is directed or normalised by "
            'rows. Use `graph.normalize("sym")` of an undirected graph, or solve numerically.'
        )
    modes, parts = field.modes(), graph.flatten(z).split(graph.sizes, -2)
    moved = [
        _moved(field.alpha, modes, part, one.to_dense(), time)
        for part, one, time in zip(parts, graph.unbatch(), _times(t, z, graph), strict=True)
    ]
    return torch.cat(moved, -2).reshape(z.shape) if moved else z


def _times(t: float | Tensor, z: Tensor, graph: Graph) -> Sequence[float | Tensor]:
    """The time of each graph of a batch, broadcastable to the states of that graph."""
    if graph.num_graphs == 1 or not isinstance(t, Tensor) or t.dim() == 0:
        return [t] * graph.num_graphs
    of_nodes = graph.flatten(t.expand(*z.shape[:-1], 1))
    return [part[..., :1, :] for part in of_nodes.split(graph.sizes, -2)]


def _moved(
    alpha: Tensor,
    modes: tuple[Tensor, Tensor] | None,
    z: Tensor,
    matrix: Tensor,
    t: float | Tensor,
) -> Tensor:
    """The state of one graph after the time t, given ω and U."""
    precise = torch.promote_types(z.dtype, torch.float32)  # half precision has no decomposition
    h, e = z.to(precise).chunk(2, -1)
    values, node_basis = torch.linalg.eigh(matrix.to(precise))
    rates = alpha.to(precise) / 2 * (1 + values[:, None]) - 1
    channel_basis = torch.eye(h.shape[-1]).to(h)
    if modes is not None:
        spectrum, channel_basis = (part.to(precise) for part in modes)
        rates = rates + spectrum - 1
    start, source = (node_basis.t() @ part @ channel_basis for part in (h, e))
    moved = torch.exp(rates * t) * start + torch.expm1(rates * t) / rates * source
    return torch.cat([node_basis @ moved @ channel_basis.t(), e], -1).to(z.dtype)
