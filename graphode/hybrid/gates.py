"""Gates: the operators that stand in a cell where a plain RNN has matrices.

A gate maps [x, h] to the sums inside σ and tanh. It is a graph convolution by default; any operator
of (h, graph), of h alone (`nn.Linear`), or of (t, h, graph), as fields are, may take its place.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields import GraphConvolution
from graphode.fields.fused_convolution import mix
from graphode.fields.graphless import with_graph
from graphode.graphs import Graph

GateFactory = Callable[[int, int], Callable[..., Any]]


class GateConvolution(GraphConvolution):
    """Â (h W) + b for several gates at once, side by side in channels.

    Neighbours are mixed before channels where that is narrower, (Â h) W: the sparse product of a
    GRU's gates then has the width of [x, h] rather than twice that of h.

    Weights start uniform on ±1/√(channels of one gate).

    Args:
        in_channels: Width of what comes in.
        out_channels: Width of all gates together.
        bias: Whether b is there.
        gates: How many gates there are.

    Shapes:
        - **h:** `[..., nodes, in_channels]` → `[..., nodes, out_channels]`
    """

    def __init__(self, in_channels: int, out_channels: int, bias: bool, gates: int) -> None:
        self.num_gates = gates
        super().__init__(in_channels, out_channels, bias)

    def reset_parameters(self) -> None:
        """Draw new weights."""
        bound = math.sqrt(self.num_gates / self.weight.shape[1])
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, h: Float[Tensor, "*batch nodes in_channels"], graph: Graph
    ) -> Float[Tensor, "*batch nodes out_channels"]:
        """Mix neighbours and channels, the narrower side first."""
        if not hasattr(graph, "propagate"):
            shape = f" of shape {list(graph.shape)}" if isinstance(graph, Tensor) else ""
            raise TypeError(
                f"The gates of a cell need a graphode `Graph`, but were given a "
                f"{type(graph).__name__}{shape}. Make one with `gd.Graph(edge_index, num_nodes)`, "
                f"or from PyG's data with `gd.Graph.from_pyg(data)`. A cell without a graph has "
                f"`gate=nn.Linear`."
            )
        if self.weight.shape[0] >= self.weight.shape[1]:
            return super().forward(h, graph)
        out = mix(graph.propagate(h), self.weight)
        return out if self.bias is None else out + self.bias


class Timeless(nn.Module):
    """field(0, h, graph) where gate(h, graph) is called.

    Args:
        field: A function or module of (t, h, graph).
    """

    def __init__(self, field: Callable[..., Tensor]) -> None:
        super().__init__()
        self.field: Any = field

    def forward(self, h: Tensor, graph: Any) -> Tensor:
        """The field's answer at time 0."""
        return self.field(0.0, h, graph)


def make_gate(
    factory: GateFactory | None, in_channels: int, channels: int, gates: int, bias: bool
) -> Callable[..., Any]:
    """The operator of `gates` gates of width `channels`, called as gate(h, graph).

    Args:
        factory: `factory(in_channels, out_channels)` makes an operator; None for a convolution.
        in_channels: Width of [x, h].
        channels: Width of one gate.
        gates: How many gates share the operator.
        bias: Whether the convolution has a bias; other operators decide for themselves.
    """
    if factory is None:
        return GateConvolution(in_channels, gates * channels, bias, gates)
    if not callable(factory) or (isinstance(factory, nn.Module) and not isinstance(factory, type)):
        what = type(factory).__name__
        raise TypeError(
            f"`gate` must be a function of (in_channels, out_channels) that makes an operator, "
            f"but is a {what}. A cell needs several: pass for example `gate=nn.Linear`, or "
            f"`gate=lambda i, o: GraphConvMap([i, 64, o])`."
        )
    operator = factory(in_channels, gates * channels)
    if _takes_time(operator):
        return Timeless(operator)
    return with_graph(operator, "gate")


def _takes_time(operator: Callable[..., Any]) -> bool:
    function = operator.forward if isinstance(operator, nn.Module) else operator
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return len(required) == 3
