"""A forecast that starts at the last observation and moves away from it as the flow goes on.

    y(t) = x_k + K(h(t)) − K(h(t_k⁺)),    t ≥ t_k

x_k is what a node observed last, h(t_k⁺) its state after that jump, K the head. At t_k it is the
observation itself, so that a forecast for a time between those seen in training lies between what
is known and what was learned. A model without a flow cannot do so: its state does not move.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.graphless import with_graph
from graphode.hybrid import RecurrentCell
from graphode.hybrid.parts import Part, StateParts


class Anchored(RecurrentCell):
    """A cell that also keeps what a readout sees right after the jump, and what was observed.

        [h, h_k, x_k]⁺ = [G(h, x), G(h, x), x]

    Both are held between jumps, node by node.

    Args:
        cell: G.

    Shapes:
        - **h:** `[..., nodes, all channels]`; the same comes out.
        - **x:** `[..., nodes, in_channels]`, what is to be forecast first
    """

    def __init__(self, cell: RecurrentCell) -> None:
        held = (Part(cell.parts.seen_channels, flows=False), Part(1, flows=False))
        super().__init__(cell.in_channels, cell.channels, StateParts((*cell.parts.parts, *held)))
        self.cell = cell

    def forward(
        self,
        h: Float[Tensor, "*batch nodes all_channels"],
        x: Float[Tensor, "*batch nodes in_channels"],
        graph: Any = None,
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """The cell's state, and the anchor."""
        self.check(h, x)
        after = self.cell(h[..., : self.cell.parts.channels], x, graph)
        return torch.cat([after, self.cell.parts.seen(after), x[..., :1]], -1)


class ChangeReadout(nn.Module):
    """x_k + K(h) − K(h_k), from the state that `Anchored` keeps.

    Args:
        head: K, from h to one channel.

    Shapes:
        - **h:** `[..., nodes, 2 · channels + 1]` → `[..., nodes, 1]`
    """

    def __init__(self, head: Callable[..., Any]) -> None:
        super().__init__()
        self.head = with_graph(head, "head")

    def forward(
        self, h: Float[Tensor, "*batch nodes all_channels"], graph: Any = None
    ) -> Float[Tensor, "*batch nodes 1"]:
        """The observation and how far the state has come since."""
        now, then = h[..., :-1].chunk(2, -1)
        return self.head(now, graph) - self.head(then, graph) + h[..., -1:]
