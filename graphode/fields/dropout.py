"""Dropout that keeps a solve well-posed: its masks are functions of a key.

    dropout(h) = h ∘ m / (1 − p),    m = 1 with probability 1 − p, fixed within a solve

See `graphode.stochastic` for the key. Srivastava et al. (2014), "Dropout".
"""

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.fields.drawn_ahead import MasksAhead
from graphode.flows import Stochastic
from graphode.flows.dropped import drawn, dropped
from graphode.flows.kernels import may_use_kernels
from graphode.flows.masks import can_be_kept, hashed_positions, is_mapped, is_recorded
from graphode.flows.stochastic import Redraw, has_one_mask, lone_key
from graphode.graphs import Graph

# Numbers in a mask that a GPU writes and reads in less time than Python needs for a gradient.
SMALL_MASK = 1 << 22


class DropsAtRandom(Stochastic):
    """What is dropped with a probability, in training: entries, edges or nodes.

    Args:
        rate: Probability to drop.
        redraw: When a new mask is drawn: per_solve, per_step, per_eval.
        force: Allow `per_eval` under adaptive solvers and adjoints.
    """

    def __init__(self, rate: float, redraw: Redraw = "per_solve", force: bool = False) -> None:
        super().__init__(redraw, force)
        if not 0 <= rate < 1:
            raise ValueError(
                f"A dropout rate must be at least 0 and below 1, but is {rate}. It is the share "
                f"that is dropped."
            )
        self.rate = rate

    @property
    def is_active(self) -> bool:
        """Whether anything is dropped now."""
        return self.training and self.rate > 0

    def mask_in_a_row(self, h: Tensor, channels: int) -> Tensor | None:
        """The mask of a state whose samples lie in a row and have masks of their own; else None.

        Nodes are counted within each sample, so that its mask is the one it has alone.
        """
        row = self.row_of_samples(h)
        if row is None:
            return None
        positions = hashed_positions((max(row.sizes), channels), h.device)
        mask = self.keep_mask(self.rate, positions, h)[..., row.owner, row.place, :]
        return mask.reshape(mask.shape[mask.ndim - h.ndim :])

    def extra_repr(self) -> str:
        return f"{self.rate}, redraw={self.redraw!r}"


