"""The differentiable sparse products, by the cheapest way that the caller's mode allows.

Eager code goes through `autograd.Function`s of the old form, whose overhead is the least: those
with a `setup_context` cost 20 µs more a call (measured, torch 2.13). Compiled code goes through
operators that the tracer does not look into, `torch.func` and forward-mode code through functions
that know how to be transformed.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import forward_ad

from graphode.graphs import compiled, transforms
from graphode.graphs.derivatives import Sparsity, product_gradients, sampled_gradients
from graphode.graphs.kernels import joins_columns, multiply, sample


def sparse_product(values: Tensor, values_t: Tensor | None, h: Tensor, places: Sparsity) -> Tensor:
    """A h, with gradients to `values` and `h`; see `derivatives.Product`."""
    if torch.compiler.is_compiling() or _is_batched(h) or _is_batched(values):
        return compiled.sparse_product(values, values_t, h, places)
    if _is_transformed():
        return transforms.sparse_product(values, values_t, h, places)
    if torch.is_grad_enabled() and (h.requires_grad or values.requires_grad):
        return _Product.apply(values, values_t, h, places)
    return multiply(values, h, places.crow, places.col)


def product_of_samples(
    values: Tensor, values_t: Tensor | None, h: Tensor, places: Sparsity
) -> Tensor:
    """A h for states `[*samples, nodes, channels]`, as columns of one product or as they are."""
    *lead, nodes, channels = h.shape
    if not lead:
        return sparse_product(values, values_t, h, places)
    if math.prod(lead) == 1:
        return sparse_product(values, values_t, h.reshape(nodes, channels), places).reshape(h.shape)
    if not joins_columns(values, h):
        product = sparse_product(values, values_t, h.reshape(-1, nodes, channels), places)
        return product.reshape(h.shape)
    columns = h.movedim(-2, 0).reshape(nodes, math.prod(lead) * channels)
    product = sparse_product(values, values_t, columns, places)
    return product.reshape(nodes, *lead, channels).movedim(0, -2)


def sampled_product(a: Tensor, b: Tensor, places: Sparsity, heads: int | None = None) -> Tensor:
    """⟨a[i], b[j]⟩ at every stored entry, with gradients to `a` and `b`; see `Sampled`."""
    if torch.compiler.is_compiling() or _is_batched(a) or _is_batched(b):
        return compiled.sampled_product(a, b, places, heads)
    if _is_transformed():
        return transforms.sampled_product(a, b, places, heads)
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        return _Sampled.apply(a, b, places, heads)
    return sample(a, b, places.crow, places.col, heads)


def is_plain(*tensors: Tensor) -> bool:
    """Whether nothing traces, maps or pushes forward, so that kernels may read the tensors."""
    watched = torch.compiler.is_compiling() or _is_transformed()
    return not watched and not any(_is_batched(tensor) for tensor in tensors)


def _is_transformed() -> bool:
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _is_batched(h: Tensor) -> bool:
    """Whether `torch.autograd.grad(is_grads_batched=True)` runs, which loops over operators."""
    return is_legacy_batchedtensor(h)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, values_t: Tensor | None, h: Tensor, places: Sparsity):
        ctx.save_for_backward(values, values_t, h if ctx.needs_input_grad[0] else None)
        ctx.places = places
        return multiply(values, h, places.crow, places.col)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        values, values_t, h = ctx.saved_tensors
        grad_values, grad_h = product_gradients(
            sparse_product,
            sampled_product,
            ctx.needs_input_grad,
            values,
            values_t,
            h,
            ctx.places,
            grad_outputs[0],
        )
        return grad_values, None, grad_h, None


class _Sampled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, places: Sparsity, heads: int | None):
        ctx.save_for_backward(a, b)
        ctx.places = places
        return sample(a, b, places.crow, places.col, heads)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        a, b = ctx.saved_tensors
        grad_a, grad_b = sampled_gradients(
            sparse_product, ctx.needs_input_grad, a, b, ctx.places, grad_outputs[0]
        )
        return grad_a, grad_b, None, None
