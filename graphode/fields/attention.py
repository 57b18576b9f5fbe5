"""Graph attention as a field.

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", appendix A, GADE; Veličković
et al. (2018), "Graph Attention Networks"; Brody, Alon, Yahav (2022), "How Attentive are Graph
Attention Networks?".
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.activation import Activation, find_activation
from graphode.fields.edge_attention import attend, edge_softmax, neighbours
from graphode.fields.gat_scores import gat_scores
from graphode.fields.gatv2_scores import gatv2_scores
from graphode.fields.validation import (
    check_channels,
    check_dtype,
    check_graph,
    check_positive,
    check_widths,
)
from graphode.graphs import Graph
from graphode.graphs.validation import checked_state

Scores = Literal["gat", "gatv2"]


class AttentionField(nn.Module):
    """The right-hand side of a GADE: every node looks at itself and its neighbours.

        dh_v/dt = σ(‖_k Σ_{u∈N(v)∪v} α^k_uv W^k h_u + b),    α^k_uv = softmax_u(e^k_uv)

        "gat"      e_uv = LeakyReLU(a_source · W h_u + a_target · W h_v)
        "gatv2"    e_uv = a · LeakyReLU(W h_u + W′ h_v)

    with one softmax over the edges that arrive at v, self included, and ‖ the concatenation of
    heads (or, without `concat`, their mean). It looks at edges, not at weights, and works on the
    source of a normalised graph; equal to PyG's `GATConv` and `GATv2Conv`. The paper has one
    head and no bias.

    Args:
        channels: Width of the state; with `concat` a multiple of `heads`.
        heads: Number of attention heads.
        scores: Which of the two.
        activation: σ, outside the sum; None for none.
        concat: Whether heads stand side by side or are averaged.
        negative_slope: Of the LeakyReLU.
        bias: Whether b is there ("gatv2": after W and W′ too, as in PyG).

    Shapes:
        - **h:** `[..., nodes, channels]`; the velocity has the same shape.
    """

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        scores: Scores = "gat",
        activation: str | Activation | None = "elu",
        *,
        concat: bool = True,
        negative_slope: float = 0.2,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_widths(channels=channels)
        check_positive("heads", heads, "One head is the paper's.")
        if scores not in ("gat", "gatv2"):
            raise ValueError(f"Unknown scores {scores!r}. Choose one of: gat, gatv2.")
        if concat and channels % heads:
            raise ValueError(
                f"{heads} heads side by side cannot fill the {channels} channels of a state: a "
                f"field maps a state to its own velocity. Choose `heads` that divide `channels`, "
                f"or `concat=False` to average them."
            )
        self.channels, self.heads, self.scores, self.concat = channels, heads, scores, concat
        self.negative_slope = negative_slope
        self.activation = find_activation(activation)
        width = channels // heads if concat else channels
        is_second = scores == "gatv2"
        self.source = nn.Linear(channels, heads * width, bias=bias and is_second)
        self.target = nn.Linear(channels, heads * width, bias=bias) if is_second else None
        self.source_attention = nn.Parameter(torch.empty(heads, width))
        self.target_attention = None if is_second else nn.Parameter(torch.empty(heads, width))
        self.bias = nn.Parameter(torch.empty(channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights (Glorot), and set biases to zero."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.xavier_uniform_(parameter)

    def forward(
        self, t: float | Tensor, h: Float[Tensor, "*batch nodes channels"], graph: Graph
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The velocity of `h`."""
        del t  # autonomous
        check_channels(self, h, self.channels)
        check_graph(self, graph)
        check_dtype(self, h, self.source_attention)
        flat = checked_state(graph.flatten(h), graph)
        around = neighbours(graph, copies=math.prod(flat.shape[:-2]))
        flat = flat.reshape(-1, self.channels)
        # Under autocast the products of linear layers alone are rounded, not what is made of them.
        dtype, by_head = self.source_attention.dtype, self.source_attention.shape
        values = self.source(flat).to(dtype).unflatten(-1, by_head)
        if self.target_attention is not None:
            attentions = self.source_attention, self.target_attention
            scores, own = gat_scores(values, *attentions, around, self.negative_slope)
        else:
            assert self.target is not None
            shown = self.target(flat).to(dtype).unflatten(-1, by_head)
            scores, own = gatv2_scores(
                values, shown, self.source_attention, around, self.negative_slope
            )
        out = attend(edge_softmax(scores, own, around), values, around)
        out = out.flatten(1) if self.concat else out.mean(1)
        if self.bias is not None:
            out = out + self.bias
        return self.activation(out).reshape(h.shape)

    def extra_repr(self) -> str:
        """Widths and kind."""
        return f"{self.channels}, heads={self.heads}, scores={self.scores!r}, concat={self.concat}"
