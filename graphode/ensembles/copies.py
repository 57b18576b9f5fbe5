"""Copies of modules whose functions belong to the copy.

`copy.deepcopy` takes functions over as they are: the field of `Flow(lambda t, h, graph:
self.net(h))` goes on to call the parts of the module that was copied, and never those of the copy.
"""

import copy
import operator
import types
from typing import Any

from torch import nn


def copied(module: nn.Module, known: dict[int, Any] | None = None) -> nn.Module:
    """A copy that shares no part with `module`, not even through a function that it holds.

    Functions that close over the module or a part of it are made anew, closing over the copy's.

    Args:
        module: Any module.
        known: Copies made before, as `copy.deepcopy` keeps them: what is among them is not copied
            again. Those made now are added.
    """
    known = {} if known is None else known
    twin = copy.deepcopy(module, known)
    parts = {id(part): known[id(part)] for part in module.modules() if id(part) in known}
    for part in twin.modules():
        for name, value in vars(part).items():
            if isinstance(value, types.FunctionType):
                vars(part)[name] = _closing_over(value, parts)
    return twin


def _closing_over(function: types.FunctionType, parts: dict[int, Any]) -> types.FunctionType:
    """The function with each of these parts, by identity, in the place of its original."""
    before = function.__closure__ or ()
    cells = tuple(_replaced(cell, parts) for cell in before)
    if all(map(operator.is_, cells, before)):
        return function
    twin = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__dict__.update(function.__dict__)
    return twin


def _replaced(cell: types.CellType, parts: dict[int, Any]) -> types.CellType:
    try:
        content = cell.cell_contents
    except ValueError:  # nothing is in it yet
        return cell
    return types.CellType(parts[id(content)]) if id(content) in parts else cell
