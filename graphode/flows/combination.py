"""y + s Σ_j w_j k_j: what every explicit step is made of; on a GPU one pass over memory."""

from typing import Any

import torch
from torch import Tensor

from graphode.flows.kernels import may_use_kernels


def may_combine(y: Tensor, terms: list[Tensor], scale: Tensor | None) -> bool:
    """Whether the GPU's kernel serves this sum."""
    return (
        y.is_cuda
        and may_use_kernels(y, *terms)
        and not torch._C._are_functorch_transforms_active()
        and 0 < len(terms) <= 7
        and y.numel() > 0
        and (scale is None or (_is_per_sample(scale, y) and not scale.requires_grad))
        and all(tensor.is_contiguous() and tensor.shape == y.shape for tensor in (y, *terms))
    )


def _is_per_sample(scale: Tensor, y: Tensor) -> bool:
    """Whether the scale has one value for each index of some first dimensions, and no more."""
    samples = scale.numel()
    return any(y.shape[:dims].numel() == samples for dims in range(y.ndim + 1)) and (
        scale.ndim == 0 or scale.numel() == scale.shape[: scale.ndim - 1].numel()
    )


def combined(
    y: Tensor, weights: list[float], terms: list[Tensor], scale: Tensor | None
) -> tuple[Tensor, ...]:
    """The sum, then `y` and the terms themselves, handed on to the sum that needs them next.

        z, y⁺, k⁺ = y + s Σ_j w_j k_j, y, k        ∂y = ∂y⁺ + ∂z,  ∂k_j = ∂k_j⁺ + s w_j ∂z

    Sums that take what the one before hands on form a chain, along which the gradients of what
    they share are added up in the pass that writes them. `scale` has one value per sample.
    """
    from graphode.flows.combination_kernel import combine

    flat = None if scale is None else scale.to(y.dtype).reshape(-1).contiguous()
    if not torch.is_grad_enabled():
        return combine(y, weights, terms, flat), y, *terms
    return _Combination.apply(y, weights, scale, flat, *terms)


class _Combination(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        weights: list[float],
        scale: Tensor | None,
        flat: Tensor | None,
        *terms: Tensor,
    ):
        from graphode.flows.combination_kernel import combine

        ctx.weights = weights
        ctx.save_for_backward(scale, flat)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[x for x in (y, *terms) if not x.requires_grad])
        return combine(y, weights, list(terms), flat), y, *terms

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None):
        from graphode.flows.combination_kernel import gradients

        scale, flat = ctx.saved_tensors
        grad, *passed = grad_outputs
        if grad is None:
            found = passed
        elif torch.is_grad_enabled():
            moved = grad if scale is None else grad * scale
            own = [grad, *[weight * moved for weight in ctx.weights]]
            found = [g if p is None else g + p for g, p in zip(own, passed, strict=True)]
        else:
            passed = [None if p is None else p.contiguous() for p in passed]
            found = gradients(grad.contiguous(), ctx.weights, flat, passed)
        return found[0], None, None, None, *found[1:]


def error_ratio(
    y0: Tensor,
    y1: Tensor,
    weights: list[float],
    terms: list[Tensor],
    scale: Tensor,
    rtol: float,
    atol: float,
) -> Tensor:
    """The error of a step over what is tolerated, per sample, by the GPU's kernel."""
    from graphode.flows import combination_kernel as kernel

    flat = scale.to(y0.dtype).reshape(-1).contiguous()
    return kernel.error_ratio(y0, y1.contiguous(), weights, terms, flat, rtol, atol)
