"""Checks that settings of several experiments share."""

import math
from collections.abc import Collection


def check_count(name: str, value: int | None, remedy: str = "") -> None:
    """Refuse less than one; None says nothing."""
    if value is not None and value < 1:
        ending = f" {remedy}." if remedy else ""
        raise ValueError(f"`{name}` must be 1 or more, but is {value}.{ending}")


def check_choice(what: str, name: str, known: Collection[str]) -> None:
    """Refuse a name that is not among those known."""
    if name not in known:
        raise ValueError(f"Unknown {what} {name!r}. Choose one of: {', '.join(known)}.")


def check_not_negative(name: str, value: float | None, remedy: str) -> None:
    """Refuse what is below 0, infinite or no number; None says nothing."""
    if value is not None and not 0 <= value < math.inf:
        raise ValueError(f"`{name}` must be a number, 0 or more, but is {value}. {remedy}")


def check_rate(lr: float) -> None:
    """Refuse learning rates with which nothing is learned."""
    if not 0 < lr < math.inf:
        raise ValueError(f"`lr` must be a number above 0, but is {lr}. Try for example --lr 0.01.")
