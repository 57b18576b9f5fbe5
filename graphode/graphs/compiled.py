"""The sparse products as operators that `torch.compile` and `torch.export` do not look into."""

from typing import Any

import torch
from torch import Tensor

from graphode.graphs.derivatives import Sparsity, product_gradients, sampled_gradients
from graphode.graphs.kernels import multiply, sample


def sparse_product(values: Tensor, values_t: Tensor | None, h: Tensor, places: Sparsity) -> Tensor:
    """A h; see `derivatives.Product`."""
    return _product(values, values_t, h, *places)


def sampled_product(a: Tensor, b: Tensor, places: Sparsity, heads: int | None = None) -> Tensor:
    """⟨a[i], b[j]⟩ at every stored entry."""
    return _sampled(a, b, *places, heads)


@torch.library.custom_op("graphode::sparse_product", mutates_args=())
def _product(
    values: Tensor,
    values_t: Tensor | None,
    h: Tensor,
    crow: Tensor,
    col: Tensor,
    crow_t: Tensor,
    col_t: Tensor,
    order: Tensor,
    inverse: Tensor,
) -> Tensor:
    return multiply(values, h, crow, col)


@torch.library.custom_op("graphode::sampled_product", mutates_args=())
def _sampled(
    a: Tensor,
    b: Tensor,
    crow: Tensor,
    col: Tensor,
    crow_t: Tensor,
    col_t: Tensor,
    order: Tensor,
    inverse: Tensor,
    heads: int | None = None,
) -> Tensor:
    return sample(a, b, crow, col, heads)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _save_sampled(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:-1])


def _product_backward(ctx: Any, grad: Tensor):
    values, values_t, h, *places = ctx.saved_tensors
    grad_values, grad_h = product_gradients(
        sparse_product,
        sampled_product,
        ctx.needs_input_grad,
        values,
        values_t,
        h,
        Sparsity(*places),
        grad,
    )
    return grad_values, None, grad_h, *[None] * len(places)


def _sampled_backward(ctx: Any, grad: Tensor):
    a, b, *places = ctx.saved_tensors
    grad_a, grad_b = sampled_gradients(
        sparse_product, ctx.needs_input_grad, a, b, Sparsity(*places), grad
    )
    return grad_a, grad_b, *[None] * len(places), None


@_product.register_fake
def _(values: Tensor, values_t: Tensor | None, h: Tensor, crow: Tensor, *rest: Tensor):
    return h.new_empty((*h.shape[:-2], crow.shape[0] - 1, h.shape[-1]))


_product.register_autograd(_product_backward, setup_context=_save)


@_sampled.register_fake
def _(a: Tensor, b: Tensor, crow: Tensor, col: Tensor, *rest: Any, heads: int | None = None):
    heads = rest[4] if len(rest) > 4 else heads
    return a.new_empty(col.shape if heads is None else (*col.shape, heads))


_sampled.register_autograd(_sampled_backward, setup_context=_save_sampled)
