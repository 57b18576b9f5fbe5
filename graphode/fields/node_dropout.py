"""Dropout of whole nodes.

Feng et al. (2020), "Graph Random Neural Networks for Semi-Supervised Learning on Graphs".
"""

from jaxtyping import Float
from torch import Tensor

from graphode.fields.dropout import Dropout, lined_up
from graphode.flows.masks import hashed_positions


class NodeDropout(Dropout):
    """Silences nodes: all channels of a node are dropped or none, the rest scaled by 1/(1 − p).

    Before a diffusion it makes each node guess from a random part of its neighbourhood.

    Args:
        rate: Probability to drop a node.
        redraw: When a new mask is drawn: per_solve, per_step, per_eval.
        force: Allow `per_eval` under adaptive solvers and adjoints.

    Shapes:
        - **h:** `[..., nodes, channels]`; the same comes out.
    """

    def forward(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*batch nodes channels"]:
        """Drop nodes in training."""
        if not self.is_active:
            return h
        positions = hashed_positions((h.shape[-2], 1), h.device)
        return h * lined_up(self.keep_mask(self.rate, positions, h), h, 2)
