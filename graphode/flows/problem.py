"""The initial value problem, checked once before anything runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphode.flows.host import on_host, refuse_forward_mode, refuse_mapped
from graphode.flows.layout import Layout
from graphode.flows.masks import is_mapped

# Output times as users give them.
Times = Tensor | np.ndarray | Sequence[float] | Sequence[float | Tensor]


@dataclass(frozen=True)
class Problem:
    """dy/dt = f(t, y, *args), y(times[0]) = y0.

    Attributes:
        times: `[time]`, or `[*batch, time]` where each sample has its own; float64, on the
            state's device.
        host: The same on the host, `[time, samples]`.
    """

    f: Callable[..., Tensor]
    args: tuple[Any, ...]
    y0: Tensor
    times: Tensor
    host: np.ndarray
    layout: Layout

    @property
    def shared_times(self) -> bool:
        """Whether all samples have the same times; one sample has."""
        return self.times.ndim == 1 or self.is_lone

    @property
    def is_lone(self) -> bool:
        """Whether there is one sample only."""
        return self.layout.batch_shape.numel() == 1

    def per_sample(self, index: int, times: Tensor | None = None) -> Tensor:
        """The `index`-th output time, one value per sample."""
        times = self.times if times is None else times
        return times[..., index].expand(self.layout.batch_shape)


def check_state(y0: Tensor, batch_dims: int) -> None:
    """Refuse a state that cannot be integrated."""
    if not isinstance(y0, Tensor):
        raise TypeError(
            f"`y0` must be a tensor, but is {type(y0).__name__}. Make one of numbers with "
            f"`torch.as_tensor(y0)`. Concatenate several states, for example along the channels."
        )
    if is_mapped():
        refuse_mapped(y0, "`y0`")
    if y0.is_complex():
        raise TypeError(
            f"`y0` must be of a floating-point dtype, but is {y0.dtype}. Solve for real and "
            f"imaginary parts: `torch.view_as_real(y0)`, and `torch.view_as_complex` in the field."
        )
    if not y0.is_floating_point():
        raise TypeError(
            f"`y0` must be of a floating-point dtype, but is {y0.dtype}. Convert it with "
            f"`y0.float()`."
        )
    if y0.numel() == 0:
        raise ValueError(
            f"`y0` must not be empty, but has shape {tuple(y0.shape)}. Check how it was selected."
        )
    if not 0 <= batch_dims <= y0.ndim:
        raise ValueError(
            f"`batch_dims` must be between 0 and the {y0.ndim} dimensions of `y0`, but is "
            f"{batch_dims}. It counts the leading dimensions that hold separate samples."
        )


def check_finite(y0: Tensor) -> None:
    """Refuse NaN and infinity; needs a value on the host."""
    # One sum is enough to clear a state: it is finite only if all terms are.
    if math.isfinite(y0.detach().sum().item()):
        return
    wrong = ~y0.detach().isfinite()
    if bool(wrong.any()):
        index = tuple(int(i) for i in wrong.nonzero()[0])
        raise ValueError(
            f"`y0` must be finite, but holds {int(wrong.sum())} non-finite values, the first at "
            f"index {index}: {y0[index].item()}. Fill or mask missing values first."
        )


def read_args(args: Any) -> tuple[Any, ...]:
    """`args` as a tuple; a tensor is not taken for one."""
    if not isinstance(args, tuple | list):
        raise TypeError(
            f"`args` must be a tuple of further arguments of the field, but is "
            f"{type(args).__name__}. Write `args=(value,)` for a single one."
        )
    return tuple(args)


def read_times(times: Times, layout: Layout) -> Tensor:
    """`times` as a float64 tensor on the state's device, with its gradient."""
    if isinstance(times, Sequence) and any(isinstance(t, Tensor) for t in times):
        moments = [_read_moment(t, layout) for t in times]
        shapes = sorted({tuple(t.shape) for t in moments})
        if len(shapes) > 1:
            raise ValueError(
                f"`times` given as a sequence must hold tensors of one shape, but they have the "
                f"shapes {', '.join(map(str, shapes))}. Make one tensor of them, [*batch, time], "
                f"with `torch.stack(torch.broadcast_tensors(…), -1)`."
            )
        return torch.stack(moments)
    return _for_whole_batch(_read_moment(times, layout), layout, trailing=1)


