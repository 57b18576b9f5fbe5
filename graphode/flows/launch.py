"""Triton kernels launched again without Triton's own search. Imported only where Triton is.

At every launch Triton asks what its arguments allow (types, alignment, divisible sizes), looks for
the kernel compiled for that, and tells its profilers, which takes the host several times as long
as the launch itself. Where arguments have a form that was launched before, the kernel is known.
"""

# pyright: reportMissingImports=false

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from triton.compiler import CompiledKernel

# What Triton takes for granted of a pointer if it was so at the first launch.
ALIGNMENT = 16

# How to run a kernel, its handle, and what the driver must know of it.
_launchers: dict[tuple[Hashable, ...], tuple[Callable[..., None], Any, Any]] = {}


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
    places = [tensor.data_ptr() for tensor in tensors]
    for place in places:
        if place % ALIGNMENT:
            kernel[grid](*tensors, *numbers)
            return
    device = tensors[0].get_device()
    key = (kernel.__name__, device, form)
    launcher = _launchers.get(key)
    if launcher is not None and device == torch._C._cuda_getDevice():
        stream = torch._C._cuda_getCurrentRawStream(device)
        run, function, metadata = launcher
        # The three after the metadata are for profilers.
        run(*grid, stream, function, metadata, None, None, None, *places, *numbers)
        return
    compiled = kernel[grid](*tensors, *numbers)
    if isinstance(compiled, CompiledKernel):  # by the interpreter nothing is compiled
        if len(_launchers) >= 1024:
            _launchers.clear()
        _launchers[key] = (compiled.run, compiled.function, compiled.packed_metadata)


def is_short(number: int) -> bool:
    """Whether Triton takes a signed number for one of 32 bits; else it has 64."""
    return -(2**31) <= number < 2**31
