"""Masks that are hashes of a key and a position: the same bits on any device, in any order.

    key  = splitmix(prefix + word)                 64 bits, for a whole mask
    bits = lowbias32((position′ + low) ⊕ high)      32 bits, for an entry; low ones are dropped

`prefix` is mixed from what members and samples differ in, `word` from what the host knows;
position′ is a hash of the entry's place, without which masks of neighbouring keys would be shifted
copies. The hashes are `splitmix64` (Steele, Lea, Flood, 2014) and the 32-bit `lowbias32` of
Wellons (2018, "Prospecting for hash functions"). On a GPU `mask_kernel` computes the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from graphode.flows import kernels

Number = int | Tensor

_WORD = (1 << 64) - 1

# Entries from which a CPU draws the masks of several keys one by one, each within its caches.
LARGE_MASK = 1 << 14


class MaskKey(NamedTuple):
    """The key of one mask, in two parts, so that a device need not mix what the host knows.

    Args:
        prefix: Of members and samples, `[*keys]`, or a number.
        word: Of everything else; a tensor only where solver steps differ between samples.
        start: Where given, the prefix lacks its last round, which is splitmix(start + prefix).
    """

    prefix: Number
    word: Number
    start: int | None = None

    @property
    def mixed(self) -> "MaskKey":
        """The same key with all rounds of its prefix."""
        if self.start is None:
            return self
        return MaskKey(mix([self.prefix], start=self.start), self.word)

    @property
    def whole(self) -> Number:
        """The mixed key."""
        return mix([self.mixed.prefix, self.word], start=None)


def mix(parts: Sequence[Number], start: int | None = 0) -> Number:
    """64 bits from numbers; tensors among them broadcast from the left, `[*keys]`.

    Args:
        parts: The numbers.
        start: What is mixed first; None for the first part as it is.
    """
    state, rest = (parts[0], parts[1:]) if start is None else (start, parts)
    for done, part in enumerate(rest):
        if isinstance(state, Tensor) or isinstance(part, Tensor):
            return _mixed_on_device(state, rest[done:])
        state = _splitmix_of_int(state + part)
    return state


def _mixed_on_device(state: Number, parts: Sequence[Number]) -> Tensor:
    """The rounds from the first tensor on; on a GPU two of them by one kernel."""
    if isinstance(state, int) and _have_kernel(parts):
        from graphode.flows.mask_kernel import mix_two

        first, *second = (_raw(part) for part in parts[:2])
        assert isinstance(first, Tensor)
        state, parts = mix_two(state, first, *second), parts[2:]
        if not parts:
            return state
    for part in parts:
        state = _splitmix(summed(state, part))
    assert isinstance(state, Tensor)
    return state


def _have_kernel(parts: Sequence[Number]) -> bool:
    """Whether the first two can be mixed by a kernel: tensors of one device, lined up."""
    tensors = [part for part in parts[:2] if isinstance(part, Tensor)]
    if not has_kernel(tensors[0]):
        return False
    if len(tensors) == 2:
        few, many = sorted(tensors, key=lambda tensor: (tensor.numel(), tensor.ndim))
        own = few.ndim
        while own and few.shape[own - 1] == 1:
            own -= 1
        if few.device != many.device or few.shape[:own] != many.shape[:own]:
            return False
        if few.ndim > many.ndim:  # the kernel's result has the shape of `many`
            return False
    return not is_traced() and not is_mapped()


def has_kernel(number: Tensor) -> bool:
    """Whether it is where the kernels are."""
    return number.device.type in kernels.DEVICES and kernels.has_triton()


def _raw(part: Number) -> Number:
    return part.to(torch.int64).contiguous() if isinstance(part, Tensor) else part


def keyed_mask(key: Number, rate: float, positions: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask of a key, `[*keys, *positions]`: 0 with probability `rate`, else 1/(1 − rate).

    Args:
        key: One mask for each key in it.
        rate: Probability to drop.
        positions: Hashed positions; see `hashed`.
        dtype: Of the mask.
    """
    with torch.no_grad():
        kept = kept_entries(key, rate, positions)
        if not is_mapped():  # views of bytes have no batching rule before PyTorch 2.12
            # Numbers from bytes, not from truth values: PyTorch converts those one by one on a CPU.
            kept = kept.view(torch.uint8)
        return kept.to(dtype).mul_(1 / (1 - rate))


