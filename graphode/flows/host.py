"""Values on the host, where the engine decides; also of tensors that `torch.func` has wrapped."""

import numpy as np
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch.autograd import forward_ad

from graphode.flows.masks import is_mapped


def on_host(x: Tensor) -> np.ndarray:
    """The values of `x`."""
    x = x.detach()
    if not is_mapped():
        return x.numpy(force=True)
    dtype = np.dtype(str(x.dtype).removeprefix("torch."))
    return np.array(x.tolist(), dtype=dtype).reshape(tuple(x.shape))


def refuse_mapped(x: Tensor, name: str) -> None:
    """Raise if `x` is one of many that `torch.func.vmap` computes at once, which have no value."""
    inner = x
    while _functorch.is_functorch_wrapped_tensor(inner):
        if _functorch.is_batchedtensor(inner):
            raise RuntimeError(
                f"{name} is mapped by `torch.func.vmap`, but a solve decides by values. Solve the "
                f"whole batch at once: every dimension before [nodes, channels] of a flow's state "
                f"is batch, as are the first `batch_dims` of `graphode.solve`."
            )
        inner = _functorch.get_unwrapped(inner)


def refuse_forward_mode(times: Tensor) -> None:
    """Raise where times carry a derivative forwards, which would be lost."""
    if forward_ad._current_level < 0 or times.requires_grad:
        return
    if forward_ad.unpack_dual(times).tangent is not None:
        raise RuntimeError(
            "A solve gives no derivatives by its times in forward mode (`torch.func.jvp`, "
            "`jacfwd`). Use `torch.func.grad`, `jacrev` or `torch.autograd.grad`."
        )


def refuse_transforms(what: str) -> None:
    """Raise where `torch.func` is at work, for what differentiates by itself."""
    if is_mapped():
        raise RuntimeError(
            f"{what} cannot be differentiated by `torch.func`. Use `torch.autograd.grad`, or an "
            f"explicit solver with gradient='backprop'."
        )
