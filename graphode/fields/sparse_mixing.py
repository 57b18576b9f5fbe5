"""dropout(h) W where little of h is kept, on a CPU: a product with a sparse matrix.

    u[i] = Σ_k h[i, k] / (1 − p) W[k],    k over the channels kept at node i

With the paper's p = 0.9 nine tenths of a dense product, and of its derivatives, are multiplications
by zero. On Cora's 2708 nodes with 64 channels the sparse product and its derivatives take 0.27 ms,
the dense ones 0.77 ms; to draw and list what is kept takes as long as to draw a dense mask.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphode.fields.dropout import Dropout
from graphode.flows.masks import hashed_positions, is_traced, kept_entries
from graphode.graphs.derivatives import Sparsity
from graphode.graphs.product import is_plain, sparse_product

# Share of kept entries, and size of a state, where the dense product is as fast (measured).
FEW = 0.2
LARGE = 1 << 16


class Kept(NamedTuple):
    """The kept entries of a state: their places in memory, and in a matrix."""

    entries: Tensor
    places: Sparsity


def mixed_sparsely(h: Tensor, weight: Tensor, dropout: Dropout) -> Tensor | None:
    """dropout(h) W, or None where a dense product is better or the only one.

    Shapes:
        - **h:** `[nodes, in_channels]`
        - **weight:** `[in_channels, out_channels]`
    """
    if (
        h.ndim != 2
        or h.numel() < LARGE
        or 1 - dropout.rate > FEW
        or h.device.type != "cpu"
        or h.dtype not in (torch.float32, torch.float64)
        or torch.is_autocast_enabled("cpu")
        or is_traced()
        or not is_plain(h, weight)
    ):
        return None
    kept = dropout.drawn(("kept", h.shape), lambda: _kept(h, dropout))
    if kept is None:
        return None
    values = h.reshape(-1).index_select(0, kept.entries) * (1 / (1 - dropout.rate))
    return sparse_product(values, None, weight, kept.places)


def _kept(h: Tensor, dropout: Dropout) -> Kept | None:
    """What is kept of a state; None where every sample keeps something else."""
    key = dropout.mask_key().whole
    if not isinstance(key, int):
        return None
    positions = hashed_positions(tuple(h.shape), h.device)
    return listed(kept_entries(key, dropout.rate, positions).numpy())


def listed(mask: np.ndarray) -> Kept:
    """The true entries of a matrix."""
    rows, columns = mask.shape
    # NumPy searches for a tenth and lists more three times as fast: a tail makes it more.
    tail = np.ones(mask.size // 32, dtype=bool)
    entries = np.flatnonzero(np.append(mask, tail))
    entries = entries[: len(entries) - len(tail)]
    row = entries // columns
    column = entries - row * columns
    # NumPy sorts numbers of 16 bits by counting, ten times as fast.
    order = np.argsort(column.astype(np.int16 if columns < 1 << 15 else np.int64), kind="stable")
    inverse = np.empty_like(order)
    inverse[order] = np.arange(len(order))
    parts = (_starts(row, rows), column, _starts(column, columns), row[order], order, inverse)
    places = Sparsity(*(torch.from_numpy(part.astype(np.int32)) for part in parts))
    return Kept(torch.from_numpy(entries), places)


def _starts(positions: np.ndarray, count: int) -> np.ndarray:
    """Where each of `count` rows begins among entries sorted by row, and the end."""
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(positions, minlength=count), out=starts[1:])
    return starts
