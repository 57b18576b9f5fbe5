"""Masks that are functions: the same key gives the same mask, on any device, at any time.

A mask is a hash of its key, not the next draw of a generator, so that it comes back in the
backward pass, in a recomputation, after a resume, alone or inside an ensemble. The key is

    (seed, step, path of the module, sample if given, node, channel) and, on request, the solver's
    own counter: `per_step` adds the step, `per_eval` the evaluation within it.

`stochastic(seed, step)` supplies the first two; without it they are one draw from torch's
generator per solve. Within one solve a field is thereby a function, as error control and adjoints
need: redrawing at every evaluation makes it noise.

The hash is the 32-bit `lowbias32` of Wellons (2018, "Prospecting for hash functions"), keyed by
64 bits that `splitmix64` (Steele, Lea, Flood, 2014) mixes on the host or on the device.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

Redraw = Literal["per_solve", "per_step", "per_eval"]
Number = int | Tensor

_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Key:
    """What `stochastic` supplies."""

    seed: Number
    step: Number
    sample: Tensor | None = None


_key: Key | None = None


@dataclass
class SolveNoise:
    """The masks of one solve: the key it began with, and where the solver stands.

    A mask drawn once per solve is kept for the backward pass.
    """

    key: Key | None = field(default_factory=lambda: _key)
    draw: int = 0
    step: Number = -1
    attempt: int = -1
    evaluation: int = 0
    masks: dict[tuple[object, ...], Tensor] = field(default_factory=dict)

    def begin_step(self, step: Number, attempt: int) -> None:
        """The solver starts (or takes again) a step; one tried twice has two attempts."""
        self.step, self.attempt, self.evaluation = step, attempt, 0


_solve: SolveNoise | None = None


@contextmanager
def stochastic(seed: Number, step: Number = 0, sample: Tensor | None = None) -> Iterator[None]:
    """The key of every mask drawn inside.

    Args:
        seed: Of the run, or one per member of an ensemble `[members]`.
        step: Of the training. Tensors on the device let a captured or compiled program see new
            values without being made again.
        sample: Identities of the samples `[*batch]`, to give each its own masks wherever it
            stands in a batch; without them all samples share theirs.
    """
    global _key
    before, _key = _key, Key(seed, step, sample)
    try:
        yield
    finally:
        _key = before


@contextmanager
def noise_of(noise: SolveNoise) -> Iterator[None]:
    """Masks drawn inside belong to the evaluation `noise` stands at."""
    global _solve
    before, _solve = _solve, noise
    try:
        yield
    finally:
        _solve = before
        noise.evaluation += 1


class Stochastic(nn.Module):
    """A module that draws masks.

    Args:
        redraw: When a new mask is drawn within one solve.
        force: Allow `per_eval` where it breaks the solver's promises.
    """

    def __init__(self, redraw: Redraw = "per_solve", force: bool = False) -> None:
        super().__init__()
        if redraw not in ("per_solve", "per_step", "per_eval"):
            raise ValueError(
                f"Unknown `redraw` {redraw!r}. Choose one of: per_eval, per_solve, per_step."
            )
        self.redraw, self.force = redraw, force
        self.name("")

    def name(self, path: str) -> None:
        """Take `path` into the key of the masks."""
        self.path = path
        digest = hashlib.blake2b(path.encode(), digest_size=8).digest()
        self.path_number = int.from_bytes(digest, "little")

    def keep_mask(self, rate: float, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """1/(1 − rate) where kept and 0 elsewhere, `[*keys, *shape]`, in the dtype of `like`.

        `keys` are the dimensions of a seed per member and of samples; usually there are none.
        """
        noise = _solve
        if noise is None:
            draw = torch_draw() if _key is None else 0
            return self._draw(rate, shape, like, _key, (draw,))
        if noise.key is None and noise.draw == 0:
            noise.draw = torch_draw()
        if self.redraw == "per_step":
            return self._draw(rate, shape, like, noise.key, (noise.draw, noise.step))
        if self.redraw == "per_eval":
            numbers = (noise.draw, noise.attempt, noise.evaluation)
            return self._draw(rate, shape, like, noise.key, numbers)
        name = (id(self), rate, shape, like.dtype, like.device)
        if name not in noise.masks:
            noise.masks[name] = self._draw(rate, shape, like, noise.key, (noise.draw,))
        return noise.masks[name]

    @torch.no_grad()
    def _draw(
        self,
        rate: float,
        shape: tuple[int, ...],
        like: Tensor,
        key: Key | None,
        numbers: tuple[Number, ...],
    ) -> Tensor:
        parts: list[Number] = [self.path_number, *numbers]
        if key is not None:
            parts = [key.seed, key.step, *parts]
            if key.sample is not None:
                parts.append(key.sample)
        return keyed_mask(mix(parts), rate, shape, like.dtype, like.device)


def torch_draw() -> int:
    """One draw from torch's generator."""
    return int(torch.randint(1 << 62, ()).item())


def mix(parts: list[Number]) -> Number:
    """64 bits from numbers; tensors among them broadcast from the left, `[*keys]`."""
    width = max([0, *[part.ndim for part in parts if isinstance(part, Tensor)]])
    state: Number = 0
    for part in parts:
        if isinstance(part, Tensor):
            part = part.to(torch.int64)
            part = part.reshape(part.shape + (1,) * (width - part.ndim))
        state = _splitmix(_add(state, part))
    return state


def keyed_mask(
    key: Number, rate: float, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The mask of a key, `[*keys, *shape]`: 0 with probability `rate`, else 1/(1 − rate)."""
    low, high = _halves(key, len(shape))
    bits = _scrambled_positions(shape, device) + low
    bits = bits ^ high
    bits.bitwise_xor_((bits >> 16).bitwise_and_(0xFFFF)).mul_(0x21F0AAAD)
    bits.bitwise_xor_((bits >> 15).bitwise_and_(0x1FFFF)).mul_(0x735A2D97)
    bits.bitwise_xor_((bits >> 15).bitwise_and_(0x1FFFF))
    threshold = min(int(rate * 2**32), 2**32 - 1) - 2**31
    return (bits >= threshold).to(dtype).mul_(1 / (1 - rate))


_positions: dict[tuple[tuple[int, ...], torch.device], Tensor] = {}


def _scrambled_positions(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """A hash of each position; without it masks of neighbouring keys would be shifted copies."""
    known = _positions.get((shape, device))
    if known is not None:
        return known
    count = torch.Size(shape).numel()
    index = torch.arange(count, dtype=torch.int64, device=device)
    scrambled = _splitmix(index)
    assert isinstance(scrambled, Tensor)
    # The upper half of the word, as a signed 32-bit number.
    positions = (scrambled >> 32).to(torch.int32).reshape(shape)
    if not torch.compiler.is_compiling():
        if len(_positions) >= 64:
            _positions.clear()
        _positions[shape, device] = positions
    return positions


def _halves(key: Number, system_dims: int) -> tuple[Number, Number]:
    """A key as two signed 32-bit numbers, lined up with a mask's shape."""
    if isinstance(key, Tensor):
        key = key.reshape(key.shape + (1,) * system_dims)
        return ((key << 32) >> 32).to(torch.int32), (key >> 32).to(torch.int32)
    return _signed(key & 0xFFFFFFFF, 32), _signed(key >> 32, 32)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def _add(a: Number, b: Number) -> Number:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        a = a if isinstance(a, Tensor) else _signed(a & _WORD, 64)
        b = b if isinstance(b, Tensor) else _signed(b & _WORD, 64)
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
        return value * _signed(factor, 64)
    return (value * factor) & _WORD


def _shifted_xor(value: Number, shift: int) -> Number:
    if isinstance(value, Tensor):
        return value ^ ((value >> shift) & ((1 << (64 - shift)) - 1))
    return value ^ (value >> shift)


def may_draw(f: object) -> bool:
    """Whether a field can ask for masks; of a plain function nothing is known."""
    if not isinstance(f, nn.Module):
        return True
    return any(isinstance(module, Stochastic) for module in f.modules())


def check_redraw(f: object, *, adaptive: bool, adjoint: bool) -> None:
    """Refuse masks that change while the solver relies on the field being a function."""
    if not isinstance(f, nn.Module) or not (adaptive or adjoint):
        return
    for path, module in f.named_modules():
        if not isinstance(module, Stochastic) or module.force or not module.training:
            continue
        if module.redraw == "per_eval" or (adjoint and module.redraw == "per_step"):
            reason = (
                "an adjoint solves the field backwards, at other points, and needs the masks of "
                "the forward solve"
                if adjoint
                else "an adaptive solver takes the redrawn masks for error and cuts its steps down"
            )
            raise ValueError(
                f"Module {path or 'field'!r} draws its masks {module.redraw}, but {reason}. Use "
                f"redraw='per_solve' (the default), a fixed-step solver with gradient='backprop' "
                f"or 'checkpoint', or force=True to do it all the same."
            )


def name_masks(root: nn.Module) -> None:
    """Give every stochastic module below `root` its path, which is part of its masks' key."""
    for path, module in root.named_modules():
        if isinstance(module, Stochastic):
            module.name(path)
