"""Dropout and a matrix product in one pass, for many members, on a GPU. Imported where Triton is.

    forward    y[m] = (mask[m] ∘ h[m]) W[m]
    backward   ∂h[m] = mask[m] ∘ (∂y[m] W[m]ᵀ),    ∂W[m] = (mask[m] ∘ h[m])ᵀ ∂y[m]

Masks are computed in registers (`flows.mask_kernel`). Products run on the tensor cores, as exactly
as `torch.set_float32_matmul_precision` asks for: by default as exactly as float32.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphode.flows.mask_kernel import is_kept, load_key
from graphode.flows.masks import hashed_positions, threshold

# Pieces of bfloat16 that a float32 is split into: three are as exact as float32 products (the
# error of a product of 64 terms is 8e-8), two are off by 4e-6, TF32 is off by 8e-4.
PRECISIONS = {"highest": "bf16x6", "high": "bf16x3", "medium": "tf32"}

# As measured on an H200 at 100 members, 2708 nodes, 64 channels.
MIX_ROWS, MIX_TILES = 64, 2
BACK_ROWS, BACK_PROGRAMS = 64, 2048

NOWHERE, BEFORE, AFTER = (tl.constexpr(place) for place in range(3))


@triton.jit
def _mask(positions, key, threshold, scale, row, nodes, channel, channels, inside):
    """1/(1 − rate) or 0. Hashed positions are read: hashing them takes as long as the product."""
    at = positions + (row % nodes)[:, None] * channels + channel[None, :]
    hashed = tl.load(at, mask=inside, other=0).to(tl.uint32, bitcast=True)
    kept = is_kept(hashed, key, threshold)
    return tl.where(kept, scale, 0.0)


@triton.jit(do_not_specialize=["word", "threshold", "scale"])
def _mix(
    h, weight, out, positions, prefix, word, threshold, scale,
    rows, nodes, in_channels, out_channels, h_stride, weight_stride,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
    TILES: tl.constexpr, R: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(1).to(tl.int64)
    i, o = tl.arange(0, IN), tl.arange(0, OUT)
    known = (i < in_channels)[:, None] & (o < out_channels)[None, :]
    own = weight + member * weight_stride + i[:, None] * out_channels + o[None, :]
    w = tl.load(own, mask=known, other=0.0)
    key = load_key(prefix, word, member) if DROP != NOWHERE else 0
    start = tl.program_id(0) * R * TILES
    for first in range(start, tl.minimum(start + R * TILES, rows), R):
        row = (first + tl.arange(0, R)).to(tl.int64)
        inside = (row < rows)[:, None] & (i < in_channels)[None, :]
        state = h + member * h_stride + row[:, None] * in_channels + i[None, :]
        x = tl.load(state, mask=inside, other=0.0)
        if DROP == BEFORE:
            x *= _mask(positions, key, threshold, scale, row, nodes, i, in_channels, inside)
        y = tl.dot(x, w, input_precision=PRECISION)
        wanted = (row < rows)[:, None] & (o < out_channels)[None, :]
        if DROP == AFTER:
            y *= _mask(positions, key, threshold, scale, row, nodes, o, out_channels, wanted)
        into = out + (member * rows + row)[:, None] * out_channels + o[None, :]
        tl.store(into, y, mask=wanted)


@triton.jit(do_not_specialize=["word", "threshold", "scale"])
def _weight_gradient(
    h, grad, out, positions, prefix, word, threshold, scale,
    rows, nodes, in_channels, out_channels, h_stride, chunk, parts,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
    R: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    part, member = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i, o = tl.arange(0, IN), tl.arange(0, OUT)
    key = load_key(prefix, word, member) if DROP else 0
    total = tl.zeros((IN, OUT), tl.float32)
    last = tl.minimum((part + 1) * chunk, rows)
    for first in range(part * chunk, last, R):
        row = (first + tl.arange(0, R)).to(tl.int64)
        inside = (row < last)[:, None] & (i < in_channels)[None, :]
        given = (row < last)[:, None] & (o < out_channels)[None, :]
        into = grad + (member * rows + row)[:, None] * out_channels + o[None, :]
        g = tl.load(into, mask=given, other=0.0)
        state = h + member * h_stride + row[:, None] * in_channels + i[None, :]
        x = tl.load(state, mask=inside, other=0.0)
        if DROP:
            x *= _mask(positions, key, threshold, scale, row, nodes, i, in_channels, inside)
        total = tl.dot(tl.trans(x), g, total, input_precision=PRECISION)
    block = out + (member * parts + part) * in_channels * out_channels
    wanted = (i < in_channels)[:, None] & (o < out_channels)[None, :]
    tl.store(block + i[:, None] * out_channels + o[None, :], total, mask=wanted)


def precision() -> str:
    """How the tensor cores multiply; see `torch.set_float32_matmul_precision`."""
    return PRECISIONS[torch.get_float32_matmul_precision()]


def _tile(channels: int) -> int:
    return max(16, triton.next_power_of_2(channels))


def mix(
    h: Tensor,
    weight: Tensor,
    prefix: Tensor | None,
    word: int,
    rate: float,
    nodes: int,
    *,
    after: bool = False,
) -> Tensor:
    """(mask ∘ h) W for every member, or mask ∘ (h W) if `after`.

    Shapes:
        - **h:** `[members, rows, in_channels]`, rows a multiple of `nodes`; may be expanded.
        - **weight:** `[members, in_channels, out_channels]`
        - **prefix:** `[members]`; None where nothing is dropped.
    """
    members, rows, in_channels = h.shape
    out_channels = weight.shape[2]
    out = torch.empty(members, rows, out_channels, dtype=h.dtype, device=h.device)
    if out.numel() == 0:
        return out
    h = readable(h)
    _mix[(triton.cdiv(rows, MIX_ROWS * MIX_TILES), members)](
        h, weight.contiguous(), out,
        positions_of(prefix, nodes, out_channels if after else in_channels, h.device), prefix, word,
        threshold(rate), 1 / (1 - rate), rows, nodes, in_channels, out_channels,
        h.stride(0) if members > 1 else 0, in_channels * out_channels,
        DROP=NOWHERE if prefix is None else AFTER if after else BEFORE, PRECISION=precision(),
        TILES=MIX_TILES, R=MIX_ROWS, IN=_tile(in_channels), OUT=_tile(out_channels),
        num_warps=4, num_stages=1,
    )  # fmt: skip
    return out


def weight_gradient(
    h: Tensor, grad: Tensor, prefix: Tensor | None, word: int, rate: float, nodes: int
) -> Tensor:
    """(mask ∘ h)ᵀ grad for every member, `[members, in_channels, out_channels]`.

    The rows of a member are divided among programs, and their parts added in a fixed order.
    """
    members, rows, in_channels = h.shape
    out_channels = grad.shape[2]
    if h.numel() == 0 or grad.numel() == 0:
        return h.new_zeros(members, in_channels, out_channels)
    h = readable(h)
    parts = max(1, min(triton.cdiv(rows, BACK_ROWS), triton.cdiv(BACK_PROGRAMS, members)))
    chunk = triton.cdiv(triton.cdiv(rows, parts), BACK_ROWS) * BACK_ROWS
    parts = triton.cdiv(rows, chunk)
    out = torch.empty(members, parts, in_channels, out_channels, dtype=h.dtype, device=h.device)
    _weight_gradient[(parts, members)](
        h, grad.contiguous(), out, positions_of(prefix, nodes, in_channels, h.device), prefix, word,
        threshold(rate), 1 / (1 - rate), rows, nodes, in_channels, out_channels,
        h.stride(0) if members > 1 else 0, chunk, parts,
        DROP=prefix is not None, PRECISION=precision(),
        R=BACK_ROWS, IN=_tile(in_channels), OUT=_tile(out_channels), num_warps=4, num_stages=1,
    )  # fmt: skip
    return out.sum(1)


def readable(h: Tensor) -> Tensor:
    """Itself if its rows lie in order, all members' or the one they share; else a copy."""
    return h if h.stride(0) == 0 and h[0].is_contiguous() else h.contiguous()


def positions_of(
    prefix: Tensor | None, nodes: int, channels: int, device: torch.device
) -> Tensor | None:
    """The hashed places of a mask's entries; None where nothing is dropped."""
    return None if prefix is None else hashed_positions((nodes, channels), device)
