"""Nodes that come and go: which node of the new graph was which of the old one.

A map that forgets a node would lose its state without a word, so every old node is either kept or
named among those removed.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class NodeMap:
    """A change of nodes between two graphs.

    Args:
        index: For each new node its number among the old ones, −1 for a newcomer; a list or an
            array becomes a tensor.
        num_before: How many old nodes there are.
        removed: The old nodes that leave; all others must be in `index`.
    """

    index: Int[Tensor, " new_nodes"]
    num_before: int
    removed: Sequence[int] | Int[Tensor, " removed_nodes"] = ()

    def __post_init__(self) -> None:
        index, before = torch.as_tensor(self.index), self.num_before
        object.__setattr__(self, "index", index)
        if index.ndim != 1 or index.dtype == torch.bool or index.is_floating_point():
            raise ValueError(
                f"A node map must be whole numbers [new nodes], but has shape "
                f"{list(index.shape)} and dtype {index.dtype}. Give for each new node its number "
                f"among the old ones, −1 for a newcomer."
            )
        removed = torch.as_tensor(self.removed, dtype=torch.int64, device=index.device)
        object.__setattr__(self, "removed", removed)
        named = torch.cat([index[index >= 0].to(torch.int64), removed])
        # One look at the host: an entry out of range is put into the last bin.
        wrong = (index < -1).any() | (named < 0).any() | (named >= before).any()
        counts = named.clamp(0, before).bincount(minlength=before + 1)[:before]
        if bool(wrong | (counts != 1).any()):
            self._refuse(index, removed, counts)

    def _refuse(self, index: Tensor, removed: Tensor, counts: Tensor) -> None:
        for value in [*index.tolist(), *removed.tolist()]:
            if not -1 <= value < self.num_before:
                raise ValueError(
                    f"A node map must name old nodes 0 to {self.num_before - 1}, or −1 for a "
                    f"newcomer, but it names {value}."
                )
        if bool((removed < 0).any()):
            raise ValueError("`removed` must name old nodes, but it names −1.")
        twice = (counts > 1).nonzero()[:, 0].tolist()
        if twice:
            raise ValueError(
                f"Each old node can be kept or removed once, but {_listed(twice)} "
                f"{'is' if len(twice) == 1 else 'are'} named more than once. Every new node has "
                f"one old node of its own, or −1."
            )
        lost = (counts == 0).nonzero()[:, 0].tolist()
        raise ValueError(
            f"The node map loses {_listed(lost)} of {self.num_before} old nodes without saying "
            f"so. If they leave, say `NodeMap(index, {self.num_before}, removed={lost[:8]})`, or "
            f"use `NodeMap.between(names_before, names_after)`."
        )

    @classmethod
    def between(
        cls,
        before: Sequence[Hashable],
        after: Sequence[Hashable],
        device: torch.device | str | None = None,
    ) -> "NodeMap":
        """The map between two lists of names: who is in both stays, the others leave or come.

        Args:
            before: Names of the old nodes, in their order.
            after: Names of the new ones.
            device: Where the states are.
        """
        for what, names in (("before", before), ("after", after)):
            if len(set(names)) < len(names):
                again = next(name for place, name in enumerate(names) if name in names[:place])
                raise ValueError(f"Names must differ, but {again!r} is twice in `{what}`.")
        number = {name: place for place, name in enumerate(before)}
        index = [number.get(name, -1) for name in after]
        stay = set(after)
        removed = [place for place, name in enumerate(before) if name not in stay]
        return cls(torch.tensor(index, dtype=torch.int64, device=device), len(before), removed)

    @property
    def num_after(self) -> int:
        """How many new nodes there are."""
        return len(self.index)

    @property
    def added(self) -> Int[Tensor, " added_nodes"]:
        """The newcomers, as new numbers."""
        return (self.index < 0).nonzero()[:, 0]

    @property
    def kept(self) -> Int[Tensor, " kept_nodes"]:
        """Those that stay, as new numbers; `index[kept]` are their old ones."""
        return (self.index >= 0).nonzero()[:, 0]

    def apply(self, state: Tensor, newcomers: Tensor | float = 0.0) -> Tensor:
        """The state of the new nodes.

        Args:
            state: Of the old ones, `[..., old nodes, channels]`.
            newcomers: What the newcomers start from, broadcast to `[..., new nodes, channels]`.
        """
        if state.shape[-2] != self.num_before:
            raise ValueError(
                f"This node map starts from {self.num_before} nodes, but the state has "
                f"{state.shape[-2]}. Give one map per step, each from the nodes of the step "
                f"before to its own."
            )
        index = self.index.to(state.device)
        moved = state.index_select(-2, index.clamp(min=0).to(torch.int64))
        return torch.where(index[:, None] >= 0, moved, newcomers)


def read_node_maps(node_maps: Any, steps: int) -> list[NodeMap | Tensor | None]:
    """One map per step, or None where nodes stay as they are."""
    if node_maps is None:
        return [None] * steps
    if isinstance(node_maps, (Tensor, NodeMap)) or len(node_maps) != steps:
        count = 1 if isinstance(node_maps, (Tensor, NodeMap)) else len(node_maps)
        raise ValueError(
            f"`node_maps` must hold one entry per step, {steps}, but holds {count}. The entry of "
            f"a step leads from the nodes of the step before to its own; use None where nothing "
            f"changes, as at the first."
        )
    return list(node_maps)


def checked_map(node_map: NodeMap | Tensor | None, num_before: int) -> NodeMap | None:
    """A tensor of numbers is a map that removes nobody."""
    if node_map is None or isinstance(node_map, NodeMap):
        return node_map
    return NodeMap(torch.as_tensor(node_map), num_before)


def _listed(nodes: list[int]) -> str:
    shown = ", ".join(map(str, nodes[:8]))
    more = ", …" if len(nodes) > 8 else ""
    return f"node{'s' if len(nodes) > 1 else ''} {shown}{more}"
