"""Fields on a state that carries more than its user's: what goes into a flow, what comes out.

    h → pack → flow → unpack → h

A flow calls `field(t, z, graph)` and knows one state. What a field must remember along the way (a
velocity, the input, a cost so far) is therefore part of that state, as further channels: every
solver moves it and every gradient method sees it. `unpack` says which of them are the user's.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Extension(nn.Module):
    """A field around a field, with its own packing; by default that of the field inside.

    Extensions nest: each packs what it adds around (or, for `Augmented`, inside) what the field
    inside it packs.

    Attributes:
        field: The field inside.
    """

    field: Any

    def pack(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """The state to give to a flow along this field."""
        return pack(self.field, h)

    def unpack(
        self, z: Float[Tensor, "*lead nodes all_channels"]
    ) -> Float[Tensor, "*lead nodes channels"]:
        """The user's part of such a state, or of many: time may come first."""
        return unpack(self.field, z)


class WithStart(nn.Module):
    """A field that remembers where its flow began, in channels of zero velocity: [h, h(0)].

    Attributes:
        channels: Width of h.
    """

    channels: int

    @property
    def remembers(self) -> bool:
        """Whether h(0) travels with the state."""
        return True

    def pack(
        self,
        h: Float[Tensor, "*batch nodes channels"],
        start: Float[Tensor, "*batch nodes channels"] | None = None,
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """[h, h(0)] where h(0) is needed: `h` itself, unless another start is given."""
        return torch.cat([h, h if start is None else start], -1) if self.remembers else h

    def unpack(
        self, z: Float[Tensor, "*lead nodes all_channels"]
    ) -> Float[Tensor, "*lead nodes channels"]:
        """The state without its start."""
        return z[..., : self.channels]


def pack(field: Any, h: Float[Tensor, "*batch nodes channels"]) -> Tensor:
    """The state to give to a flow along any field: `h` itself unless the field extends it."""
    return field.pack(h) if hasattr(field, "pack") else h


def unpack(field: Any, z: Float[Tensor, "*lead nodes all_channels"]) -> Tensor:
    """The user's part of a flow's state, whatever the field."""
    return field.unpack(z) if hasattr(field, "unpack") else z
