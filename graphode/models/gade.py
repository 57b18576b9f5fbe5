"""`GADE`: graph attention as a differential equation.

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", appendix A.
"""

from typing import Any

from torch import Tensor

from graphode.fields import AttentionField
from graphode.fields.activation import Activation
from graphode.fields.attention import Scores
from graphode.models.field_model import DroppedField, FieldModel


class GADE(FieldModel):
    """The graph attention differential equation.

        dh_v/dt = σ(‖_k Σ_{u∈N(v)∪v} α^k_uv W^k dropout(h)_u + b)

    Args:
        in_channels: Number of features.
        channels: Width of the state, a multiple of `heads`.
        out_channels: Classes, or values to predict.
        heads: Attention heads, side by side; the paper has one.
        scores: "gat" or "gatv2"; see `AttentionField`.
        activation: σ, outside the sum.
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
        heads: int = 1,
        scores: Scores = "gat",
        activation: str | Activation | None = "softplus",
        input_dropout: float = 0.6,
        field_dropout: float = 0.6,
        readout_dropout: float = 0.0,
        t0: float | Tensor = 0.0,
        t1: float | Tensor = 1.0,
        **flow: Any,
    ) -> None:
        field = DroppedField(AttentionField(channels, heads, scores, activation), field_dropout)
        super().__init__(
            in_channels, channels, out_channels, field, input_dropout, readout_dropout, t0, t1, flow
        )
