"""`BlueprintReader`: from a blueprint to a module."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from graphode.models.blueprints import Blueprint, is_layer, joined, own_names


class BlueprintReader:
    """A module from a blueprint.

    Args:
        tensors: Those that the blueprint names, parameters as such.
        given: Classes and functions of the caller.
    """

    def __init__(self, tensors: dict[str, Tensor], given: Iterable[Callable[..., Any]]) -> None:
        self._tensors = tensors
        self._names = own_names()
        for value in given:
            if self._names.setdefault(value.__name__, value) is not value:
                raise ValueError(
                    f"`classes` holds two of the name {value.__name__!r}, and a file knows them by "
                    "name. Rename one."
                )
        self._parts: dict[str, nn.Module] = {}

    def module(self, blueprint: Blueprint, path: str = "") -> nn.Module:
        """The module of a blueprint, and its parts."""
        if "part" in blueprint:
            return self._parts[blueprint["part"]]
        kind = self._found(blueprint["module"])
        if not is_layer(kind):
            raise ValueError(f"The file says that {blueprint['module']!r} is a module; it is not.")
        made = kind.__new__(kind)
        nn.Module.__init__(made)
        self._parts[path] = made
        for target, source in (
            (made._parameters, blueprint["parameters"]),
            (made._buffers, blueprint["buffers"]),
        ):
            for name, stored in source.items():
                target[name] = None if stored is None else self._tensors[stored]
        made._non_persistent_buffers_set = set(blueprint["transient"])
        for name, part in blueprint["parts"].items():
            made._modules[name] = None if part is None else self.module(part, joined(path, name))
        for name, value in blueprint["attributes"].items():
            vars(made)[name] = self._value(value, joined(path, name))
        if isinstance(made, nn.RNNBase):
            made._init_flat_weights()
        return made

    def _value(self, value: Blueprint, path: str) -> Any:
        if isinstance(value, list):
            return [self._value(item, f"{path}.{k}") for k, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if "module" in value or "part" in value:
            return self.module(value, path)
        if "object" in value:
            return self._object(value, path)
        ((kind, content),) = value.items()
        if kind == "named":
            return self._found(content)
        if kind == "tensor":
            return self._tensors[content]
        if kind == "float":
            return float(content)
        if kind == "dtype":
            return _dtype(content)
        if kind == "device":
            return torch.device(content)
        if kind == "range":
            return range(*content)
        if kind == "dict":
            items = enumerate(content)
            pairs = ([self._value(p, f"{path}.{k}.{s}") for s, p in enumerate(i)] for k, i in items)
            return dict(pairs)
        containers: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}
        return containers[kind](self._value(item, f"{path}.{k}") for k, item in enumerate(content))

    def _object(self, blueprint: Blueprint, path: str) -> Any:
        kind = self._found(blueprint["object"])
        if not isinstance(kind, type) or is_layer(kind):
            raise ValueError(
                f"The file says that {blueprint['object']!r} is a class of plain objects; it is "
                "not."
            )
        arguments = self._value(blueprint["arguments"], f"{path}.arguments")
        made = kind(*arguments) if blueprint["called"] else kind.__new__(kind, *arguments)
        state = self._value(blueprint["state"], f"{path}.state")
        for part in state if isinstance(state, tuple) else (state,):  # of slots, and of a dict
            for name, value in (part or {}).items():
                object.__setattr__(made, name, value)
        return made

    def _found(self, name: str) -> Any:
        if name in self._names:
            return self._names[name]
        own = "of this library, in another version" if "." in name else "of your own"
        raise ValueError(
            f"The file needs {name!r}, a class or function {own}. Names in a file are never "
            f"imported: give it yourself, `load(path, classes=[{name.rpartition('.')[2]}])`."
        )


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"The file says that {name!r} is a dtype of torch; it is not.")
    return found
