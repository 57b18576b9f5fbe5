"""Whether hand-written GPU kernels may serve a call: where they exist, and nothing is traced."""

import functools
import importlib.util

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack
from torch.autograd import forward_ad

# Triton's interpreter runs the kernels on a CPU too, for tests: TRITON_INTERPRET=1.
DEVICES = {"cuda"}


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed: with PyTorch for NVIDIA GPUs on Linux it is."""
    return importlib.util.find_spec("triton") is not None


def may_use_kernels(*tensors: Tensor | None) -> bool:
    """Whether all are float32 on a GPU, and no transform but `vmap` looks on.

    The kernels are mapped and differentiated (twice, too), but not traced by `torch.compile`, nor
    pushed forward by `torch.func.jvp`.
    """
    for tensor in tensors:
        if tensor is not None and (
            tensor.device.type not in DEVICES or tensor.dtype != torch.float32
        ):
            return False
    return (
        has_triton()
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cuda")
        and forward_ad._current_level < 0
        and all(level.key() == TransformType.Vmap for level in get_interpreter_stack() or ())
    )