class Dropout(DropsAtRandom):
    """Drops entries of a state, one mask for all samples unless samples are named.

    Its path in the model is part of the masks' key: `Flow`, `GDE` and our models set it, a module
    of your own by `graphode.name_masks`.

    Args:
        rate: Probability to drop.
        redraw: When a new mask is drawn: per_solve, per_step, per_eval.
        force: Allow `per_eval` under adaptive solvers and adjoints.

    Shapes:
        - **h:** `[..., nodes, channels]`; the same comes out.
    """

    def __init__(self, rate: float, redraw: Redraw = "per_solve", force: bool = False) -> None:
        super().__init__(rate, redraw, force)
        self._ahead = MasksAhead()

    def forward(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*batch nodes channels"]:
        if not self.is_active:
            return h
        mask = self._ahead.find(self, self.rate, h)
        if mask is not None:
            return h * mask
        mask = self.mask_in_a_row(h, h.shape[-1])
        if mask is not None:
            return h * mask
        shape, device = h.shape[-2:], h.device
        positions = hashed_positions(shape, device)
        if not may_use_kernels(h):
            mask = self.keep_mask(self.rate, positions, h)
        elif not _is_cheaper_drawn(h):
            return self.drop(h, positions)
        else:
            name = (self.rate, shape, h.dtype, device)
            mask = self.drawn(name, lambda: self._drawn_mask(h, positions))
        return h * lined_up(mask, h, 2)

    def _drawn_mask(self, h: Tensor, positions: Tensor) -> Tensor:
        """The mask that is due, by the GPU's kernel."""
        key = lone_key()
        if key is not None and can_be_kept(h.device):
            return self._ahead.draw(self, *key, self.rate, h)
        return drawn(self.mask_key(mixed=False), self.rate, positions)

    def drop(self, h: Tensor, positions: Tensor) -> Tensor:
        """`h` without what is dropped, by the GPU's kernel.

        Args:
            h: Ends with the dimensions of `positions`.
            positions: The hashed place of each entry.
        """
        return dropped(h, self.mask_key(mixed=False), self.rate, positions)


class EdgeDropout(DropsAtRandom):
    """Drops edges: a graph with fewer of them, the weights of the rest scaled by 1/(1 − p).

    On a symmetric graph both directions of an edge have masks of their own. Dropped edges stay in
    `edge_index` with the weight 0, so that no shape depends on a mask. Fields that look at edges
    alone (attention, PyG's layers without weights) pass them over. To normalise with the degrees
    that are left, drop first: `dropout(graph).normalize("sym")`. Rong, Huang, Xu, Huang (2020),
    "DropEdge: Towards Deep Graph Convolutional Networks on Node Classification".

    Args:
        rate: Probability to drop.
        redraw: When a new mask is drawn: per_solve, per_step, per_eval.
        force: Allow `per_eval` under adaptive solvers and adjoints.
    """

    def forward(self, graph: Graph) -> Graph:
        if not self.is_active:
            return graph
        if not self.draws_for_all:
            raise ValueError(
                "EdgeDropout drops the same edges for all samples, as they share a graph, but "
                "masks are drawn for each sample here. Leave out `sample` of "
                "`graphode.stochastic`, use redraw='per_solve' under an adaptive solver, or use "
                "`NodeDropout`."
            )
        return graph._thin(self._mask(graph.edge_weight))

    def _mask(self, weight: Tensor) -> Tensor:
        positions = hashed_positions(tuple(weight.shape), weight.device)
        if not may_use_kernels(weight):
            return self.keep_mask(self.rate, positions, weight)

        def draw() -> Tensor:  # by the kernel that can be mapped
            ones = torch.ones_like(positions, dtype=weight.dtype)
            return dropped(ones, self.mask_key(), self.rate, positions)

        return self.drawn((self.rate, weight.shape, weight.dtype, weight.device), draw)


class NodeDropout(DropsAtRandom):
    """Silences nodes: all channels of a node are dropped or none, the rest scaled by 1/(1 − p).

    Before a diffusion it makes each node guess from a random part of its neighbourhood: Feng et al.
    (2020), "Graph Random Neural Networks for Semi-Supervised Learning on Graphs".

    Args:
        rate: Probability to drop a node.
        redraw: When a new mask is drawn: per_solve, per_step, per_eval.
        force: Allow `per_eval` under adaptive solvers and adjoints.

    Shapes:
        - **h:** `[..., nodes, channels]`; the same comes out.
    """

    def forward(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*batch nodes channels"]:
        if not self.is_active:
            return h
        mask = self.mask_in_a_row(h, 1)
        if mask is None:
            positions = hashed_positions((h.shape[-2], 1), h.device)
            mask = lined_up(self.keep_mask(self.rate, positions, h), h, 2)
        return h * mask


def _is_cheaper_drawn(h: Tensor) -> bool:
    """Whether a mask in memory is better than one in registers: where launches outweigh bytes.

    A drawn mask serves a whole solve, and the gradient of a product asks nothing of Python, which
    takes the host half of the time. In a CUDA graph neither counts.
    """
    numbers = h.shape[-2:].numel() if has_one_mask() else h.numel()
    return numbers <= SMALL_MASK and not is_mapped() and not is_recorded(h.device)


def lined_up(mask: Tensor, h: Tensor, system_dims: int) -> Tensor:
    """A mask with a dimension for each of the batch's that has no keys.

    Keys (members, samples) stand for the first dimensions of the batch.
    """
    keys = mask.ndim - system_dims
    missing = h.ndim - mask.ndim
    if not keys or not missing:
        return mask
    return mask.reshape(*mask.shape[:keys], *(1,) * missing, *mask.shape[keys:])
