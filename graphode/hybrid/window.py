"""A window of observations as the system reads it: step by step, and nothing under the mask."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Window:
    """Observations of a batch, checked.

    Attributes:
        x: For each step the observations, 0 where there are none.
        times: When; only those of valid steps have a meaning.
        valid: Which samples have the step at all: those that observe a node then.
        observed: For each step which nodes are observed, `[*batch, nodes or 1]`; None for all.
        batch_shape: Leading dimensions.
    """

    x: list[Tensor]
    times: Tensor
    valid: Tensor
    observed: list[Tensor] | None
    batch_shape: torch.Size

    def __len__(self) -> int:
        return len(self.x)


def is_traced(x: Tensor) -> bool:
    """Whether a program is being recorded, so that no value may be asked for on the host."""
    return torch.compiler.is_compiling() or (x.is_cuda and torch.cuda.is_current_stream_capturing())


def time_dtype(device: torch.device) -> torch.dtype:
    """Time is float64 wherever there is such a thing."""
    return torch.float32 if device.type == "mps" else torch.float64


def as_tensor(values: Any) -> Tensor:
    """`torch.as_tensor`, also of what torch refuses or warns of.

    These are tables of pandas, whose arrays cannot be written, and arrays that are reversed or have
    another byte order.
    """
    if torch.compiler.is_compiling() or not _is_array(values):
        return torch.as_tensor(values)
    array = np.asarray(values)
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))


def _is_array(values: object) -> bool:
    return not isinstance(values, Tensor) and hasattr(values, "__array__")


def times_tensor(name: str, times: Any) -> Tensor:
    """Times as a tensor, numbers as float64; dates are refused, since nobody knows their unit."""
    if isinstance(times, Tensor):
        return times
    if torch.compiler.is_compiling():  # where arrays cannot be asked what they hold
        return torch.as_tensor(times, dtype=torch.float64)
    if isinstance(times, (list, tuple)):
        times = [time.tolist() if isinstance(time, Tensor) else time for time in times]
    try:
        array = np.asarray(times)
    except ValueError:  # rows of unlike lengths
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "iuf":
        kind = type(times).__name__ if array.dtype == object else array.dtype
        raise TypeError(
            f"`{name}` must be real numbers, but is {kind}. Convert dates to hours since the "
            f"first: `(dates - dates[0]) / np.timedelta64(1, 'h')`."
        )
    return torch.from_numpy(array.astype(np.float64))


def read_times(name: str, times: object, shape: tuple[int, ...], like: Tensor, what: str) -> Tensor:
    """Times as float64 on the device of `like`, expanded over leading dimensions to `shape`."""
    tensor = times_tensor(name, times)
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"`{name}` must be real numbers, but is {tensor.dtype}. Pass floats.")
    tensor = _without_members(tensor, shape)
    own = tuple(tensor.shape)
    if not own or len(own) > len(shape) or own != shape[len(shape) - len(own) :]:
        raise ValueError(
            f"`{name}` must have shape {list(shape)}, {what}, or leave out leading dimensions "
            f"that share them, but has shape {list(own)}. {what.capitalize()}."
        )
    return tensor.to(like.device, time_dtype(like.device)).expand(shape)


def read_window(
    x: Tensor | Sequence[Tensor], times: object, mask: Tensor | Sequence[Tensor] | None
) -> Window:
    """Check the observations of a batch and clear what the mask hides.

    Shapes:
        - **x:** `[*batch, steps, nodes, channels]`, or per step `[*batch, nodes, channels]`;
          arrays become tensors.
        - **times:** `[*batch, steps]`
        - **mask:** `[*batch, steps]` or `[*batch, steps, nodes]`, True where observed; leading
          dimensions that share it may be left out; per step `[*batch]` or `[*batch, nodes]`.
    """
    times = times_tensor("times", times)
    if _is_array(x):
        x = as_tensor(x)
    if isinstance(x, Tensor):
        if x.ndim < 3:
            raise ValueError(
                f"`x` must be [*batch, steps, nodes, channels], but has shape {list(x.shape)}. Add "
                f"a channel dimension with `x[..., None]`."
            )
        batch, steps, like = x.shape[:-3], x.shape[-3], x
    else:
        x = [as_tensor(part) for part in x]
        batch, steps = (x[0].shape[:-2] if x else torch.Size()), len(x)
        like = x[0] if x else torch.empty(0)
        _check_steps(x, batch)
    if steps == 0 or like.shape[-2] == 0:
        raise ValueError(
            f"A window must hold at least one step and one node, but `x` has {steps} steps and "
            f"shape {list(like.shape)}. Leave empty windows out."
        )
    if not like.is_floating_point():
        raise TypeError(
            f"`x` must be of a floating-point dtype, but is {like.dtype}. Convert it with "
            f"`x.float()`."
        )
    moments = read_times("times", times, (*batch, steps), like, "one time per sample and step")
    values = list(x.unbind(-3)) if isinstance(x, Tensor) else x
    observed = None if mask is None else _read_mask(mask, x, moments)
    if observed is None:
        valid = torch.ones(moments.shape, dtype=torch.bool, device=like.device)
    else:
        valid = torch.stack([part.any(-1) for part in observed], -1)
        values = [
            torch.where(part[..., None], value, 0.0)
            for part, value in zip(observed, values, strict=True)
        ]
    if not is_traced(like):
        whole = [x] if isinstance(x, Tensor) and observed is None else values
        _check_finite(whole, values, mask is not None)
    return Window(values, moments, valid, observed, batch)


def _check_steps(x: list[Tensor], batch: torch.Size) -> None:
    for step, value in enumerate(x):
        if value.ndim < 2:
            raise ValueError(
                f"`x` must be [*batch, nodes, channels] at each step, but has shape "
                f"{list(value.shape)} at step {step}. Add a channel dimension with `x[..., None]`."
            )
        if value.shape[:-2] != batch or value.shape[-1] != x[0].shape[-1]:
            raise ValueError(
                f"`x` as a list must hold [*batch, nodes, channels] for each step, alike but for "
                f"the nodes, but step {step} has shape {list(value.shape)} and step 0 "
                f"{list(x[0].shape)}."
            )


def _read_mask(
    mask: Tensor | Sequence[Tensor], x: Tensor | list[Tensor], moments: Tensor
) -> list[Tensor]:
    """Per step which nodes are observed, `[*batch, nodes]`, or `[*batch, 1]` for all or none."""
    batch, steps = moments.shape[:-1], moments.shape[-1]
    nodes = [x.shape[-2]] * steps if isinstance(x, Tensor) else [part.shape[-2] for part in x]
    if not (isinstance(mask, Tensor) or _is_array(mask)):
        parts = [_boolean(part) for part in mask]
        fits = len(parts) == steps and all(
            part.shape in (batch, (*batch, n)) for part, n in zip(parts, nodes, strict=False)
        )
        if fits:
            parts = [part.to(moments.device) for part in parts]
            return [part[..., None] if part.shape == batch else part for part in parts]
        shape = [list(part.shape) for part in parts]
    else:
        whole = (*batch, steps, nodes[0])
        mask = _without_members(_boolean(mask), whole[:-1], whole)
        by_step = _ends_with(whole[:-1], mask.shape)
        by_node = _ends_with(whole, mask.shape) and len(set(nodes)) == 1
        if by_step and by_node and mask.shape != whole[:-1]:
            raise ValueError(
                f"`mask` of shape {list(mask.shape)} can be read as of steps or as of nodes where "
                f"there are as many of both. Give it all dimensions, {list(whole[:-1])} or "
                f"{list(whole)}, with `mask.expand(…)`."
            )
        mask = mask.to(moments.device)
        if by_step:
            return list(mask.expand(whole[:-1])[..., None].unbind(-2))
        if by_node:
            return list(mask.expand(whole).unbind(-2))
        shape = list(mask.shape)
    raise ValueError(
        f"`mask` must say for each step, {[*batch, steps]}, or for each node of each step, "
        f"{[*batch, steps, nodes[0]]}, what was observed, but has shape {shape}. Where nodes come "
        f"and go it is a list, as `x` is."
    )


def _boolean(mask: object) -> Tensor:
    if _is_array(mask):
        mask = as_tensor(mask)
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        return mask
    kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
    raise TypeError(
        f"`mask` must be a tensor or an array of booleans, True where observed, or one for each "
        f"step, but is {kind}. Convert it with `torch.as_tensor(mask).bool()`."
    )


def _ends_with(shape: tuple[int, ...], end: torch.Size) -> bool:
    return 0 < len(end) <= len(shape) and tuple(end) == shape[len(shape) - len(end) :]


def _without_members(given: Tensor, *shapes: tuple[int, ...]) -> Tensor:
    """What leaves out leading dimensions, as it was before an ensemble expanded it to members."""
    fits = any(_ends_with(shape, given.shape) for shape in shapes)
    expanded = given.ndim > 1 and given.shape[0] == shapes[0][0] and given.stride(0) == 0
    return given[0] if expanded and not fits else given


def _check_finite(whole: Sequence[Tensor], values: Sequence[Tensor], masked: bool) -> None:
    # One sum is enough to clear all: it is finite only if all terms are.
    total = torch.stack([part.detach().sum() for part in whole]).sum()
    if math.isfinite(total.item()):
        return
    for step, value in enumerate(values):
        wrong = ~value.detach().isfinite()
        if bool(wrong.any()):
            place = tuple(int(i) for i in wrong.nonzero()[0])
            remedy = "Extend the mask to it." if masked else "Mask it: `mask=x.isfinite().all(-1)`."
            raise ValueError(
                f"`x` must be finite where it is observed, but step {step} holds "
                f"{int(wrong.sum())} values that are not, the first at index {place} of that step: "
                f"{value[place].item()}. {remedy}"
            )
