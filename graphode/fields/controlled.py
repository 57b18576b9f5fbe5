"""The input seen at every depth.

Massaroli et al. (2020), "Dissecting Neural ODEs", data control; the controlled rows of Poli et
al. (2019), "Graph Neural Ordinary Differential Equations", are in its source only.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from graphode.fields.extension import Extension, pack, unpack
from graphode.fields.validation import (
    check_channels,
    check_closes,
    check_dtype,
    check_packed,
    check_widths,
)

How = Literal["add", "concat", "source"]


class Controlled(Extension):
    """A field that sees, beside the state h, an input u that does not move.

        "add"       dh/dt = f(t, h + u B, graph)
        "concat"    dh/dt = f(t, [h, u], graph)
        "source"    dh/dt = f(t, h, graph) + u B

    The input travels with the state as channels of zero velocity, [h, u]: each sample has its
    own, and its gradient survives every gradient method. `pack` makes such a state. The channels
    of u have no error, so tolerances, which bound the mean over all channels, count for a little
    less in h.

    Args:
        field: f. For "concat" any map from both widths to the state's, such as
            `GraphConvMap([128, 64, 64])`; of a field that returns both, the state's part is taken.
        channels: Width of the state (that of the field inside, with what it packs).
        control_channels: Width of the input; that of the state by default.
        how: One of the three above. B starts as the identity.

    Shapes:
        - **z:** `[..., nodes, channels + control_channels]`
    """

    def __init__(
        self,
        field: Callable[..., Tensor],
        channels: int,
        control_channels: int | None = None,
        how: How = "add",
    ) -> None:
        super().__init__()
        if how not in get_args(How):
            raise ValueError(
                f"Unknown way of control {how!r}. Choose one of: {', '.join(get_args(How))}."
            )
        self.field: Any = field
        self.channels = channels
        self.control_channels = channels if control_channels is None else control_channels
        check_widths(channels=channels, control_channels=self.control_channels)
        self.how = how
        self.weight = None
        if how != "concat":
            self.weight = nn.Parameter(torch.empty(self.control_channels, channels))
            nn.init.eye_(self.weight)

    def forward(
        self, t: float | Tensor, z: Float[Tensor, "*batch nodes all_channels"], graph: Any
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """The velocity of the state, and none of the input."""
        width = self.channels + self.control_channels
        check_packed(self, z, width, f"{self.channels} of the state, the rest of the input")
        check_dtype(self, z, self.weight)
        h, u = z.split([self.channels, self.control_channels], -1)
        if self.weight is None:
            dh = self.field(t, z, graph)[..., : self.channels]
        elif self.how == "add":
            dh = self.field(t, h + u @ self.weight, graph)
        else:
            dh = self.field(t, h, graph) + u @ self.weight
        check_closes(self, dh, h, "the field inside", "It must return the state's channels.")
        return functional.pad(dh, (0, self.control_channels))

    def pack(
        self,
        h: Float[Tensor, "*batch nodes channels"],
        control: Float[Tensor, "*batch nodes control_channels"] | None = None,
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """[h, u]; u is `control`, or by default h itself: the state at the start."""
        control = h if control is None else control
        check_channels(self, control, self.control_channels, " as input")
        inside = h if self.how == "concat" else pack(self.field, h)
        return torch.cat([inside, control], -1)

    def unpack(
        self, z: Float[Tensor, "*lead nodes all_channels"]
    ) -> Float[Tensor, "*lead nodes channels"]:
        """The state without the input."""
        h = z[..., : self.channels]
        return h if self.how == "concat" else unpack(self.field, h)

    def extra_repr(self) -> str:
        """Widths and way."""
        return f"{self.channels}, control_channels={self.control_channels}, how={self.how!r}"
