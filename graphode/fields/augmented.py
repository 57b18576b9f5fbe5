"""More room for a flow: further channels, of zeros or of a layer's making.

Dupont, Doucet, Teh (2019), "Augmented Neural ODEs"; Massaroli et al. (2020), "Dissecting Neural
ODEs", input-layer augmentation. Augmentation by higher order is `HigherOrder`.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from graphode.fields.extension import Extension, pack, unpack
from graphode.fields.validation import check_positive


class Augmented(Extension):
    """The field itself, on a state that `pack` has widened.

        z(0) = [h, 0]    or    [h, lift(h)],    dz/dt = f(t, z, graph)

    Trajectories that would have to cross in the original space can pass each other in the wider
    one, which makes for simpler fields and fewer evaluations.

    Args:
        field: A field of width channels + `extra_channels`.
        extra_channels: How many channels are added, and dropped again by `unpack`.
        lift: An input layer that fills them, from channels to `extra_channels`; None for zeros.
    """

    def __init__(
        self,
        field: Callable[..., Tensor],
        extra_channels: int,
        lift: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        check_positive("extra_channels", extra_channels, "Without any, use the field itself.")
        self.field: Any = field
        self.extra_channels = extra_channels
        self.lift: Any = lift

    def forward(
        self, t: float | Tensor, z: Float[Tensor, "*batch nodes all_channels"], graph: Any
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """The velocity of the widened state."""
        return self.field(t, z, graph)

    def pack(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """[h, 0] or [h, lift(h)]."""
        if self.lift is None:
            return pack(self.field, functional.pad(h, (0, self.extra_channels)))
        extra = self.lift(h)
        if extra.shape != (*h.shape[:-1], self.extra_channels):
            raise ValueError(
                f"`lift` must return the {self.extra_channels} extra channels, but maps "
                f"{list(h.shape)} to {list(extra.shape)}. Use for example "
                f"`nn.Linear({h.shape[-1]}, {self.extra_channels})`."
            )
        return pack(self.field, torch.cat([h, extra], -1))

    def unpack(
        self, z: Float[Tensor, "*lead nodes all_channels"]
    ) -> Float[Tensor, "*lead nodes channels"]:
        """Without the extra channels."""
        return unpack(self.field, z)[..., : -self.extra_channels]

    def extra_repr(self) -> str:
        """Width."""
        return f"extra_channels={self.extra_channels}"
