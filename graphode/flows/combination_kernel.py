"""y + Σ_j c_j k_j and its gradients in one pass over memory each, on a GPU.

Imported only where Triton is.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST = 7  # terms; more are added in further passes
BLOCK = 1024


@triton.jit
def _combine(
    y, out, k0, k1, k2, k3, k4, k5, k6, c0, c1, c2, c3, c4, c5, c6, scale, per_sample,
    COUNT: tl.constexpr, HAS_SCALE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(1)
    entry = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < per_sample
    at = sample.to(tl.int64) * per_sample + entry
    total = c0 * tl.load(k0 + at, mask=inside)
    if COUNT > 1:
        total += c1 * tl.load(k1 + at, mask=inside)
    if COUNT > 2:
        total += c2 * tl.load(k2 + at, mask=inside)
    if COUNT > 3:
        total += c3 * tl.load(k3 + at, mask=inside)
    if COUNT > 4:
        total += c4 * tl.load(k4 + at, mask=inside)
    if COUNT > 5:
        total += c5 * tl.load(k5 + at, mask=inside)
    if COUNT > 6:
        total += c6 * tl.load(k6 + at, mask=inside)
    if HAS_SCALE:
        total *= tl.load(scale + sample)
    tl.store(out + at, tl.load(y + at, mask=inside) + total, mask=inside)


@triton.jit
def _write(out, passed, weight, value, at, inside):
    if out is not None:
        total = weight * value
        if passed is not None:
            total += tl.load(passed + at, mask=inside)
        tl.store(out + at, total, mask=inside)


@triton.jit
def _gradients(
    g, y, o0, o1, o2, o3, o4, o5, o6, passed_y, p0, p1, p2, p3, p4, p5, p6,
    c0, c1, c2, c3, c4, c5, c6, scale, per_sample, HAS_SCALE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(1)
    entry = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < per_sample
    at = sample.to(tl.int64) * per_sample + entry
    value = tl.load(g + at, mask=inside)
    _write(y, passed_y, 1.0, value, at, inside)
    if HAS_SCALE:
        value *= tl.load(scale + sample)
    _write(o0, p0, c0, value, at, inside)
    _write(o1, p1, c1, value, at, inside)
    _write(o2, p2, c2, value, at, inside)
    _write(o3, p3, c3, value, at, inside)
    _write(o4, p4, c4, value, at, inside)
    _write(o5, p5, c5, value, at, inside)
    _write(o6, p6, c6, value, at, inside)


@triton.jit
def _error(
    y0, y1, out, k0, k1, k2, k3, k4, k5, k6, c0, c1, c2, c3, c4, c5, c6, scale, per_sample,
    rtol, atol, COUNT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    part, sample = tl.program_id(0), tl.program_id(1)
    entry = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < per_sample
    at = sample.to(tl.int64) * per_sample + entry
    error = c0 * tl.load(k0 + at, mask=inside, other=0.0)
    if COUNT > 1:
        error += c1 * tl.load(k1 + at, mask=inside, other=0.0)
    if COUNT > 2:
        error += c2 * tl.load(k2 + at, mask=inside, other=0.0)
    if COUNT > 3:
        error += c3 * tl.load(k3 + at, mask=inside, other=0.0)
    if COUNT > 4:
        error += c4 * tl.load(k4 + at, mask=inside, other=0.0)
    if COUNT > 5:
        error += c5 * tl.load(k5 + at, mask=inside, other=0.0)
    if COUNT > 6:
        error += c6 * tl.load(k6 + at, mask=inside, other=0.0)
    before = tl.abs(tl.load(y0 + at, mask=inside, other=0.0))
    after = tl.abs(tl.load(y1 + at, mask=inside, other=0.0))
    # `maximum` of Triton forgets a NaN; the sum of both does not.
    tolerated = atol + rtol * tl.where(after > before, after, before + 0.0 * after)
    ratio = error * tl.load(scale + sample) / tolerated
    ratio = tl.where(inside, ratio, 0.0)
    tl.store(out + sample * tl.num_programs(0) + part, tl.sum(ratio * ratio))


def error_ratio(
    y0: Tensor,
    y1: Tensor,
    weights: list[float],
    terms: list[Tensor],
    scale: Tensor,
    rtol: float,
    atol: float,
) -> Tensor:
    """Root mean square of s Σ_j w_j k_j / (atol + rtol max(|y0|, |y1|)), for each sample."""
    block = 4 * BLOCK
    samples = scale.numel()
    per_sample = y0.numel() // samples
    parts = triton.cdiv(per_sample, block)
    sums = torch.empty(samples, parts, dtype=y0.dtype, device=y0.device)
    _error[(parts, samples)](
        y0, y1, sums, *_padded(terms), *_padded(weights), scale, per_sample, rtol, atol,
        COUNT=len(terms), BLOCK=block, num_warps=8,
    )  # fmt: skip
    return (sums.sum(1) / per_sample).sqrt()


def combine(y: Tensor, weights: list[float], terms: list[Tensor], scale: Tensor | None) -> Tensor:
    """y + s Σ_j w_j k_j; `scale` is s for each sample, `[samples]`."""
    out = torch.empty_like(y)
    grid, per_sample = _grid(y, scale)
    _combine[grid](
        y, out, *_padded(terms), *_padded(weights), scale, per_sample,
        COUNT=len(terms), HAS_SCALE=scale is not None, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def gradients(
    g: Tensor, weights: list[float], scale: Tensor | None, passed: list[Tensor | None]
) -> list[Tensor]:
    """g + p_y, then s w_j g + p_j for every j, reading g once; what was `passed` may be missing."""
    to_y = None if passed[0] is None else torch.empty_like(g)
    outs = [torch.empty_like(g) for _ in weights]
    grid, per_sample = _grid(g, scale)
    _gradients[grid](
        g, to_y, *_padded(outs), passed[0], *_padded(passed[1:]), *_padded(weights), scale,
        per_sample, HAS_SCALE=scale is not None, BLOCK=BLOCK,
    )  # fmt: skip
    return [g if to_y is None else to_y, *outs]


def _grid(y: Tensor, scale: Tensor | None) -> tuple[tuple[int, int], int]:
    samples = 1 if scale is None else scale.numel()
    per_sample = y.numel() // samples
    return (triton.cdiv(per_sample, BLOCK), samples), per_sample


def _padded(values: list) -> list:
    return [*values, *[None] * (MOST - len(values))]
