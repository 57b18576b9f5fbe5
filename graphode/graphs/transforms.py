"""The sparse products under `torch.func`: `vmap`, `jvp`, `jacrev` and their like.

Mapped states join the samples or the columns, whichever is cheaper (`kernels.joins_columns`);
mapped weights make a block-diagonal matrix.
"""

from typing import Any

import torch
from torch import Tensor

from graphode.graphs.derivatives import Sparsity, product_gradients, sampled_gradients
from graphode.graphs.kernels import joins_columns, multiply, sample


def sparse_product(values: Tensor, values_t: Tensor | None, h: Tensor, places: Sparsity) -> Tensor:
    """A h; see `derivatives.Product`."""
    return _Product.apply(values, values_t, h, *places)


def sampled_product(a: Tensor, b: Tensor, places: Sparsity, heads: int | None = None) -> Tensor:
    """⟨a[i], b[j]⟩ at every stored entry."""
    return _Sampled.apply(a, b, heads, *places)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(values: Tensor, values_t: Tensor | None, h: Tensor, *places: Tensor):
        return multiply(values, h, *places[:2])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        values, values_t, h, *places = ctx.saved_tensors
        grad_values, grad_h = product_gradients(
            sparse_product,
            sampled_product,
            ctx.needs_input_grad,
            values,
            values_t,
            h,
            Sparsity(*places),
            grad_outputs[0],
        )
        return grad_values, None, grad_h, *[None] * len(places)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Tensor | None):
        values, values_t, h, *rest = ctx.saved_tensors
        dvalues, _, dh, *_ = grad_inputs
        places = Sparsity(*rest)
        tangents = [] if dh is None else [sparse_product(values, values_t, dh, places)]
        tangents += [] if dvalues is None else [sparse_product(dvalues, None, h, places)]
        return sum(tangents)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any):
        values, values_t, h, *rest = args
        count, places = info.batch_size, Sparsity(*rest)
        num_rows = places.crow.numel() - 1
        if in_dims[0] is None:
            h = h.movedim(in_dims[2], 0)
            if values.dim() == 1 and (h.dim() == 4 or not joins_columns(values, h)):
                product = sparse_product(values, values_t, h.flatten(0, -3), places)
                return product.reshape(*h.shape[:-2], num_rows, h.shape[-1]), 0
            columns = h.movedim(0, -1)
            product = sparse_product(values, values_t, columns.flatten(1), places)
            return product.reshape(num_rows, *columns.shape[1:]), 2
        values, h = leading(values, in_dims[0], count), leading(h, in_dims[2], count)
        samples = h.shape[1] if h.dim() == 4 and values.dim() == 2 else None
        if samples is not None:  # of every member; they join the columns
            h = h.movedim(1, 2).flatten(2)
        if values_t is not None:
            values_t = leading(values_t, in_dims[1], count).flatten(0, 1)
        blocks = places.repeated(count)
        product = sparse_product(values.flatten(0, 1), values_t, h.flatten(0, 1), blocks)
        product = product.reshape(count, num_rows, *h.shape[2:])
        return (
            product if samples is None else product.unflatten(2, (samples, -1)).movedim(2, 1)
        ), 0


class _Sampled(torch.autograd.Function):
    @staticmethod
    def forward(a: Tensor, b: Tensor, heads: int | None, *places: Tensor):
        return sample(a, b, *places[:2], heads)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor):
        a, b, ctx.heads, *places = inputs
        ctx.save_for_backward(a, b, *places)
        ctx.save_for_forward(a, b, *places)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        a, b, *places = ctx.saved_tensors
        grad_a, grad_b = sampled_gradients(
            sparse_product, ctx.needs_input_grad, a, b, Sparsity(*places), grad_outputs[0]
        )
        return grad_a, grad_b, None, *[None] * len(places)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Tensor | None):
        a, b, *rest = ctx.saved_tensors
        da, db, *_ = grad_inputs
        places, heads = Sparsity(*rest), ctx.heads
        tangents = [] if da is None else [sampled_product(da, b, places, heads)]
        tangents += [] if db is None else [sampled_product(a, db, places, heads)]
        return sum(tangents)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any):
        a, b, heads, *rest = args
        count, places = info.batch_size, Sparsity(*rest)
        a, b = (leading(x, d, count) for x, d in zip((a, b), in_dims[:2], strict=True))
        if a.dim() == 4:  # samples of every member; they join the columns
            a, b = (x.movedim(1, 2).flatten(2) for x in (a, b))
        both = a.flatten(0, 1), b.flatten(0, 1)
        sampled = sampled_product(*both, places.repeated(count), heads)
        return sampled.unflatten(0, (count, len(places.col))), 0


def leading(x: Tensor, dim: int | None, count: int) -> Tensor:
    """What is mapped along `dim`, or what all `count` share, with that dimension first."""
    return x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)
