"""One module with the weights of many members, each applied to its own state.

    out[i] = module(weights[i], *args[i]),    i over members, in one pass

`torch.func.vmap` turns the products of all members into batched ones; the sparse products and the
masks of this library know what it means to be mapped, so that one product serves all members.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import _StopRecomputationError

from graphode.ensembles.answers import flattened, joined, joined_answers
from graphode.ensembles.copies import copied
from graphode.ensembles.state import NUMBERS, changed_attribute, plain_state
from graphode.ensembles.ties import Ties
from graphode.fields import unpack
from graphode.flows.masks import is_mapped, is_traced
from graphode.flows.stochastic import member_numbers, of_member

# Numbers in a member's state or weight above which a CPU evaluates members one by one.
LARGE_MEMBER = 1 << 16


class Members(nn.Module):
    """The members' modules as one, whose parameters and buffers have the members first.

    Every tensor that comes in has the members first too; one that all share is an expanded view,
    which is recognised and not copied. Anything else (a graph, sparse features) is shared.

    Args:
        modules: One per member, with parameters and buffers of the same names and shapes.
        maps: Whether `torch.func.vmap` is to be tried; else members are evaluated one by one.
        alike: Whether nothing but the values of these parameters and buffers differs between
            them; else members are evaluated one by one, each by its own module.
        ties: With other parts of the same members.
    """

    def __init__(
        self, modules: Sequence[nn.Module], *, maps: bool, alike: bool, ties: Ties
    ) -> None:
        super().__init__()
        self.module = copied(modules[0], ties.copies)
        self.count = len(modules)
        self.maps = maps
        # How it has been evaluated so far: by which method, training or not, mapped or not.
        self.ways: set[tuple[str | None, bool, bool]] = set()
        # Kept out of the registry: their parameters are stacked in `module`.
        self.others = None if alike else tuple(map(copied, modules))
        self.settings = {} if alike else _settings(self.module)
        for path, part in self.module.named_modules():
            if not part._parameters and not part._buffers:
                continue  # not every member need have such a part
            twins = [module.get_submodule(path) for module in modules]
            for name in part._parameters:
                part._parameters[name] = _stacked([m._parameters[name] for m in twins], ties)
            for name in part._buffers:
                part._buffers[name] = _stacked([m._buffers[name] for m in twins], ties)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's answer for every member, members first."""
        return self._evaluate(None, args, kwargs)

    def pack(self, h: Tensor) -> Tensor:
        """The state that a field of this kind moves; see `fields.extension`."""
        return self._evaluate("pack", (h,), {}) if hasattr(self.module, "pack") else h

    def unpack(self, z: Tensor) -> Tensor:
        """The user's part of such a state, whatever comes before its nodes."""
        return unpack(self.module, z)

    def _evaluate(self, method: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, structure = pytree.tree_flatten((args, kwargs), is_one_thing)
        weights = [own[name] for own, name in _places(self.module)]
        first: dict[int, int] = {}
        ties = [first.setdefault(id(weight), place) for place, weight in enumerate(weights)]
        inputs = [*weights, *member_numbers(), *leaves]
        entries = [self._entry(value) for value in inputs]

        def one(*values: Any, member: int | None = None) -> tuple[Any, dict[int, Any]]:
            count = len(weights)
            own = [values[place] for place in ties]  # one tensor where they have it twice
            (seed, step), rest = values[count : count + 2], values[count + 2 :]
            args, kwargs = pytree.tree_unflatten(rest, structure)
            call = self.module if method is None else getattr(self.module, method)
            with of_member(seed, step, member), _holding(self.module, own) as assigned:
                answer = call(*args, **kwargs)
            return answer, assigned

        loops = self.others is not None or not self.maps or _is_better_alone(entries, self.count)
        way = (method, self.module.training, loops)
        is_first = way not in self.ways
        before = plain_state(self.module) if is_first else {}
        answer = (
            self._one_by_one(one, entries) if loops else self._tried(one, entries, careful=is_first)
        )
        if is_first:
            _known_places(self.module, len(weights))
            self.ways.add(way)
            self._warn_of_state(before)
        return answer

    def _tried(
        self, one: Callable[..., Any], entries: list[tuple[Any, int | None]], careful: bool
    ) -> Any:
        """Mapped if that can be done, else one by one from now on.

        Args:
            one: The answer of a member, and its buffers that were assigned anew.
            entries: What it takes, with the dimension of the members.
            careful: Whether to keep buffers as they are, for the case that mapping fails when some
                have moved. It hardly ever does once it has succeeded.
        """
        buffers = [(buffer, buffer.clone()) for buffer in self.module.buffers() if careful]
        try:
            return self._mapped(one, entries)
        except (torch.OutOfMemoryError, _StopRecomputationError):
            raise  # says nothing of the module: there is no more room, or no more is asked for
        except Exception as reason:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
            result = self._one_by_one(one, entries)
            self._warn(reason)
            return result

    def _mapped(self, one: Callable[..., Any], entries: list[tuple[Any, int | None]]) -> Any:
        values, dims = zip(*entries, strict=True)
        given = [value for value, dim in entries if dim is None]
        # vmap takes tensors and gives tensors: the rest is closed over.
        places = [place for place, dim in enumerate(dims) if dim is not None]
        leaves: list[Any] = []
        structure: Any = None

        def of_tensors(*mapped: Tensor) -> tuple[Tensor, ...]:
            nonlocal leaves, structure
            whole = list(values)
            for place, value in zip(places, mapped, strict=True):
                whole[place] = value
            leaves, structure = flattened(one(*whole), given)
            return tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))

        if places:
            tensors = iter(vmap(of_tensors)(*[values[place] for place in places]))
        else:
            tensors = (tensor.expand(self.count, *tensor.shape) for tensor in of_tensors())
        whole = [
            next(tensors) if isinstance(leaf, Tensor) else joined([leaf], given) for leaf in leaves
        ]
        answer, assigned = pytree.tree_unflatten(whole, structure)
        self._hold(assigned)
        return answer

    def _one_by_one(self, one: Callable[..., Any], entries: list[tuple[Any, int | None]]) -> Any:
        whole = self.module
        # Taken apart once: the gradient of each index by itself would be as large as the whole.
        parts = [[v] * self.count if dim is None else _apart(v) for v, dim in entries]
        modes = {} if self.others is None else {p: m.training for p, m in whole.named_modules()}
        self._pass_on_settings()
        answers, assigned = [], []
        try:
            for index in range(self.count):
                if self.others is not None:
                    self.module = self.others[index]
                    for path, part in self.module.named_modules():
                        part.training = modes.get(path, whole.training)
                answer, state = one(*(part[index] for part in parts), member=index)
                answers.append(answer)
                assigned.append(state)
        finally:
            self.module = whole
        self._hold(
            {
                place: joined([s.get(place, parts[place][i]) for i, s in enumerate(assigned)])
                for place in {place for state in assigned for place in state}
            }
        )
        return joined_answers(answers, [value for value, dim in entries if dim is None])

    def _pass_on_settings(self) -> None:
        """Give members that differ what has been set for all of them since they were evaluated."""
        if self.others is None:
            return
        before, self.settings = self.settings, _settings(self.module)
        for (path, name), value in self.settings.items():
            was = before.get((path, name))
            if value is not was and not (isinstance(value, (*NUMBERS, str)) and value == was):
                for other in self.others:
                    part = dict(other.named_modules()).get(path)
                    if part is not None:
                        setattr(part, name, value)

    def _hold(self, assigned: dict[int, Any]) -> None:
        """Keep what members have assigned anew, by its places."""
        if assigned:
            places = _places(self.module)
            for place, tensor in assigned.items():
                own, name = places[place]
                if isinstance(own[name], nn.Parameter):
                    own[name].data = tensor.detach()
                else:
                    own[name] = tensor

    def _entry(self, value: Any) -> tuple[Any, int | None]:
        """A value and the dimension of its members; without one where all share it."""
        if not isinstance(value, Tensor) or value.ndim == 0:
            return value, None
        if value.layout != torch.strided:
            raise TypeError(
                f"An ensemble takes dense tensors, but one of shape {list(value.shape)} came as "
                f"{value.layout}. Pass features that all members share as "
                f"`graphode.SparseFeatures(x)`, and a matrix over nodes as a `graphode.Graph`."
            )
        if value.shape[0] != self.count:
            raise ValueError(
                f"An ensemble of {self.count} members takes tensors with the members first, but "
                f"one of shape {list(value.shape)} came. Pass what all share through "
                f"`ensemble(…)`, or expand it: `x.expand({self.count}, *x.shape)`."
            )
        shared = self.count > 1 and value.stride(0) == 0
        return (value[0], None) if shared else (value, 0)

    def _warn_of_state(self, before: dict[tuple[str, str], Any]) -> None:
        """Say what members share that each would have for itself alone."""
        found = None if self.others or self.count == 1 else changed_attribute(self.module, before)
        if found is not None:
            path, name = found
            part = type(self.module.get_submodule(path)).__name__
            warnings.warn(
                f"{part} changes its attribute {name!r} as it is evaluated. Members share it, so "
                f"that one which reads it again is not as it would be alone. Keep it in a buffer: "
                f"`self.register_buffer({name!r}, …)`.",
                stacklevel=4,
            )

    def _warn(self, reason: Exception) -> None:
        self.maps = False
        why = str(reason).strip().split("\n")[0]
        if "randomness" in why:
            consequence = (
                "slower, and not as they would be alone: torch's random operations draw from one "
                "generator for all members. For dropout use `graphode.Dropout`, whose masks are "
                "each member's own."
            )
        else:
            consequence = (
                "the same results, slower. Write it with operations that `torch.func.vmap` knows."
            )
        warnings.warn(
            f"{type(self.module).__name__} cannot be mapped over members ({why}), so the "
            f"{self.count} members are evaluated one by one: {consequence}",
            stacklevel=4,
        )


