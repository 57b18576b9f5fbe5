"""One step of `MemberAdam` in one pass over memory, on a GPU. Imported only where Triton is."""

# pyright: reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _adam(
    parameter, gradient, mean, square, lr, decay, corrections, per_member, beta1, beta2, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(1)
    entry = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < per_member
    at = member.to(tl.int64) * per_member + entry
    theta = tl.load(parameter + at, mask=inside)
    g = tl.load(gradient + at, mask=inside) + tl.load(decay + member) * theta
    m = tl.load(mean + at, mask=inside)
    m += (1 - beta1) * (g - m)
    v = beta2 * tl.load(square + at, mask=inside) + (1 - beta2) * g * g
    rate = tl.load(lr + member) / tl.load(corrections)
    theta -= m / (tl.sqrt(v) / tl.load(corrections + 1) + eps) * rate
    tl.store(mean + at, m, mask=inside)
    tl.store(square + at, v, mask=inside)
    tl.store(parameter + at, theta, mask=inside)


def adam_step(
    parameter: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    lr: Tensor,
    decay: Tensor,
    corrections: Tensor,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """Move `parameter`, in place.

    Shapes:
        - **parameter, gradient, mean, square:** `[members, …]`
        - **lr, decay:** `[members]`
        - **corrections:** `[2]`: 1 − β₁ᵏ and √(1 − β₂ᵏ)
    """
    members = parameter.shape[0]
    per_member = parameter.numel() // members
    block = 1024
    with torch.cuda.device_of(parameter):
        _adam[(triton.cdiv(per_member, block), members)](
            parameter, gradient.contiguous(), mean, square, lr, decay, corrections, per_member,
            *betas, eps, BLOCK=block,
        )  # fmt: skip
