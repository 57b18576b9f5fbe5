"""What the models the paper names have in common: a graph field between graph convolutions.

    h(0) = ReLU(Â (dropout(x) W) + b),    dh/dt = F(h, graph),    y = Â h(1) W′ + b′

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", appendix, node
classification. The paper gives GADE and GMDE by their fields alone: here they stand between the
encoder and the readout of GCDE, so that models differ by their fields and nothing else. The graph
passed in is to be normalised, for the convolutions; attention looks at its source.
"""

from typing import Any

from torch import Tensor, nn

from graphode.fields import Dropout
from graphode.flows import Flow
from graphode.flows.method import Method
from graphode.flows.methods import find_method, has_error_estimate
from graphode.models.encoder import GraphConvEncoder
from graphode.models.gde import GDE
from graphode.models.readout import GraphConvReadout


def one_step_flow(
    field: nn.Module, solver: str | Method = "rk4_38", num_steps: int | None = None, **options: Any
) -> Flow:
    """A flow that takes one step where its solver has no error to control, as the paper's do.

    Args:
        field: The field.
        solver: As for `Flow`.
        num_steps: By default 1 for fixed-step solvers; adaptive ones choose their steps.
        options: Further arguments of `Flow`.
    """
    method = find_method(solver, options.get("rtol", 1e-3), options.get("atol", 1e-4))
    if num_steps is None and "step_size" not in options and not has_error_estimate(method):
        num_steps = 1
    return Flow(field, solver=solver, num_steps=num_steps, **options)


class FieldModel(GDE):
    """A field between the paper's encoder and readout.

    Args:
        in_channels: Number of features.
        channels: Width of the state.
        out_channels: Classes, or values to predict.
        field: On states of `channels`.
        input_dropout: Share of the features dropped in training.
        readout_dropout: Share of the final state dropped in training.
        t0, t1: The interval.
        flow: Arguments of `one_step_flow`.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        out_channels: int,
        field: nn.Module,
        input_dropout: float,
        readout_dropout: float,
        t0: float | Tensor,
        t1: float | Tensor,
        flow: dict[str, Any],
    ) -> None:
        super().__init__(
            encoder=GraphConvEncoder(in_channels, channels, "relu", input_dropout),
            flow=one_step_flow(field, **flow),
            readout=GraphConvReadout(channels, out_channels, readout_dropout),
            t0=t0,
            t1=t1,
        )


class DroppedField(nn.Module):
    """A field that sees a state with entries dropped: dh/dt = f(t, dropout(h), graph).

    Args:
        field: f.
        dropout: Share of the state that is dropped in training, the same within a solve.
    """

    def __init__(self, field: nn.Module, dropout: float) -> None:
        super().__init__()
        self.field = field
        self.dropout = Dropout(dropout)

    def forward(self, t: float | Tensor, h: Tensor, graph: Any) -> Tensor:
        """The velocity of `h`."""
        return self.field(t, self.dropout(h), graph)
