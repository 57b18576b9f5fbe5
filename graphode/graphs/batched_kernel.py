"""The sparse product of many members at once, on a GPU. Imported only where Triton is.

    out[m, i] = σ(Σ_k values[m, k] h[m, col[k]] + own[m, i] + bias[m]),    k in row i

One kernel serves graph convolutions and sparse features, forward and backward, without folding
members into columns, which would copy the state twice. What is not needed (a row's own part, a
bias, values of each member's own, σ) is left out at compile time.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

# σ by number, and its derivative as a function of σ itself, so that only outputs are kept.
IDENTITY, RELU, SOFTPLUS, TANH = 0, 1, 2, 3


@triton.jit
def bend(x, ACTIVATION: tl.constexpr):
    """σ(x)."""
    if ACTIVATION == 1:
        x = tl.maximum(x, 0.0)
    elif ACTIVATION == 2:
        # ln(1 + e) by a polynomial on [0, 1]: a third of a logarithm's instructions, which were
        # as many as a product's, and exact for small e too.
        e = tl.exp(-tl.abs(x))
        p = 0.005253457929939032 * e - 0.02958850748836994
        p = p * e + 0.07836166769266129
        p = p * e - 0.13674770295619965
        p = p * e + 0.19111430644989014
        p = p * e - 0.24844369292259216
        p = p * e + 0.33319270610809326
        p = p * e - 0.49999502301216125
        x = tl.maximum(x, 0.0) + (p * e + 1.0) * e
    elif ACTIVATION == 3:
        x = 2.0 * tl.sigmoid(2.0 * x) - 1.0
    return x


@triton.jit
def slope(y, ACTIVATION: tl.constexpr):
    """σ′ where σ is y."""
    if ACTIVATION == 1:
        y = tl.where(y > 0, 1.0, 0.0)
    elif ACTIVATION == 2:
        # 1 − exp(−y); for small y, where it would cancel, by its series.
        small = y * (1.0 - y * (0.5 - y * (1 / 6 - y * (1 / 24 - y / 120))))
        y = tl.where(y < 0.1, small, 1.0 - tl.exp(-y))
    elif ACTIVATION == 3:
        y = 1.0 - y * y
    return y


@triton.jit
def _multiply(
    crow, col, values, order, h, own, bias, out,
    rows, channels, members, values_stride, h_stride, bias_stride,
    OWN_VALUES: tl.constexpr, HAS_ORDER: tl.constexpr, HAS_OWN: tl.constexpr,
    HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    G: tl.constexpr, K: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    member = tl.program_id(1).to(tl.int64) * G + tl.arange(0, G)
    channel = tl.program_id(2) * C + tl.arange(0, C)
    wanted = (member < members)[:, None] & (channel < channels)[None, :]
    start, end = tl.load(crow + row), tl.load(crow + row + 1)
    state_of = h + member[:, None, None] * h_stride + channel[None, None, :]
    total = tl.zeros((G, C), h.dtype.element_ty)
    for first in range(start, end, K):
        entry = first + tl.arange(0, K)
        inside = entry < end
        column = tl.load(col + entry, mask=inside, other=0).to(tl.int64)
        place = tl.load(order + entry, mask=inside, other=0) if HAS_ORDER else entry
        if OWN_VALUES:
            given = (member < members)[:, None] & inside[None, :]
            at = values + member[:, None] * values_stride + place[None, :]
            weight = tl.load(at, mask=given, other=0.0)[:, :, None]
        else:
            weight = tl.load(values + place, mask=inside, other=0.0)[None, :, None]
        needed = wanted[:, None, :] & inside[None, :, None]
        state = tl.load(state_of + column[None, :, None] * channels, mask=needed, other=0.0)
        total += tl.sum(state * weight, axis=1)
    at = (member[:, None] * rows + row) * channels + channel[None, :]
    if HAS_OWN:
        total += tl.load(own + at, mask=wanted, other=0.0)
    if HAS_BIAS:
        shift = tl.load(
            bias + member[:, None] * bias_stride + channel[None, :], mask=wanted, other=0.0
        )
        total += shift
    total = bend(total, ACTIVATION)
    tl.store(out + at, total, mask=wanted)


def multiply(
    values: Tensor,
    h: Tensor,
    crow: Tensor,
    col: Tensor,
    *,
    order: Tensor | None = None,
    own: Tensor | None = None,
    bias: Tensor | None = None,
    activation: int = IDENTITY,
) -> Tensor:
    """σ(A h + own + bias) for every member.

    Shapes:
        - **values:** `[entries]`, or `[members, entries]`
        - **h:** `[members, columns, channels]`; members may be an expanded view.
        - **order:** where in `values` each entry's is; None if they lie in the order of `col`.
        - **own:** `[members, rows, channels]`
        - **bias:** `[members, channels]`
        - **output:** `[members, rows, channels]`
    """
    members, _, channels = h.shape
    rows = crow.numel() - 1
    out = torch.empty(members, rows, channels, dtype=h.dtype, device=h.device)
    if out.numel() == 0:
        return out
    if not (h.stride(0) == 0 and h[0].is_contiguous()):
        h = h.contiguous()
    values = values.contiguous()
    own = None if own is None else own.contiguous()
    bias = None if bias is None else bias.contiguous()
    g, k, c = _tile(members, channels, col.numel() / rows)
    grid = (rows, triton.cdiv(members, g), triton.cdiv(channels, c))
    _multiply[grid](
        crow, col, values, order, h, own, bias, out,
        rows, channels, members, values.stride(0) if values.ndim == 2 else 0,
        h.stride(0) if members > 1 else 0, bias.stride(0) if bias is not None else 0,
        OWN_VALUES=values.ndim == 2, HAS_ORDER=order is not None, HAS_OWN=own is not None,
        HAS_BIAS=bias is not None, ACTIVATION=activation, G=g, K=k, C=c, num_warps=1,
    )  # fmt: skip
    return out


def _tile(members: int, channels: int, entries_per_row: float) -> tuple[int, int, int]:
    """Members, entries and channels that one program holds, as measured on an H200."""
    c = min(64, max(4, triton.next_power_of_2(channels)))
    if entries_per_row > 24:  # long rows: one member, many entries in flight
        return 1, min(32, 2048 // c), c
    g = min(triton.next_power_of_2(members), 256 // c)
    return g, max(4, min(16, 1024 // (g * c))), c


@triton.jit
def _bend_back(
    grad, y, out, sums, rows, channels, chunk, parts,
    ACTIVATION: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    part, member = tl.program_id(0), tl.program_id(1).to(tl.int64)
    channel = tl.arange(0, C)
    total = tl.zeros((C,), grad.dtype.element_ty)
    last = tl.minimum((part + 1) * chunk, rows)
    for first in range(part * chunk, last, R):
        row = first + tl.arange(0, R)
        inside = (row < last)[:, None] & (channel < channels)[None, :]
        at = (member * rows + row)[:, None] * channels + channel[None, :]
        value = tl.load(grad + at, mask=inside, other=0.0)
        if ACTIVATION != 0:
            value *= slope(tl.load(y + at, mask=inside, other=0.0), ACTIVATION)
            tl.store(out + at, value, mask=inside)
        total += tl.sum(value, axis=0)
    tl.store(sums + (member * parts + part) * channels + channel, total, mask=channel < channels)


def bend_back(grad: Tensor, y: Tensor, activation: int) -> tuple[Tensor, Tensor]:
    """The gradient before σ, and its sum over rows, which is the bias's.

    Shapes:
        - **grad, y:** `[members, rows, channels]`
    """
    members, rows, channels = y.shape
    grad = grad.contiguous()
    out = grad if activation == IDENTITY else torch.empty_like(y)
    if y.numel() == 0:
        return out, y.new_zeros(members, channels)
    parts = max(1, min(triton.cdiv(rows, 64), triton.cdiv(1024, members)))
    chunk = triton.cdiv(rows, parts)
    sums = torch.empty(members, parts, channels, dtype=y.dtype, device=y.device)
    c = triton.next_power_of_2(channels)
    _bend_back[(parts, members)](
        grad, y, out, sums, rows, channels, chunk, parts,
        ACTIVATION=activation, R=max(1, 2048 // c), C=c, num_warps=4,
    )  # fmt: skip
    return out, sums.sum(1)
