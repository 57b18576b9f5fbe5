"""Recurrent cells on graphs: the jumps of a hybrid system, h⁺ = G(h, x, graph).

Zhao, Chen, Cho (2018), "Deep gated graph convolutions for spatio-temporal traffic forecasting", as
given by Poli et al. (2019), "Graph Neural Ordinary Differential Equations", appendix; Cho et al.
(2014), "Learning phrase representations using RNN encoder–decoder"; Hochreiter, Schmidhuber (1997),
"Long short-term memory". Below, C is a gate (see `gates`): C(h) = Â h W by default, with Â the
matrix of the graph passed in, so that C([x, h]) = Â x Θ_x + Â h Θ_h.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.activation import Activation, find_activation
from graphode.fields.validation import check_positive
from graphode.hybrid.gates import GateFactory, make_gate
from graphode.hybrid.parts import Part, StateParts


class RecurrentCell(nn.Module):
    """A jump that knows the width of its state.

    Args:
        in_channels: Width of an observation.
        channels: Width of h.
        parts: What the channels of the state are for; h alone by default.
    """

    def __init__(self, in_channels: int, channels: int, parts: StateParts | None = None) -> None:
        super().__init__()
        check_positive("in_channels", in_channels, "It is the width of an observation.")
        check_positive("channels", channels, "It is the width of the state.")
        self.in_channels, self.channels = in_channels, channels
        self.parts = StateParts((Part(channels),)) if parts is None else parts

    def check(self, h: Tensor, x: Tensor) -> None:
        """Refuse a state or an observation of another width."""
        for what, value, width in (
            ("states", h, self.parts.channels),
            ("observations", x, self.in_channels),
        ):
            if value.shape[-1] != width:
                raise ValueError(
                    f"{type(self).__name__} takes {what} of {width} channels a node, but "
                    f"{value.shape[-1]} came (shape {list(value.shape)}). Build it for "
                    f"{value.shape[-1]}, or check that channels come last."
                )

    def extra_repr(self) -> str:
        """Widths."""
        return f"{self.in_channels}, {self.channels}"


class GraphGRUCell(RecurrentCell):
    """The paper's GCGRU.

        z = σ(C_z([x, h])),    r = σ(C_r([x, h])),    h̃ = tanh(C_h([x, r ⊙ h]))
        h⁺ = z ⊙ h + (1 − z) ⊙ h̃

    with C([x, h]) = Â x Θ_x + Â h Θ_h; the paper calls the matrix Â a Laplacian.
    Both sigmoid gates are one operator, z first. As in Cho et al. the reset r acts before the
    product; in `torch.nn.GRUCell` it acts after.

    Args:
        in_channels: Width of an observation.
        channels: Width of the state.
        bias: Whether the convolutions have biases; the paper prints none.
        gate: `gate(in_channels, out_channels)` makes another operator than a graph convolution:
            `gate=nn.Linear` sees no graph, `gate=lambda i, o: GraphConvMap([i, 64, o])` has two
            layers.

    Shapes:
        - **h:** `[..., nodes, channels]`; the same comes out.
        - **x:** `[..., nodes, in_channels]`
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        *,
        bias: bool = False,
        gate: GateFactory | None = None,
    ) -> None:
        super().__init__(in_channels, channels)
        self.gates = make_gate(gate, in_channels + channels, channels, 2, bias)
        self.candidate = make_gate(gate, in_channels + channels, channels, 1, bias)

    def forward(
        self,
        h: Float[Tensor, "*batch nodes channels"],
        x: Float[Tensor, "*batch nodes in_channels"],
        graph: Any = None,
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The state after the observation."""
        self.check(h, x)
        update, reset = torch.sigmoid(self.gates(torch.cat([x, h], -1), graph)).chunk(2, -1)
        candidate = torch.tanh(self.candidate(torch.cat([x, reset * h], -1), graph))
        return candidate + update * (h - candidate)


class GraphLSTMCell(RecurrentCell):
    """Long short-term memory on a graph, with (h, c) packed in the channels of one state.

        i, f, o = σ(C([x, h])),    g = tanh(C([x, h]))
        c⁺ = f ⊙ c + i ⊙ g,    h⁺ = o ⊙ tanh(c⁺)

    All four gates are one operator, in the order i, f, g, o. The readout sees h.

    Args:
        in_channels: Width of an observation.
        channels: Width of h, and of c.
        cell_flows: Whether c flows with h between observations, in a flow of width 2 · channels;
            else it is held, and the flow has the width of h alone.
        bias: Whether the convolutions have biases.
        gate: As for `GraphGRUCell`.

    Shapes:
        - **h:** `[..., nodes, 2 · channels]`, h then c; the same comes out.
        - **x:** `[..., nodes, in_channels]`
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        *,
        cell_flows: bool = True,
        bias: bool = False,
        gate: GateFactory | None = None,
    ) -> None:
        parts = StateParts((Part(channels), Part(channels, flows=cell_flows, seen=False)))
        super().__init__(in_channels, channels, parts)
        self.gates = make_gate(gate, in_channels + channels, channels, 4, bias)

    def forward(
        self,
        h: Float[Tensor, "*batch nodes both"],
        x: Float[Tensor, "*batch nodes in_channels"],
        graph: Any = None,
    ) -> Float[Tensor, "*batch nodes both"]:
        """The state after the observation."""
        self.check(h, x)
        h, c = h.chunk(2, -1)
        enter, keep, new, out = self.gates(torch.cat([x, h], -1), graph).chunk(4, -1)
        c = torch.sigmoid(keep) * c + torch.sigmoid(enter) * torch.tanh(new)
        return torch.cat([torch.sigmoid(out) * torch.tanh(c), c], -1)


class GraphRNNCell(RecurrentCell):
    """The plain recurrent cell on a graph, h⁺ = σ(C([x, h])).

    Args:
        in_channels: Width of an observation.
        channels: Width of the state.
        activation: σ, by name or as a function.
        bias: Whether the convolution has a bias.
        gate: As for `GraphGRUCell`.

    Shapes:
        - **h:** `[..., nodes, channels]`; the same comes out.
        - **x:** `[..., nodes, in_channels]`
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        *,
        activation: str | Activation | None = "tanh",
        bias: bool = False,
        gate: GateFactory | None = None,
    ) -> None:
        super().__init__(in_channels, channels)
        self.activation = find_activation(activation)
        self.gates = make_gate(gate, in_channels + channels, channels, 1, bias)

    def forward(
        self,
        h: Float[Tensor, "*batch nodes channels"],
        x: Float[Tensor, "*batch nodes in_channels"],
        graph: Any = None,
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The state after the observation."""
        self.check(h, x)
        return self.activation(self.gates(torch.cat([x, h], -1), graph))
