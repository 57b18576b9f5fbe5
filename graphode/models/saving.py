"""`save` and `load`: a model in one file, which is read without running anything in it.

The file is a safetensors file: tensors, and in its header the blueprint of the model as JSON (see
`blueprints`). No pickle, and no import by a name that stands in a file.
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from graphode.models.blueprint_reader import BlueprintReader
from graphode.models.blueprint_writer import BlueprintWriter
from graphode.models.blueprints import CannotBeSavedError

FORMAT = "1"


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a model to a file: its parts, settings, parameters and buffers.

        gd.save(model, "model.safetensors")
        model = gd.load("model.safetensors", classes=[MyField])

    Everything of this library and the layers of `torch.nn` are known to `load`; classes and named
    functions of your own have to be given to it again. The file is written beside its place and
    moved there, so that an interruption leaves the old one.

    Args:
        model: Any module that holds plain values, tensors, modules and dataclasses. Of an
            `Ensemble` save its members, `ensemble.member(i)`.
        path: The file.
    """
    from safetensors.torch import save_file

    if not isinstance(model, nn.Module):
        raise TypeError(
            f"`model` must be a module, but is a {type(model).__name__}. Tensors alone are saved "
            "by `safetensors.torch.save_file`."
        )
    if any(getattr(part, "is_many_models", False) for part in model.modules()):
        raise CannotBeSavedError(
            "An ensemble is many models. Save the members that you need, `ensemble.member(i)`."
        )
    drawn = BlueprintWriter(model)
    parameters = [name for name, t in drawn.tensors.items() if isinstance(t, nn.Parameter)]
    trained = [name for name, tensor in drawn.tensors.items() if tensor.requires_grad]
    header = {
        "graphode": FORMAT,
        "blueprint": json.dumps(drawn.blueprint, allow_nan=False),
        "parameters": json.dumps(parameters),
        "trained": json.dumps(trained),
    }
    # Copies: the format has no tensors that share their memory.
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in drawn.tensors.items()
    }
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {target.parent} to save a model in. Make it.")
    beside = target.with_name(f".{target.name}.part")
    try:
        save_file(tensors, beside, metadata=header)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def load(
    path: str | os.PathLike[str],
    classes: Iterable[Callable[..., Any]] | Callable[..., Any] = (),
    device: str | torch.device = "cpu",
) -> nn.Module:
    """The model in a file that `save` has written.

    Args:
        path: The file.
        classes: Classes and functions of your own that the model is made of.
        device: Where to put it.
    """
    from safetensors import SafetensorError, safe_open

    given = [classes] if callable(classes) else list(classes)
    if unnamed := [value for value in given if not hasattr(value, "__name__")]:
        raise TypeError(
            f"`classes` must hold classes and named functions, but holds {unnamed[0]!r}. Give what "
            "the model is made of, not the model."
        )
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {os.fspath(path)} to load a model from.")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{os.fspath(path)} is not a safetensors file, or is damaged ({error}). A model is "
            "written by `graphode.save`."
        ) from None
    if header.get("graphode") != FORMAT:
        raise ValueError(
            f"{os.fspath(path)} holds tensors, but no model of this version's format: its header "
            f"says {header.get('graphode')!r} where {FORMAT!r} was expected. A model is written by "
            "`graphode.save`."
        )
    try:
        names = ("blueprint", "parameters", "trained")
        blueprint, parameters, trained = (json.loads(header[name]) for name in names)
        for name in tensors:
            if name in parameters:
                tensors[name] = nn.Parameter(tensors[name], requires_grad=False)
            tensors[name].requires_grad_(name in trained)
        model = BlueprintReader(tensors, given).module(blueprint)
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"The blueprint in {os.fspath(path)} is damaged ({type(error).__name__}: {error})."
        ) from error
    return model.to(device)
