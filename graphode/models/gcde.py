"""`GCDE`: the paper's model of node classification.

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", static models and table 1.
"""

from typing import Any

from torch import Tensor

from graphode.fields import GraphConvField
from graphode.fields.activation import Activation
from graphode.flows.stochastic import Redraw
from graphode.models.field_model import FieldModel


class GCDE(FieldModel):
    """The graph convolution differential equation.

        F = C^N ∘ σ ∘ … ∘ σ ∘ C¹,    C(h) = Â (dropout(h) W) + b

    `GCDE.rk2`, `GCDE.rk4` and `GCDE.dpr5` are the rows of the paper's table.

    Args:
        in_channels: Number of features.
        channels: Width of the state.
        out_channels: Classes, or values to predict.
        layers: N.
        activation: σ between the layers of the field.
        final_activation: After the last of them.
        input_dropout: Share of the features dropped in training.
        field_dropout: Share of the input of each layer of the field.
        readout_dropout: Share of the final state.
        redraw: When the field's dropout draws a new mask; see `Dropout`.
        force: Allow `per_eval` under adaptive solvers and adjoints.
        t0, t1: The interval.
        flow: Arguments of `Flow`: solver, rtol, atol, num_steps, gradient … By default one step
            of the 3/8 rule; other fixed-step solvers also take one step unless told otherwise.

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
        layers: int = 2,
        activation: str | Activation | None = "softplus",
        final_activation: str | Activation | None = None,
        input_dropout: float = 0.6,
        field_dropout: float = 0.9,
        readout_dropout: float = 0.0,
        redraw: Redraw = "per_solve",
        force: bool = False,
        t0: float | Tensor = 0.0,
        t1: float | Tensor = 1.0,
        **flow: Any,
    ) -> None:
        if layers < 1:
            raise ValueError(
                f"`layers` must be 1 or more, but is {layers}. The paper's field has 2, and 1 "
                f"under dopri5."
            )
        field = GraphConvField(
            [channels] * (layers + 1),
            activation,
            final_activation,
            field_dropout,
            redraw=redraw,
            force=force,
        )
        super().__init__(
            in_channels, channels, out_channels, field, input_dropout, readout_dropout, t0, t1, flow
        )

    @classmethod
    def rk2(cls, in_channels: int, channels: int, out_channels: int, **options: Any) -> "GCDE":
        """GCDE-rk2: one step of the midpoint rule, two evaluations."""
        return cls(in_channels, channels, out_channels, **{"solver": "midpoint", **options})

    @classmethod
    def rk4(cls, in_channels: int, channels: int, out_channels: int, **options: Any) -> "GCDE":
        """GCDE-rk4: one step of the 3/8 rule, four evaluations."""
        return cls(in_channels, channels, out_channels, **{"solver": "rk4_38", **options})

    @classmethod
    def dpr5(cls, in_channels: int, channels: int, out_channels: int, **options: Any) -> "GCDE":
        """GCDE-dpr5: one layer and its softplus, Dormand–Prince to the authors' tolerances."""
        settings = {
            "solver": "dopri5",
            "layers": 1,
            "final_activation": "softplus",
            "rtol": 1e-3,
            "atol": 1e-4,
        }
        return cls(in_channels, channels, out_channels, **{**settings, **options})
