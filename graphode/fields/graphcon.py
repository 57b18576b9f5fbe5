"""Graph-coupled oscillators.

Rusch, Chamberlain, Rowbottom, Mishra, Bronstein (2022), "Graph-Coupled Oscillator Networks".
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from graphode.fields.activation import Activation, find_activation
from graphode.fields.second_order import SecondOrder
from graphode.fields.validation import check_closes


class GraphCONField(SecondOrder):
    """Oscillators at the nodes, coupled and forced through any field.

        x″ = σ(F(t, x, graph)) − γ x − α x′

    as a first-order field on [x, v]. With damping α it is not for `solver="leapfrog"`. The
    authors' method, IMEX, steps v first and then x with the new v.

    Args:
        field: The coupling F, such as `GraphConvField([64, 64])` or `AttentionField(64)`.
        frequency: γ, the squared frequency of an oscillator alone.
        damping: α.
        activation: σ.

    Shapes:
        - **z:** `[..., nodes, 2 · channels]`
    """

    def __init__(
        self,
        field: Callable[..., Tensor],
        frequency: float = 1.0,
        damping: float = 1.0,
        activation: str | Activation | None = "relu",
    ) -> None:
        super().__init__(field)
        if frequency < 0 or damping < 0:
            raise ValueError(
                f"`frequency` and `damping` must be 0 or more, but are {frequency} and {damping}. "
                f"Negative ones make states explode."
            )
        self.frequency, self.damping = frequency, damping
        self.activation = find_activation(activation)

    def acceleration(self, t: float | Tensor, x: Tensor, v: Tensor, graph: Any) -> Tensor:
        """Coupling, spring and damper."""
        force = self.activation(self.field(t, x, graph))
        check_closes(self, force, x, "the coupling", "Its width is that of x.")
        return force - self.frequency * x - self.damping * v

    def extra_repr(self) -> str:
        """Constants."""
        return f"frequency={self.frequency}, damping={self.damping}"
