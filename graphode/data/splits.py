"""Which nodes are for training, for validation, for test; and how to draw such a split.

Draws come from a generator of their own: the same seed gives the same split whatever else was
drawn, on any machine with the same PyTorch. Nodes whose label is not known (−1) are left out.
"""

import dataclasses

import torch
from jaxtyping import Int
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Split:
    """Nodes by their use; no node has two.

    Args:
        name: Where it comes from, such as "public" or "random 3".
    """

    name: str
    train: Int[Tensor, " train"]
    val: Int[Tensor, " val"]
    test: Int[Tensor, " test"]

    def check(self, labels: Int[Tensor, " nodes"]) -> None:
        """Refuse nodes that are not there, that have no label, or that have two uses."""
        used = torch.cat([self.train, self.val, self.test])
        if used.numel() == 0:
            return
        if int(used.min()) < 0 or int(used.max()) >= len(labels):
            raise ValueError(
                f"The split {self.name!r} must hold nodes from 0 to {len(labels) - 1}, but it "
                f"holds {int(used.min())} to {int(used.max())}."
            )
        values, counts = used.unique(return_counts=True)
        if int(counts.max()) > 1:
            raise ValueError(
                f"The split {self.name!r} must use every node once, but it uses node "
                f"{int(values[counts.argmax()])} {int(counts.max())} times."
            )
        unknown = used[labels[used] < 0]
        if len(unknown):
            raise ValueError(
                f"The split {self.name!r} must use nodes with a label, but node "
                f"{int(unknown[0])} has none."
            )


def random_split(
    labels: Int[Tensor, " nodes"],
    per_class: int = 20,
    val: int = 500,
    test: int | None = 1000,
    seed: int = 0,
    val_per_class: int | None = None,
) -> Split:
    """`per_class` nodes of every class for training; from the rest, validation and test.

    The default sizes are those of the public splits of Yang et al. (2016). Shchur et al. (2018)
    take `per_class=20, val_per_class=30, test=None`.

    Args:
        labels: −1 where the class is not known.
        val: Nodes for validation, of any class.
        test: Nodes for test, of any class; None for all that remain.
        seed: Of this draw alone.
        val_per_class: Nodes of every class for validation, instead of `val`.
    """
    shuffled = _shuffled(labels, seed)
    chosen = per_class + (val_per_class or 0)
    train, by_class, rest = [], [], []
    for label, members in _by_class(labels, shuffled):
        if len(members) < chosen:
            raise ValueError(
                f"Every class must have at least {chosen} labelled nodes, but class {label} has "
                f"{len(members)}. Ask for fewer nodes per class."
            )
        train.append(members[:per_class])
        by_class.append(members[per_class:chosen])
        rest.append(members[chosen:])
    # The rest in the order of the shuffle, not class after class.
    remaining = shuffled[torch.isin(shuffled, torch.cat(rest))]
    if val_per_class is None:
        for_val, remaining = remaining[:val], remaining[val:]
        short = val - len(for_val)
    else:
        for_val, short = torch.cat(by_class), 0
    for_test = remaining if test is None else remaining[:test]
    short += 0 if test is None else test - len(for_test)
    if short > 0:
        raise ValueError(
            f"{int((labels >= 0).sum())} labelled nodes are {short} too few for {per_class} per "
            f"class, {len(for_val) if val_per_class else val} for validation and {test} for test. "
            "Ask for fewer."
        )
    return _split(f"random {seed}", torch.cat(train), for_val, for_test)


def random_split_by_fractions(
    labels: Int[Tensor, " nodes"],
    train: float = 0.6,
    val: float = 0.2,
    test: float | None = None,
    seed: int = 0,
) -> Split:
    """The same fractions of every class, to the nearest node; every class is in every part.

    Args:
        labels: −1 where the class is not known.
        test: None for all that remains.
        seed: Of this draw alone.
    """
    total = train + val + (test or 0.0)
    parts = (train, val) if test is None else (train, val, test)
    if min(parts) <= 0 or total > 1 + 1e-9 or (test is None and total >= 1):
        raise ValueError(
            f"The fractions for training, validation and test must be positive and sum to at most "
            f"1, but are {train}, {val} and {'the rest' if test is None else test}."
        )
    ends = [train, train + val, 1.0 if test is None else total]
    pieces: list[list[Tensor]] = [[], [], []]
    for label, members in _by_class(labels, _shuffled(labels, seed)):
        first, second, third = (round(end * len(members)) for end in ends)
        if not 0 < first < second < third:
            raise ValueError(
                f"Every class must have nodes for training, validation and test, but class {label} "
                f"has {len(members)} labelled nodes, which makes {first}, {second - first} and "
                f"{third - second}. Change the fractions, or leave the class out (label −1)."
            )
        for piece, part in zip(
            pieces, (members[:first], members[first:second], members[second:third]), strict=True
        ):
            piece.append(part)
    return _split(f"random {seed}", *(torch.cat(piece) for piece in pieces))


def _shuffled(labels: Tensor, seed: int) -> Tensor:
    known = (labels >= 0).nonzero()[:, 0].cpu()
    if len(known) == 0:
        raise ValueError("`labels` must hold a known class (0 or more), but there is none.")
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))
    return known[order]


def _by_class(labels: Tensor, nodes: Tensor) -> list[tuple[int, Tensor]]:
    classes = labels.cpu()[nodes]
    return [(label, nodes[classes == label]) for label in range(int(labels.max()) + 1)]


def _split(name: str, train: Tensor, val: Tensor, test: Tensor) -> Split:
    return Split(name, train.sort()[0], val.sort()[0], test.sort()[0])
