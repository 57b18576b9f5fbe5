"""`masks` on a GPU, in registers, stored only on request. Imported only where Triton is."""

# pyright: reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphode.flows.launch import is_short, launch
from graphode.flows.masks import MaskKey, Number, is_recorded, signed, summed, threshold

BLOCK, MIX_BLOCK = 1024, 128


@triton.jit
def splitmix(state):
    """One round of splitmix64, on unsigned words."""
    state = state + 0x9E3779B97F4A7C15
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB
    return state ^ (state >> 31)


@triton.jit
def load_key(prefix, word, index):
    """The key of mask `index`; see `masks.MaskKey`."""
    return splitmix((tl.load(prefix + index) + word).to(tl.uint64, bitcast=True))


@triton.jit
def is_kept(hashed, key, threshold):
    """Whether an entry survives; see `masks.keyed_mask`."""
    bits = (hashed + key.to(tl.uint32)) ^ (key >> 32).to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x21F0AAAD
    bits = (bits ^ (bits >> 15)) * 0x735A2D97
    bits = bits ^ (bits >> 15)
    return bits.to(tl.int32, bitcast=True) >= threshold


@triton.jit(do_not_specialize=["word", "start", "threshold", "scale"])
def _drop(
    h, out, positions, prefix, word, start, threshold, scale, blocks, per_key, system, h_stride,
    DRAWS: tl.constexpr, ROUNDS: tl.constexpr, WIDE: tl.constexpr, BATCHED: tl.constexpr,
    SMALL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0) // blocks
    begin = tl.program_id(0) % blocks
    if WIDE:
        begin = begin.to(tl.int64)
    begin *= BLOCK
    entry = begin + tl.arange(0, BLOCK)
    inside = entry < per_key
    place = entry
    if BATCHED:
        # Division is dear: for a program, not for its entries but in small systems.
        place = begin % system + tl.arange(0, BLOCK)
        if SMALL:
            place %= system
        else:
            place = tl.where(place < system, place, place - system)
    hashed = tl.load(positions + place, mask=inside, other=0).to(tl.uint32, bitcast=True)
    key = word.to(tl.int64).to(tl.uint64, bitcast=True)
    if ROUNDS == 1:
        key = load_key(prefix, word.to(tl.int64), index)
    if ROUNDS == 2:
        key = splitmix(load_key(prefix, start.to(tl.int64), index) + key)
    value = scale
    if not DRAWS:
        value *= tl.load(h + index.to(tl.int64) * h_stride + entry, mask=inside)
    value = tl.where(is_kept(hashed, key, threshold), value, 0.0).to(out.dtype.element_ty)
    tl.store(out + index.to(tl.int64) * per_key + entry, value, mask=inside)


