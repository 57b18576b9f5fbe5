"""What `stochastic` supplies to every key inside it: seeds, a step and samples, to be mixed."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphode.flows.masks import Number, can_be_kept, has_kernel, mix


@dataclass(slots=True)
class Prefix:
    """Numbers, mixed when they are asked for: not at all where masks are kept or a kernel mixes.

    Args:
        known: Whole numbers that are mixed first; None where `last` is mixed already.
        last: A step, or samples that a kernel takes as they are, `[*members, *samples]`.
        lone: Seed and step, where they are whole numbers and there is nothing else.
    """

    known: tuple[int, ...] | None
    last: Number
    lone: tuple[int, int] | None = None

    @classmethod
    def of(cls, seed: Number, step: Number, sample: Tensor | None) -> "Prefix":
        """Arguments as for `stochastic`."""
        if isinstance(seed, int) and isinstance(step, int):
            if sample is None:
                return cls((seed,), step, (seed, step))
            if sample.dtype == torch.int64 and has_kernel(sample) and not sample.is_inference():
                return cls((seed, step), sample)
        if sample is None:
            return cls(None, mix([seed, step]))
        if isinstance(seed, Tensor):
            seed = seed.reshape(seed.shape + (1,) * sample.ndim)
            sample = sample.expand(seed.shape[: seed.ndim - sample.ndim] + sample.shape)
        return cls(None, mix([seed, step, sample]))

    @property
    def mixed(self) -> Number:
        """64 bits, `[*members, *samples]` or a number."""
        if self.known is None:
            return self.last
        mixed = mix([*self.known, self.last])
        if isinstance(mixed, Tensor) and can_be_kept(mixed.device):
            self.known, self.last = None, mixed
        return mixed
