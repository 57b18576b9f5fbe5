"""Masks that are functions: the same key gives the same mask, on any device, at any time.

A mask is a hash of its key, not the next draw of a generator, so that it comes back in the
backward pass, in a recomputation, after a resume, alone or inside an ensemble. The key is

    (seed, step, path of the module, sample if given, node, channel) and, on request, the solver's
    own counter: `per_step` adds the step, `per_eval` the evaluation within it.

`stochastic(seed, step)` supplies the first two; without it they are one draw from torch's
generator per solve. Within one solve a field is thereby a function, as error control and adjoints
need: redrawing at every evaluation makes it noise. How a key becomes a mask
stands in `masks`.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from graphode.flows.layout import Layout, SegmentedLayout
from graphode.flows.masks import MaskKey, Number, is_mapped, is_traced, keyed_mask, mix
from graphode.flows.prefix import Prefix

Redraw = Literal["per_solve", "per_step", "per_eval"]
Drawn = TypeVar("Drawn")

# What `stochastic` supplies to every key inside it.
_prefix: Prefix | None = None


@dataclass
class SolveNoise:
    """The masks of one solve: the prefix it began with, and where the solver stands.

    A mask drawn once per solve is kept for the backward pass.
    """

    prefix: Number | None = field(default_factory=lambda: _mixed(_prefix))
    draw: int = 0
    step: Number = -1
    attempt: int = -1
    evaluation: int = 0
    masks: dict[tuple[object, ...], Any] = field(default_factory=dict)
    of_members: dict[int, dict[tuple[object, ...], Any]] = field(default_factory=dict)
    row: SegmentedLayout | None = None  # of samples whose nodes lie one after the other
    drawn: set[str] = field(default_factory=set)  # what modules have asked for; members share it
    check: Callable[["Stochastic"], None] | None = None  # of modules whose masks change

    def begin_step(self, step: Number, attempt: int) -> None:
        """The solver starts (or takes again) a step; one tried twice has two attempts."""
        self.step, self.attempt, self.evaluation = step, attempt, 0


_solve: SolveNoise | None = None
# Of samples whose nodes lie one after the other, outside a solve.
_row: SegmentedLayout | None = None


class stochastic:
    """The key of every mask drawn inside.

    Args:
        seed: Of the run, or one per member of an ensemble `[members]`.
        step: Of the training. Tensors on the device let a captured or compiled program see new
            values without being made again.
        sample: Identities of the samples `[*batch]`, to give each its own masks wherever it
            stands in a batch; without them all samples share theirs. They must stay as they are
            until the backward pass.
    """

    def __init__(self, seed: Number, step: Number = 0, sample: Tensor | None = None) -> None:
        self._prefix = Prefix.of(seed, step, sample)
        self._before: tuple[Any, ...] = ()  # a pair: what was there, and what was before it

    def __enter__(self) -> None:
        global _prefix
        self._before = (_prefix, self._before)
        _prefix = self._prefix

    def __exit__(self, *_: object) -> None:
        global _prefix
        _prefix, self._before = self._before


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


@contextmanager
def samples_in_a_row(layout: Layout) -> Iterator[None]:
    """Masks drawn inside, before and after a solve, know where the samples of a state lie."""
    global _row
    before, _row = _row, layout if isinstance(layout, SegmentedLayout) else None
    try:
        yield
    finally:
        _row = before


def current_prefix() -> Number | None:
    """What `stochastic` has supplied to masks drawn now, if it has."""
    return _mixed(_prefix) if _solve is None else _solve.prefix


def _mixed(prefix: Prefix | None) -> Number | None:
    return None if prefix is None else prefix.mixed


def lone_key() -> tuple[int, int] | None:
    """Seed and step of masks drawn now, if they are whole numbers and all that the masks have."""
    return None if _solve is not None or _prefix is None else _prefix.lone


def has_one_mask() -> bool:
    """Whether masks drawn now are shared by all members and samples."""
    if _solve is None:
        return _prefix is None or _listed(_prefix.last) is None
    return _listed(_solve.prefix) is _listed(_solve.step) is None


def member_numbers() -> tuple[Tensor | None, Tensor | None]:
    """What of a mask's key has the members first: its prefix, and steps in an adaptive solve."""
    if _solve is not None and _solve.prefix is None and _solve.draw == 0:
        _solve.draw = torch_draw()
    return _listed(current_prefix()), None if _solve is None else _listed(_solve.step)


def _listed(number: Number | None) -> Tensor | None:
    return number if isinstance(number, Tensor) and number.ndim else None


