"""Fields that change with depth: dh/ds = F(s, h, Θ(s)).

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", equation (2), with Θ(s);
Massaroli et al. (2020), "Dissecting Neural ODEs", Galerkin expansion of the parameters.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from graphode.fields.extension import Extension
from graphode.fields.structure import AttributedGraph
from graphode.fields.validation import check_closes, check_positive
from graphode.flows.chebyshev import polynomials
from graphode.flows.stochastic import member_numbers, of_member
from graphode.graphs import Graph

Basis = Literal["chebyshev", "fourier", "polynomial"]


class TimeConcat(Extension):
    """A field that sees the time as one more channel.

        dh/dt = f(t, [h, t], graph)

    Args:
        field: Any map from channels + 1 to channels, such as `GraphConvMap([65, 64, 64])`; of a
            field that returns all, the first channels are taken.
    """

    def __init__(self, field: Any) -> None:
        super().__init__()
        self.field = field

    def forward(
        self, t: float | Tensor, h: Float[Tensor, "*batch nodes channels"], graph: Any
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The velocity of `h` at time `t`."""
        time = torch.as_tensor(t, dtype=h.dtype, device=h.device).expand(*h.shape[:-1], 1)
        dh = self.field(t, torch.cat([h, time], -1), graph)[..., : h.shape[-1]]
        check_closes(self, dh, h, "the field inside", "It returns the channels without the time.")
        return dh

    def pack(self, h: Float[Tensor, "*batch nodes channels"]) -> Tensor:
        """The state as it is."""
        return h

    def unpack(self, z: Float[Tensor, "*lead nodes channels"]) -> Tensor:
        """The state as it is."""
        return z


class DepthVarying(Extension):
    """A field whose parameters are a learned expansion in depth.

        dh/ds = f(s, h, graph; Θ(s)),    Θ(s) = Θ_0 + Σ_{k=1}^{K} Θ_k φ_k(τ)

    with τ = (s − s_0) / (s_1 − s_0) and

        "polynomial"    φ_k = τᵏ
        "chebyshev"     φ_k = T_k(2τ − 1)
        "fourier"       φ_k = sin(2πjτ) for k = 2j − 1, cos(2πjτ) for k = 2j

    Θ_0 are the parameters of the field; the others start at zero, so that a new field does not
    vary. Where the samples of a batch have different times they have different parameters, and
    are evaluated one by one.

    Args:
        field: A module with parameters.
        num_terms: K.
        basis: The functions φ.
        t0, t1: The depths s_0 and s_1 that the basis is laid over.
    """

    def __init__(
        self,
        field: nn.Module,
        num_terms: int = 3,
        basis: Basis = "chebyshev",
        t0: float = 0.0,
        t1: float = 1.0,
    ) -> None:
        super().__init__()
        check_positive("num_terms", num_terms, "With none, use the field itself.")
        if basis not in get_args(Basis):
            raise ValueError(
                f"Unknown basis {basis!r}. Choose one of: {', '.join(get_args(Basis))}."
            )
        if t0 == t1:
            raise ValueError(f"`t0` and `t1` must differ, but both are {t0}. Give the flow's span.")
        self.field = field
        self.names = [name for name, _ in field.named_parameters()]
        self.terms = nn.ParameterList(
            torch.zeros(num_terms, *parameter.shape, dtype=parameter.dtype)
            for parameter in field.parameters()
        )
        if not self.names:
            raise ValueError(
                f"{type(field).__name__} has no parameters that could vary with depth. To let it "
                f"see the time, use `TimeConcat`."
            )
        self.basis, self.t0, self.t1 = basis, t0, t1

    def forward(
        self, t: float | Tensor, h: Float[Tensor, "*batch nodes channels"], graph: Any
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The velocity of `h` by the parameters at depth `t`."""
        if not isinstance(t, Tensor) or t.numel() == 1:
            return self._at(t, h, graph)
        if t.numel() == 0:
            return self._at(self.t0, h, graph)  # of no sample, at any time
        if t.shape != (*h.shape[:-2], 1, 1):
            raise ValueError(
                f"`t` must be one number or have one for each sample, shape "
                f"{[*h.shape[:-2], 1, 1]}, but has shape {list(t.shape)}. Stack graphs of one size "
                f"in a dimension of their own; for others use fixed steps, whose times all graphs "
                f"share: `Flow(field, solver='rk4', num_steps=…)`."
            )
        samples, times = h.flatten(0, -3), t.reshape(-1)
        graphs = _graph_of_each(graph, samples)
        keys = [_of_each(number, h.shape[:-2]) for number in member_numbers()]
        parts = []
        for time, sample, own, prefix, step in zip(times, samples, graphs, *keys, strict=True):
            is_keyed = prefix is not None or step is not None
            with of_member(prefix, step) if is_keyed else nullcontext():
                parts.append(self._at(time, sample, own))
        return torch.stack(parts).reshape(h.shape)

    def _at(self, t: float | Tensor, h: Tensor, graph: Any) -> Tensor:
        weights = self._basis_at(t, h)
        own = self.field.parameters()
        parameters = {
            name: base + torch.tensordot(weights.to(base.dtype), terms, 1)
            for name, base, terms in zip(self.names, own, self.terms, strict=True)
        }
        return functional_call(self.field, parameters, (t, h, graph))

    def _basis_at(self, t: float | Tensor, h: Tensor) -> Tensor:
        """φ_1(t), …, φ_K(t)."""
        count, device = self.terms[0].shape[0], self.terms[0].device
        s = torch.as_tensor(t, dtype=h.dtype, device=device).reshape(())
        s = (s - self.t0) / (self.t1 - self.t0)
        if self.basis == "polynomial":
            return torch.stack([s**k for k in range(1, count + 1)])
        if self.basis == "fourier":
            waves = [2 * math.pi * ((k + 1) // 2) * s for k in range(1, count + 1)]
            return torch.stack([w.sin() if k % 2 == 0 else w.cos() for k, w in enumerate(waves)])
        return torch.stack(polynomials(s, count + 1)[1:])

    def extra_repr(self) -> str:
        """The expansion."""
        return f"num_terms={self.terms[0].shape[0]}, basis={self.basis!r}"


def _of_each(number: Tensor | None, batch: torch.Size) -> Sequence[Tensor | None]:
    """A part of masks' keys for each sample: those it has stand for the first dimensions."""
    if number is None:
        return [None] * batch.numel()
    missing = len(batch) - number.ndim
    return number.reshape(*number.shape, *(1,) * missing).expand(batch).flatten().unbind()


def _graph_of_each(graph: Any, samples: Tensor) -> list[Any]:
    """The graph under each sample: one for all, or those of a batch in turn."""
    if not isinstance(graph, (Graph, AttributedGraph)) or samples.shape[-2] == graph.num_nodes:
        return [graph] * len(samples)
    graphs = graph.unbatch()
    return graphs * (len(samples) // len(graphs))
