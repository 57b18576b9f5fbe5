"""What a state passes on its way, instead of where it ends.

Liu, Gao, Ji (2020), "Towards Deeper Graph Neural Networks" (DAGNN), whose gate chooses among
neighbourhoods of all sizes, node by node; here the sum over them is an integral along depth.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.extension import Extension, pack, unpack
from graphode.fields.validation import check_closes, check_dtype, check_packed, check_widths


class PathGate(Extension):
    """A field whose flow gives the path of the state, weighed by a learned gate.

        dh/ds = f(s, h, graph),    dy/ds = σ(h · w + b) h,    y(0) = 0

    Out of the flow, by `unpack`, comes y(t1) = ∫ σ(h · w + b) h ds, of the width of h: at every
    node the gate (σ is the logistic function) says how much each depth counts. Along (Â − I) h,
    with steps of Euler's method of length 1, it is the sum of DAGNN,

        y(K + 1) = Σ_{k=0}^{K} σ(Â^k h(0) · w + b) Â^k h(0).

    y travels with the state as its last channels, so that every solver and every gradient method
    serves it, and counts in the error norm.

    Args:
        field: f.
        channels: Width of h, without what the field packs.
        gate: Whether there is one; without it y is the integral of h.

    Shapes:
        - **z:** `[..., nodes, all_channels + channels]`
    """

    def __init__(self, field: Callable[..., Tensor], channels: int, gate: bool = True) -> None:
        super().__init__()
        check_widths(channels=channels)
        self.field: Any = field
        self.channels = channels
        self.weight = nn.Parameter(torch.empty(channels, 1)) if gate else None
        self.bias = nn.Parameter(torch.empty(1)) if gate else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw a new gate, uniform on ±1/√channels."""
        bound = 1 / math.sqrt(self.channels)
        for parameter in self.parameters(recurse=False):
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, t: float | Tensor, z: Float[Tensor, "*batch nodes all_channels"], graph: Any
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """The velocity of the state, and the rate of the integral."""
        inside = z[..., : -self.channels]
        h = unpack(self.field, inside)
        check_packed(self, h, self.channels, "and as many for the integral")
        check_dtype(self, h, self.weight)
        dz = self.field(t, inside, graph)
        check_closes(self, dz, inside, "the field inside", "Make the state with `pack`.")
        if self.weight is not None and self.bias is not None:
            h = torch.sigmoid(h @ self.weight + self.bias) * h
        return torch.cat([dz, h], -1)

    def pack(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """The state of the field inside, and an integral of zero."""
        return torch.cat([pack(self.field, h), torch.zeros_like(h)], -1)

    def unpack(
        self, z: Float[Tensor, "*lead nodes all_channels"]
    ) -> Float[Tensor, "*lead nodes channels"]:
        """The integral so far."""
        return z[..., -self.channels :]

    def extra_repr(self) -> str:
        """Width."""
        return f"{self.channels}, gate={self.weight is not None}"
