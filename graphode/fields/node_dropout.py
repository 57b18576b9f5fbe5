"""Dropout of whole nodes.

Feng et al. (2020), "Graph Random Neural Networks for Semi-Supervised Learning on Graphs".
"""

from jaxtyping import Float
from torch import Tensor

from graphode.fields.dropout import checked_rate, lined_up
from graphode.flows import Stochastic
from graphode.flows.masks import hashed_positions
from graphode.flows.stochastic import Redraw


class NodeDropout(Stochastic):
    """Silences nodes: all channels of a node are dropped or none, the rest scaled by 1/(1 − p).

    Before a diffusion it makes each node guess from a random part of its neighbourhood.

    Args:
        rate: Probability to drop a node.
        redraw: When a new mask is drawn: per_solve, per_step, per_eval.
        force: Allow `per_eval` under adaptive solvers and adjoints.

    Shapes:
        - **h:** `[..., nodes, channels]`; the same comes out.
    """

    def __init__(self, rate: float, redraw: Redraw = "per_solve", force: bool = False) -> None:
        super().__init__(redraw, force)
        self.rate = checked_rate(rate)

    @property
    def is_active(self) -> bool:
        """Whether anything is dropped now."""
        return self.training and self.rate > 0

    def forward(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*batch nodes channels"]:
        """Drop nodes in training."""
        if not self.is_active:
            return h
        positions = hashed_positions((h.shape[-2], 1), h.device)
        return h * lined_up(self.keep_mask(self.rate, positions, h), h, 2)

    def extra_repr(self) -> str:
        """Rate, and when masks are drawn."""
        return f"{self.rate}, redraw={self.redraw!r}"
