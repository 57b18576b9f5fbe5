"""`NeuralODE`: continuous depth without a graph.

Chen, Rubanova, Bettencourt, Duvenaud (2018), "Neural ordinary differential equations".
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.activation import Activation
from graphode.fields.validation import check_channels
from graphode.flows import Flow
from graphode.models.dense import MLP
from graphode.models.encoder import LinearEncoder
from graphode.models.gde import GDE
from graphode.models.readout import LinearReadout


class MLPField(nn.Module):
    """dh/dt = MLP(h): a field without a graph.

    Args:
        channels: Width of the state.
        hidden_channels: Width between layers.
        layers: Number of linear layers.
        nodes: If given, the nodes of a system are one vector.
        activation: Between layers; smooth ones make smooth fields.
        dropout: Share of each layer's input that is dropped in training.

    Shapes:
        - **h:** `[..., nodes, channels]`; the velocity has the same shape.
    """

    def __init__(
        self,
        channels: int,
        hidden_channels: int,
        *,
        layers: int = 3,
        nodes: int | None = None,
        activation: str | Activation | None = "softplus",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.mlp = MLP(
            channels,
            hidden_channels,
            channels,
            layers=layers,
            nodes=nodes,
            activation=activation,
            dropout=dropout,
        )

    def forward(
        self, t: float | Tensor, h: Float[Tensor, "*batch nodes channels"], graph: Any = None
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The velocity of `h`."""
        del t, graph
        check_channels(self, h, self.channels)
        return self.mlp(h)


class NeuralODE(GDE):
    """A flow along an `MLPField`: continuous depth without a graph.

    NeuralODE(None, 4, None, hidden_channels=80, nodes=10) is the paper's 40-80-80-40.

    Args:
        in_channels: Number of features, for a linear encoder with ReLU; None for none: the
            features are the state.
        channels: Width of the state.
        out_channels: For a linear readout; None for none.
        hidden_channels: Width inside the field; `channels` by default.
        layers: Linear layers of the field.
        nodes: If given, the field sees the nodes of a system as one vector.
        activation: Inside the field.
        input_dropout: Share of the features dropped in training, if there is an encoder.
        field_dropout: Share of the input of each layer of the field.
        t0, t1: The interval.
        flow: Arguments of `Flow`; by default dopri5 to rtol 1e-3, atol 1e-4.

    Shapes:
        - **x:** `[..., nodes, in_channels]`, or with an encoder `SparseFeatures`
        - **y:** `[..., nodes, out_channels]`
    """

    def __init__(
        self,
        in_channels: int | None,
        channels: int,
        out_channels: int | None,
        *,
        hidden_channels: int | None = None,
        layers: int = 3,
        nodes: int | None = None,
        activation: str | Activation | None = "softplus",
        input_dropout: float = 0.0,
        field_dropout: float = 0.0,
        t0: float | Tensor = 0.0,
        t1: float | Tensor = 1.0,
        **flow: Any,
    ) -> None:
        field = MLPField(
            channels,
            channels if hidden_channels is None else hidden_channels,
            layers=layers,
            nodes=nodes,
            activation=activation,
            dropout=field_dropout,
        )
        encoder = readout = None
        if in_channels is not None:
            encoder = LinearEncoder(in_channels, channels, "relu", input_dropout)
        if out_channels is not None:
            readout = LinearReadout(channels, out_channels)
        super().__init__(encoder=encoder, flow=Flow(field, **flow), readout=readout, t0=t0, t1=t1)
