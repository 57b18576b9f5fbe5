"""Attention along edges on a GPU, a program for each node. Imported only where Triton is.

    softmax:     α_uv = exp(e_uv − m_v) / s_v,    over edges to v that are no loops, and v itself
    scores:      e_uv = Σ_c a_c LeakyReLU(l_u + r_v)_c,    c over the channels of a head
    slope_sums:  T_v = Σ_{u→v} LeakyReLU′(l_u + r_v) g_uv

What is summed at a node is summed by one program: nothing is atomic, and sums have one order. The
plain forms are in `edge_attention` and `gatv2_scores`.
"""
# Where types are checked there may be no Triton, whose kernels are launched by subscription.
# pyright: reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphode.graphs.derivatives import Sparsity
from graphode.graphs.heads_kernel import blocks


@triton.jit
def _softmax(
    crow, col, scores, own, weights, own_weights, heads, K: tl.constexpr, H: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, H)
    wanted = head < heads
    start, end = tl.load(crow + row), tl.load(crow + row + 1)
    for_itself = tl.load(own + row * heads + head, mask=wanted, other=0.0)
    # The largest score so far, and the sum of shares relative to it.
    largest, total = for_itself, tl.full((H,), 1.0, scores.dtype.element_ty)
    for first in range(start, end, K):
        entry = first + tl.arange(0, K)
        column = tl.load(col + entry, mask=entry < end, other=0)
        needed = ((entry < end) & (column != row))[:, None] & wanted[None, :]
        at = entry.to(tl.int64)[:, None] * heads + head[None, :]
        score = tl.load(scores + at, mask=needed, other=float("-inf"))
        larger = tl.maximum(largest, tl.max(score, axis=0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(score - larger[None, :]), axis=0)
        largest = larger
    tl.store(own_weights + row * heads + head, tl.exp(for_itself - largest) / total, mask=wanted)
    for first in range(start, end, K):
        entry = first + tl.arange(0, K)
        inside = (entry < end)[:, None] & wanted[None, :]
        column = tl.load(col + entry, mask=entry < end, other=0)
        at = entry.to(tl.int64)[:, None] * heads + head[None, :]
        needed = inside & (column != row)[:, None]
        score = tl.load(scores + at, mask=needed, other=float("-inf"))
        weight = tl.exp(score - largest[None, :]) / total[None, :]
        tl.store(weights + at, weight, mask=inside)


@triton.jit
def _softmax_back(
    crow, weights, own_weights, grad, own_grad, out, own_out, heads,
    K: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, H)
    wanted = head < heads
    start, end = tl.load(crow + row), tl.load(crow + row + 1)
    weight = tl.load(own_weights + row * heads + head, mask=wanted, other=0.0)
    pull = tl.load(own_grad + row * heads + head, mask=wanted, other=0.0)
    mean = weight * pull
    for first in range(start, end, K):
        entry = first + tl.arange(0, K)
        inside = (entry < end)[:, None] & wanted[None, :]
        at = entry.to(tl.int64)[:, None] * heads + head[None, :]
        alpha = tl.load(weights + at, mask=inside, other=0.0)
        mean += tl.sum(alpha * tl.load(grad + at, mask=inside, other=0.0), axis=0)
    tl.store(own_out + row * heads + head, weight * (pull - mean), mask=wanted)
    for first in range(start, end, K):
        entry = first + tl.arange(0, K)
        inside = (entry < end)[:, None] & wanted[None, :]
        at = entry.to(tl.int64)[:, None] * heads + head[None, :]
        alpha = tl.load(weights + at, mask=inside, other=0.0)
        back = alpha * (tl.load(grad + at, mask=inside, other=0.0) - mean[None, :])
        tl.store(out + at, back, mask=inside)


@triton.jit
def _scores(
    crow, col, left, right, attention, out, heads, width,
    SLOPE: tl.constexpr, K: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head, inner = tl.program_id(1) * H + tl.arange(0, H), tl.arange(0, W)
    wanted = (head < heads)[:, None] & (inner < width)[None, :]
    channel = head[:, None] * width + inner[None, :]
    shown = tl.load(right + row * heads * width + channel, mask=wanted, other=0.0)
    vector = tl.load(attention + channel, mask=wanted, other=0.0)
    start, end = tl.load(crow + row), tl.load(crow + row + 1)
    for first in range(start, end, K):
        entry = first + tl.arange(0, K)
        inside = entry < end
        column = tl.load(col + entry, mask=inside, other=0).to(tl.int64)
        needed = inside[:, None, None] & wanted[None, :, :]
        at = column[:, None, None] * (heads * width) + channel[None, :, :]
        x = tl.load(left + at, mask=needed, other=0.0) + shown[None, :, :]
        x = tl.where(x > 0, x, x * SLOPE) * vector[None, :, :]
        at = entry.to(tl.int64)[:, None] * heads + head[None, :]
        tl.store(out + at, tl.sum(x, axis=2), mask=inside[:, None] & (head < heads)[None, :])


@triton.jit
def _slope_sums(
    crow, col, order, here, there, grad, out, heads, width,
    SLOPE: tl.constexpr, HAS_ORDER: tl.constexpr, K: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head, inner = tl.program_id(1) * H + tl.arange(0, H), tl.arange(0, W)
    wanted = (head < heads)[:, None] & (inner < width)[None, :]
    channel = head[:, None] * width + inner[None, :]
    shown = tl.load(here + row * heads * width + channel, mask=wanted, other=0.0)
    total = tl.zeros((H, W), here.dtype.element_ty)
    start, end = tl.load(crow + row), tl.load(crow + row + 1)
    for first in range(start, end, K):
        entry = first + tl.arange(0, K)
        inside = entry < end
        column = tl.load(col + entry, mask=inside, other=0).to(tl.int64)
        place = tl.load(order + entry, mask=inside, other=0) if HAS_ORDER else entry
        at = place.to(tl.int64)[:, None] * heads + head[None, :]
        pull = tl.load(grad + at, mask=inside[:, None] & (head < heads)[None, :], other=0.0)
        needed = inside[:, None, None] & wanted[None, :, :]
        at = column[:, None, None] * (heads * width) + channel[None, :, :]
        x = tl.load(there + at, mask=needed, other=0.0) + shown[None, :, :]
        each = pull[:, :, None]
        total += tl.sum(tl.where(x > 0, each, each * SLOPE), axis=0)
    tl.store(out + row * heads * width + channel, total, mask=wanted)


def softmax(scores: Tensor, own: Tensor, places: Sparsity) -> tuple[Tensor, Tensor]:
    """Weights of edges [edges, heads] and of nodes for themselves [nodes, heads]."""
    scores, own = scores.contiguous(), own.contiguous()
    out = torch.empty_like(scores), torch.empty_like(own)
    k, h = _edges_and_heads(own.shape[1])
    _softmax[(len(own),)](
        places.crow, places.col, scores, own, *out, own.shape[1], K=k, H=h, num_warps=1
    )  # fmt: skip
    return out


def softmax_gradients(
    weights: Tensor, own: Tensor, grad: Tensor, own_grad: Tensor, places: Sparsity
) -> tuple[Tensor, Tensor]:
    """∂e = α (∂α − Σ α ∂α), the sum over what a node looks at."""
    out = torch.empty_like(weights), torch.empty_like(own)
    k, h = _edges_and_heads(own.shape[1])
    _softmax_back[(len(own),)](
        places.crow, weights, own, grad.contiguous(), own_grad.contiguous(), *out, own.shape[1],
        K=k, H=h, num_warps=1,
    )  # fmt: skip
    return out


def scores(
    left: Tensor, right: Tensor, attention: Tensor, places: Sparsity, slope: float
) -> Tensor:
    """The scores of GATv2 at every edge; `left` and `right` are [nodes, heads, channels]."""
    left, right, attention = left.contiguous(), right.contiguous(), attention.contiguous()
    nodes, heads, width = left.shape
    out = torch.empty(places.col.numel(), heads, dtype=left.dtype, device=left.device)
    k, h, w = blocks(heads, width)
    _scores[(nodes, triton.cdiv(heads, h))](
        places.crow, places.col, left, right, attention, out, heads, width,
        SLOPE=slope, K=k, H=h, W=w, num_warps=2,
    )  # fmt: skip
    return out


def slope_sums(
    left: Tensor, right: Tensor, grad: Tensor, places: Sparsity, slope: float
) -> tuple[Tensor, Tensor]:
    """Sums of LeakyReLU′(l_u + r_v) g_uv over the edges that leave a node, and that arrive."""
    left, right, grad = left.contiguous(), right.contiguous(), grad.contiguous()
    nodes, heads, width = left.shape
    k, h, w = blocks(heads, width)
    out_sum, in_sum = torch.empty_like(left), torch.empty_like(right)
    sides = (
        (places.transposed, left, right, out_sum, places.order),
        (places, right, left, in_sum, None),
    )
    for at, here, there, out, order in sides:
        _slope_sums[(nodes, triton.cdiv(heads, h))](
            at.crow, at.col, order, here, there, grad, out, heads, width,
            SLOPE=slope, HAS_ORDER=order is not None, K=k, H=h, W=w, num_warps=2,
        )  # fmt: skip
    return out_sum, in_sum


def _edges_and_heads(heads: int) -> tuple[int, int]:
    h = triton.next_power_of_2(heads)
    return max(1, min(32, 256 // h)), h
