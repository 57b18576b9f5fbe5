"""Graph convolution, and the field made of it.

Kipf, Welling (2017), "Semi-supervised classification with graph convolutional networks"; Poli et
al. (2019), "Graph Neural Ordinary Differential Equations", equation (3).
"""

import itertools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.activation import Activation, find_activation
from graphode.fields.dropout import Dropout
from graphode.fields.fused_convolution import convolve
from graphode.fields.validation import check_channels, check_dtype, check_graph, check_widths
from graphode.flows.stochastic import Redraw
from graphode.graphs import DenseGraph, Graph


class GraphConvolution(nn.Module):
    """One layer, Â (h W) + b, where Â is the matrix of the graph passed in.

    Weights and biases start uniform on ±1/√(out_channels), as in the paper's code.

    Args:
        in_channels: Width of the state that comes in.
        out_channels: Width of the state that goes out.
        bias: Whether b is there.

    Shapes:
        - **h:** `[..., nodes, in_channels]` → `[..., nodes, out_channels]`
    """

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True) -> None:
        super().__init__()
        check_widths(in_channels=in_channels, out_channels=out_channels)
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, h: Float[Tensor, "*batch nodes in_channels"], graph: Graph
    ) -> Float[Tensor, "*batch nodes out_channels"]:
        """Mix channels, then neighbours."""
        weight = self.weight
        check_channels(self, h, weight.shape[0])
        check_graph(self, graph)
        check_dtype(self, h, weight, "layer")
        return convolve(h, weight, self.bias, graph)

    def extra_repr(self) -> str:
        """Widths."""
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}, bias={self.bias is not None}"


class GraphConvMap(nn.Module):
    """N graph convolutions in a row, between any widths.

        C^N ∘ σ ∘ … ∘ σ ∘ C¹ (h),    C(h) = Â (dropout(h) W) + b

    What `GraphConvField` is made of, for where the widths need not close: as the acceleration of
    a `SecondOrder` that sees the velocity, or in `Controlled` and `TimeConcat`.

    Args:
        widths: Channels before, between and after the layers.
        activation: σ between layers, by name or as a function.
        final_activation: After the last layer; None for none.
        dropout: Share of each layer's input that is dropped in training.
        bias: Whether the layers have biases.
        redraw: When dropout draws a new mask: per_solve, per_step, per_eval.
        force: Allow `per_eval` under adaptive solvers and adjoints.

    Shapes:
        - **h:** `[..., nodes, widths[0]]` → `[..., nodes, widths[-1]]`
    """

    def __init__(
        self,
        widths: Sequence[int],
        activation: str | Activation | None = "softplus",
        final_activation: str | Activation | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        redraw: Redraw = "per_solve",
        force: bool = False,
    ) -> None:
        super().__init__()
        _check_listed(widths)
        if len(widths) < 2:
            raise ValueError(
                f"`widths` must name the channels before and after each layer, at least two, but "
                f"is {list(widths)}. Use for example [4, 16, 2] for two layers."
            )
        self.layers = nn.ModuleList(
            GraphConvolution(width, next_width, bias)
            for width, next_width in itertools.pairwise(widths)
        )
        self.dropouts = nn.ModuleList(Dropout(dropout, redraw, force) for _ in self.layers)
        self.widths = tuple(widths)
        self.activation = find_activation(activation)
        self.final_activation = find_activation(final_activation)

    def forward(
        self, t: float | Tensor, h: Float[Tensor, "*batch nodes in_channels"], graph: Graph
    ) -> Float[Tensor, "*batch nodes out_channels"]:
        """The layers in turn; the time makes no difference."""
        del t
        check_channels(self, h, self.widths[0])
        check_graph(self, graph)
        *lead, nodes, _ = h.shape
        is_lone = bool(lead) and math.prod(lead) == 1 and not isinstance(graph, DenseGraph)
        if is_lone:
            h = h.reshape(nodes, -1)  # cheaper as a matrix
        last = len(self.layers) - 1
        for index, (layer, dropout) in enumerate(zip(self.layers, self.dropouts, strict=True)):
            activation = self.final_activation if index == last else self.activation
            assert isinstance(layer, GraphConvolution)
            assert isinstance(dropout, Dropout)
            weight = layer.weight
            check_dtype(self, h, weight)
            h = convolve(h, weight, layer.bias, graph, activation, dropout)
        return h.reshape(*lead, nodes, -1) if is_lone else h


class GraphConvField(GraphConvMap):
    """The right-hand side of a GCDE, N graph convolutions in a row.

        dh/dt = C^N ∘ σ ∘ … ∘ σ ∘ C¹ (h),    C(h) = Â (dropout(h) W) + b

    Â is the matrix of the graph passed in, normalised as "sym" for the paper's experiments; the
    paper's formula calls it a Laplacian L and prints no bias.

    Args:
        widths: Channels before, between and after the layers; first and last are the state's.
        activation: σ between layers, by name or as a function.
        final_activation: After the last layer; None for none.
        dropout: Share of each layer's input that is dropped in training.
        bias: Whether the layers have biases.
        redraw: When dropout draws a new mask: per_solve, per_step, per_eval.
        force: Allow `per_eval` under adaptive solvers and adjoints.

    Shapes:
        - **h:** `[..., nodes, channels]`; the velocity has the same shape.
    """

    def __init__(
        self,
        widths: Sequence[int],
        activation: str | Activation | None = "softplus",
        final_activation: str | Activation | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        redraw: Redraw = "per_solve",
        force: bool = False,
    ) -> None:
        _check_listed(widths)
        if len(widths) < 2 or widths[0] != widths[-1]:
            raise ValueError(
                f"`widths` must start and end with the state's channels, as a field maps a state "
                f"to its own velocity, but is {list(widths)}. Use for example [64, 64, 64] for "
                f"two layers."
            )
        super().__init__(
            widths, activation, final_activation, dropout, bias, redraw=redraw, force=force
        )


def _check_listed(widths: Sequence[int]) -> None:
    if isinstance(widths, int):
        raise TypeError(
            f"`widths` must list the channels before, between and after the layers, but is "
            f"{widths}. Use for example [{widths}, {widths}] for one layer."
        )
