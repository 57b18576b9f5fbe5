"""Second and higher order: fields that push rather than carry.

Yıldız, Heinonen, Lähdesmäki (2019), "ODE²VAE: Deep generative second order ODEs with Bayesian
neural networks"; Massaroli, Poli, Park, Yamashita, Asama (2020), "Dissecting Neural ODEs".
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from graphode.fields.extension import Extension, pack, unpack
from graphode.fields.validation import check_closes


class SecondOrder(Extension):
    """x″ = a(t, x) or a(t, x, x′), as a first-order field on (x, v) packed in channels.

        d[x, v]/dt = [v, a(t, x, graph)]    or    [v, a(t, [x, v], graph)]

    The order of the halves is that of `solver="leapfrog"`, which needs the first form.

    Args:
        field: The acceleration a; any field of the width of x, or with `sees_velocity` any map
            from the channels of [x, v] to those of x, such as `GraphConvMap([4, 16, 16, 2])`.
        sees_velocity: Whether a depends on the velocity.

    Shapes:
        - **z:** `[..., nodes, 2 · channels]`
    """

    def __init__(self, field: Callable[..., Tensor], sees_velocity: bool = False) -> None:
        super().__init__()
        self.field: Any = field
        self.sees_velocity = sees_velocity

    def forward(
        self, t: float | Tensor, z: Float[Tensor, "*batch nodes both"], graph: Any
    ) -> Float[Tensor, "*batch nodes both"]:
        """Velocity and acceleration."""
        _check_divisible(self, z, 2)
        x, v = z.chunk(2, -1)
        return torch.cat([v, self.acceleration(t, x, v, graph)], -1)

    def acceleration(self, t: float | Tensor, x: Tensor, v: Tensor, graph: Any) -> Tensor:
        """How the velocity changes."""
        a = self.field(t, torch.cat([x, v], -1) if self.sees_velocity else x, graph)
        check_closes(
            self, a, x, "the acceleration", "It has the width of x alone, half of the state's."
        )
        return a

    def pack(
        self,
        h: Float[Tensor, "*batch nodes channels"],
        velocity: Float[Tensor, "*batch nodes channels"] | None = None,
    ) -> Float[Tensor, "*batch nodes both"]:
        """Positions with their velocities, zero by default."""
        x = h if self.sees_velocity else pack(self.field, h)
        v = torch.zeros_like(x)
        if velocity is not None:
            check_closes(self, velocity, h, "`velocity`", "Give one velocity for every position.")
            v = functional.pad(velocity, (0, x.shape[-1] - h.shape[-1]))
        return torch.cat([x, v], -1)

    def unpack(self, z: Float[Tensor, "*lead nodes both"]) -> Float[Tensor, "*lead nodes channels"]:
        """The positions; `z.chunk(2, -1)[1]` are the velocities."""
        x = z.chunk(2, -1)[0]
        return x if self.sees_velocity else unpack(self.field, x)


class HigherOrder(Extension):
    """The n-th derivative as a field of the lower ones: augmentation by higher order.

        h⁽ⁿ⁾ = f(t, [h, h′, …, h⁽ⁿ⁻¹⁾], graph),    the state being [h, h′, …, h⁽ⁿ⁻¹⁾]

    Args:
        field: Any map from n · channels to channels, such as `GraphConvMap([12, 16, 4])`; of a
            field that returns all n · channels the first are taken.
        order: n.

    Shapes:
        - **z:** `[..., nodes, order · channels]`
    """

    def __init__(self, field: Callable[..., Tensor], order: int = 2) -> None:
        super().__init__()
        if order < 2:
            raise ValueError(
                f"`order` must be 2 or more, but is {order}. A field itself is of order 1."
            )
        self.field: Any = field
        self.order = order

    def forward(
        self, t: float | Tensor, z: Float[Tensor, "*batch nodes all_channels"], graph: Any
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """Each derivative moves by the next."""
        _check_divisible(self, z, self.order)
        channels = z.shape[-1] // self.order
        top = self.field(t, z, graph)[..., :channels]
        dz = torch.cat([z[..., channels:], top], -1)
        check_closes(self, dz, z, "the field inside", "It returns the highest derivative.")
        return dz

    def pack(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """The state, all its derivatives zero."""
        return functional.pad(h, (0, (self.order - 1) * h.shape[-1]))

    def unpack(
        self, z: Float[Tensor, "*lead nodes all_channels"]
    ) -> Float[Tensor, "*lead nodes channels"]:
        """The state without its derivatives."""
        return z[..., : z.shape[-1] // self.order]


def _check_divisible(field: Extension, z: Tensor, parts: int) -> None:
    if z.shape[-1] % parts:
        raise ValueError(
            f"{type(field).__name__} moves a state and its derivatives, {parts} parts of equal "
            f"width, but the state has {z.shape[-1]} channels. Make it with `field.pack(h)`."
        )
