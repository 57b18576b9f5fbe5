"""What is differentiated of a graph convolution where the GPU's kernels serve it.

    Mix         u = dropout(h) W
    Spread      y = σ(Â u + own + b)
    Convolve    y = σ((Â dropout(h)) W + b), the two in one pass

Of σ only its value is kept, from which its slope follows, and of a mask its key. Where a gradient
is itself differentiated, or mapped, plain operations compute it.
"""

import math
from typing import Any

import torch
from torch import Tensor

from graphode.flows.masks import MaskKey, hashed_positions, keyed_mask
from graphode.graphs.derivatives import Sparsity
from graphode.graphs.product import is_plain, product_of_samples
from graphode.graphs.transforms import leading

NESTED = (
    "Weights of members that have members of their own cannot be mapped at once on a GPU. Evaluate "
    "the outer ones in turn, as `graphode.Ensemble` does."
)


class Mix(torch.autograd.Function):
    """A weight `[members, in, out]` has members, which come first in `h` and `prefix` too."""

    @staticmethod
    def forward(h: Tensor, weight: Tensor, prefix: Tensor | None, word: int, rate: float):
        from graphode.fields.mixing_kernel import mix

        own, keys, nodes = _by_member(h, weight, prefix)
        out = mix(own, weight if weight.ndim == 3 else weight[None], keys, word, rate, nodes)
        return out.reshape(*h.shape[:-1], weight.shape[-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor):
        h, weight, prefix, ctx.word, ctx.rate = inputs
        ctx.save_for_backward(h, weight, prefix)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        h, weight, prefix = ctx.saved_tensors
        (grad,) = grad_outputs
        if torch.is_grad_enabled() or not is_plain(grad):
            return *_mixed_back(h, weight, prefix, ctx.word, ctx.rate, grad), None, None, None
        from graphode.fields.mixing_kernel import mix, weight_gradient

        own, keys, nodes = _by_member(h, weight, prefix)
        key = keys, ctx.word, ctx.rate, nodes
        flat = grad.reshape(*own.shape[:2], grad.shape[-1])
        grad_h, grad_weight = None, None
        if ctx.needs_input_grad[0]:
            lined = weight if weight.ndim == 3 else weight[None]
            grad_h = mix(flat, lined.mT, *key, after=True).reshape(h.shape)
        if ctx.needs_input_grad[1]:
            grad_weight = weight_gradient(own, flat, *key).reshape(weight.shape)
        return grad_h, grad_weight, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any):
        h, weight, prefix, word, rate = args
        if in_dims[1] is None and in_dims[2] is None:  # one weight, and one mask, for all
            place = weight.ndim - 2
            return Mix.apply(h.movedim(in_dims[0], place), weight, prefix, word, rate), place
        weight = leading(weight, in_dims[1], info.batch_size)
        if weight.ndim != 3 or (prefix is not None and prefix.ndim > 1):
            raise NotImplementedError(NESTED)
        h = leading(h, in_dims[0], info.batch_size)
        if prefix is not None:
            prefix = leading(prefix, in_dims[2], info.batch_size)
        return Mix.apply(h, weight, prefix, word, rate), 0


