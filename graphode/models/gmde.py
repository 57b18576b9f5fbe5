"""`GMDE`: message passing as a differential equation.

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", appendix A.
"""

from typing import Any

from torch import Tensor

from graphode.fields import MessagePassingField
from graphode.fields.activation import Activation
from graphode.models.dense import DenseMap
from graphode.models.field_model import DroppedField, FieldModel


class GMDE(FieldModel):
    """The graph message passing differential equation, with networks of two layers.

        dh_v/dt = g[Σ_{u→v} w_uv m([h_v, h_u])],    h after dropout

    Args:
        in_channels: Number of features.
        channels: Width of the state.
        out_channels: Classes, or values to predict.
        hidden_channels: Width inside m and g, and of a message; `channels` by default.
        activation: Inside m and g.
        relative: Whether m sees h_u − h_v in place of h_u.
        input_dropout: Share of the features dropped in training.
        field_dropout: Share of the state dropped in the field.
        readout_dropout: Share of the final state.
        t0, t1: The interval.
        flow: Arguments of `Flow`, as for `GCDE`.

    Shapes:
        - **x:** `[..., nodes, in_channels]`, or `SparseFeatures`
        - **y:** `[..., nodes, out_channels]`
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        out_channels: int,
        *,
        hidden_channels: int | None = None,
        activation: str | Activation | None = "softplus",
        relative: bool = False,
        input_dropout: float = 0.6,
        field_dropout: float = 0.6,
        readout_dropout: float = 0.0,
        t0: float | Tensor = 0.0,
        t1: float | Tensor = 1.0,
        **flow: Any,
    ) -> None:
        hidden = channels if hidden_channels is None else hidden_channels
        message = DenseMap([2 * channels, hidden, hidden], activation)
        update = DenseMap([hidden, hidden, channels], activation)
        field = DroppedField(MessagePassingField(message, update, relative=relative), field_dropout)
        super().__init__(
            in_channels, channels, out_channels, field, input_dropout, readout_dropout, t0, t1, flow
        )
