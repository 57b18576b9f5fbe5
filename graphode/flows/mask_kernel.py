"""`masks` on a GPU, in registers: no mask is ever stored. Imported only where Triton is."""

# pyright: reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphode.flows.masks import MaskKey, signed, threshold


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


@triton.jit(do_not_specialize=["word", "threshold", "scale"])
def _drop(
    h, out, positions, prefix, word, threshold, scale, per_key, system, h_stride,
    BLOCK: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(1)
    entry = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < per_key
    hashed = tl.load(positions + entry % system, mask=inside, other=0)
    hashed = hashed.to(tl.uint32, bitcast=True)
    value = tl.load(h + index.to(tl.int64) * h_stride + entry, mask=inside)
    kept = is_kept(hashed, load_key(prefix, word, index), threshold)
    value = tl.where(kept, value * scale, 0.0).to(value.dtype)
    tl.store(out + index.to(tl.int64) * per_key + entry, value, mask=inside)


def prefix_and_word(key: MaskKey, device: torch.device) -> tuple[Tensor, int]:
    """A key as the kernels take it: a word per member on the device, and one that all share."""
    prefix, word = key
    if isinstance(word, Tensor):
        # Steps of a sample's own: rare, and mixed beforehand.
        prefix, word = prefix + word, 0
    if not isinstance(prefix, Tensor):
        return torch.zeros((), dtype=torch.int64, device=device), signed(prefix + word)
    return prefix.to(device, torch.int64), signed(word)


def drop(h: Tensor, prefix: Tensor, word: int, rate: float, positions: Tensor) -> Tensor:
    """h ∘ mask / (1 − rate) for every key.

    Shapes:
        - **h:** `[keys, …]`, where `…` ends with the system's shape; may be an expanded view.
        - **prefix:** `[keys]`
        - **positions:** hashed, of the system's shape; see `masks.hashed_positions`.
    """
    keys = h.shape[0]
    per_key = h[0].numel()
    rest = h if h.stride(0) == 0 and h[0].is_contiguous() else h.contiguous()
    out = torch.empty(h.shape, dtype=h.dtype, device=h.device)
    block = 1024
    if per_key == 0:
        return out
    _drop[(triton.cdiv(per_key, block), keys)](
        rest, out, positions, prefix.contiguous(), word, threshold(rate), 1 / (1 - rate),
        per_key, positions.numel(), rest.stride(0) if keys > 1 else 0, BLOCK=block,
    )  # fmt: skip
    return out
