"""Where members differ in more than the values of their parameters and buffers.

Members that are alike are evaluated as one module, with the settings of the first. What counts is
all that a module holds, whether or not its `repr` shows it. Each member is built by itself, so
that settings are compared by what they are made of:

    functions       by code, defaults and what they close over
    tensors         by value, where they are neither parameters nor buffers of a part
    other objects   by what a copy of them would be made of; caches that copies leave out are no
                    difference

What cannot be compared counts as different: evaluated one by one, members are right in any case.
"""

import types
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

# Compared by `==`.
ATOMS = (int, float, complex, bool, str, bytes, set, frozenset, range, slice, types.CodeType)

# What a class has of its own, whatever it does.
INCIDENTAL = ("__dict__", "__weakref__", "__doc__", "__annotations__", "_abc_impl")

# Helpers of a module that say nothing of what it computes, by name: PyG's need not be installed.
HELPERS = ("torch.utils.hooks.RemovableHandle", "torch_geometric.inspector.Inspector")


def differing_settings(first: nn.Module, other: nn.Module) -> dict[str, str]:
    """For each part in which the second member differs, one setting that does, by path.

    Args:
        first: A member, whose parts are the ones that are looked at.
        other: Another one. Parts that only one of the two has make those above them differ.
    """
    twins = dict(other.named_modules(remove_duplicate=False))
    found = {}
    for path, part in first.named_modules(remove_duplicate=False):
        name = _difference(part, twins[path]) if path in twins else None
        if name is not None:
            found[path] = name
    return found


def settings_within(differing: dict[str, str], path: str) -> list[str]:
    """The settings that differ in the part at `path` and in its own parts, by full name."""
    below = f"{path}." if path else ""
    return [
        f"{place}.{name}" if place else name
        for place, name in differing.items()
        if place == path or place.startswith(below)
    ]


def _difference(part: nn.Module, twin: nn.Module) -> str | None:
    """A setting in which two modules differ, apart from their parts."""
    comparison = _Comparison(part, twin)
    # Torch makes a class for each module that it parametrises; how it does so is in its parts.
    if not comparison.alike(*map(type_before_parametrizations, (part, twin))):
        return "__class__"
    one, two = _settings(part), _settings(twin)
    for name in (*one, *(name for name in two if name not in one)):
        if name not in one or name not in two or not comparison.alike(one[name], two[name]):
            return name
    return None


def _settings(module: nn.Module) -> dict[str, Any]:
    left_out = ["_parameters", "_buffers", "_torchdynamo_wrapper_id"]
    if isinstance(module, nn.RNNBase):
        left_out += ["_flat_weights"]  # the same parameters, which torch looks up again
    settings = {name: value for name, value in _state(module).items() if name not in left_out}
    settings["_modules"] = [name for name, part in module._modules.items() if part is not None]
    return settings


def _state(module: nn.Module) -> dict[str, Any]:
    """What a copy of a module would hold; hooks without their numbers, which no two share."""
    try:
        state = module.__getstate__()
    except Exception:  # such as that of a module that torch has parametrised
        state = None
    held = state if isinstance(state, dict) else vars(module)
    return {
        name: tuple(value.values()) if _holds_hooks(name) and isinstance(value, dict) else value
        for name, value in held.items()
    }


def _holds_hooks(name: str) -> bool:
    return name.startswith("_") and "_hooks" in name


class _Comparison:
    """Of one part and its twin in another member: of the things that they hold."""

    def __init__(self, part: nn.Module, twin: nn.Module) -> None:
        self._part, self._twin = part, twin
        # Pairs that have been met, kept so that their identities are not reused. Whoever meets
        # one again takes it to be alike: if it is not, that has been found where it was first met.
        self._met: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._functions = 0

    def alike(self, one: Any, two: Any) -> bool:
        """Whether both are made of the same."""
        if one is two:
            return True
        if type(one) is type(two) and type(one) in ATOMS:
            return one == two or (one != one and two != two)
        try:
            return self._made_alike(one, two)
        except Exception:  # from code of others: whatever it is, nothing is known
            return False

    def _made_alike(self, one: Any, two: Any) -> bool:
        if (id(one), id(two)) in self._met:
            return True
        if isinstance(one, nn.Module) and self._are_own_parts(one, two):
            return True
        if type(one) is not type(two) and not self.alike(type(one), type(two)):
            return False
        self._met[id(one), id(two)] = one, two
        if isinstance(one, Tensor):
            return _equal(one, two)
        # What a function closes over is not copied with the module, or only where `copies` finds
        # it: parts of the module that are met there count by their values.
        is_function = isinstance(one, types.FunctionType)
        self._functions += is_function
        try:
            parts, others = _contents(one), _contents(two)
            return len(parts) == len(others) and all(map(self.alike, parts, others))
        finally:
            self._functions -= is_function

    def _are_own_parts(self, one: nn.Module, two: nn.Module) -> bool:
        """Whether these are parts of the modules compared, which are compared by themselves."""
        if self._functions or getattr(self._part, "members_first", False):
            return False  # whose members are joined without being copied
        return any(
            one is part and two is twin
            for part, twin in zip(self._part.modules(), self._twin.modules(), strict=False)
        )


def _equal(one: Tensor, two: Tensor) -> bool:
    kinds = [(t.shape, t.dtype, t.device, t.layout, t.requires_grad) for t in (one, two)]
    return kinds[0] == kinds[1] and torch.equal(one, two)


def _contents(value: Any) -> Sequence[Any]:
    """What a thing is made of; of two that are alike, one by one alike."""
    if type(value) in (tuple, list):
        return value
    if type(value) is dict:
        return [*value, *value.values()]
    if isinstance(value, nn.Module):
        return _contents(_state(value))
    if isinstance(value, types.FunctionType):
        return [
            value.__code__,
            id(value.__globals__),
            value.__defaults__,
            value.__kwdefaults__,
            value.__closure__,
            value.__dict__,
        ]
    if isinstance(value, types.CellType):
        return [value.cell_contents]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, (staticmethod, classmethod)):
        return [value.__func__]
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    if isinstance(value, weakref.ref):
        return [value()]
    if f"{type(value).__module__}.{type(value).__qualname__}" in HELPERS:
        return []
    if isinstance(value, type):
        own = {name: entry for name, entry in vars(value).items() if name not in INCIDENTAL}
        return [value.__module__, value.__qualname__, value.__bases__, own]
    return _reduced(value)


def _reduced(value: Any) -> list[Any]:
    """What `copy.deepcopy` would make a copy of an object from."""
    recipe = value.__reduce_ex__(4)
    if isinstance(recipe, str):
        raise TypeError(f"{value!r} is the only one of its name")
    return [list(part) if isinstance(part, Iterator) else part for part in recipe]
