"""`Ensemble`: a hundred seeds as one program."""

import copy
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from graphode.ensembles.copies import copied
from graphode.ensembles.likeness import differing_settings, settings_within
from graphode.ensembles.members import Members, is_one_thing
from graphode.ensembles.state import second_hold
from graphode.ensembles.ties import Ties
from graphode.flows import Flow
from graphode.flows.stochastic import current_prefix, stochastic, torch_draw


class Ensemble(nn.Module):
    """Members that share a structure and nothing else, evaluated and trained together.

    Parameters have the members first, one sparse product serves all of them, and in adaptive
    solvers every member has its own steps. A loss that is a sum over members trains each as if it
    were alone: under `gd.stochastic(ensemble.seeds, step)` a member draws the masks that its lone
    run under `gd.stochastic(seed, step)` draws.

        ensemble = gd.Ensemble(lambda seed: gd.GCDE.rk4(1433, 64, 7), seeds=range(100))
        logits = ensemble(x, graph)                          # [members, nodes, classes]

    Parts that contain a `Flow` (`GDE`, `HybridSystem`) run as they are, with the members as a
    dimension of the batch; what they are made of is mapped by `torch.func`. A module of your own
    around a `Flow` says `members_first = True` if its `forward` only composes its parts and
    treats leading dimensions alike; otherwise its members are evaluated one by one, and you are
    told.

    Settings may differ between members where shapes do not: a rate, an activation, a tolerance.
    The parts in which they differ are evaluated one by one, and you are told. What a module shares
    between two of its names (a weight, a part) is shared in every member.

    State that members keep from call to call belongs in buffers, which each member has for itself.
    A plain attribute that `forward` changes is one for all.

    Args:
        build: `build(seed)` makes one member. Torch's generator is seeded with `seed` around the
            call, and is as it was afterwards.
        seeds: One per member.

    Attributes:
        seeds: `[members]`
    """

    is_many_models = True  # of which `save` takes one at a time
    seeds: Tensor

    def __init__(self, build: Callable[[int], nn.Module], seeds: Iterable[int]) -> None:
        super().__init__()
        if not isinstance(seeds, Iterable):
            raise TypeError(
                f"`seeds` must be a sequence, one per member, but is {seeds!r}. Pass for example "
                f"`range(3)`."
            )
        numbers = [_whole_number(seed) for seed in seeds]
        if not numbers:
            raise ValueError("An ensemble needs at least one seed. Pass for example range(100).")
        modules = [_built(build, seed) for seed in numbers]
        _check_alike(modules, numbers)
        _refuse_hooks(modules[0])
        _warn_of_second_hold(modules[0])
        differences = [differing_settings(modules[0], module) for module in modules]
        differing = {path: name for found in differences[::-1] for path, name in found.items()}
        self.members = _joined(modules, differing, Ties())
        self.register_buffer("seeds", torch.tensor(numbers))
        # One per member; members that are alike share that of the first. A list keeps their
        # parameters out of the ensemble's.
        self._blueprints = [
            module if found else modules[0]
            for module, found in zip(modules, differences, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.seeds)

    def forward(self, *args: Any, per_member: bool = False, **kwargs: Any) -> Any:
        """The answers of all members, `[members, …]`.

        Args:
            args: As a lone member takes them; all members share them.
            per_member: Whether each tensor among the arguments has the members first instead.
            kwargs: Likewise.
        """
        if not per_member:
            args = pytree.tree_map(self._expanded, args, is_leaf=is_one_thing)
            kwargs = pytree.tree_map(self._expanded, kwargs, is_leaf=is_one_thing)
        prefix = current_prefix()
        if prefix is not None:
            if isinstance(prefix, Tensor) and prefix.ndim and len(prefix) != len(self):
                raise ValueError(
                    f"`stochastic` must have one seed for all or one per member, {len(self)}, but "
                    f"what it was given has shape {list(prefix.shape)}. Use "
                    f"`graphode.stochastic(ensemble.seeds, step)`."
                )
            return self.members(*args, **kwargs)
        with stochastic(self.seeds, torch_draw()):
            return self.members(*args, **kwargs)

    def member(self, index: int) -> nn.Module:
        """One member as a plain module, with its own copy of its weights."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"There are members 0 to {len(self) - 1}, but {index} was asked for.")
        module = copied(self._blueprints[index])
        ours = dict(_lone_parts(self.members))
        taken: dict[int, Tensor] = {}  # buffers under two names stay one
        for path, part in module.named_modules():
            if path not in ours:  # has no parameters and buffers
                part.training = self.members.training
                continue
            joint = ours[path]
            part.training = joint.training
            for name, parameter in part._parameters.items():
                whole = joint._parameters.get(name)
                if parameter is not None and whole is not None:
                    parameter.data = whole[index].detach().clone()
                    parameter.requires_grad_(whole.requires_grad)
            for name in part._buffers:
                whole = joint._buffers.get(name)
                if whole is not None and id(whole) not in taken:
                    taken[id(whole)] = whole[index].detach().clone()
                part._buffers[name] = None if whole is None else taken[id(whole)]
        return module

    def lone_tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers of all members, by the names that a lone member has for them."""
        return {
            _joined_path(path, name): tensor
            for path, part in _lone_parts(self.members)
            for own in (part._parameters, part._buffers)
            for name, tensor in own.items()
            if tensor is not None
        }

    def _expanded(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.layout == torch.strided:
            return value.expand(len(self), *value.shape)
        return value

    def extra_repr(self) -> str:
        """How many."""
        return f"{len(self)} members"


def _whole_number(seed: Any) -> int:
    try:
        return operator.index(seed)
    except TypeError:
        raise TypeError(
            f"Seeds must be whole numbers, but one is {seed!r}. Pass for example `range(3)`."
        ) from None


def _built(build: Callable[[int], nn.Module], seed: int) -> nn.Module:
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        module = build(seed)
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"`build(seed)` must return a module, but returned {type(module).__name__}. Pass for "
            f"example `lambda seed: graphode.GCDE.rk4(1433, 64, 7)`."
        )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise ValueError(
                f"Members must be complete, but {name!r} takes its shape from the first call. Call "
                f"the module once in `build`, or give its layer a width."
            )
    return module


def _check_alike(modules: Sequence[nn.Module], seeds: Sequence[int]) -> None:
    first = _descriptions(modules[0])
    for module, seed in zip(modules, seeds, strict=True):
        other = _descriptions(module)
        differing = sorted(
            name for name in first.keys() | other if first.get(name) != other.get(name)
        )
        if differing:
            name = differing[0]
            raise ValueError(
                f"Members must be alike, but {name!r} is {first.get(name, 'missing')} for seed "
                f"{seeds[0]} and {other.get(name, 'missing')} for seed {seed}. Put members of "
                f"another kind into an ensemble of their own."
            )
        # Weights are handed to members by their places.
        for here, there in zip(first, other, strict=True):
            if here != there:
                raise ValueError(
                    f"Members must be alike, but seed {seeds[0]} has {here!r} where seed {seed} "
                    f"has {there!r}. Assign parts and parameters in one order."
                )


def _refuse_hooks(module: nn.Module) -> None:
    """Members' parameters are stacked, which leaves hooks on them behind."""
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise ValueError(
                f"Members' parameters must be without hooks, which their ensemble would not call, "
                f"but {name!r} has one. Register it on the ensemble's parameters, whose gradients "
                f"have the members first."
            )


def _warn_of_second_hold(module: nn.Module) -> None:
    found = second_hold(module)
    if found is not None:
        attribute, name = found
        warnings.warn(
            f"{type(module).__name__} holds {name!r} in its attribute {attribute!r} too. There "
            f"members keep what they were built with, whatever is trained: read it by its name, or "
            f"keep parameters in an `nn.ParameterList`.",
            stacklevel=3,
        )


def _descriptions(module: nn.Module) -> dict[str, str]:
    """What must be alike in members, in words: their tensors, and which parts are in eval mode."""
    descriptions: dict[str, str] = {}
    known: dict[int, str] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for own in (part._parameters, part._buffers):
            for name, tensor in own.items():
                full = _joined_path(path, name)
                if tensor is not None:
                    gradient = "with" if tensor.requires_grad else "without"
                    first = known.setdefault(id(tensor), full)
                    tie = "" if first == full else f", the same as {first!r}"
                    descriptions[full] = (
                        f"{list(tensor.shape)} of {tensor.dtype} {gradient} gradient{tie}"
                    )
                elif own is part._buffers:
                    descriptions[full] = "empty"
        if not path or part.training != module.training:  # members need not have all parts
            descriptions[_joined_path(path, "training")] = str(part.training)
    return descriptions


def _joined(
    modules: Sequence[nn.Module], differing: dict[str, str], ties: Ties, path: str = ""
) -> nn.Module:
    """The members' modules as one: mapped as far down as there is a flow, as they are above it.

    Args:
        modules: One per member.
        differing: Settings that differ between members, by path; see `likeness`.
        ties: With other parts of the same members.
        path: Where these modules are in a member.
    """
    found = ties.find(modules)
    if found is not None:
        return found
    first = modules[0]
    has_flow = any(isinstance(part, Flow) for part in first.modules())
    composes = isinstance(first, Flow) or getattr(first, "members_first", False)
    own = [*first.parameters(recurse=False), *first.buffers(recurse=False)]
    paths = {name: _joined_path(path, name) for name in first._modules}
    if composes and not own and not _differs(first, differing, path, paths):
        joint = copy.copy(first)
        joint._modules = {
            name: None
            if part is None
            else _joined([m._modules[name] for m in modules], differing, ties, paths[name])  # pyright: ignore[reportArgumentType]
            for name, part in first._modules.items()
        }
        ties.keep(modules, joint)
        return joint
    settings = settings_within(differing, path)
    has_hooks = any(p._backward_hooks or p._backward_pre_hooks for p in first.modules())
    if settings:
        warnings.warn(
            f"The {len(modules)} members differ in {settings[0]!r}, so {type(first).__name__} is "
            f"evaluated for one after the other: the same results, slower. Put members of equal "
            f"settings into an ensemble of their own.",
            stacklevel=3,
        )
    elif has_flow:
        warnings.warn(
            f"{type(first).__name__} holds a flow, and its members are evaluated one by one: the "
            f"same results, slower. If its `forward` only composes its parts, whatever the leading "
            f"dimensions, say `members_first = True` in the class.",
            stacklevel=3,
        )
    elif has_hooks:
        warnings.warn(
            f"{type(first).__name__} has backward hooks, which `torch.func.vmap` passes over, so "
            f"its members are evaluated one by one: the same results, slower.",
            stacklevel=3,
        )
    maps = not has_flow and not has_hooks
    joint = Members(modules, maps=maps, alike=not settings, ties=ties)
    ties.keep(modules, joint)
    return joint


def _differs(first: nn.Module, differing: dict[str, str], path: str, paths: dict[str, str]) -> bool:
    """Whether members must be told apart here: by a setting, or by a flow of theirs.

    Who calls a flow packs states for its field, as each member's own field says.
    """
    flows = [paths[name] for name, part in first._modules.items() if isinstance(part, Flow)]
    return path in differing or any(settings_within(differing, flow) for flow in flows)


def _lone_parts(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The joined members' parts, by the paths that a lone member has for them."""
    if isinstance(module, Members):
        for name, part in module.module.named_modules(remove_duplicate=False):
            yield _joined_path(path, name), part
        return
    yield path, module
    for name, part in module._modules.items():
        if part is not None:
            yield from _lone_parts(part, _joined_path(path, name))


def _joined_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name
