"""Masks of the next training steps, drawn with the one that is due by a single launch.

A lone call of dropout on a GPU takes as long as the host needs to launch it. Masks are functions
of their key, so that those of coming steps can be drawn before they are asked for:

    mask(seed, step), mask(seed, step + 1), … are drawn at once where calls go step by step,

and the calls that follow find theirs. A step that does not follow the last one draws one mask, as
if nothing were kept.
"""

import torch
from torch import Tensor

from graphode.flows.dropped import drawn
from graphode.flows.masks import MaskKey, hashed_positions, mix
from graphode.flows.stochastic import Stochastic, lone_key

# The most masks that are drawn at once, and the most numbers in them: 16 MiB.
MOST_MASKS, MOST_NUMBERS = 32, 1 << 22
RECORDED = -1  # in the place of a stream: what is recorded is there only while its program runs


class MasksAhead:
    """Masks of one module at consecutive steps; copies and files of the module hold none."""

    def __init__(self) -> None:
        self.masks: tuple[Tensor, ...] = ()
        self.first = self.seed = self.word = 0
        self.rate, self.stream = 0.0, 0
        self.shape, self.dtype, self.device = torch.Size(), torch.float32, torch.device("cpu")

    def __reduce__(self) -> tuple[type["MasksAhead"], tuple[()]]:
        return MasksAhead, ()

    def find(self, module: Stochastic, rate: float, h: Tensor) -> Tensor | None:
        """The mask that is due, if it is kept: one of whole numbers, for a call outside a solve.

        A product with it may be mapped and differentiated in every way, but a program that is
        compiled or recorded would outlive it.
        """
        if type(h) is not Tensor or torch.compiler.is_compiling():
            return None
        key = lone_key()
        if key is None:
            return None
        seed, step = key
        place = step - self.first
        if 0 <= place < len(self.masks) and self._are_of(module, seed, rate, h):
            return self.masks[place]
        return None

    def draw(self, module: Stochastic, seed: int, step: int, rate: float, h: Tensor) -> Tensor:
        """The mask of a step, by the GPU's kernel, and of those that follow if this one does."""
        shape, device = h.shape[-2:], h.device
        count = 1
        if step == self.first + len(self.masks) and self._are_of(module, seed, rate, h):
            count = max(1, min(MOST_MASKS, MOST_NUMBERS // max(1, shape.numel())))
        # The first step comes with the seed, the others by what they add to it.
        start = mix([seed])
        assert isinstance(start, int)
        steps = torch.arange(count, device=device) if count > 1 else 0
        key = MaskKey(steps, module.path_word, start + step)
        masks = drawn(key, rate, hashed_positions(shape, device))
        self.first, self.masks = step, masks.unbind() if count > 1 else (masks,)
        self.seed, self.word, self.rate, self.stream = seed, module.path_word, rate, _stream(h)
        self.shape, self.dtype, self.device = h.shape, h.dtype, device
        return self.masks[0]

    def _are_of(self, module: Stochastic, seed: int, rate: float, h: Tensor) -> bool:
        """Whether all that a mask depends on but the step, and its memory's stream, is the same."""
        return (
            h.shape == self.shape
            and h.dtype is self.dtype
            and h.device == self.device
            and seed == self.seed
            and module.path_word == self.word
            and rate == self.rate
            and self.stream == _stream(h) != RECORDED
        )


def _stream(h: Tensor) -> int:
    """The stream that runs what is launched now, or `RECORDED`."""
    if not h.is_cuda:
        return 0
    stream = torch._C._cuda_getCurrentRawStream(h.get_device())
    # Nothing can be recorded on the default stream, which is 0.
    return RECORDED if stream and torch.cuda.is_current_stream_capturing() else stream
