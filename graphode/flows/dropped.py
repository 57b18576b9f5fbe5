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
from graphode.flows.masks import MaskKey, is_mapped, signed


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
    return _applied(h, *_taken(key, h.device), rate, positions)


def drawn(key: MaskKey, rate: float, positions: Tensor) -> Tensor:
    """The mask of a key, `[*keys, *positions]`; arguments as for `dropped`."""
    return _kernel().draw(*_taken(key, positions.device), rate, positions)


def _taken(key: MaskKey, device: torch.device) -> tuple[Tensor | None, int, int | None]:
    """Prefix, word and start of a key as the kernel takes them."""
    prefix, word, start = key
    if start is not None and isinstance(prefix, Tensor) and isinstance(word, int):
        return prefix, signed(word), signed(start)
    if isinstance(prefix, Tensor) or isinstance(word, Tensor):
        return *_kernel().prefix_and_word(key, device), None
    whole = key.whole
    assert isinstance(whole, int)
    return None, signed(whole), None


def _applied(h: Tensor, *mask: Any) -> Tensor:
    wants_gradient = h.requires_grad and torch.is_grad_enabled()
    if wants_gradient or is_mapped() or forward_ad._current_level >= 0:
        return applied(_Dropped, h, *mask)
    return _Dropped.forward(h, *mask)


class _Dropped(torch.autograd.Function):
    """Linear in `h`, and its own transpose. Keys that are mapped are keys that come first."""

    @staticmethod
    def forward(
        h: Tensor,
        prefix: Tensor | None,
        word: int,
        start: int | None,
        rate: float,
        positions: Tensor,
    ):
        drop = _kernel().drop
        if prefix is None:
            return drop(h, None, word, None, rate, positions)
        keys = prefix.ndim
        h = _with_keys(h, keys + positions.ndim)
        if h.shape[:keys] != prefix.shape:  # what members share
            shape = torch.broadcast_shapes(h.shape[:keys], prefix.shape)
            h, prefix = h.expand(*shape, *h.shape[keys:]), prefix.expand(shape)
        if keys < 2:
            return drop(h, prefix, word, start, rate, positions)
        out = drop(h.flatten(0, keys - 1), prefix.flatten(), word, start, rate, positions)
        return out.reshape(h.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor):
        h, prefix, ctx.word, ctx.start, ctx.rate, positions = inputs
        ctx.shape = h.shape
        ctx.save_for_backward(prefix, positions)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        prefix, positions = ctx.saved_tensors
        grad = _applied(grad_outputs[0], prefix, ctx.word, ctx.start, ctx.rate, positions)
        if grad.shape != ctx.shape:
            grad = grad.sum_to_size(ctx.shape)
        return grad, None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any):
        del info
        h, prefix, word, start, rate, positions = args
        h_dim, prefix_dim = in_dims[:2]
        h = h[None] if h_dim is None else h.movedim(h_dim, 0)
        if prefix is not None:
            prefix = prefix[None] if prefix_dim is None else prefix.movedim(prefix_dim, 0)
            h = _with_keys(h, prefix.ndim + positions.ndim, at=1)
        return _applied(h, prefix, word, start, rate, positions), 0


def _with_keys(h: Tensor, width: int, at: int = 0) -> Tensor:
    """`h` with the dimensions that it lacks put in at a place, each of length one."""
    missing = width - h.ndim
    return h if missing <= 0 else h.reshape(*h.shape[:at], *(1,) * missing, *h.shape[at:])
