"""`BlueprintWriter`: from a module to its blueprint."""

import copyreg
import enum
import inspect
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphode.models.blueprints import Blueprint, CannotBeSavedError, joined, own_names, place

# What every module has, beside its parameters, buffers and parts, which are written apart.
_BASE = frozenset(vars(nn.Module()))
_APART = frozenset({"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"})
# The parameters of a recurrent layer of torch again, in the order in which its kernels want them.
_FLAT = frozenset({"_flat_weights", "_flat_weight_refs"})


class BlueprintWriter:
    """The blueprint of a module, and the tensors that it names.

    Args:
        module: What is written.
    """

    def __init__(self, module: nn.Module) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names = {id(value): name for name, value in own_names().items()}
        self._known: dict[int, str] = {}  # tensors by identity
        self._parts: dict[int, str] = {}  # modules by identity
        self._kept: list[Any] = []  # so that identities are not reused
        self.blueprint = self._module(module, "")

    def _module(self, module: nn.Module, path: str) -> Blueprint:
        if id(module) in self._parts:
            return {"part": self._parts[id(module)]}
        self._parts[id(module)] = path
        self._kept.append(module)
        if type(module).__module__.startswith("torch_geometric."):
            raise CannotBeSavedError(
                f"{place(path)} is PyG's {type(module).__name__}, which holds helpers that no "
                "file can. Save `model.state_dict()` by `safetensors.torch.save_file`, and build "
                "the model anew before loading it."
            )
        for name, hooks in vars(module).items():
            if "_hooks" in name and hooks and not callable(hooks):
                raise CannotBeSavedError(
                    f"{place(path)} has hooks, which are functions of a program and not of a "
                    "model. Remove them before saving, and register them again after loading."
                )
        own = {
            kind: {
                name: None if tensor is None else self._tensor(tensor, joined(path, name))
                for name, tensor in getattr(module, kind).items()
            }
            for kind in ("_parameters", "_buffers")
        }
        left_out = _BASE - {"training"} | _APART
        if isinstance(module, nn.RNNBase):
            left_out |= _FLAT
        attributes = {name: value for name, value in vars(module).items() if name not in left_out}
        return {
            "module": self._name(type(module), path),
            "parameters": own["_parameters"],
            "buffers": own["_buffers"],
            "transient": sorted(module._non_persistent_buffers_set),
            "parts": {
                name: None if part is None else self._module(part, joined(path, name))
                for name, part in module._modules.items()
            },
            "attributes": {
                name: self._value(value, joined(path, name)) for name, value in attributes.items()
            },
        }

    def _value(self, value: Any, path: str) -> Blueprint:
        """Of anything that a module holds."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, Tensor):
            return {"tensor": self._tensor(value, path)}
        if isinstance(value, nn.Module):
            return self._module(value, path)
        if isinstance(value, (torch.dtype, torch.device)):
            return {type(value).__name__: str(value).removeprefix("torch.")}
        if type(value) is list:
            return [self._value(item, f"{path}.{k}") for k, item in enumerate(value)]
        if type(value) in (tuple, set, frozenset):
            items = [self._value(item, f"{path}.{k}") for k, item in enumerate(value)]
            return {type(value).__name__: items}
        if type(value) is range:
            return {"range": [value.start, value.stop, value.step]}
        if type(value) is dict:
            pairs = enumerate(value.items())
            return {
                "dict": [
                    [self._value(part, f"{path}.{k}.{side}") for side, part in enumerate(pair)]
                    for k, pair in pairs
                ]
            }
        if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
            return {"named": self._name(value, path)}
        return self._object(value, path)

    def _object(self, value: Any, path: str) -> Blueprint:
        """Of an object that is neither a module nor plain, by what a copy is made of."""
        kind = type(value)
        try:
            maker, arguments, *rest = value.__reduce_ex__(4)
        except Exception:  # of whatever kind: it says how it is copied, or it cannot be written
            maker, arguments, rest = None, (), []
        if isinstance(value, enum.Enum):  # copied by value or by name, as Python's version has it
            maker, arguments, rest = kind, (value.value,), []
        if maker is copyreg.__newobj__:  # pyright: ignore[reportAttributeAccessIssue]
            arguments = arguments[1:]
        elif maker is not kind:
            raise CannotBeSavedError(
                f"{place(path)} is a {kind.__name__}, which cannot be written to a file: a model "
                "is saved as plain values, tensors, modules and dataclasses."
            )
        state = rest[0] if rest else None
        attributes = state if isinstance(state, tuple) else (state,)  # of a dict, and of slots
        if any(part is not None for part in rest[1:]) or not all(
            part is None or isinstance(part, dict) for part in attributes
        ):
            raise CannotBeSavedError(
                f"{place(path)} is a {kind.__name__}, which is more than its attributes. Use a "
                "list, a tuple, a dict, a dataclass or a module."
            )
        return {
            "object": self._name(kind, path),
            "called": maker is kind,
            "arguments": self._value(list(arguments), f"{path}.arguments"),
            "state": self._value(state, f"{path}.state"),
        }

    def _tensor(self, tensor: Tensor, path: str) -> str:
        """The name under which a tensor is stored; one that is held twice is stored once."""
        if id(tensor) not in self._known:
            if tensor.layout is not torch.strided:
                raise CannotBeSavedError(
                    f"{place(path)} is a sparse tensor, which the file format does not have."
                )
            self._known[id(tensor)] = path
            self._kept.append(tensor)
            self.tensors[path] = tensor
        return self._known[id(tensor)]

    def _name(self, value: Any, path: str) -> str:
        """Of a class or function: the library's, or its own if the caller must give it again."""
        known = self._names.get(id(value))
        if known is not None:
            return known
        plain = inspect.isfunction(value) or inspect.isbuiltin(value) or isinstance(value, type)
        if not plain or value.__name__ == "<lambda>":
            raise CannotBeSavedError(
                f"{place(path)} is {value!r}, which has no name to be found by. Write it as a "
                "named function or a module, and give that to `load` in `classes`."
            )
        if inspect.isfunction(value) and value.__closure__:
            raise CannotBeSavedError(
                f"{place(path)} is the function {value.__name__!r}, which closes over values of "
                "its own that a file cannot hold. Write it as a module that has them as attributes."
            )
        return value.__name__
