"""A graph convolution and its two halves; on a GPU each is one kernel.

    convolve  y = σ(Â (dropout(h) W) + b)
    mix       u = dropout(h) W
    spread    y = σ(Â u + own + b)

A GPU reads a state of 64 channels faster than it starts the five operations that these are made
of; fused, each passes over the state once. Where channels do not become fewer, neighbours come
first, Â (x W) = (Â x) W, and `convolve` is one kernel. Elsewhere they are what they say.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor

from graphode.fields.activation import ACTIVATIONS, Activation, find_activation
from graphode.fields.convolution_functions import Convolve, Mix, Spread
from graphode.fields.dropout import Dropout
from graphode.fields.sparse_mixing import mixed_sparsely
from graphode.flows.kernels import may_use_kernels
from graphode.flows.masks import is_traced
from graphode.graphs import DenseGraph, Graph
from graphode.graphs.full import is_full
from graphode.graphs.product import is_plain

# Numbers as in `graphs.batched_kernel`.
_NUMBER: dict[Activation, int] = {
    find_activation(None): 0,
    ACTIVATIONS["relu"]: 1,
    ACTIVATIONS["softplus"]: 2,
    ACTIVATIONS["tanh"]: 3,
}
_WIDEST = 128
# Channels for which one kernel is faster than two: twice as many leave too few registers, and with
# half as many its tiles, never narrower, are half empty.
_NARROWEST_IN_ONE, _WIDEST_IN_ONE = 33, 64
# Nodes below which a graph's rows are not put into tiles: a small graph may be a new one at every
# step, and its states are read in less time than kernels are launched.
FEW_NODES = 1024


def convolve(
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    graph: Graph,
    activation: Activation | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """σ(Â (dropout(h) W) + b)."""
    activation = find_activation(activation)
    has_kernel = _has_one_kernel(h, weight, bias, graph, activation)
    tiles = graph._pattern.tiles if has_kernel else None
    if tiles is None:
        return spread(mix(h, weight, dropout), bias, graph, activation)
    h, prefix, word, rate = _masked(h, dropout)
    return Convolve.apply(
        h, weight, bias, prefix, word, rate, _NUMBER[activation],
        *graph._operands(h.dtype), *tiles, *graph._pattern.places,
    )  # fmt: skip


def mix(h: Tensor, weight: Tensor, dropout: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """dropout(h) W.

    Shapes:
        - **h:** `[..., nodes, in_channels]`
        - **weight:** `[in_channels, out_channels]`
    """
    if not may_use_kernels(h, weight) or max(weight.shape) > _WIDEST or h.ndim < 2:
        if dropout is None:
            return _mixed_where_it_lies(h, weight)
        mixed = None
        if isinstance(dropout, Dropout) and dropout.is_active:
            mixed = mixed_sparsely(h, weight, dropout)
        return _mixed_where_it_lies(dropout(h), weight) if mixed is None else mixed
    h, *mask = _masked(h, dropout)
    return Mix.apply(h, weight, *mask)


def _mixed_where_it_lies(h: Tensor, weight: Tensor) -> Tensor:
    """h W. Where nodes come first in memory, as a sparse product of samples leaves them, they stay.

    A matrix product would bring samples first, and the next sparse product nodes again.
    """
    if weight.ndim == 2 < h.ndim and not torch.compiler.is_compiling() and not h.is_contiguous():
        by_node = h.movedim(-2, 0)
        if by_node.is_contiguous():
            return (by_node @ weight).movedim(0, -2)
    return h @ weight


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
    if bias is not None and _has_kernel(graph, activation, u, bias, own):
        operands = graph._operands(u.dtype)
        return Spread.apply(u, bias, own, *operands, *graph._pattern.places, _NUMBER[activation])
    out = graph.propagate(u)
    if own is not None:
        out = out + own
    if bias is None:
        return activation(out)
    # Nobody else holds the product. Of a view of it, autograd would make a copy for that.
    in_place = is_plain(out, bias) and not is_traced() and out.dtype == bias.dtype
    in_place = in_place and not (torch.is_grad_enabled() and out._is_view())
    return activation(out.add_(bias) if in_place else out + bias)


def _has_kernel(graph: Graph, activation: Activation, u: Tensor, *others: Tensor | None) -> bool:
    """Whether a kernel multiplies a state by this graph's matrix."""
    return (
        may_use_kernels(u, *others)
        and activation in _NUMBER
        and graph.num_graphs == 1
        and not isinstance(graph, DenseGraph)
        and not is_full(graph)
        and u.shape[-2:-1] == (graph.num_nodes,)
        and graph._is_constant
        and not is_batchedtensor(graph.edge_weight)  # of members: learned, for all that is known
        and graph.device == u.device
    )


def _has_one_kernel(
    h: Tensor, weight: Tensor, bias: Tensor | None, graph: Graph, activation: Activation
) -> bool:
    """Whether one kernel may do it all, and gathers no more than that of `spread` would."""
    return (
        FEW_NODES <= graph.num_nodes < 2**31 // _WIDEST_IN_ONE
        and h.shape[-1:] == weight.shape[:1]
        and _NARROWEST_IN_ONE <= weight.shape[0] <= weight.shape[1] <= _WIDEST_IN_ONE
        and _has_kernel(graph, activation, h, weight, bias)
    )


def _masked(
    h: Tensor, dropout: Callable[[Tensor], Tensor] | None
) -> tuple[Tensor, Tensor | None, int, float]:
    """A state and the mask that a kernel is to drop it by: its key's prefix and word, its rate."""
    if dropout is None:
        return h, None, 0, 0.0
    if not isinstance(dropout, Dropout):  # one that drops otherwise
        return dropout(h), None, 0, 0.0
    if not dropout.is_active:
        return h, None, 0, 0.0
    from graphode.flows.mask_kernel import prefix_and_word

    prefix, word = prefix_and_word(dropout.mask_key(), h.device)
    if prefix.ndim:  # samples with masks of their own
        return dropout(h), None, 0, 0.0
    return h, prefix, word, dropout.rate
