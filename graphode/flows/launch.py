"""Triton kernels launched again without Triton's own search.

At every launch Triton asks what its arguments allow (types, alignment, divisible sizes), looks for
the kernel compiled for that, and tells its profilers, which takes the host several times as long
as the launch itself. Where arguments have a form that was launched before, the kernel is known.

How a known kernel is called is Triton's own affair. Where a version of it has another way, every
launch is left to Triton.
"""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

# What Triton takes for granted of a pointer if it was so at the first launch.
ALIGNMENT = 16

# Of a compiled kernel: how to run it, its handle, and what the driver must know of it.
_PARTS = ("run", "function", "packed_metadata")

# Those parts, and the kernel itself: a key has its identity, which lasts as long as it is held.
_launchers: dict[tuple[Hashable, ...], tuple[Any, Any, Any, Any]] = {}
_can_run = True


def launch(
    kernel: Any,
    form: tuple[Hashable, ...],
    grid: tuple[int, int, int],
    tensors: tuple[Tensor, ...],
    *numbers: float,
) -> None:
    """`kernel[grid](*tensors, *numbers)`.

    Args:
        kernel: Made by `triton.jit`; takes its tensors first.
        form: Everything of the arguments that the compiled kernel depends on, but the alignment
            of tensors: their dtypes, and every whole number, of those in `do_not_specialize`
            only whether it `is_short`. It fixes the grid too.
        grid: How many programs.
        tensors: On the device that is current.
        numbers: The other arguments, in their order, constants too.
    """
    global _can_run
    places = [tensor.data_ptr() for tensor in tensors]
    for place in places:
        if place % ALIGNMENT:
            kernel[grid](*tensors, *numbers)
            return
    device = tensors[0].get_device()
    key = (id(kernel), device, form)
    launcher = _launchers.get(key)
    if launcher is not None and device == torch._C._cuda_getDevice():
        stream = torch._C._cuda_getCurrentRawStream(device)
        run, function, metadata, _ = launcher
        try:
            # The three after the metadata are for profilers.
            run(*grid, stream, function, metadata, None, None, None, *places, *numbers)
            return
        except TypeError:
            _can_run = False
            _launchers.clear()
    compiled = kernel[grid](*tensors, *numbers)
    # By the interpreter nothing is compiled, and what is, is compiled for the current device.
    is_known = _can_run and all(hasattr(compiled, part) for part in _PARTS)
    if is_known and device == torch._C._cuda_getDevice():
        if len(_launchers) >= 1024:
            _launchers.clear()
        run, function, metadata = (getattr(compiled, part) for part in _PARTS)
        _launchers[key] = (run, function, metadata, kernel)


def is_short(number: int) -> bool:
    """Whether Triton takes a signed number for one of 32 bits; else it has 64."""
    return -(2**31) <= number < 2**31