def _read_moment(t: Times | float, layout: Layout) -> Tensor:
    tensor = t if isinstance(t, Tensor) else _tensor_of(np.asarray(t))
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"`times` must be real numbers, but is {tensor.dtype}. Pass floats.")
    return tensor.to(layout.device, layout.time_dtype)


def _tensor_of(array: np.ndarray) -> Tensor:
    """`array` as a tensor; of what torch does not know, big-endian numbers for one, as float64."""
    if array.dtype.kind not in "iufbc":
        raise TypeError(
            f"`times` must be real numbers, but is an array of {array.dtype}. Pass floats: of "
            f"dates, for example, the days since the first one."
        )
    return torch.from_numpy(np.array(array, dtype=None if array.dtype.kind in "bc" else np.float64))


def read_interval(
    t0: float | Tensor | np.ndarray, t1: float | Tensor | np.ndarray, layout: Layout
) -> Tensor:
    """`[2]`, or `[*batch, 2]` where either end is given per sample."""
    try:
        ends = [torch.as_tensor(t, dtype=layout.time_dtype, device=layout.device) for t in (t0, t1)]
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"`t0` and `t1` must be numbers or tensors, but are {t0!r} and {t1!r}. Leave them out "
            f"for the interval from 0 to 1."
        ) from error
    ends = [_for_whole_batch(end, layout) for end in ends]
    for name, end in zip(("t0", "t1"), ends, strict=True):
        if end.ndim and end.shape != layout.batch_shape:
            raise ValueError(
                f"`{name}` must be a number or have one value per sample, shape "
                f"{tuple(layout.batch_shape)}, but has shape {tuple(end.shape)}."
                f" Leave out the dimensions of nodes and channels."
            )
    if any(end.ndim for end in ends):
        ends = [end.expand(layout.batch_shape) for end in ends]
    times = torch.stack(ends, -1)
    refuse_forward_mode(times)
    return times


def _for_whole_batch(times: Tensor, layout: Layout, trailing: int = 0) -> Tensor:
    """Times that only the first dimensions of the batch have, such as members, for all of it.

    A batch of a single graph has no dimension of graphs, but its times may.
    """
    lead = times.shape[: times.ndim - trailing]
    if lead == (*layout.batch_shape, 1):
        return times.squeeze(len(lead) - 1)
    missing = len(layout.batch_shape) - len(lead)
    if not lead or missing <= 0 or lead != layout.batch_shape[: len(lead)]:
        return times
    last = times.shape[len(lead) :]
    return times.reshape(*lead, *[1] * missing, *last).expand(*layout.batch_shape, *last)


def check_times(times: Tensor, layout: Layout) -> np.ndarray:
    """The times on the host, `[time, samples]`, after refusing what cannot be served."""
    shape, batch = tuple(times.shape), tuple(layout.batch_shape)
    if times.ndim == 0 or shape[-1] < 2 or (times.ndim > 1 and shape[:-1] != batch):
        by_sample = f" or [{', '.join(map(str, batch))}, time]" if batch else ""
        raise ValueError(
            f"`times` must have shape [time]{by_sample}, with at least two times (the start is the "
            f"first), but has shape {list(shape)}. Put the start time in front, or set "
            f"`batch_dims` to the number of leading dimensions that are samples."
        )
    refuse_forward_mode(times)
    host = on_host(times.to(torch.float64)).reshape(-1, shape[-1]).T
    if not np.isfinite(host).all():
        step, sample = (int(i) for i in np.argwhere(~np.isfinite(host))[0])
        raise ValueError(
            f"`times` must be finite, but entry {step}{_of(sample, batch, times)} is "
            f"{host[step, sample]}. Drop padded entries, or repeat no time: give each sample its "
            f"own solve."
        )
    gaps = np.diff(host, axis=0)
    wrong = gaps * np.sign(host[-1] - host[0]) <= 0
    if wrong.any():
        step, sample = (int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"`times` must increase (or decrease) strictly along the last dimension, but step "
            f"{step}{_of(sample, batch, times)} goes from {host[step, sample]:.6g} to "
            f"{host[step + 1, sample]:.6g}. Sort the times, and merge those that are equal."
        )
    return np.broadcast_to(host, (shape[-1], layout.batch_shape.numel()))


def _of(sample: int, batch: tuple[int, ...], times: Tensor) -> str:
    return f" of sample {sample}" if times.ndim > 1 and batch else ""


def check_positive(name: str, value: float, remedy: str) -> None:
    """Refuse a setting that is not a positive, finite number."""
    if isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"`{name}` must be positive and finite, but is {value!r}. {remedy}")
