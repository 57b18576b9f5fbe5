"""The field as the engine calls it: counted, checked, and in the engine's precision."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from graphode.flows.combination import combined, may_combine
from graphode.flows.host import refuse_mapped
from graphode.flows.layout import Layout, SegmentedLayout, Time
from graphode.flows.masks import is_mapped, is_recorded, is_traced
from graphode.flows.redraw import Need
from graphode.flows.stochastic import SolveNoise, noise_of

Held = tuple[dict[str, Any], dict[str, Any], bool]  # parameters and buffers, and in training or not


class Evaluation:
    """Wraps `f(t, y, *args)`.

    Args:
        f: The right-hand side of dy/dt = f(t, y, *args).
        args: Further arguments, handed through.
        layout: Shape and dtype every derivative must have.
        noise: The masks of the solve, where another evaluation shares them.
    """

    def __init__(
        self,
        f: Callable[..., Tensor],
        args: tuple[Any, ...],
        layout: Layout,
        noise: SolveNoise | None = None,
    ) -> None:
        self.f = f
        self.args = args
        self.layout = layout
        row = layout if isinstance(layout, SegmentedLayout) else None
        self.noise = noise or SolveNoise(row=row)
        self.modules: list[tuple[nn.Module, Held]] = []
        self.autocast: AbstractContextManager[object] = nullcontext()
        self.calls = 0
        self.need: Need | None = None
        self.returned: tuple[Tensor, int] | None = None

    def __call__(self, t: Time, y: Tensor) -> Tensor:
        """The derivative at time `t` and state `y`."""
        layout = self.layout
        self.calls += 1
        y = y.to(layout.dtype)
        if y.requires_grad and not torch.is_grad_enabled():
            y = y.detach()  # else its parts would require a gradient, and belong to no graph
        # Two evaluations show what a field writes to; later ones are spared the question.
        watched = self.calls <= 2 and not is_traced()
        version = _version(y) if watched else 0
        # The first evaluation may draw what all of them share.
        drawn = self._random_state() if watched and self.calls == 2 else None
        with noise_of(self.noise):
            dy = self.f(layout.field_time(t), y, *self.args)
        if not isinstance(dy, Tensor):
            raise TypeError(
                f"The field must return a tensor like the state, but returned "
                f"{type(dy).__name__}. Return dy/dt as one tensor of shape {tuple(layout.shape)}."
            )
        if dy.shape != layout.shape:
            raise ValueError(
                f"The field must return the shape of the state, {tuple(layout.shape)}, but "
                f"returned {tuple(dy.shape)}. A field maps a state to its own velocity: check "
                f"its last layer's width and its broadcasting."
            )
        if dy.dtype != layout.dtype and torch.is_autocast_enabled(layout.device.type):
            dy = dy.to(layout.dtype)  # what autocast rounds is up to it
        if dy.dtype != layout.dtype or dy.device != layout.device:
            raise TypeError(
                f"The field must return {layout.dtype} on {layout.device}, as the state, but "
                f"returned {dy.dtype} on {dy.device}. Convert the field's parameters with "
                f"`field.to(y.device, y.dtype)`, or the state."
            )
        if watched:
            self._check_writes(y, version, dy)
        if drawn is not None:
            self._check_draws(drawn)
        return dy.to(layout.working_dtype)

    def must_be_function(self, need: Need) -> None:
        """Refuse a field that is not."""
        self.need, self.noise.check = need, need.check

    @property
    def changes_by_step(self) -> bool:
        """Whether the field is another function in the next step than in this one."""
        return "per_step" in self.noise.drawn

    def at_start(self, t: Time, y: Tensor, handed_over: Tensor) -> Tensor:
        """The derivative a step begins with: the last step's, unless the masks are others now."""
        return self(t, y) if self.changes_by_step else handed_over

    def remember(self, modules: list[nn.Module]) -> None:
        """Keep how the field is evaluated now, for evaluations in the backward pass.

        A member of an ensemble, and `torch.func.functional_call`, lends modules their tensors for
        one call only, autocast ends before the backward pass begins, and a model may be in eval
        mode by then.
        """
        self.modules = [(m, (dict(m._parameters), dict(m._buffers), m.training)) for m in modules]
        device = self.layout.device.type
        if torch.amp.is_autocast_available(device):
            self.autocast = torch.autocast(
                device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
            )

    @contextmanager
    def as_remembered(self) -> Iterator[None]:
        """The field with tensors, mode and precision as they were; after that as they are now."""
        now = [(m, (m._parameters, m._buffers, m.training)) for m, _ in self.modules]
        try:
            for module, held in self.modules:
                module._parameters, module._buffers, module.training = held
            with self.autocast:
                yield
        finally:
            for module, held in now:
                module._parameters, module._buffers, module.training = held

    def _random_state(self) -> tuple[Tensor, int] | None:
        """Where torch's generator stands, and what masks of ours have drawn from it."""
        device = self.layout.device
        if self.need is None or is_recorded(device):
            return None
        if device.type == "cuda":
            offset = torch.cuda.default_generators[device.index].get_offset()
            return torch.tensor(offset), self.noise.draw
        return torch.get_rng_state(), self.noise.draw

    def _check_draws(self, before: tuple[Tensor, int]) -> None:
        """Refuse a field that draws random numbers as it goes, as torch's dropout does.

        Where they cost no more than evaluations, warn: gradients are those of what was drawn.
        """
        after = self._random_state()
        if after is None or after[1] != before[1]:
            return
        if not after[0].equal(before[0]):
            assert self.need is not None
            message = (
                f"The field draws random numbers when it is evaluated, but {self.need.reason}. Use "
                f"`graphode.Dropout`, whose mask is fixed within a solve, for torch's; draw noise "
                f"before the solve; or use a fixed-step solver with gradient='backprop'."
            )
            if self.need.recomputed:
                raise ValueError(message)
            warnings.warn(message, stacklevel=2)

    def _check_writes(self, y: Tensor, version: int, dy: Tensor) -> None:
        """Refuse a field that changes what the solver still needs."""
        if is_mapped():
            refuse_mapped(dy, "What the field returned")
        if _version(y) != version:
            raise ValueError(
                "The field must not change the state it is given, but wrote to it in place (and so "
                "to your `y0`, if this was the first evaluation). Use `y * a` for `y.mul_(a)`, or "
                "begin with `y = y.clone()`."
            )
        before, version_before = self.returned or (dy, _version(dy))
        if _version(before) != version_before:
            raise ValueError(
                "The field must return a new tensor each time, but wrote to the one it had "
                "returned before, which the solver still needs. Return `buffer.clone()`, or do "
                "without `out=`."
            )
        self.returned = (dy, _version(dy)) if self.calls == 1 else None


