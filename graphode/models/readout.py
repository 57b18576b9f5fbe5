"""Readouts at nodes: states to predictions.

    LinearReadout       dropout(h) W + b
    GraphConvReadout    Â (dropout(h) W) + b

For one prediction a graph, see `pooling`.
"""

from graphode.fields.activation import Activation
from graphode.models.encoder import GraphConvEncoder, LinearEncoder


class LinearReadout(LinearEncoder):
    """dropout(h) W + b at every node.

    Args:
        channels: Width of the state.
        out_channels: Classes, or values to predict.
        dropout: Share of the state that is dropped in training.
        activation: After the sum; None for none.
        bias: Whether b is there.

    Shapes:
        - **h:** `[..., nodes, channels]` → `[..., nodes, out_channels]`
    """

    def __init__(
        self,
        channels: int,
        out_channels: int,
        dropout: float = 0.0,
        activation: str | Activation | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(channels, out_channels, activation, dropout, bias)


class GraphConvReadout(GraphConvEncoder):
    """Â (dropout(h) W) + b: the last layer of the paper's models, without dropout there.

    Args:
        channels: Width of the state.
        out_channels: Classes, or values to predict.
        dropout: Share of the state that is dropped in training.
        activation: After the sum; None for none.
        bias: Whether b is there.

    Shapes:
        - **h:** `[..., nodes, channels]` → `[..., nodes, out_channels]`
    """

    def __init__(
        self,
        channels: int,
        out_channels: int,
        dropout: float = 0.0,
        activation: str | Activation | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(channels, out_channels, activation, dropout, bias)