def kept_entries(key: Number, rate: float, positions: Tensor) -> Tensor:
    """Which entries the mask of a key keeps; arguments as for `keyed_mask`."""
    readable = positions.device.type == "cpu" and not is_traced() and not is_mapped()
    if readable and isinstance(key, int):
        return torch.from_numpy(_kept_on_host(key, rate, positions.numpy()))
    if readable and isinstance(key, Tensor) and positions.numel() >= LARGE_MASK:
        kept = torch.empty(*key.shape, *positions.shape, dtype=torch.bool)
        for mask, own in zip(
            kept.reshape(-1, *positions.shape), key.flatten().tolist(), strict=True
        ):
            mask.numpy()[...] = _kept_on_host(own, rate, positions.numpy())
        return kept
    low, high = _halves(key, positions.ndim)
    bits = positions + low
    bits = bits ^ high
    bits.bitwise_xor_((bits >> 16).bitwise_and_(0xFFFF)).mul_(0x21F0AAAD)
    bits.bitwise_xor_((bits >> 15).bitwise_and_(0x1FFFF)).mul_(0x735A2D97)
    bits.bitwise_xor_((bits >> 15).bitwise_and_(0x1FFFF))
    return bits >= threshold(rate)


def _kept_on_host(key: int, rate: float, positions: np.ndarray) -> np.ndarray:
    """The same by NumPy, whose unsigned numbers shift in one pass: 2.5 times as fast."""
    bits = positions.view(np.uint32) + np.uint32(key & 0xFFFFFFFF)
    bits ^= np.uint32(key >> 32 & 0xFFFFFFFF)
    shifted = bits >> np.uint32(16)
    bits ^= shifted
    bits *= np.uint32(0x21F0AAAD)
    bits ^= np.right_shift(bits, np.uint32(15), out=shifted)
    bits *= np.uint32(0x735A2D97)
    bits ^= np.right_shift(bits, np.uint32(15), out=shifted)
    return bits.view(np.int32) >= threshold(rate)


def is_traced() -> bool:
    """Whether operations are being compiled or recorded, so that no value is known."""
    return torch.compiler.is_compiling() or get_proxy_mode() is not None


def is_mapped() -> bool:
    """Whether `torch.func` is at work, whose tensors can be neither read nor kept."""
    return torch._C._are_functorch_transforms_active()


def threshold(rate: float) -> int:
    """The smallest signed 32-bit number that is kept."""
    return min(int(rate * 2**32), 2**32 - 1) - 2**31


def hashed(positions: Tensor) -> Tensor:
    """Whole numbers, each hashed to a signed 32-bit one."""
    return (_splitmix(positions.to(torch.int64)) >> 32).to(torch.int32)


_positions: dict[tuple[tuple[int, ...], torch.device], Tensor] = {}


def hashed_positions(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """The hashed place of every entry of a tensor of this shape, counted row after row."""
    known = _positions.get((shape, device))
    if known is not None:
        return known

    def build() -> Tensor:
        index = torch.arange(torch.Size(shape).numel(), dtype=torch.int64, device=device)
        return hashed(index).reshape(shape)

    if torch.compiler.is_compiling() or is_recorded(device):  # there are no values yet
        return build()
    with torch.inference_mode(False):  # the next call may need gradients
        positions = build()
    if len(_positions) >= 64:
        _positions.clear()
    _positions[tuple(positions.shape), positions.device] = positions
    return positions


def can_be_kept(device: torch.device) -> bool:
    """Whether what is computed now has values, and a meaning in every later call."""
    return not (
        torch.is_inference_mode_enabled() or is_mapped() or is_traced() or is_recorded(device)
    )


def is_recorded(device: torch.device) -> bool:
    """Whether a CUDA graph is being recorded, so that operations run at its replays only."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def signed(value: int, bits: int = 64) -> int:
    """The signed number with the same lowest bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def summed(a: Number, b: Number) -> Tensor:
    """a + b, of which one at least is a tensor: they broadcast from the left."""
    width = max(part.ndim for part in (a, b) if isinstance(part, Tensor))
    a, b = _widened(a, width), _widened(b, width)
    total = a + b
    assert isinstance(total, Tensor)
    return total


def _widened(part: Number, width: int) -> Number:
    if not isinstance(part, Tensor):
        return signed(part)
    part = part.to(torch.int64)
    if not part.ndim:  # broadcasts as it is, and from the host too
        return part
    return part.reshape(part.shape + (1,) * (width - part.ndim))


def _halves(key: Number, system_dims: int) -> tuple[Number, Number]:
    """A key as two signed 32-bit numbers, lined up with a mask's shape."""
    if isinstance(key, Tensor):
        key = key.reshape(key.shape + (1,) * system_dims)
        return ((key << 32) >> 32).to(torch.int32), (key >> 32).to(torch.int32)
    return signed(key, 32), signed(key >> 32, 32)


def _splitmix(state: Tensor) -> Tensor:
    """One round of splitmix64; 64-bit arithmetic that wraps, the same on host and device."""
    state = state + signed(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = _shifted_xor(state, shift) * signed(factor)
    return _shifted_xor(state, 31)


def _shifted_xor(value: Tensor, shift: int) -> Tensor:
    return value ^ ((value >> shift) & ((1 << (64 - shift)) - 1))


def _splitmix_of_int(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & _WORD
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _WORD
    return state ^ (state >> 31)
