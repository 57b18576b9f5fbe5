"""What a member holds under two names, which is one thing in its ensemble too."""

from collections.abc import Sequence
from typing import Any


class Ties:
    """What was copied, joined or stacked before, by the identities of the members' own.

    A weight that an encoder shares with a readout is met twice, and made once. Of use while the
    members live, and their identities are not taken by others.

    Attributes:
        copies: As `copied` keeps them.
    """

    def __init__(self) -> None:
        self.copies: dict[int, Any] = {}
        self._made: dict[tuple[int, ...], Any] = {}

    def find(self, own: Sequence[Any]) -> Any:
        """What was made of these, one of each member; None if nothing was."""
        return self._made.get(tuple(map(id, own)))

    def keep(self, own: Sequence[Any], made: Any) -> None:
        """Remember what was made of these."""
        self._made[tuple(map(id, own))] = made
