"""Modules as text and tensors: what `save` writes, and what `load` builds from it.

A blueprint is what a module holds, part by part, in JSON: classes and functions by name, plain
values as they are, tensors by the names under which they are stored. Modules are made without
their constructors, and no code stands in a file: a class or function is looked up among this
library's, torch's layers and those that the caller gives, and nothing is ever imported by a name.
"""

import sys
import types
from typing import Any

from torch import nn

from graphode.fields.activation import ACTIVATIONS

Blueprint = Any  # what JSON can hold

# Whose classes and functions a file may name.
ROOMS = ("graphs", "flows", "fields", "hybrid", "models")


class CannotBeSavedError(TypeError):
    """Something that a model holds has no blueprint."""


def own_names() -> dict[str, Any]:
    """Classes and functions of the library and of `torch.nn`, by the names that files use."""
    found = {f"torch.nn.{name}": kind for name, kind in vars(nn).items() if is_layer(kind)}
    found |= {f"activation.{name}": function for name, function in ACTIVATIONS.items()}
    prefixes = tuple(f"graphode.{room}." for room in ROOMS)
    for module_name, module in list(sys.modules.items()):
        if module is None or not module_name.startswith(prefixes):
            continue
        for name, value in vars(module).items():
            is_named = isinstance(value, (type, types.FunctionType))
            if is_named and value.__module__ == module_name and value.__qualname__ == name:
                found[f"{module_name}.{name}"] = value
    return found


def is_layer(kind: Any) -> bool:
    """Whether it is a class of modules."""
    return isinstance(kind, type) and issubclass(kind, nn.Module)


def joined(path: str, name: str) -> str:
    """The path of what a part holds under a name."""
    return f"{path}.{name}" if path else name


def place(path: str) -> str:
    """How an error speaks of what is at a path."""
    return f"`{path}` of the model" if path else "The model"
