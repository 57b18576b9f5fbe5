"""Sparse features times a dense weight, as one sparse product.

    y = X W,    ∂W = Xᵀ ∂y

X is rectangular and constant. Weights or values of many members join: weights as columns of one
product, values as blocks of one block-diagonal matrix.
"""

import math
from typing import Any

import torch
from torch import Tensor

from graphode.flows.kernels import may_use_kernels
from graphode.graphs import kernels
from graphode.graphs.derivatives import Sparsity
from graphode.graphs.product import is_plain, sparse_product


def feature_product(values: Tensor, weight: Tensor, places: Sparsity) -> Tensor:
    """X W for every member.

    Shapes:
        - **values:** `[*members, entries]`, in the order of the rows of X.
        - **weight:** `[*members, features, channels]`
        - **output:** `[*members, nodes, channels]`; members of either broadcast.
    """
    if may_use_kernels(weight):
        return _Members.apply(values, weight, *places)
    *lead, features, channels = weight.shape
    rows = places.crow.numel() - 1
    if values.ndim == 1:
        columns = weight.movedim(-2, 0).reshape(features, math.prod(lead) * channels)
        product = _multiplied(values, columns, places)
        return product.reshape(rows, *lead, channels).movedim(0, -2)
    members = torch.broadcast_shapes(values.shape[:-1], weight.shape[:-2])
    blocks = places.repeated(math.prod(members))
    values = values.expand(*members, -1).reshape(-1)
    weight = weight.expand(*members, -1, -1).reshape(-1, channels)
    return _multiplied(values, weight, blocks).reshape(*members, rows, channels)


def _multiplied(values: Tensor, weight: Tensor, places: Sparsity) -> Tensor:
    if torch.compiler.is_compiling() or is_plain(weight):
        return sparse_product(values, None, weight, places)
    return _Product.apply(values, weight, *places)


class _Members(torch.autograd.Function):
    """All members by the GPU's kernel, which needs neither columns nor blocks."""

    @staticmethod
    def forward(values: Tensor, weight: Tensor, *places: Tensor):
        crow, col, *_ = places
        return _by_kernel(values, weight, crow, col, None)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor):
        values, weight, *places = inputs
        ctx.shape = weight.shape
        ctx.save_for_backward(values, *places)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        values, *rest = ctx.saved_tensors
        places = Sparsity(*rest)
        if torch.is_grad_enabled():
            # Linear in the weight: the gradient's own gradient is the product with Xᵀ.
            values_t = values.index_select(-1, places.order)
            grad = _Members.apply(values_t, grad_outputs[0], *places.transposed)
            assert isinstance(grad, Tensor)
        else:
            grad = _by_kernel(values, grad_outputs[0], places.crow_t, places.col_t, places.order)
        return None, grad.sum_to_size(ctx.shape), *[None] * len(places)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any):
        values, weight = (
            x if dim is None else x.movedim(dim, 0)
            for x, dim in zip(args[:2], in_dims[:2], strict=True)
        )
        return _Members.apply(values, weight, *args[2:]), 0


def _by_kernel(
    values: Tensor, weight: Tensor, crow: Tensor, col: Tensor, order: Tensor | None
) -> Tensor:
    from graphode.graphs.batched_kernel import multiply

    members = torch.broadcast_shapes(values.shape[:-1], weight.shape[:-2])
    if values.ndim > 1:
        values = values.expand(*members, -1).reshape(-1, values.shape[-1])
    shape = weight.shape[-2:]
    # A weight that all members share stays one: an expanded view is not copied.
    if weight.ndim == 2:
        flat = weight.expand(math.prod(members), *shape)
    else:
        flat = weight.expand(*members, *shape).reshape(-1, *shape)
    out = multiply(values, flat, crow, col, order=order)
    return out.reshape(*members, *out.shape[-2:])


class _Product(torch.autograd.Function):
    """The product where `torch.func` is at work; mapped weights are columns, however large."""

    @staticmethod
    def forward(values: Tensor, weight: Tensor, *places: Tensor):
        return kernels.multiply(values, weight, *places[:2])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor):
        values, _, *places = inputs
        ctx.save_for_backward(values, *places)
        ctx.save_for_forward(values, *places)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        values, *rest = ctx.saved_tensors
        places = Sparsity(*rest)
        values_t = values.index_select(0, places.order)
        grad = _multiplied(values_t, grad_outputs[0], places.transposed)
        return None, grad, *[None] * len(places)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Tensor | None):
        values, *places = ctx.saved_tensors
        assert grad_inputs[1] is not None
        return _multiplied(values, grad_inputs[1], Sparsity(*places))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any):
        values, weight = (
            x if dim is None else x.movedim(dim, 0)
            for x, dim in zip(args[:2], in_dims[:2], strict=True)
        )
        return feature_product(values, weight, Sparsity(*args[2:])), 0