@triton.jit(do_not_specialize=["start", "second_word"])
def _mix_two(
    first, second, out, start, second_word, count, first_inner, second_inner,
    ROUNDS: tl.constexpr, SECOND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    state = tl.load(first + index // first_inner, mask=inside, other=0) + start
    state = splitmix(state.to(tl.uint64, bitcast=True))
    if ROUNDS == 2:
        more = second_word.to(tl.int64)
        if SECOND:
            more += tl.load(second + index // second_inner, mask=inside, other=0)
        state = splitmix(state + more.to(tl.uint64, bitcast=True))
    tl.store(out + index, state.to(tl.int64, bitcast=True), mask=inside)


def mix_two(start: int, first: Tensor, second: Number | None = None) -> Tensor:
    """splitmix(splitmix(start + first) + second), or one round without `second`.

    Shapes:
        - **first:** `[*keys]`
        - **second:** `[*keys]`; either may lack dimensions at its end.
    """
    many = second if isinstance(second, Tensor) else first
    is_first = (first.numel(), first.ndim) >= (many.numel(), many.ndim)
    out = torch.empty_like(first if is_first else many)
    count = out.numel()
    if count == 0:
        return out
    inner = count // first.numel(), count // many.numel()
    rounds = 1 if second is None else 2
    word = second if isinstance(second, int) else 0
    start, word = signed(start), signed(word)
    form = (count, *inner, rounds, many is second, is_short(start), is_short(word))
    launch(
        _mix_two, form, (-(-count // MIX_BLOCK), 1, 1),
        (first, many, out), start, word, count, *inner, rounds, many is second, MIX_BLOCK,
    )  # fmt: skip
    return out


def prefix_and_word(key: MaskKey, device: torch.device) -> tuple[Tensor, int]:
    """A key as the kernels take it: a word per member on the device, and one that all share."""
    prefix, word, _ = key.mixed
    if isinstance(word, Tensor):
        # Steps of a sample's own: rare, and mixed beforehand.
        prefix, word = summed(prefix, word), 0
    if not isinstance(prefix, Tensor):
        return _zero(device), signed(prefix + word)
    return prefix.to(device, torch.int64), signed(word)


_zeros: dict[torch.device, Tensor] = {}


def _zero(device: torch.device) -> Tensor:
    zero = _zeros.get(device)
    if zero is not None:
        return zero
    if is_recorded(device):
        return torch.zeros((), dtype=torch.int64, device=device)
    with torch.inference_mode(False):
        return _zeros.setdefault(device, torch.zeros((), dtype=torch.int64).to(device))


def drop(
    h: Tensor,
    prefix: Tensor | None,
    word: int,
    start: int | None,
    rate: float,
    positions: Tensor,
) -> Tensor:
    """h ∘ mask / (1 − rate) for every key.

    Args:
        h: The state.
        prefix: Of each key; None where `word` is the whole key.
        word: See `masks.MaskKey`.
        start: Likewise.
        rate: Probability to drop.
        positions: Hashed, of the system's shape; see `masks.hashed_positions`.

    Shapes:
        - **h:** `[keys, …]`, where `…` ends with the system's shape; may be an expanded view.
          Without a prefix `[…]`.
        - **prefix:** `[keys]`
    """
    keys = 1 if prefix is None else prefix.numel()
    per_key = h.numel() // keys if keys else 0
    stride = per_key
    if h.is_contiguous():
        out = torch.empty_like(h)
    else:
        out = torch.empty_like(h, memory_format=torch.contiguous_format)
        if keys > 1 and h.stride(0) == 0 and h[0].is_contiguous():
            stride = 0
        else:
            h = h.contiguous()
    if per_key:
        _launch_drop(h, out, prefix, word, start, rate, positions, keys, per_key, stride)
    return out


def draw(
    prefix: Tensor | None, word: int, start: int | None, rate: float, positions: Tensor
) -> Tensor:
    """mask / (1 − rate) for every key, `[*keys, *positions]`; arguments as for `drop`."""
    own, keys = (), 1
    if prefix is not None:
        own, keys = prefix.shape, prefix.numel()
    out = torch.empty((*own, *positions.shape), dtype=torch.float32, device=positions.device)
    if out.numel():
        per_key = positions.numel()
        _launch_drop(None, out, prefix, word, start, rate, positions, keys, per_key, per_key)
    return out


def _launch_drop(
    h: Tensor | None,
    out: Tensor,
    prefix: Tensor | None,
    word: int,
    start: int | None,
    rate: float,
    positions: Tensor,
    keys: int,
    per_key: int,
    stride: int,
) -> None:
    draws = h is None
    system = positions.numel()
    rounds = 0 if prefix is None else 1 if start is None else 2
    start = start or 0
    shorts = is_short(word), is_short(start)
    form = (out.dtype, draws, rounds, per_key, system, stride, keys, *shorts)
    blocks = -(-per_key // BLOCK)
    launch(
        # Of the grid's dimensions only the first may be large.
        _drop, form, (blocks * keys, 1, 1),
        (out if h is None else h, out, positions, out if prefix is None else prefix.contiguous()),
        word, start, threshold(rate), 1 / (1 - rate), blocks, per_key, system, stride,
        draws, rounds, per_key > 1 << 30, per_key > system, system < BLOCK, BLOCK,
    )  # fmt: skip
