"""A graph convolution of many states in one pass, on a GPU. Imported where Triton is.

    forward    y = σ((Â x) W + b)
    backward   u = Âᵀ g,    ∂h = mask ∘ (u Wᵀ),    ∂W = (mask ∘ h)ᵀ u

Neighbours are added up in registers and multiplied there: neither Âx nor u is ever stored. Rows
come in tiles (`graphs.tiles`), each multiplied by itself: what a row is does not depend on how many
states there are, and the parts of ∂W are those of the graph, added in a fixed order.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false
# pyright: reportPossiblyUnboundVariable=false

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphode.fields.gathering_kernel import gathered, joined, loaded, of_rows
from graphode.fields.mixing_kernel import positions_of, precision, readable
from graphode.flows.mask_kernel import is_kept, load_key
from graphode.flows.masks import threshold
from graphode.graphs.batched_kernel import bend
from graphode.graphs.tiles import LANES


class Setting(NamedTuple):
    """How the work is divided.

    Args:
        lanes: Of a tile.
        entries: Of each lane, in flight at once.
        tiles: Of a program, where there are enough.
        warps: Of a program.
        registers: That a thread has at most.
    """

    lanes: int
    entries: int
    tiles: int
    warps: int
    registers: int | None = None

    @property
    def options(self) -> dict[str, int]:
        """As Triton takes them at a launch."""
        bound = {} if self.registers is None else {"maxnreg": self.registers}
        return {"num_warps": self.warps, "num_stages": 1, **bound}


# As measured on an H200 at 100 members, 2708 nodes, 64 channels.
FORWARD = Setting(LANES, 4, 2, 4, 96)
BACKWARD = Setting(LANES, 4, 4, 4, 168)
FORWARD_PROGRAMS, BACKWARD_PROGRAMS = 1024, 128  # that keep a GPU busy


_VARYING = ["nodes", "tiles", "per_program", "programs", "samples"]


@triton.jit(do_not_specialize=_VARYING)
def _convolve(
    lanes, values, col, x, weight, bias, out,
    nodes, tiles, per_program, programs, samples, x_stride,
    in_channels: tl.constexpr, out_channels: tl.constexpr,
    HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
    R: tl.constexpr, K: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    index = (tl.program_id(0) // programs).to(tl.int64)
    member = index // samples
    i, o = tl.arange(0, IN // 2), tl.arange(0, OUT)
    own = weight + member * in_channels * out_channels
    w_low = loaded(own, i, o, in_channels, out_channels, out_channels, 1)
    w_high = loaded(own, i + IN // 2, o, in_channels, out_channels, out_channels, 1)
    if HAS_BIAS:
        b = tl.load(bias + member * out_channels + o, mask=o < out_channels, other=0.0)
    state, into = x + index * x_stride, out + index * nodes * out_channels
    rows, heads = lanes + 2 * tiles * R, lanes + 3 * tiles * R
    start = (tl.program_id(0) % programs) * per_program
    for tile in range(start, tl.minimum(start + per_program, tiles)):
        lane = tile * R + tl.arange(0, R)
        low, high = gathered(lanes, values, col, state, lane, tiles * R, in_channels, R, K, IN // 2)
        row, head = tl.load(rows + lane), tl.load(heads + lane)
        y = tl.dot(low, w_low, input_precision=PRECISION)
        y = joined(tl.dot(high, w_high, y, input_precision=PRECISION), head, PRECISION, R)
        if HAS_BIAS:
            y += b[None, :]
        wanted = of_rows(
            (row >= 0) & (head == tl.arange(0, R)), o, out_channels, out_channels == OUT
        )
        tl.store(into + row[:, None] * out_channels + o[None, :], bend(y, ACTIVATION), mask=wanted)


@triton.jit(do_not_specialize=[*_VARYING, "word", "threshold", "scale"])
def _convolve_back(
    lanes, values, col, grad, h, weight, grad_h, parts,
    positions, prefix, word, threshold, scale,
    nodes, tiles, per_program, programs, samples, h_stride,
    in_channels: tl.constexpr, out_channels: tl.constexpr,
    DROP: tl.constexpr, WANTS_H: tl.constexpr, WANTS_WEIGHT: tl.constexpr, PRECISION: tl.constexpr,
    R: tl.constexpr, K: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    index = (tl.program_id(0) // programs).to(tl.int64)
    member = index // samples
    i, o = tl.arange(0, IN), tl.arange(0, OUT // 2)
    if WANTS_H:
        own = weight + member * in_channels * out_channels
        w_low = loaded(own, o, i, out_channels, in_channels, 1, out_channels)
        w_high = loaded(own, o + OUT // 2, i, out_channels, in_channels, 1, out_channels)
    if WANTS_WEIGHT:
        total_low = tl.zeros((IN, OUT // 2), tl.float32)
        total_high = tl.zeros((IN, OUT // 2), tl.float32)
    key = load_key(prefix, word, member) if DROP else 0
    given = grad + index * nodes * out_channels
    state, into = h + index * h_stride, grad_h + index * nodes * in_channels
    rows, heads = lanes + 2 * tiles * R, lanes + 3 * tiles * R
    part = tl.program_id(0) % programs
    start = part * per_program
    for tile in range(start, tl.minimum(start + per_program, tiles)):
        lane = tile * R + tl.arange(0, R)
        low, high = gathered(
            lanes, values, col, given, lane, tiles * R, out_channels, R, K, OUT // 2
        )
        row, head = tl.load(rows + lane), tl.load(heads + lane)
        inside = of_rows(row >= 0, i, in_channels, in_channels == IN)
        at = row[:, None] * in_channels + i[None, :]
        if DROP:
            hashed = tl.load(positions + at, mask=inside, other=0).to(tl.uint32, bitcast=True)
            kept = tl.where(is_kept(hashed, key, threshold), scale, 0.0)
        if WANTS_H:
            back = tl.dot(low, w_low, input_precision=PRECISION)
            back = tl.dot(high, w_high, back, input_precision=PRECISION)
            back = joined(back, head, PRECISION, R)
            if DROP:
                back *= kept
            is_first = head == tl.arange(0, R)
            wanted = inside & is_first[:, None]
            tl.store(into + at, back, mask=wanted)
        if WANTS_WEIGHT:
            x = tl.load(state + at, mask=inside, other=0.0)
            if DROP:
                x *= kept
            x = tl.trans(x)
            total_low = tl.dot(x, low, total_low, input_precision=PRECISION)
            total_high = tl.dot(x, high, total_high, input_precision=PRECISION)
    if WANTS_WEIGHT:
        block = parts + (index * programs + part) * in_channels * out_channels
        at = block + i[:, None] * out_channels + o[None, :]
        known = (i < in_channels)[:, None] & (o < out_channels)[None, :]
        tl.store(at, total_low, mask=known)
        known = (i < in_channels)[:, None] & (o + OUT // 2 < out_channels)[None, :]
        tl.store(at + OUT // 2, total_high, mask=known)


@triton.jit
def _add_up(parts, out, programs, samples, blocks, size, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """The parts of each member, in groups: as many as a program could have added up itself."""
    member = (tl.program_id(0) // blocks).to(tl.int64)
    entry = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = entry < size
    total = tl.zeros((BLOCK,), tl.float32)
    for state in range(samples):
        own = parts + (member * samples + state) * programs * size + entry
        for first in range(0, programs, GROUP):
            group = tl.zeros((BLOCK,), tl.float32)
            for k in tl.static_range(GROUP):
                there = inside & (first + k < programs)
                group += tl.load(own + (first + k) * size, mask=there, other=0.0)
            total += group
    tl.store(out + member * size + entry, total, mask=inside)


def _width(channels: int) -> int:
    """Of a tile: two halves that a product takes."""
    return max(32, triton.next_power_of_2(channels))


def convolve(
    tiles: Tensor,
    values: Tensor,
    col: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: int,
    setting: Setting = FORWARD,
) -> Tensor:
    """σ((Â x) W + b) for every state.

    Shapes:
        - **tiles:** see `graphs.tiles.tiles_of`
        - **x:** `[states, nodes, in_channels]`; states may be an expanded view.
        - **weight:** `[members, in_channels, out_channels]`; states are a multiple of members.
        - **bias:** `[members, out_channels]`
    """
    states, nodes, in_channels = x.shape
    members, _, out_channels = weight.shape
    out = torch.empty(states, nodes, out_channels, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    x = readable(x)
    count = tiles.shape[1] // setting.lanes
    # Rows are what they are in any program: fewer tiles of one where that fills the GPU.
    per_program = max(1, min(setting.tiles, count * states // FORWARD_PROGRAMS))
    programs = triton.cdiv(count, per_program)
    _convolve[(programs * states,)](
        tiles, values, col, x, weight.contiguous(), None if bias is None else bias.contiguous(),
        out, nodes, count, per_program, programs, states // members,
        x.stride(0) if states > 1 else 0, in_channels, out_channels,
        HAS_BIAS=bias is not None, ACTIVATION=activation, PRECISION=precision(),
        R=setting.lanes, K=setting.entries, IN=_width(in_channels), OUT=_width(out_channels),
        **setting.options,
    )  # fmt: skip
    return out


def convolve_back(
    tiles: Tensor,
    values: Tensor,
    col: Tensor,
    grad: Tensor,
    h: Tensor,
    weight: Tensor,
    prefix: Tensor | None,
    word: int,
    rate: float,
    wants: tuple[bool, bool] = (True, True),
    setting: Setting = BACKWARD,
) -> tuple[Tensor | None, Tensor | None]:
    """∂h and ∂W, those wanted, from the gradient before σ; tiles and values are those of Âᵀ.

    Shapes:
        - **grad:** `[states, nodes, out_channels]`
        - **h:** `[states, nodes, in_channels]`; states may be an expanded view.
        - **weight:** `[members, in_channels, out_channels]`; states are a multiple of members.
        - **prefix:** `[members]`; None where nothing was dropped.
    """
    states, nodes, in_channels = h.shape
    members, _, out_channels = weight.shape
    if grad.numel() == 0:
        pairs = zip((h, weight), wants, strict=True)
        grad_h, grad_weight = (torch.zeros_like(x) if wanted else None for x, wanted in pairs)
        return grad_h, grad_weight
    h = readable(h)
    count = tiles.shape[1] // setting.lanes
    # Parts of ∂W are one tile's or many tiles', and added in the same order.
    is_busy = triton.cdiv(count, setting.tiles) * states >= BACKWARD_PROGRAMS
    per_program = setting.tiles if is_busy else 1
    programs = triton.cdiv(count, per_program)
    grad_h = h.new_empty(states, nodes, in_channels) if wants[0] else None
    parts = h.new_empty(states, programs, in_channels, out_channels) if wants[1] else None
    _convolve_back[(programs * states,)](
        tiles, values, col, grad.contiguous(), h, weight.contiguous(),
        h if grad_h is None else grad_h, h if parts is None else parts,
        positions_of(prefix, nodes, in_channels, h.device), prefix, word,
        threshold(rate), 1 / (1 - rate),
        nodes, count, per_program, programs, states // members,
        h.stride(0) if states > 1 else 0, in_channels, out_channels,
        DROP=prefix is not None, WANTS_H=wants[0], WANTS_WEIGHT=wants[1], PRECISION=precision(),
        R=setting.lanes, K=setting.entries, IN=_width(in_channels), OUT=_width(out_channels),
        **setting.options,
    )  # fmt: skip
    if parts is None:
        return grad_h, None
    size, block = in_channels * out_channels, 256
    blocks = triton.cdiv(size, block)
    grad_weight = torch.empty_like(weight, memory_format=torch.contiguous_format)
    _add_up[(blocks * members,)](
        parts, grad_weight, programs, states // members, blocks, size,
        GROUP=setting.tiles // per_program, BLOCK=block, num_warps=2,
    )  # fmt: skip
    return grad_h, grad_weight
