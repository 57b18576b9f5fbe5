"""The sparse products under `torch.func`: `vmap`, `jvp`, `jacrev` and their like.

A mapped state joins the columns, so that `vmap` still costs one sparse product; mapped weights
make a block-diagonal matrix.
"""

from typing import Any

import torch
from torch import Tensor

from graphode.graphs.derivatives import Sparsity, product_gradients, sampled_gradients
from graphode.graphs.kernels import multiply, sample


def sparse_product(values: Tensor, values_t: Tensor | None, h: Tensor, places: Sparsity) -> Tensor:
    """A h; see `derivatives.Product`."""
    return _Product.apply(values, values_t, h, *places)  # pyright: ignore[reportReturnType]


def sampled_product(a: Tensor, b: Tensor, places: Sparsity) -> Tensor:
    """⟨a[i], b[j]⟩ at every stored entry."""
    return _Sampled.apply(a, b, *places)  # pyright: ignore[reportReturnType]


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
        tangent = (
            torch.zeros_like(h) if dh is None else sparse_product(values, values_t, dh, places)
        )
        return tangent if dvalues is None else tangent + sparse_product(dvalues, None, h, places)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any):  # pyright: ignore[reportIncompatibleMethodOverride]
        values, values_t, h, *rest = args
        count, places = info.batch_size, Sparsity(*rest)
        if in_dims[0] is None:
            columns = h.movedim(in_dims[2], 2)
            product = sparse_product(values, values_t, columns.flatten(1), places)
            return product.reshape(columns.shape), 2
        values = _leading(values, in_dims[0], count).flatten()
        values_t = None if values_t is None else _leading(values_t, in_dims[1], count).flatten()
        h = _leading(h, in_dims[2], count)
        product = sparse_product(values, values_t, h.flatten(0, 1), _repeated(places, count))
        return product.reshape(h.shape), 0


class _Sampled(torch.autograd.Function):
    @staticmethod
    def forward(a: Tensor, b: Tensor, *places: Tensor):
        return sample(a, b, *places[:2])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        a, b, *places = ctx.saved_tensors
        grad_a, grad_b = sampled_gradients(
            sparse_product, ctx.needs_input_grad, a, b, Sparsity(*places), grad_outputs[0]
        )
        return grad_a, grad_b, *[None] * len(places)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Tensor | None):
        a, b, *rest = ctx.saved_tensors
        da, db, *_ = grad_inputs
        places = Sparsity(*rest)
        tangent = torch.zeros_like(places.col, dtype=a.dtype)
        tangent = tangent if da is None else sampled_product(da, b, places)
        return tangent if db is None else tangent + sampled_product(a, db, places)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any):  # pyright: ignore[reportIncompatibleMethodOverride]
        a, b, *rest = args
        places = _repeated(Sparsity(*rest), info.batch_size)
        a, b = (_leading(x, d, info.batch_size) for x, d in zip((a, b), in_dims[:2], strict=True))
        sampled = sampled_product(a.flatten(0, 1), b.flatten(0, 1), places)
        return sampled.reshape(info.batch_size, -1), 0


def _leading(x: Tensor, dim: int | None, count: int) -> Tensor:
    return x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)


def _repeated(places: Sparsity, count: int) -> Sparsity:
    """The block-diagonal pattern of `count` copies."""
    nodes, entries = places.crow.numel() - 1, places.col.numel()
    block = torch.arange(count, device=places.col.device)[:, None]

    def rows(crow: Tensor) -> Tensor:
        last = crow.new_full((1,), count * entries, dtype=torch.int64)
        return torch.cat([(crow[:-1] + block * entries).flatten(), last])

    def shifted(index: Tensor, by: int) -> Tensor:
        return (index + block * by).flatten()

    return Sparsity(
        rows(places.crow),
        shifted(places.col, nodes),
        rows(places.crow_t),
        shifted(places.col_t, nodes),
        shifted(places.order, entries),
        shifted(places.inverse, entries),
    )
