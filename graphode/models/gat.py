"""`GAT`: graph attention networks, the discrete twin of a GADE.

Veličković et al. (2018), "Graph Attention Networks".
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields import Dropout
from graphode.fields.activation import Activation, find_activation
from graphode.fields.edge_attention import Weights, attend, edge_softmax, neighbours
from graphode.fields.gat_scores import gat_scores
from graphode.fields.validation import check_graph, check_widths
from graphode.flows import name_masks
from graphode.graphs import Graph
from graphode.graphs.validation import checked_state
from graphode.models.encoder import Features, LinearEncoder
from graphode.models.sparse_features import SparseFeatures


class AttentionLayer(nn.Module):
    """One layer of graph attention, between any widths.

        out_v = σ(‖_k Σ_{u∈N(v)∪v} dropout(α^k_uv) W^k dropout(h)_u + b),
        α^k_uv = softmax_u LeakyReLU(a^k · W^k h_u + c^k · W^k h_v)

    It looks at edges, not at weights, and works on the source of a normalised graph; equal to
    PyG's `GATConv`. Weights, attention and bias start uniform on ±1/√(width), the width being
    that of what they make: all heads for weights, one head for attention.

    Args:
        in_channels: Width of what comes in.
        out_channels: Width of what goes out; with `concat` a multiple of `heads`.
        heads: Number of attention heads.
        activation: σ, outside the sum.
        dropout: Share of the input, and of the attention coefficients, dropped in training.
        concat: Whether heads stand side by side or are averaged.
        negative_slope: Of the LeakyReLU.

    Shapes:
        - **h:** `[..., nodes, in_channels]`, or `SparseFeatures` → `[..., nodes, out_channels]`
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        activation: str | Activation | None = "elu",
        dropout: float = 0.6,
        *,
        concat: bool = True,
        negative_slope: float = 0.2,
    ) -> None:
        super().__init__()
        check_widths(in_channels=in_channels, out_channels=out_channels)
        if heads < 1 or (concat and out_channels % heads):
            raise ValueError(
                f"{heads} heads side by side cannot fill {out_channels} channels. Choose `heads` "
                f"that divide {out_channels}, or `concat=False` to average them."
            )
        width = out_channels // heads if concat else out_channels
        self.linear = LinearEncoder(in_channels, heads * width, None, dropout, bias=False)
        self.source_attention = nn.Parameter(torch.empty(heads, width))
        self.target_attention = nn.Parameter(torch.empty(heads, width))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.edge_dropout = Dropout(dropout)
        self.activation = find_activation(activation)
        self.heads, self.concat, self.negative_slope = heads, concat, negative_slope
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        self.linear.reset_parameters()
        for parameter in (self.source_attention, self.target_attention, self.bias):
            bound = 1 / math.sqrt(parameter.shape[-1])
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, h: Features, graph: Graph) -> Float[Tensor, "*batch nodes out_channels"]:
        """Look around, then sum."""
        check_graph(self, graph)
        out = self.linear(h)
        flat = checked_state(graph.flatten(out), graph)
        lead = flat.shape[:-2]
        around = neighbours(graph, copies=math.prod(lead))
        # As it is without autocast, which rounds the product.
        values = flat.to(self.bias.dtype).reshape(-1, *self.source_attention.shape)
        attentions = self.source_attention, self.target_attention
        scores, own = gat_scores(values, *attentions, around, self.negative_slope)
        weights = self._dropped(edge_softmax(scores, own, around), lead)
        attended = attend(weights, values, around)
        attended = attended.flatten(1) if self.concat else attended.mean(1)
        attended = self.activation(attended + self.bias)
        return attended.reshape(*out.shape[:-1], attended.shape[-1])

    def _dropped(self, weights: Weights, lead: torch.Size) -> Weights:
        """Entries dropped by one mask of edges, nodes and heads for all samples."""
        samples = math.prod(lead)
        sizes = [len(part) // max(samples, 1) for part in weights]
        parts = [
            part.reshape(*lead, size, self.heads) for part, size in zip(weights, sizes, strict=True)
        ]
        kept = self.edge_dropout(torch.cat(parts, -2)).split(sizes, -2)
        return Weights(*(part.reshape(-1, self.heads) for part in kept))


class GAT(nn.Module):
    """Attention layers in a row; the heads of the last are averaged.

    Args:
        in_channels: Number of features.
        channels: Width between layers, all heads together; the paper's is 64, 8 heads of 8.
        out_channels: Classes, or values to predict.
        layers: Number of layers.
        heads: Heads of every layer but the last.
        out_heads: Heads of the last (Veličković et al.: 1, and 8 on Pubmed).
        activation: Between layers.
        dropout: Share of each layer's input and of its attention coefficients.

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
        heads: int = 8,
        out_heads: int = 1,
        activation: str | Activation | None = "elu",
        dropout: float = 0.6,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"`layers` must be 1 or more, but is {layers}. GAT has 2.")
        widths = [in_channels, *[channels] * (layers - 1)]
        self.layers = nn.ModuleList(
            AttentionLayer(before, channels, heads, activation, dropout) for before in widths[:-1]
        )
        self.layers.append(
            AttentionLayer(widths[-1], out_channels, out_heads, None, dropout, concat=False)
        )
        name_masks(self)

    def forward(self, x: Tensor | SparseFeatures, graph: Graph) -> Tensor:
        """The prediction."""
        for layer in self.layers:
            x = layer(x, graph)
        return x  # pyright: ignore[reportReturnType]