class Spread(torch.autograd.Function):
    """A bias `[members, channels]` has members, which come first in `u` and `own` too."""

    @staticmethod
    def forward(
        u: Tensor, bias: Tensor, own: Tensor | None, values: Tensor, values_t: Tensor, *rest: Any
    ):
        from graphode.graphs.batched_kernel import multiply

        *places, activation = rest
        crow, col = places[:2]
        flat = u.reshape(-1, *u.shape[-2:])
        shift = bias.reshape(-1, bias.shape[-1])
        if flat.shape[0] != shift.shape[0]:
            shift = shift.repeat_interleave(flat.shape[0] // shift.shape[0], 0)
        plus = None if own is None else own.reshape(flat.shape)
        out = multiply(values, flat, crow, col, own=plus, bias=shift, activation=activation)
        return out.reshape(*u.shape[:-2], *out.shape[-2:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor):
        _, bias, own, values, values_t, *places, ctx.activation = inputs
        ctx.has_own = own is not None
        ctx.bias_shape = bias.shape
        ctx.save_for_backward(output, values, values_t, *places)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        y, values, values_t, *parts = ctx.saved_tensors
        places = Sparsity(*parts)
        (grad,) = grad_outputs
        nothing = [None] * (3 + len(parts))
        if torch.is_grad_enabled() or not is_plain(grad):
            # `y` is an output: what depends on it is differentiated through this node again.
            before = grad * _slope(y, ctx.activation)
            grad_u = product_of_samples(values_t, values, before, places.transposed)
            grad_own = before if ctx.has_own else None
            return grad_u, _summed(before.sum(-2), ctx.bias_shape), grad_own, *nothing
        from graphode.graphs.batched_kernel import bend_back, multiply

        flat = y.reshape(-1, *y.shape[-2:])
        before, sums = bend_back(grad.reshape(flat.shape), flat, ctx.activation)
        grad_u = multiply(values_t, before, places.crow_t, places.col_t).reshape(y.shape)
        grad_own = before.reshape(y.shape) if ctx.has_own else None
        return grad_u, _summed(sums, ctx.bias_shape), grad_own, *nothing

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any):
        u, bias, own, *rest = args
        u = leading(u, in_dims[0], info.batch_size)
        own = None if own is None else leading(own, in_dims[2], info.batch_size)
        if in_dims[1] is None:  # one bias for all
            place = bias.ndim - 1
            u, own = (None if x is None else x.movedim(0, place) for x in (u, own))
            return Spread.apply(u, bias, own, *rest), place
        if bias.ndim != 2:
            raise NotImplementedError(NESTED)
        return Spread.apply(u, leading(bias, in_dims[1], info.batch_size), own, *rest), 0


class Convolve(torch.autograd.Function):
    """A weight `[members, in, out]` has members, which come first in `h` and `prefix` too.

    A bias is `[out]`, or `[members, out]`.
    """

    @staticmethod
    def forward(
        h: Tensor, weight: Tensor, bias: Tensor | None, prefix: Tensor | None, word: int,
        rate: float, activation: int, values: Tensor, values_t: Tensor, tiles: Tensor,
        tiles_t: Tensor, *places: Tensor,
    ):  # fmt: skip
        from graphode.fields.convolution_kernel import convolve
        from graphode.flows.mask_kernel import drop

        x, keys, nodes = _by_member(h, weight, prefix)
        if keys is not None:
            positions = hashed_positions(tuple(h.shape[-2:]), h.device)
            x = drop(x, keys, word, None, rate, positions)
        lined = weight if weight.ndim == 3 else weight[None]
        shift = None if bias is None else bias.expand(len(lined), bias.shape[-1])
        out = convolve(tiles, values, places[1], _states(x, nodes), lined, shift, activation)
        return out.reshape(*h.shape[:-1], out.shape[-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor):
        h, weight, bias, prefix, ctx.word, ctx.rate, ctx.activation, *rest = inputs
        values, values_t, _, tiles_t, *places = rest
        ctx.bias_shape = None if bias is None else bias.shape
        ctx.save_for_backward(h, weight, prefix, output, values, values_t, tiles_t, *places)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        h, weight, prefix, y, values, values_t, tiles_t, *parts = ctx.saved_tensors
        places = Sparsity(*parts)
        (grad,) = grad_outputs
        nothing = [None] * (8 + len(parts))
        key = ctx.word, ctx.rate
        grad_bias = None
        if torch.is_grad_enabled() or not is_plain(grad):
            # `y` is an output: what depends on it is differentiated through this node again.
            before = grad * _slope(y, ctx.activation)
            if ctx.bias_shape is not None:
                grad_bias = _summed(before.sum(-2), ctx.bias_shape)
            grad_u = product_of_samples(values_t, values, before, places.transposed)
            return *_mixed_back(h, weight, prefix, *key, grad_u), grad_bias, *nothing
        from graphode.fields.convolution_kernel import convolve_back
        from graphode.graphs.batched_kernel import bend_back

        flat = y.reshape(-1, *y.shape[-2:])
        before = grad.reshape(flat.shape)
        if ctx.activation or ctx.needs_input_grad[2]:
            before, sums = bend_back(before, flat, ctx.activation)
            if ctx.bias_shape is not None:
                grad_bias = _summed(sums, ctx.bias_shape)
        grads = None, None
        if any(ctx.needs_input_grad[:2]):
            own, keys, nodes = _by_member(h, weight, prefix)
            lined = weight if weight.ndim == 3 else weight[None]
            grads = convolve_back(
                tiles_t, values_t, places.col_t, before, _states(own, nodes), lined, keys, *key,
                wants=ctx.needs_input_grad[:2],
            )  # fmt: skip
        grad_h, grad_weight = grads
        grad_h = None if grad_h is None else grad_h.reshape(h.shape)
        grad_weight = None if grad_weight is None else grad_weight.reshape(weight.shape)
        return grad_h, grad_weight, grad_bias, *nothing

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any):
        h, weight, bias, prefix, *rest = args
        own_h, own_weight, own_bias, own_prefix = in_dims[:4]
        if own_weight is own_bias is own_prefix is None:
            place = weight.ndim - 2
            return Convolve.apply(h.movedim(own_h, place), weight, bias, prefix, *rest), place
        is_first = weight.ndim == (2 if own_weight is None else 3)
        if not is_first or own_weight is own_prefix is None:
            return Convolve._mapped_in_two(info, in_dims, *args)
        count = info.batch_size
        h, weight = leading(h, own_h, count), leading(weight, own_weight, count)
        if own_bias is not None:
            bias = bias.movedim(own_bias, 0)
        prefix = None if prefix is None else leading(prefix, own_prefix, count)
        return Convolve.apply(h, weight, bias, prefix, *rest), 0

    @staticmethod
    def _mapped_in_two(info: Any, in_dims: Any, *args: Any):
        """By the rules of both halves, where members of one are not those of the other."""
        h, weight, bias, prefix, word, rate, activation, *values, _, _ = args[:11]
        own_h, own_weight, own_bias, own_prefix = in_dims[:4]
        constants = (*values, *args[11:], activation)
        if own_h is own_weight is own_prefix is None:
            u, own_u = Mix.apply(h, weight, prefix, word, rate), None
        else:
            dims = own_h, own_weight, own_prefix, None, None
            u, own_u = Mix.vmap(info, dims, h, weight, prefix, word, rate)
        bias = weight.new_zeros(weight.shape[-1]) if bias is None else bias
        dims = (own_u, own_bias, *[None] * (1 + len(constants)))
        return Spread.vmap(info, dims, u, bias, None, *constants)


def _by_member(
    h: Tensor, weight: Tensor, prefix: Tensor | None
) -> tuple[Tensor, Tensor | None, int]:
    """The state as `[members, rows, channels]`, a key per member, and the number of nodes."""
    members = 1 if weight.ndim == 2 else weight.shape[0]
    # What is in shape may be an expanded view, which a reshape would copy.
    own = h
    if not h.ndim == weight.ndim == 3:
        own = h.reshape(members, math.prod(h.shape[:-1]) // max(1, members), h.shape[-1])
    keys = None if prefix is None else prefix.reshape(-1).expand(members).contiguous()
    return own, keys, h.shape[-2]


def _states(own: Tensor, nodes: int) -> Tensor:
    """The rows of each member as `[states, nodes, channels]`."""
    return own if own.shape[1] == nodes else own.reshape(-1, nodes, own.shape[-1])


def _mixed_back(
    h: Tensor, weight: Tensor, prefix: Tensor | None, word: int, rate: float, grad: Tensor
) -> tuple[Tensor, Tensor]:
    """∂h and ∂W of (mask ∘ h) W, by operations that can be differentiated again."""
    mask = _mask(h, prefix, word, rate, weight.ndim)
    lined = weight if weight.ndim == 2 else _lined(weight, h)
    members = h.shape[: weight.ndim - 2]
    rows = (mask * h).reshape(*members, -1, h.shape[-1])
    grad_weight = rows.mT @ grad.reshape(*members, -1, grad.shape[-1])
    return mask * (grad @ lined.mT), grad_weight


def _lined(weight: Tensor, h: Tensor) -> Tensor:
    """A member's weight lined up with all that comes before its nodes."""
    return weight.reshape(weight.shape[0], *(1,) * (h.ndim - 3), *weight.shape[1:])


def _mask(h: Tensor, prefix: Tensor | None, word: int, rate: float, weight_dims: int) -> Tensor:
    if prefix is None:
        return torch.ones((), dtype=h.dtype, device=h.device)
    key = MaskKey(prefix, word).whole
    mask = keyed_mask(key, rate, hashed_positions(tuple(h.shape[-2:]), h.device), h.dtype)
    if weight_dims == 2 or prefix.ndim == 0:
        return mask
    return mask.reshape(mask.shape[0], *(1,) * (h.ndim - 3), *mask.shape[1:])


def _slope(y: Tensor, activation: int) -> Tensor:
    """σ′ where σ is y; as in `graphs.batched_kernel`."""
    if activation == 0:
        return torch.ones_like(y)
    if activation == 1:
        return (y > 0).to(y.dtype)
    return -torch.expm1(-y) if activation == 2 else 1 - y * y


def _summed(sums: Tensor, shape: torch.Size) -> Tensor:
    """Per-sample gradients of a bias, added up over what shares it."""
    channels = shape[-1]
    return sums.reshape(*shape[:-1], -1, channels).sum(-2)
