"""The two sparse kernels for several matrices on one pattern, on a GPU. Imported where Triton is.

    multiply:  out[i, c] = Σ_k values[k, head c] h[col[k], c],       k in row i
    sample:    out[k, n] = Σ_c a[row k, c] b[col[k], c],             c over the channels of head n

cuSPARSE has a product for one matrix: eight heads are eight products of few columns, each with the
whole pattern to read. Here a program serves a row, its edges some at a time, all heads at once; no
row is written by two programs, so nothing is atomic and sums have one order.
"""
# Where types are checked there may be no Triton, whose kernels are launched by subscription.
# pyright: reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

# Numbers that a program holds at once, and the columns it takes at most.
BLOCK, COLUMNS = 1024, 128


@triton.jit
def _multiply(
    crow, col, values, h, out, heads, columns, width, K: tl.constexpr, C: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * C + tl.arange(0, C)
    wanted = channel < columns
    head = channel // width
    start, end = tl.load(crow + row), tl.load(crow + row + 1)
    total = tl.zeros((C,), h.dtype.element_ty)
    for first in range(start, end, K):
        entry = first + tl.arange(0, K)
        inside = entry < end
        column = tl.load(col + entry, mask=inside, other=0).to(tl.int64)
        needed = inside[:, None] & wanted[None, :]
        at = entry.to(tl.int64)[:, None] * heads + head[None, :]
        weight = tl.load(values + at, mask=needed, other=0.0)
        state = tl.load(h + column[:, None] * columns + channel[None, :], mask=needed, other=0.0)
        total += tl.sum(weight * state, axis=0)
    tl.store(out + row * columns + channel, total, mask=wanted)


@triton.jit
def _sample(
    crow, col, a, b, out, heads, width, K: tl.constexpr, H: tl.constexpr, W: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * H + tl.arange(0, H)
    inner = tl.arange(0, W)
    wanted = (head < heads)[:, None] & (inner < width)[None, :]
    channel = head[:, None] * width + inner[None, :]
    own = tl.load(a + row * heads * width + channel, mask=wanted, other=0.0)
    start, end = tl.load(crow + row), tl.load(crow + row + 1)
    for first in range(start, end, K):
        entry = first + tl.arange(0, K)
        inside = entry < end
        column = tl.load(col + entry, mask=inside, other=0).to(tl.int64)
        needed = inside[:, None, None] & wanted[None, :, :]
        at = column[:, None, None] * (heads * width) + channel[None, :, :]
        other = tl.load(b + at, mask=needed, other=0.0)
        inner_products = tl.sum(other * own[None, :, :], axis=2)
        at = entry.to(tl.int64)[:, None] * heads + head[None, :]
        tl.store(out + at, inner_products, mask=inside[:, None] & (head < heads)[None, :])


def multiply(values: Tensor, h: Tensor, crow: Tensor, col: Tensor) -> Tensor:
    """The products of matrices `values [entries, heads]` and blocks of `h [nodes, columns]`."""
    values, h = values.contiguous(), h.contiguous()
    rows, columns, heads = crow.numel() - 1, h.shape[1], values.shape[1]
    out = torch.empty(rows, columns, dtype=h.dtype, device=h.device)
    c = min(COLUMNS, max(4, triton.next_power_of_2(columns)))
    k = max(1, min(16, BLOCK // c))
    grid = (rows, triton.cdiv(columns, c))
    _multiply[grid](
        crow, col, values, h, out, heads, columns, columns // heads, K=k, C=c, num_warps=2
    )  # fmt: skip
    return out


def sample(a: Tensor, b: Tensor, crow: Tensor, col: Tensor, heads: int) -> Tensor:
    """Inner products of the blocks of `a` and `b [nodes, columns]` at every entry."""
    a, b = a.contiguous(), b.contiguous()
    rows, width = crow.numel() - 1, a.shape[1] // heads
    out = torch.empty(col.numel(), heads, dtype=a.dtype, device=a.device)
    k, h, w = blocks(heads, width)
    grid = (rows, triton.cdiv(heads, h))
    _sample[grid](crow, col, a, b, out, heads, width, K=k, H=h, W=w, num_warps=2)
    return out


def blocks(heads: int, width: int) -> tuple[int, int, int]:
    """Edges, heads and channels that a program holds at once; all channels of a head."""
    w = triton.next_power_of_2(width)
    h = min(triton.next_power_of_2(heads), max(1, BLOCK // w))
    return max(1, min(16, BLOCK // (h * w))), h, w
