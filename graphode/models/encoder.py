"""First layers: dense or sparse features to states.

    LinearEncoder       σ(dropout(x) W + b)
    GraphConvEncoder    σ(Â (dropout(x) W) + b)

Of sparse features the zeros are not touched: the product is one sparse product, and dropout falls
on the non-zeros, which is all it can change. A mask's entries are keyed by node and channel, so
that sparse features lose the same entries as dense ones.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields import AttributedGraph, Dropout, GraphConvolution
from graphode.fields.activation import Activation, find_activation
from graphode.fields.fused_convolution import mix, spread
from graphode.fields.validation import check_graph, check_widths
from graphode.flows.kernels import may_use_kernels
from graphode.graphs import Graph
from graphode.models.sparse_features import SparseFeatures

Features = Float[Tensor, "*batch nodes in_channels"] | SparseFeatures


class FeatureDropout(Dropout):
    """`Dropout` that also takes `SparseFeatures`, of which it drops non-zeros."""

    def forward(self, h: Float[Tensor, "*batch nodes channels"] | SparseFeatures) -> Any:
        """Drop entries in training; of the kind that comes."""
        if isinstance(h, Tensor):
            return super().forward(h)
        if not self.is_active:
            return h
        if may_use_kernels(h.values):
            return h.with_values(self.drop(h.values, h.hashed_positions))
        return h.with_values(h.values * self.keep_mask(self.rate, h.hashed_positions, h.values))


class LinearEncoder(nn.Module):
    """σ(dropout(x) W + b) at every node, whatever the graph.

    Weights and biases start uniform on ±1/√(out_channels), as in `GraphConvolution`.

    Args:
        in_channels: Number of features.
        out_channels: Width of what comes out.
        activation: σ, by name or as a function; None for none.
        dropout: Share of the features that is dropped in training.
        bias: Whether b is there.

    Shapes:
        - **x:** `[..., nodes, in_channels]`, or `SparseFeatures`
        - **output:** `[..., nodes, out_channels]`
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        activation: str | Activation | None = "relu",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_widths(in_channels=in_channels, out_channels=out_channels)
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.activation = find_activation(activation)
        self.dropout = FeatureDropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, x: Features, graph: Graph | AttributedGraph | None = None
    ) -> Float[Tensor, "*batch nodes out_channels"]:
        """Drop, mix, bend."""
        del graph
        check_features(self, x, self.weight)
        out = times(self.dropout(x), self.weight)
        return self.activation(out if self.bias is None else out + self.bias)

    def extra_repr(self) -> str:
        """Widths."""
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}, bias={self.bias is not None}"


class GraphConvEncoder(GraphConvolution):
    """A graph convolution that takes features: σ(Â (dropout(x) W) + b).

    The first layer of the paper's models, with an input dropout of 0.6.

    Args:
        in_channels: Number of features.
        out_channels: Width of the state.
        activation: σ, by name or as a function; None for none.
        dropout: Share of the features that is dropped in training.
        bias: Whether b is there.

    Shapes:
        - **x:** `[..., nodes, in_channels]`, or `SparseFeatures`
        - **output:** `[..., nodes, out_channels]`
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        activation: str | Activation | None = "relu",
        dropout: float = 0.6,
        bias: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, bias)
        self.activation = find_activation(activation)
        self.dropout = FeatureDropout(dropout)

    def forward(self, h: Features, graph: Graph) -> Float[Tensor, "*batch nodes out_channels"]:
        """Drop, mix channels, mix neighbours, bend."""
        check_features(self, h, self.weight)
        check_graph(self, graph)
        if isinstance(h, Tensor):
            mixed = mix(h, self.weight, self.dropout)
        else:
            mixed = self.dropout(h).multiply(self.weight)
        return spread(mixed, self.bias, graph, self.activation)


def times(x: Tensor | SparseFeatures, weight: Tensor) -> Tensor:
    """X W, in a form that compiles: the tracer does not know `@` of our own classes."""
    return mix(x, weight) if isinstance(x, Tensor) else x.multiply(weight)


def check_features(layer: nn.Module, x: Tensor | SparseFeatures, weight: Tensor) -> None:
    """Refuse features of another width or dtype, and sparse tensors that are not ours."""
    channels = weight.shape[0]
    if isinstance(x, Tensor) and x.layout != torch.strided:
        raise TypeError(
            f"{type(layer).__name__} takes dense tensors or `SparseFeatures`, but a tensor of "
            f"layout {x.layout} came. Convert it once: `x = graphode.SparseFeatures(x)`."
        )
    if not isinstance(x, (Tensor, SparseFeatures)):
        raise TypeError(
            f"{type(layer).__name__} takes dense tensors or `SparseFeatures`, but a "
            f"{type(x).__name__} came. Convert it once: `x = graphode.SparseFeatures(x)`, or "
            f"`torch.as_tensor(x)`."
        )
    if x.shape[-1] != channels:
        raise ValueError(
            f"{type(layer).__name__} takes {channels} channels a node, but {x.shape[-1]} came "
            f"(shape {list(x.shape)}). Build it with in_channels={x.shape[-1]}, or check that "
            f"features come last."
        )
    # Only autocast can multiply two dtypes; sparse features take that of the weight.
    is_other = isinstance(x, Tensor) and x.dtype != weight.dtype
    if is_other and not torch.is_autocast_enabled(x.device.type):
        other = f", or `model.to({x.dtype})`" if x.dtype.is_floating_point else ""
        raise TypeError(
            f"{type(layer).__name__} has the dtype {weight.dtype}, but {x.dtype} came. Use "
            f"`x.to({weight.dtype})`{other}."
        )
