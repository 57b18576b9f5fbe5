"""Copies of modules whose functions belong to the copy.

`copy.deepcopy` takes functions over as they are: the field of `Flow(lambda t, h, graph:
self.net(h))` goes on to call the parts of the module that was copied, and never those of the copy.
"""

import copy
import functools
import types
from typing import Any

from torch import nn


def copied(module: nn.Module, known: dict[int, Any] | None = None) -> nn.Module:
    """A copy that shares no part with `module`, not even through a function that it holds.

    Functions that close over the module or a part of it, or have one as a default, are made anew,
    with the copy's; so are functions and containers that lead to such a one.

    Args:
        module: Any module.
        known: Copies made before, as `copy.deepcopy` keeps them: what is among them is not copied
            again. Those made now are added.
    """
    known = {} if known is None else known
    twin = copy.deepcopy(module, known)
    rewiring = _Rewiring(known)
    for part in twin.modules():
        own = vars(part)
        for name, value in own.items():
            own[name] = rewiring.of(value)
    return twin


class _Rewiring:
    """What leads to originals, made anew to lead to their copies.

    Args:
        copies: By the identity of the original.
    """

    def __init__(self, copies: dict[int, Any]) -> None:
        self.copies = copies
        self.made: dict[int, Any] = {}
        self.cells: dict[int, types.CellType] = {}

    def of(self, value: Any) -> Any:
        """The value itself where nothing of it changes."""
        if id(value) in self.copies:
            return self.copies[id(value)]
        if not self._leads_to_originals(value, set()):
            return value
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, functools.partial):
            arguments = [self.of(part) for part in value.args]
            named = {name: self.of(part) for name, part in value.keywords.items()}
            return functools.partial(self.of(value.func), *arguments, **named)
        twin = copy.copy(value)
        if isinstance(twin, dict):
            twin.update({name: self.of(part) for name, part in value.items()})
            return twin
        if isinstance(twin, list):
            twin[:] = [self.of(part) for part in value]
            return twin
        parts = [self.of(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        known = self.made.get(id(function))
        if known is not None:
            return known
        before = function.__closure__ or ()
        cells = tuple(self.cells.setdefault(id(cell), types.CellType()) for cell in before)
        twin = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, None, cells
        )
        self.made[id(function)] = twin  # before its cells are filled: it may close over itself
        for cell, own in zip(before, cells, strict=True):
            for content in _content(cell):
                own.cell_contents = self.of(content)
        twin.__defaults__ = self.of(function.__defaults__)
        twin.__kwdefaults__ = self.of(function.__kwdefaults__)
        twin.__dict__.update(function.__dict__)
        return twin

    def _leads_to_originals(self, value: Any, seen: set[int]) -> bool:
        if id(value) in self.copies:
            return True
        if id(value) in seen:
            return False
        seen.add(id(value))
        return any(self._leads_to_originals(part, seen) for part in parts_of(value))


def parts_of(value: Any) -> list[Any]:
    """What a container holds, and what a function closes over or has as defaults."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if not isinstance(value, types.FunctionType):
        return []
    contents = [part for cell in value.__closure__ or () for part in _content(cell)]
    return [*contents, value.__defaults__, value.__kwdefaults__]


def _content(cell: types.CellType) -> list[Any]:
    """What a cell holds; nothing before its first assignment."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []
