"""Masks that are hashes of a key and a position: the same bits on any device, in any order.

    key  = splitmix(prefix + word)                 64 bits, for a whole mask
    bits = lowbias32((position′ + low) ⊕ high)      32 bits, for an entry; low ones are dropped

`prefix` is mixed from what members and samples differ in, `word` from what the host knows;
position′ is a hash of the entry's place, without which masks of neighbouring keys would be shifted
copies. The hashes are `splitmix64` (Steele, Lea, Flood, 2014) and the 32-bit `lowbias32` of
Wellons (2018, "Prospecting for hash functions"). On a GPU `mask_kernel` computes the same.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

Number = int | Tensor

_WORD = (1 << 64) - 1


class MaskKey(NamedTuple):
    """The key of one mask, in two parts, so that a device need not mix what the host knows.

    Args:
        prefix: Of members and samples, `[*keys]`, or a number.
        word: Of everything else; a tensor only where solver steps differ between samples.
    """

    prefix: Number
    word: Number

    @property
    def whole(self) -> Number:
        """The mixed key."""
        return mix([self.prefix, self.word], start=None)


def mix(parts: list[Number], start: int | None = 0) -> Number:
    """64 bits from numbers; tensors among them broadcast from the left, `[*keys]`.

    Args:
        parts: The numbers.
        start: What is mixed first; None for the first part as it is.
    """
    width = max([0, *[part.ndim for part in parts if isinstance(part, Tensor)]])
    parts = [_widened(part, width) for part in parts]
    state, rest = (parts[0], parts[1:]) if start is None else (start, parts)
    for part in rest:
        state = _splitmix(_add(state, part))
    return state


def keyed_mask(key: Number, rate: float, positions: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask of a key, `[*keys, *positions]`: 0 with probability `rate`, else 1/(1 − rate).

    Args:
        key: One mask for each key in it.
        rate: Probability to drop.
        positions: Hashed positions; see `hashed`.
        dtype: Of the mask.
    """
    # Numbers from bytes, not from truth values: PyTorch converts those one by one on a CPU.
    return kept_entries(key, rate, positions).view(torch.uint8).to(dtype).mul_(1 / (1 - rate))


def kept_entries(key: Number, rate: float, positions: Tensor) -> Tensor:
    """Which entries the mask of a key keeps; arguments as for `keyed_mask`."""
    readable = positions.device.type == "cpu" and not is_traced() and not is_mapped()
    if isinstance(key, int) and readable:
        return torch.from_numpy(_kept_on_host(key, rate, positions.numpy()))
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
    scrambled = _splitmix(positions.to(torch.int64))
    assert isinstance(scrambled, Tensor)
    return (scrambled >> 32).to(torch.int32)


_positions: dict[tuple[tuple[int, ...], torch.device], Tensor] = {}


def hashed_positions(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """The hashed place of every entry of a tensor of this shape, counted row after row."""
    known = _positions.get((shape, device))
    if known is not None:
        return known
    index = torch.arange(torch.Size(shape).numel(), dtype=torch.int64, device=device)
    positions = hashed(index).reshape(shape)
    if not torch.compiler.is_compiling():
        if len(_positions) >= 64:
            _positions.clear()
        _positions[shape, device] = positions
    return positions


def signed(value: int, bits: int = 64) -> int:
    """The signed number with the same lowest bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def _widened(part: Number, width: int) -> Number:
    if not isinstance(part, Tensor):
        return part
    return part.to(torch.int64).reshape(part.shape + (1,) * (width - part.ndim))


def _halves(key: Number, system_dims: int) -> tuple[Number, Number]:
    """A key as two signed 32-bit numbers, lined up with a mask's shape."""
    if isinstance(key, Tensor):
        key = key.reshape(key.shape + (1,) * system_dims)
        return ((key << 32) >> 32).to(torch.int32), (key >> 32).to(torch.int32)
    return signed(key, 32), signed(key >> 32, 32)


def _add(a: Number, b: Number) -> Number:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        a = a if isinstance(a, Tensor) else signed(a)
        b = b if isinstance(b, Tensor) else signed(b)
        return a + b
    return (a + b) & _WORD


def _splitmix(state: Number) -> Number:
    """One round of splitmix64; 64-bit arithmetic that wraps, the same on host and device."""
    state = _add(state, 0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = _multiply(_shifted_xor(state, shift), factor)
    return _shifted_xor(state, 31)


def _multiply(value: Number, factor: int) -> Number:
    if isinstance(value, Tensor):
        return value * signed(factor)
    return (value * factor) & _WORD


def _shifted_xor(value: Number, shift: int) -> Number:
    if isinstance(value, Tensor):
        return value ^ ((value >> shift) & ((1 << (64 - shift)) - 1))
    return value ^ (value >> shift)
