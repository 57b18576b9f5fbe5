"""Dropout that keeps a solve well-posed: its masks are functions of a key.

    dropout(h) = h ∘ m / (1 − p),    m = 1 with probability 1 − p, fixed within a solve

See `graphode.stochastic` for the key. Srivastava et al. (2014), "Dropout".
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.flows import Stochastic
from graphode.flows.kernels import may_use_kernels
from graphode.flows.masks import hashed_positions
from graphode.flows.stochastic import Redraw
from graphode.graphs import Graph


def _checked(rate: float) -> float:
    if not 0 <= rate < 1:
        raise ValueError(
            f"A dropout rate must be at least 0 and below 1, but is {rate}. It is the share that "
            f"is dropped."
        )
    return rate


class Dropout(Stochastic):
    """Drops entries of a state, one mask for all samples unless samples are named.

    Args:
        rate: Probability to drop.
        redraw: When a new mask is drawn: per_solve, per_step, per_eval.
        force: Allow `per_eval` under adaptive solvers and adjoints.

    Shapes:
        - **h:** `[..., nodes, channels]`; the same comes out.
    """

    def __init__(self, rate: float, redraw: Redraw = "per_solve", force: bool = False) -> None:
        super().__init__(redraw, force)
        self.rate = _checked(rate)

    @property
    def is_active(self) -> bool:
        """Whether anything is dropped now."""
        return self.training and self.rate > 0

    def forward(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*batch nodes channels"]:
        if not self.is_active:
            return h
        positions = hashed_positions(tuple(h.shape[-2:]), h.device)
        if may_use_kernels(h):
            return self.drop(h, positions)
        return h * lined_up(self.keep_mask(self.rate, positions, h), h, 2)

    def drop(self, h: Tensor, positions: Tensor) -> Tensor:
        """`h` without what is dropped, by the GPU's kernel.

        Args:
            h: Ends with the dimensions of `positions`.
            positions: The hashed place of each entry.
        """
        from graphode.flows.mask_kernel import prefix_and_word

        prefix, word = prefix_and_word(self.mask_key(), h.device)
        return _Dropped.apply(h, prefix, positions, word, self.rate)  # pyright: ignore[reportReturnType]

    def extra_repr(self) -> str:
        return f"{self.rate}, redraw={self.redraw!r}"


class EdgeDropout(Stochastic):
    """Drops edges: a graph with fewer of them, the weights of the rest scaled by 1/(1 − p).

    On a symmetric graph both directions of an edge have masks of their own.

    Args:
        rate: Probability to drop.
        redraw: When a new mask is drawn: per_solve, per_step, per_eval.
        force: Allow `per_eval` under adaptive solvers and adjoints.
    """

    def __init__(self, rate: float, redraw: Redraw = "per_solve", force: bool = False) -> None:
        super().__init__(redraw, force)
        self.rate = _checked(rate)

    @property
    def is_active(self) -> bool:
        """Whether anything is dropped now."""
        return self.training and self.rate > 0

    def forward(self, graph: Graph) -> Graph:
        if not self.is_active:
            return graph
        positions = hashed_positions((graph.num_edges,), graph.device)
        mask = self.keep_mask(self.rate, positions, graph.edge_weight)
        return graph.reweight(graph.edge_weight * mask)

    def extra_repr(self) -> str:
        return f"{self.rate}, redraw={self.redraw!r}"


def lined_up(mask: Tensor, h: Tensor, system_dims: int) -> Tensor:
    """A mask with a dimension for each of the batch's that has no keys.

    Keys (members, samples) stand for the first dimensions of the batch.
    """
    keys = mask.ndim - system_dims
    missing = h.ndim - mask.ndim
    if not keys or not missing:
        return mask
    return mask.reshape(*mask.shape[:keys], *(1,) * missing, *mask.shape[keys:])


class _Dropped(torch.autograd.Function):
    """Linear in `h`, and its own transpose."""

    @staticmethod
    def forward(h: Tensor, prefix: Tensor, positions: Tensor, word: int, rate: float):
        from graphode.flows.mask_kernel import drop

        keys = prefix.ndim
        if h.ndim - positions.ndim < keys:
            h = h.expand(*prefix.shape, *h.shape)  # what all members share
        by_key = h[None] if keys == 0 else h.flatten(0, keys - 1)
        out = drop(by_key, prefix.reshape(-1), word, rate, positions)
        return out.reshape(h.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor):
        h, prefix, positions, ctx.word, ctx.rate = inputs
        ctx.shape = h.shape
        ctx.save_for_backward(prefix, positions)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        prefix, positions = ctx.saved_tensors
        (grad,) = grad_outputs
        grad = _Dropped.apply(grad, prefix, positions, ctx.word, ctx.rate)
        assert isinstance(grad, Tensor)
        return grad.sum_to_size(ctx.shape), None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any):  # pyright: ignore[reportIncompatibleMethodOverride]
        h, prefix, *rest = args
        if in_dims[1] is None:
            prefix = prefix.expand(info.batch_size, *prefix.shape)
        else:
            prefix = prefix.movedim(in_dims[1], 0)
        h = h if in_dims[0] is None else h.movedim(in_dims[0], 0)
        return _Dropped.apply(h, prefix, *rest), 0