@contextmanager
def of_member(
    prefix: Tensor | None, step: Tensor | None, member: int | None = None
) -> Iterator[None]:
    """Masks drawn inside are those of one member: of the prefix and the step that are its own.

    Args:
        prefix: None where all members have the same.
        step: Likewise.
        member: Its number, under which masks are kept for the solve. None for one that is mapped
            by `torch.func.vmap`, whose masks have no meaning outside it.
    """
    global _prefix, _solve
    before = _prefix, _solve
    prefix_now = current_prefix() if prefix is None else prefix
    _prefix = None if prefix_now is None else Prefix(None, prefix_now)
    if _solve is not None:
        number = _solve.step if step is None else step
        kept = {} if member is None else _solve.of_members.setdefault(member, {})
        _solve = replace(_solve, prefix=prefix_now, step=number, masks=kept)
    try:
        yield
    finally:
        _prefix, _solve = before


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
        path_hash = mix([int.from_bytes(digest, "little")])
        assert isinstance(path_hash, int)
        self.path_hash = path_hash
        word = mix([0], start=path_hash)
        assert isinstance(word, int)
        self.path_word = word

    def keep_mask(self, rate: float, positions: Tensor, like: Tensor) -> Tensor:
        """1/(1 − rate) where kept and 0 elsewhere, `[*keys, *positions]`, in the dtype of `like`.

        `keys` are the dimensions of a seed per member and of samples; usually there are none.

        Args:
            rate: Probability to drop.
            positions: The hashed place of each entry; see `masks.hashed_positions`.
            like: Where the mask is needed.
        """

        def mask() -> Tensor:
            return keyed_mask(self.mask_key().whole, rate, positions, like.dtype)

        return self.drawn((rate, positions.shape, like.dtype, like.device), mask)

    def row_of_samples(self, h: Tensor) -> SegmentedLayout | None:
        """Where the samples lie in the row of nodes of `h`, if each has its own mask."""
        row = _row if _solve is None else _solve.row
        if row is None or has_one_mask():
            return None
        shapes = [part.shape for part in self.mask_key()[:2] if isinstance(part, Tensor)]
        keys = max(shapes, key=len, default=torch.Size())
        # Of keys for every dimension of the batch, the last is that of the samples in a row.
        surplus = len(keys) - (h.ndim - 1)
        is_own = surplus >= 0 and keys[:surplus].numel() == 1 and keys[-1:] == (len(row.sizes),)
        return row if is_own else None

    @property
    def draws_for_all(self) -> bool:
        """Whether its mask that is due now is shared by all members and samples."""
        if _solve is not None and self.redraw == "per_solve":
            return _listed(_solve.prefix) is None  # whatever steps samples have
        return has_one_mask()

    @property
    def is_active(self) -> bool:
        """Whether anything is drawn now."""
        return self.training

    def drawn(self, name: tuple[object, ...], draw: Callable[[], Drawn]) -> Drawn:
        """What `draw` gives; in a solve that keeps its masks, what it gave the first time."""
        noise = _solve
        if noise is None or self.redraw != "per_solve" or is_mapped():
            return draw()
        name = (id(self), *name)
        if name not in noise.masks:
            noise.masks[name] = draw()
        return noise.masks[name]

    def mask_key(self, mixed: bool = True) -> MaskKey:
        """The key of the mask that is due now.

        Args:
            mixed: Whether its prefix must be; else the last round may be left to a kernel.
        """
        noise = _solve
        if noise is None and _prefix is not None:
            if not mixed and _prefix.known is not None and not is_mapped():
                start = mix(_prefix.known)
                assert isinstance(start, int)
                return MaskKey(_prefix.last, self.path_word, start)
            return MaskKey(_known(_prefix.mixed), self.path_word)
        if noise is None:
            prefix, numbers = None, (torch_draw(),)
        else:
            noise.drawn.add(self.redraw)
            if noise.check is not None and self.redraw != "per_solve":
                noise.check(self)
            if noise.prefix is None and noise.draw == 0:
                noise.draw = torch_draw()
            counters: dict[str, tuple[Number, ...]] = {
                "per_solve": (),
                "per_step": (noise.step,),
                "per_eval": (noise.attempt, noise.evaluation),
            }
            prefix, numbers = noise.prefix, (noise.draw, *counters[self.redraw])
        prefix = 0 if prefix is None else _known(prefix)
        return MaskKey(prefix, mix([*map(_known, numbers)], start=self.path_hash))


def _known(number: Number) -> Number:
    """A lone number on the host as one of Python's, with which keys are mixed faster."""
    if not isinstance(number, Tensor) or number.ndim or number.device.type != "cpu":
        return number
    return number if is_mapped() or is_traced() else int(number)


def torch_draw() -> int:
    """One draw from torch's generator."""
    return int(torch.randint(1 << 62, ()).item())


def name_masks(root: nn.Module) -> None:
    """Give every stochastic module below `root` its path, which is part of its masks' key."""
    for path, module in root.named_modules():
        if isinstance(module, Stochastic):
            module.name(path)
