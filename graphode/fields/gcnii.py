"""GCNII as a flow: convolutions that keep returning to where they began.

Chen, Wei, Huang, Ding, Li (2020), "Simple and Deep Graph Convolutional Networks": initial residual
and identity mapping, here with a depth that is continuous.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from graphode.fields.activation import Activation, find_activation
from graphode.fields.dropout import Dropout
from graphode.fields.extension import WithStart
from graphode.fields.validation import (
    check_dtype,
    check_graph,
    check_packed,
    check_positive,
    check_widths,
)
from graphode.flows.stochastic import Redraw
from graphode.graphs import Graph


class GCNIIField(WithStart):
    """Relaxation towards a convolution that remembers the state at the start.

        dh/ds = σ(((1 − α) Â dropout(h) + α h(0)) ((1 − β) I + β W)) − h

        β(s) = log(1 + λ / (s + 1)),    W(s) = W_k for s from k t1 / layers to (k + 1) t1 / layers

    Steps of Euler's method of length 1 are GCNII's layers: `GCNIIField(64, layers=16, t1=16.0)`
    moved to s = 16 in 16 steps is GCNII of 16 layers. With one layer, W does not change; with
    `DepthVarying` it changes smoothly. Other solvers and shorter steps follow the same equation
    more closely. h(0) travels with the state as channels of zero velocity, [h, h(0)].

    Args:
        channels: Width of the state.
        alpha: α, the share of the state at the start.
        mixing: λ, how much W counts; 0 leaves channels alone.
        activation: σ, by name or as a function.
        dropout: Share of the state that is dropped in training before neighbours see it.
        layers: How many W follow one another.
        t1: The depth at which the last one ends; without effect for one.
        redraw: When dropout draws a new mask: per_solve, per_step, per_eval (as GCNII's layers).
        force: Allow `per_eval` under adaptive solvers and adjoints.

    Shapes:
        - **z:** `[..., nodes, 2 · channels]`
    """

    def __init__(
        self,
        channels: int,
        alpha: float = 0.1,
        mixing: float = 0.5,
        activation: str | Activation | None = "relu",
        dropout: float = 0.0,
        layers: int = 1,
        t1: float = 1.0,
        *,
        redraw: Redraw = "per_solve",
        force: bool = False,
    ) -> None:
        super().__init__()
        check_widths(channels=channels)
        if not 0 <= alpha <= 1 or mixing < 0:
            raise ValueError(
                f"`alpha` must be between 0 and 1 and `mixing` 0 or more, but they are {alpha} and "
                f"{mixing}. GCNII has 0.1 and 0.5."
            )
        check_positive("layers", layers, "One weight serves all depths.")
        if t1 <= 0:
            raise ValueError(f"`t1` must be above 0, but is {t1}. Give the end of the flow.")
        self.layers, self.t1 = layers, t1
        self.channels, self.alpha, self.mixing = channels, alpha, mixing
        self.activation = find_activation(activation)
        self.dropout = Dropout(dropout, redraw, force)
        self.weight = nn.Parameter(torch.empty(layers, channels, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, uniform on ±1/√channels."""
        bound = 1 / math.sqrt(self.channels)
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(
        self, t: float | Tensor, z: Float[Tensor, "*batch nodes both"], graph: Graph
    ) -> Float[Tensor, "*batch nodes both"]:
        """The velocity of the state, and none of its start."""
        check_packed(self, z, 2 * self.channels, "the state and its start")
        check_graph(self, graph)
        check_dtype(self, z, self.weight)
        h, start = z.chunk(2, -1)
        spread = torch.lerp(graph.propagate(self.dropout(h)), start, self.alpha)
        s = t if isinstance(t, Tensor) else h.new_full((), t)
        # Of each sample, or of each node where graphs of a batch have times of their own.
        beta = torch.log1p(self.mixing / (s + 1))
        mixed = (spread @ self._weight_at(s, h)).to(h.dtype)  # as it is without autocast
        dh = self.activation(torch.lerp(spread, mixed, beta)) - h
        return functional.pad(dh, (0, self.channels))

    def _weight_at(self, s: Tensor, h: Tensor) -> Tensor:
        """W(s), of each sample where depths differ."""
        if self.layers == 1:
            return self.weight[0]
        if s.numel() > 1 and s.shape != (*h.shape[:-2], 1, 1):
            raise ValueError(
                f"With {self.layers} layers the depth must be one number or one for each sample, "
                f"shape {[*h.shape[:-2], 1, 1]}, but has shape {list(s.shape)}. Stack graphs of "
                f"one size in a dimension of their own; for others use one layer, or fixed steps, "
                f"whose times all graphs share: `Flow(field, solver='rk4', num_steps=…)`."
            )
        # Rounding must not send the start of a layer to the one before.
        index = (s * (self.layers / self.t1) + 1e-4).long().clamp(0, self.layers - 1)
        chosen = self.weight.index_select(0, index.reshape(-1))
        return chosen.reshape(*index.shape[:-2], *self.weight.shape[1:])

    def extra_repr(self) -> str:
        """Width and constants."""
        return (
            f"{self.channels}, alpha={self.alpha}, mixing={self.mixing}, layers={self.layers}, "
            f"t1={self.t1}"
        )