def _places(module: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """Where a module and its parts hold their parameters and buffers, those to come among them."""
    return [
        (own, name)
        for part in module.modules()
        for own in (part._parameters, part._buffers)
        for name, tensor in own.items()
        if tensor is not None or own is part._buffers
    ]


def _settings(module: nn.Module) -> dict[tuple[str, str], Any]:
    """The plain attributes of a module and its parts, by path and name, but for their modes."""
    return {
        (path, name): value
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if not name.startswith("_") and name != "training"
    }


def _known_places(module: nn.Module, known: int) -> list[tuple[dict[str, Any], str]]:
    """The places of a module's tensors, which are refused if they are not as many as before."""
    places = _places(module)
    if len(places) != known:
        raise RuntimeError(
            f"{type(module).__name__} makes parameters or buffers as it is evaluated, of which "
            f"its members would have none of their own. Make them in its constructor, or call the "
            f"module once in `build`."
        )
    return places


@contextmanager
def _holding(module: nn.Module, tensors: Sequence[Any]) -> Iterator[dict[int, Any]]:
    """The module with these parameters and buffers; after that with its own.

    As `torch.func.functional_call` does it, without its search for names, which for a field on a
    graph of a few thousand nodes costs as much as an evaluation. Buffers that were assigned anew,
    and the `data` of parameters, are by then in the dictionary that it gives, by their places.
    """
    places = _known_places(module, len(tensors))
    before = [own[name] for own, name in places]
    addresses = [_address(tensor) for tensor in tensors]
    assigned: dict[int, Any] = {}
    try:
        for (own, name), tensor in zip(places, tensors, strict=True):
            own[name] = tensor
        yield assigned
        for place, ((own, name), tensor) in enumerate(zip(places, tensors, strict=True)):
            if own[name] is not tensor and not isinstance(before[place], nn.Parameter):
                assigned[place] = own[name]
            elif _address(tensor) != addresses[place]:
                assigned[place] = tensor.detach()
    finally:
        for (own, name), tensor in zip(places, before, strict=True):
            own[name] = tensor


def _address(tensor: Any) -> int | None:
    """Where its numbers are, if they are anywhere."""
    has_one = isinstance(tensor, Tensor) and not is_mapped() and not is_traced()
    return tensor.data_ptr() if has_one else None


def _is_better_alone(entries: list[tuple[Any, int | None]], count: int) -> bool:
    """Whether members are faster one by one: on a CPU where each is large.

    There a batched product takes twice as long as its parts (measured: 100 × 2708 × 64 × 64), and
    what is saved, the cost of calling, no longer counts.
    """
    if count == 1:
        return True
    mapped = [value for value, dim in entries if dim is not None]
    on_cpu = all(value.device.type == "cpu" for value in mapped)
    return on_cpu and any(value.numel() >= LARGE_MEMBER * count for value in mapped)


def _apart(tensor: Tensor) -> Sequence[Tensor]:
    """The parts of all members; the gradient of one alone is a view, that of many a copy."""
    if not torch.is_grad_enabled():
        tensor = tensor.detach()  # else parts would require a gradient, and belong to no graph
    if len(tensor) == 1:
        return (tensor.squeeze(0),)
    if isinstance(tensor, nn.Parameter):  # to which a member may write, as `max_norm` does
        return [part.squeeze(0) for part in tensor.unsafe_split(1)]
    return tensor.unbind(0)


def is_one_thing(value: Any) -> bool:
    """Only lists, tuples and dictionaries are looked into: a graph is one thing, and shared."""
    return not isinstance(value, tuple | list | dict)


def _stacked(values: Sequence[Tensor | None], ties: Ties) -> Any:
    """A parameter or buffer of all members; the one of before where they have it twice."""
    tensors = [value for value in values if value is not None]
    if not tensors:
        return None
    found = ties.find(tensors)
    if found is None:
        found = torch.stack([tensor.detach() for tensor in tensors])
        if isinstance(tensors[0], nn.Parameter):
            found = nn.Parameter(found, requires_grad=tensors[0].requires_grad)
        ties.keep(tensors, found)
    return found
