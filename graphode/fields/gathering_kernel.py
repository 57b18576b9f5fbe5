"""What a GPU's programs do with a tile of rows (`graphs.tiles`). Imported where Triton is.

    gathered    Σ_k values[k] state[col[k]] in every lane, in registers
    joined      what the lanes of a row amount to

Parts of kernels: a convolution is made of them, forward and backward (`convolution_kernel`).
"""

# pyright: reportMissingImports=false, reportIndexIssue=false

import triton
import triton.language as tl


@triton.jit
def of_rows(inside, channel, channels: tl.constexpr, ALL: tl.constexpr):
    """Which entries of a tile are there: those of a row, in channels that exist."""
    inside = inside[:, None]
    if not ALL:
        inside = inside & (channel < channels)[None, :]
    return inside


@triton.jit
def gathered(
    lanes, values, col, state, lane, count, channels: tl.constexpr,
    R: tl.constexpr, K: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Σ_k values[k] state[col[k]] for the entries k of each lane of a tile, H channels and H more.

    In halves, as fewer threads share a row, fewer of them read where it is.
    """
    first = tl.load(lanes + lane)
    left = tl.load(lanes + count + lane) - first
    own_col, own_values = col + first, values + first
    low, high = tl.zeros((R, H), tl.float32), tl.zeros((R, H), tl.float32)
    channel = tl.arange(0, H)
    ALL: tl.constexpr = channels == 2 * H
    for _ in range(0, tl.max(left, axis=0), K):
        for k in tl.static_range(K):
            inside = left > k
            column = tl.load(own_col + k, mask=inside, other=0)
            value = tl.load(own_values + k, mask=inside, other=0.0)
            at = state + column[:, None] * channels + channel[None, :]
            there = of_rows(inside, channel, channels, ALL)
            low += value[:, None] * tl.load(at, mask=there, other=0.0)
            there = of_rows(inside, channel + H, channels, ALL)
            high += value[:, None] * tl.load(at + H, mask=there, other=0.0)
        own_col += K
        own_values += K
        left -= K
    return low, high


@triton.jit
def loaded(weight, row, column, rows, columns, stride_row, stride_column):
    """A block of a matrix, 0 where it ends."""
    at = weight + row[:, None] * stride_row + column[None, :] * stride_column
    return tl.load(at, mask=(row < rows)[:, None] & (column < columns)[None, :], other=0.0)


@triton.jit
def joined(y, head, PRECISION: tl.constexpr, R: tl.constexpr):
    """What the pieces of each row amount to, in the lane of the first.

    Few tiles have rows in pieces. For them it is a product with zeros and ones, in a loop of one
    round or none: Triton 3.6 fails to compile one in a branch. What is not finite in such a tile
    makes all of it NaN.
    """
    lane = tl.arange(0, R)
    for zero in range(tl.minimum(tl.max(lane - head, axis=0), 1)):
        # With the zero, nothing of this is moved out of the loop.
        belongs = tl.where(head[None, :] == lane[:, None] + zero, 1.0, 0.0)
        y = tl.dot(belongs, y, input_precision=PRECISION)
    return y
