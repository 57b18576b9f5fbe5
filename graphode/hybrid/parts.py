"""What the channels of a hybrid state are for: which flow between observations, which are seen.

A state is one tensor, `[..., nodes, channels]`, as flows and solvers want it. A GRU's has one part,
an LSTM's has two, (h, c), of which the readout sees h, and c flows or is held.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """Some channels of a state.

    Attributes:
        channels: How many.
        flows: Whether they move between observations; else they are held.
        seen: Whether the readout sees them.
    """

    channels: int
    flows: bool = True
    seen: bool = True


@dataclass(frozen=True)
class StateParts:
    """The parts of a state, in the order of its channels."""

    parts: tuple[Part, ...]

    @property
    def channels(self) -> int:
        """Width of the whole state."""
        return sum(part.channels for part in self.parts)

    @property
    def flow_channels(self) -> int:
        """Width of what flows: that of the flow's field."""
        return sum(part.channels for part in self.parts if part.flows)

    @property
    def seen_channels(self) -> int:
        """Width of what the readout sees."""
        return sum(part.channels for part in self.parts if part.seen)

    def flowing(self, state: Tensor) -> Tensor:
        """The channels that move."""
        return self._chosen(state, [part.flows for part in self.parts])

    def seen(self, state: Tensor) -> Tensor:
        """The channels for the readout."""
        return self._chosen(state, [part.seen for part in self.parts])

    def moved(self, state: Tensor, flowing: Tensor) -> Tensor:
        """The state with what flows replaced; `flowing` may have further leading dimensions."""
        if all(part.flows for part in self.parts):
            return flowing
        state = state.expand(*flowing.shape[:-1], self.channels)
        held = state.split([part.channels for part in self.parts], -1)
        new = iter(flowing.split([part.channels for part in self.parts if part.flows], -1))
        pairs = zip(self.parts, held, strict=True)
        return torch.cat([next(new) if part.flows else old for part, old in pairs], -1)

    def _chosen(self, state: Tensor, which: list[bool]) -> Tensor:
        if all(which):
            return state
        pieces = state.split([part.channels for part in self.parts], -1)
        chosen = [piece for piece, wanted in zip(pieces, which, strict=True) if wanted]
        return chosen[0] if len(chosen) == 1 else torch.cat(chosen, -1)
