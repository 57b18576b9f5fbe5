"""A state without what its mask drops, by the GPU's kernel, with gradients.

    y = mask ∘ h / (1 − rate),    ∂h = mask ∘ ∂y / (1 − rate)

One launch forward and one backward: nothing is kept of a mask but its key.
"""

import functools
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from graphode.flows.function import applied
from graphode.flows.masks import MaskKey, is_mapped, mix, signed


@functools.cache
def _kernel() -> ModuleType:
    """Where Triton is needed; an import at every call would take as long as a launch."""
    from graphode.flows import mask_kernel

    return mask_kernel


def dropped(h: Tensor, key: MaskKey, rate: float, positions: Tensor) -> Tensor:
    """`h` times the mask of a key.

    Args:
        h: `[*keys, ..., *positions]`; dimensions for keys that it lacks are those that come first,
            and it is expanded to have them.
        key: Of one mask, or of several, `[*keys]`.
        rate: Probability to drop.
        positions: Hashed positions; see `masks.hashed_positions`.
    """
    prefix, word = key
    if isinstance(prefix, Tensor) or isinstance(word, Tensor):
        prefix, word = _kernel().prefix_and_word(key, h.device)
        return _applied(h, prefix, word, rate, positions)
    whole = mix((prefix, word), start=None)
    assert isinstance(whole, int)
    return _applied(h, None, signed(whole), rate, positions)


def _applied(h: Tensor, *mask: Any) -> Tensor:
    wants_gradient = h.requires_grad and torch.is_grad_enabled()
    if wants_gradient or is_mapped() or forward_ad._current_level >= 0:
        return applied(_Dropped, h, *mask)
    return _Dropped.forward(h, *mask)


class _Dropped(torch.autograd.Function):
    """Linear in `h`, and its own transpose. Keys that are mapped are keys that come first."""

    @staticmethod
    def forward(h: Tensor, prefix: Tensor | None, word: int, rate: float, positions: Tensor):
        drop = _kernel().drop
        if prefix is None:
            return drop(h, None, word, rate, positions)
        keys = prefix.ndim
        h = _with_keys(h, keys + positions.ndim)
        if h.shape[:keys] != prefix.shape:  # what members share
            shape = torch.broadcast_shapes(h.shape[:keys], prefix.shape)
            h, prefix = h.expand(*shape, *h.shape[keys:]), prefix.expand(shape)
        if keys < 2:
            return drop(h, prefix, word, rate, positions)
        out = drop(h.flatten(0, keys - 1), prefix.flatten(), word, rate, positions)
        return out.reshape(h.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor):
        h, prefix, ctx.word, ctx.rate, positions = inputs
        ctx.shape = h.shape
        ctx.save_for_backward(prefix, positions)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        prefix, positions = ctx.saved_tensors
        grad = _applied(grad_outputs[0], prefix, ctx.word, ctx.rate, positions)
        if grad.shape != ctx.shape:
            grad = grad.sum_to_size(ctx.shape)
        return grad, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any):  # pyright: ignore[reportIncompatibleMethodOverride]
        del info
        h, prefix, word, rate, positions = args
        h_dim, prefix_dim = in_dims[:2]
        h = h[None] if h_dim is None else h.movedim(h_dim, 0)
        if prefix is not None:
            prefix = prefix[None] if prefix_dim is None else prefix.movedim(prefix_dim, 0)
            h = _with_keys(h, prefix.ndim + positions.ndim, at=1)
        return _applied(h, prefix, word, rate, positions), 0


def _with_keys(h: Tensor, width: int, at: int = 0) -> Tensor:
    """`h` with the dimensions that it lacks put in at a place, each of length one."""
    missing = width - h.ndim
    return h if missing <= 0 else h.reshape(*h.shape[:at], *(1,) * missing, *h.shape[at:])
