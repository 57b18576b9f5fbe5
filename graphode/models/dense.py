"""`MLP`, the paper's Static: a model that sees no graph, to know what a graph is worth.

    y = L_N ∘ σ ∘ … ∘ σ ∘ L_1 (x),    L(x) = dropout(x) W + b

Each node by itself, or all nodes of a system as one long vector, as the paper's multi-agent
baselines 40-80-80-40 do with ten particles of four channels.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from graphode.fields import NodeDropout
from graphode.fields.activation import Activation
from graphode.flows import name_masks
from graphode.models.encoder import LinearEncoder
from graphode.models.sparse_features import SparseFeatures


class DenseMap(nn.Module):
    """Linear layers in a row: L_N ∘ σ ∘ … ∘ σ ∘ L_1, each with dropout before it.

    Args:
        widths: Channels before, between and after the layers.
        activation: σ between layers.
        final_activation: After the last layer; None for none.
        dropout: Share of each layer's input that is dropped in training, one for all or one each.

    Shapes:
        - **x:** `[..., widths[0]]`, or `SparseFeatures` → `[..., widths[-1]]`
    """

    def __init__(
        self,
        widths: Sequence[int],
        activation: str | Activation | None = "relu",
        final_activation: str | Activation | None = None,
        dropout: float | Sequence[float] = 0.0,
    ) -> None:
        super().__init__()
        if len(widths) < 2:
            raise ValueError(
                f"`widths` must name the channels before and after each layer, at least two, but "
                f"is {list(widths)}. Use for example [40, 80, 80, 40]."
            )
        last = len(widths) - 2
        rates = dropout if isinstance(dropout, Sequence) else [dropout] * (last + 1)
        if len(rates) != last + 1:
            raise ValueError(
                f"`dropout` must be one rate or one for each of the {last + 1} layers, but there "
                f"are {len(rates)}. Give for example {[0.5] * (last + 1)}."
            )
        self.layers = nn.ModuleList(
            LinearEncoder(before, after, final_activation if k == last else activation, rates[k])
            for k, (before, after) in enumerate(itertools.pairwise(widths))
        )

    def forward(self, x: Tensor | SparseFeatures) -> Tensor:
        """The layers in turn."""
        for layer in self.layers:
            x = layer(x)
        return x  # pyright: ignore[reportReturnType]


class MLP(nn.Module):
    """Static: layers that know no graph and no depth.

    Args:
        in_channels: Channels of a node that come in.
        channels: Width between layers.
        out_channels: Channels of a node that go out.
        layers: Number of linear layers.
        nodes: If given, the nodes of a system are one vector: in_channels · nodes come in, and
            MLP(4, 80, 4, layers=3, nodes=10) is the paper's 40-80-80-40.
        activation: Between layers.
        final_activation: After the last; None for none.
        dropout: Share of each layer's input that is dropped in training, one for all or one each.
        node_dropout: Share of the nodes whose whole output is dropped in training.

    Shapes:
        - **x:** `[..., nodes, in_channels]`, or (without `nodes`) `SparseFeatures`
        - **y:** `[..., nodes, out_channels]`
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        out_channels: int,
        *,
        layers: int = 2,
        nodes: int | None = None,
        activation: str | Activation | None = "relu",
        final_activation: str | Activation | None = None,
        dropout: float | Sequence[float] = 0.0,
        node_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(
                f"`layers` must be 1 or more, but is {layers}. One layer is a linear map."
            )
        together = 1 if nodes is None else nodes
        widths = [in_channels * together, *[channels] * (layers - 1), out_channels * together]
        self.map = DenseMap(widths, activation, final_activation, dropout)
        self.node_dropout = NodeDropout(node_dropout)
        self.in_channels, self.out_channels, self.nodes = in_channels, out_channels, nodes
        name_masks(self)

    def forward(self, x: Tensor | SparseFeatures, graph: Any = None) -> Tensor:
        """The prediction; the graph makes no difference."""
        del graph
        if self.nodes is None:
            return self.node_dropout(self.map(x))
        if not isinstance(x, Tensor) or tuple(x.shape[-2:]) != (self.nodes, self.in_channels):
            raise ValueError(
                f"This MLP sees all nodes at once, [..., {self.nodes}, {self.in_channels}], but "
                f"the input has shape {list(x.shape)}. Build it with `nodes={x.shape[-2]}`, or "
                f"with `nodes=None` for a map of each node by itself."
            )
        # One row, so that dropout's masks are [1, nodes · channels].
        flat = x.reshape(*x.shape[:-2], 1, self.nodes * self.in_channels)
        out = self.map(flat).reshape(*x.shape[:-1], self.out_channels)
        return self.node_dropout(out)
