"""`GCN`: the discrete twin of a GCDE.

Kipf, Welling (2017), "Semi-supervised classification with graph convolutional networks"; GCN* of
Poli et al. (2019), "Graph Neural Ordinary Differential Equations", table 1.
"""

from typing import Any

from torch import Tensor, nn

from graphode.fields import GraphConvMap
from graphode.fields.activation import Activation
from graphode.flows import name_masks
from graphode.graphs import Graph
from graphode.models.encoder import GraphConvEncoder
from graphode.models.readout import GraphConvReadout
from graphode.models.sparse_features import SparseFeatures


class GCN(nn.Module):
    """Graph convolutions in a row, each Â (dropout(h) W) + b.

        y = C^L ∘ H ∘ σ ∘ C¹ (x),    H = C^(L−1) ∘ … ∘ C² with activations; none if L = 2

    With `residual`, h + H(h) in place of H(h): what one Euler step makes of a `GCDE` with the
    field H.

    Args:
        in_channels: Number of features.
        channels: Width between layers.
        out_channels: Classes, or values to predict.
        layers: L, 2 or more.
        activation: σ after the first layer.
        hidden_activation: After each layer of H but its last.
        final_activation: After the last layer of H.
        input_dropout: Share of the features dropped in training.
        hidden_dropout: Share of the input of each layer of H.
        readout_dropout: Share of the input of the last layer.
        residual: Whether H is added to what it is given.

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
        activation: str | Activation | None = "relu",
        hidden_activation: str | Activation | None = "relu",
        final_activation: str | Activation | None = "relu",
        input_dropout: float = 0.5,
        hidden_dropout: float = 0.5,
        readout_dropout: float = 0.5,
        residual: bool = False,
    ) -> None:
        super().__init__()
        if layers < 2:
            raise ValueError(
                f"`layers` counts the first and the last convolution, so it must be 2 or more, "
                f"but is {layers}. For a single one use `GraphConvReadout`."
            )
        self.encoder = GraphConvEncoder(in_channels, channels, activation, input_dropout)
        self.hidden = None
        if layers > 2:
            self.hidden = GraphConvMap(
                [channels] * (layers - 1), hidden_activation, final_activation, hidden_dropout
            )
        self.readout = GraphConvReadout(channels, out_channels, readout_dropout)
        self.residual = residual
        name_masks(self)

    @classmethod
    def star(cls, in_channels: int, channels: int, out_channels: int, **options: Any) -> "GCN":
        """GCN*: what is left of a GCDE when its field is not integrated but applied once.

        It has the encoder and the readout of `GCDE`; the layers between are those of the
        GCDE's field, softplus and dropout 0.9 included. The paper tried 2 to 6 layers and reports
        2, which have nothing in between; it does not say what the others looked like.
        """
        settings: dict[str, Any] = {
            "input_dropout": 0.6,
            "hidden_dropout": 0.9,
            "readout_dropout": 0.0,
            "hidden_activation": "softplus",
            "final_activation": None,
        }
        return cls(in_channels, channels, out_channels, **{**settings, **options})

    def forward(self, x: Tensor | SparseFeatures, graph: Graph) -> Tensor:
        """The prediction."""
        h = self.encoder(x, graph)
        if self.hidden is not None:
            moved = self.hidden(0.0, h, graph)
            h = h + moved if self.residual else moved
        return self.readout(h, graph)
