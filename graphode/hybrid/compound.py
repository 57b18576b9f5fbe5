"""Jumps made of jumps: cells on top of each other, and a cell that remembers what it saw."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.graphless import with_graph
from graphode.fields.validation import check_positive
from graphode.hybrid.cells import RecurrentCell
from graphode.hybrid.parts import Part, StateParts


class StackedCell(RecurrentCell):
    """Cells in layers: each observes the state of the one below, the first the observation.

        h¹⁺ = G¹(h¹, x),    h²⁺ = G²(h², h¹⁺),    …

    The state is [h¹, h², …]; all of it flows, and the readout sees the last layer.

    Args:
        cells: From the bottom; each takes the width that the one below shows.

    Shapes:
        - **h:** `[..., nodes, all channels]`; the same comes out.
        - **x:** `[..., nodes, in_channels]`
    """

    def __init__(self, cells: Iterable[RecurrentCell]) -> None:
        layers = list(cells)
        if not layers:
            raise ValueError("`cells` must hold at least one cell. Pass [GraphGRUCell(3, 46), …].")
        for below, above in itertools.pairwise(layers):
            if above.in_channels != below.parts.seen_channels:
                raise ValueError(
                    f"A cell must take what the one below shows, {below.parts.seen_channels} "
                    f"channels, but one takes {above.in_channels}. Build it with "
                    f"in_channels={below.parts.seen_channels}."
                )
        hidden = [replace(p, seen=False) for cell in layers[:-1] for p in cell.parts.parts]
        parts = StateParts((*hidden, *layers[-1].parts.parts))
        super().__init__(layers[0].in_channels, layers[-1].channels, parts)
        self.widths = [cell.parts.channels for cell in layers]
        self.cells = nn.ModuleList(layers)

    def forward(
        self,
        h: Float[Tensor, "*batch nodes all_channels"],
        x: Float[Tensor, "*batch nodes in_channels"],
        graph: Any = None,
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """The state of all layers after the observation."""
        self.check(h, x)
        states = []
        for cell, state in zip(self.cells, h.split(self.widths, -1), strict=True):
            assert isinstance(cell, RecurrentCell)
            states.append(cell(state, x, graph))
            x = cell.parts.seen(states[-1])
        return torch.cat(states, -1)


class LastObservation(RecurrentCell):
    """A cell that also keeps what it observed last, for a readout that predicts the change.

        [h, y]⁺ = [G(h, x), x_observed]

    The observation is held between jumps, node by node: one that is not observed keeps its own.

    Args:
        cell: G.
        observed: How many of the first channels of an observation are kept.

    Shapes:
        - **h:** `[..., nodes, channels + observed]`; the same comes out.
        - **x:** `[..., nodes, in_channels]`
    """

    def __init__(self, cell: RecurrentCell, observed: int = 1) -> None:
        check_positive("observed", observed, "It counts the channels that are kept.")
        if observed > cell.in_channels:
            raise ValueError(
                f"`observed` must be at most the {cell.in_channels} channels of an observation, "
                f"but is {observed}. It counts the first of them."
            )
        parts = StateParts((*cell.parts.parts, Part(observed, flows=False)))
        super().__init__(cell.in_channels, cell.channels, parts)
        self.cell, self.observed = cell, observed

    def forward(
        self,
        h: Float[Tensor, "*batch nodes all_channels"],
        x: Float[Tensor, "*batch nodes in_channels"],
        graph: Any = None,
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """The cell's state, and what it saw."""
        self.check(h, x)
        after = self.cell(h[..., : -self.observed], x, graph)
        return torch.cat([after, x[..., : self.observed]], -1)


class ResidualReadout(nn.Module):
    """y = readout(h) + the last observation, which `LastObservation` keeps beside h.

    Args:
        readout: From h to as many channels as are kept.
        observed: How many channels are kept.

    Shapes:
        - **h:** `[..., nodes, channels + observed]` → `[..., nodes, observed]`
    """

    def __init__(self, readout: Callable[..., Any], observed: int = 1) -> None:
        super().__init__()
        self.readout = with_graph(readout, "readout")
        self.observed = observed

    def forward(
        self, h: Float[Tensor, "*batch nodes all_channels"], graph: Any = None
    ) -> Float[Tensor, "*batch nodes observed"]:
        """The last observation and its change."""
        return self.readout(h[..., : -self.observed], graph) + h[..., -self.observed :]