def _version(x: Tensor) -> int:
    """How often `x` was written to; inference tensors do not count."""
    return 0 if x.is_inference() else x._version


def weighted_sum(weights: tuple[float, ...], tensors: tuple[Tensor, ...], scale: float) -> Tensor:
    """Σ_j scale · w_j x_j over the non-zero weights, in one pass per term."""
    total: Tensor | None = None
    for weight, tensor in zip(weights, tensors, strict=False):
        if weight == 0:
            continue
        if total is None:
            total = tensor * (weight * scale)
        else:
            # In place: nothing saves a partial sum for the backward pass.
            total.add_(tensor, alpha=weight * scale)
    return torch.zeros_like(tensors[0]) if total is None else total


def advance(
    y: Tensor, dt: Time, weights: tuple[float, ...], stages: tuple[Tensor, ...], layout: Layout
) -> Tensor:
    """y + dt Σ_j w_j k_j."""
    return advance_in_chain(y, dt, weights, stages, layout)[0]


def advance_in_chain(
    y: Tensor, dt: Time, weights: tuple[float, ...], stages: tuple[Tensor, ...], layout: Layout
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """y + dt Σ_j w_j k_j, and `y` and `stages` for the next sum of the step.

    They are the same tensors, but a GPU adds up their gradients in fewer passes (`combined`).
    """
    scale = layout.scale(dt)
    if y.is_cuda:
        used = [j for j, w in enumerate(weights[: len(stages)]) if w != 0]
        terms = [stages[j] for j in used]
        by_sample = scale if isinstance(scale, Tensor) else None
        if may_combine(y, terms, by_sample):
            factor = 1.0 if isinstance(scale, Tensor) else scale
            total, y, *terms = combined(y, [weights[j] * factor for j in used], terms, by_sample)
            handed_on = dict(zip(used, terms, strict=True))
            return total, y, tuple(handed_on.get(j, k) for j, k in enumerate(stages))
    if isinstance(scale, Tensor):
        return torch.addcmul(y, weighted_sum(weights, stages, 1.0), scale), y, stages
    total: Tensor | None = None
    for weight, stage in zip(weights, stages, strict=False):
        if weight == 0:
            continue
        if total is None:
            total = torch.add(y, stage, alpha=weight * scale)
        else:
            total.add_(stage, alpha=weight * scale)
    return y if total is None else total, y, stages
