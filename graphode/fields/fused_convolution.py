"""The two halves of a graph convolution; on a GPU each is one kernel.

    mix       u = dropout(h) W
    spread    y = σ(Â u + own + b)

A GPU reads a state of 64 channels faster than it starts the five operations that these are made
of; fused, each passes over the state once. Masks are computed in registers, and of σ only its
value is kept, from which its slope follows. Elsewhere they are what they say.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphode.fields.activation import ACTIVATIONS, Activation, find_activation
from graphode.fields.dropout import Dropout
from graphode.fields.sparse_mixing import mixed_sparsely
from graphode.flows.kernels import may_use_kernels
from graphode.flows.masks import MaskKey, hashed_positions, is_traced, keyed_mask
from graphode.graphs import DenseGraph, Graph
from graphode.graphs.derivatives import Sparsity
from graphode.graphs.full import is_full
from graphode.graphs.product import is_plain, product_of_samples

# Numbers as in `graphs.batched_kernel`.
_NUMBER: dict[Activation, int] = {
    find_activation(None): 0,
    ACTIVATIONS["relu"]: 1,
    ACTIVATIONS["softplus"]: 2,
    ACTIVATIONS["tanh"]: 3,
}
_WIDEST = 128


def convolve(
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    graph: Graph,
    activation: Activation | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """σ(Â (dropout(h) W) + b)."""
    return spread(mix(h, weight, dropout), bias, graph, find_activation(activation))


def mix(h: Tensor, weight: Tensor, dropout: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """dropout(h) W.

    Shapes:
        - **h:** `[..., nodes, in_channels]`
        - **weight:** `[in_channels, out_channels]`
    """
    if dropout is not None and not isinstance(dropout, Dropout):  # one that drops otherwise
        h, dropout = dropout(h), None
    if dropout is not None and not dropout.is_active:
        dropout = None
    if not may_use_kernels(h, weight) or max(weight.shape) > _WIDEST or h.ndim < 2:
        if dropout is None:
            return h @ weight
        mixed = mixed_sparsely(h, weight, dropout)
        return dropout(h) @ weight if mixed is None else mixed
    if dropout is None:
        return _Mix.apply(h, weight, None, 0, 0.0)  # pyright: ignore[reportReturnType]
    from graphode.flows.mask_kernel import prefix_and_word

    prefix, word = prefix_and_word(dropout.mask_key(), h.device)
    if prefix.ndim:  # samples with masks of their own
        return dropout(h) @ weight
    return _Mix.apply(h, weight, prefix, word, dropout.rate)  # pyright: ignore[reportReturnType]


def spread(
    u: Tensor,
    bias: Tensor | None,
    graph: Graph,
    activation: Activation,
    own: Tensor | None = None,
) -> Tensor:
    """σ(Â u + own + b).

    Shapes:
        - **u, own:** `[..., nodes, channels]`
        - **bias:** `[channels]`
    """
    if (
        may_use_kernels(u, bias, own)
        and activation in _NUMBER
        and bias is not None
        and graph.num_graphs == 1
        and not isinstance(graph, DenseGraph)
        and not is_full(graph)
        and u.shape[-2:-1] == (graph.num_nodes,)
        and not graph.edge_weight.requires_grad
        and graph.device == u.device
    ):
        operands = graph._operands(u.dtype)
        return _Spread.apply(u, bias, own, *operands, *graph._pattern.places, _NUMBER[activation])  # pyright: ignore[reportReturnType]
    out = graph.propagate(u)
    if own is not None:
        out = out + own
    if bias is None:
        return activation(out)
    # Nobody else holds the product. Of a view of it, autograd would make a copy for that.
    in_place = is_plain(out, bias) and not is_traced() and out.dtype == bias.dtype
    in_place = in_place and not (torch.is_grad_enabled() and out._is_view())
    return activation(out.add_(bias) if in_place else out + bias)


class _Mix(torch.autograd.Function):
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
            mask = _mask(h, prefix, ctx.word, ctx.rate, weight.ndim)
            lined = weight if weight.ndim == 2 else _lined(weight, h)
            grad_h = mask * (grad @ lined.mT)
            members = h.shape[: weight.ndim - 2]
            rows = (mask * h).reshape(*members, -1, h.shape[-1])
            grad_weight = rows.mT @ grad.reshape(*members, -1, grad.shape[-1])
            return grad_h, grad_weight, None, None, None
        from graphode.fields.mixing_kernel import mix, weight_gradient

        own, keys, nodes = _by_member(h, weight, prefix)
        key = keys, ctx.word, ctx.rate, nodes
        flat = grad.reshape(*own.shape[:2], -1)
        grad_h, grad_weight = None, None
        if ctx.needs_input_grad[0]:
            lined = weight if weight.ndim == 3 else weight[None]
            grad_h = mix(flat, lined.mT, *key, after=True).reshape(h.shape)
        if ctx.needs_input_grad[1]:
            grad_weight = weight_gradient(own, flat, *key).reshape(weight.shape)
        return grad_h, grad_weight, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any):  # pyright: ignore[reportIncompatibleMethodOverride]
        h, weight, prefix, word, rate = args
        if in_dims[1] is None and in_dims[2] is None:  # one weight, and one mask, for all
            place = weight.ndim - 2
            return _Mix.apply(h.movedim(in_dims[0], place), weight, prefix, word, rate), place
        weight = _leading(weight, in_dims[1], info.batch_size)
        if weight.ndim != 3 or (prefix is not None and prefix.ndim > 1):
            raise NotImplementedError("Members of members are evaluated one by one.")
        h = _leading(h, in_dims[0], info.batch_size)
        if prefix is not None:
            prefix = _leading(prefix, in_dims[2], info.batch_size)
        return _Mix.apply(h, weight, prefix, word, rate), 0


class _Spread(torch.autograd.Function):
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
    def vmap(info: Any, in_dims: Any, *args: Any):  # pyright: ignore[reportIncompatibleMethodOverride]
        u, bias, own, *rest = args
        u = _leading(u, in_dims[0], info.batch_size)
        own = None if own is None else _leading(own, in_dims[2], info.batch_size)
        if in_dims[1] is None:  # one bias for all
            place = bias.ndim - 1
            u, own = (None if x is None else x.movedim(0, place) for x in (u, own))
            return _Spread.apply(u, bias, own, *rest), place
        if bias.ndim != 2:
            raise NotImplementedError("Members of members are evaluated one by one.")
        return _Spread.apply(u, _leading(bias, in_dims[1], info.batch_size), own, *rest), 0


def _leading(x: Tensor, dim: int | None, count: int) -> Tensor:
    return x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)


def _by_member(
    h: Tensor, weight: Tensor, prefix: Tensor | None
) -> tuple[Tensor, Tensor | None, int]:
    """The state as `[members, rows, channels]`, a key per member, and the number of nodes."""
    members = 1 if weight.ndim == 2 else weight.shape[0]
    # What is in shape may be an expanded view, which a reshape would copy.
    own = h if h.ndim == weight.ndim == 3 else h.reshape(members, -1, h.shape[-1])
    keys = None if prefix is None else prefix.reshape(-1).expand(members).contiguous()
    return own, keys, h.shape[-2]


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
    return 1 - torch.exp(-y) if activation == 2 else 1 - y * y


def _summed(sums: Tensor, shape: torch.Size) -> Tensor:
    """Per-sample gradients of a bias, added up over what shares it."""
    channels = shape[-1]
    return sums.reshape(*shape[:-1], -1, channels).sum(-2)
