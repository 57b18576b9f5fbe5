"""Rows of a sparse matrix in tiles, so that a GPU's program adds up the entries of many at once.

A tile has 16 lanes or more, and a lane adds up some entries of one row. A tile takes as long as its
longest lane, and what its program has read before, it finds in the nearest cache. Therefore

- rows are visited depth first, so that those of a program share neighbours. Where it has 256 rows,
  Cora's 13 264 entries are 5 200 rows to read; in the given order 9 300;
- among `GROUP` rows in this order, those with as many entries come together;
- a long row is cut into pieces, each a lane of the same tile. The 169 entries of one of Cora's
  papers would keep a tile busy for as long as ten others.
"""

import numpy as np
import torch
from torch import Tensor

FORWARD_LANES, BACKWARD_LANES = 32, 16
GROUP = 256
PIECE = 16  # entries that a lane has at most, but where the rows of a graph have more


def tiles_of(
    crow: Tensor, col: Tensor, lanes: int, piece: int = PIECE, group: int = GROUP
) -> Tensor:
    """What each lane adds up: entries from first to last, of a row; made on the host.

    Shapes:
        - **output:** `[4, tiles · lanes]`, of int32: the first entry, the last one (exclusive),
          the row, −1 in lanes left empty, and the lane of the same tile that has the row's first
          piece.
    """
    starts, columns = crow.cpu().numpy().astype(np.int64), col.cpu().numpy()
    counts = np.diff(starts)
    piece = max(piece, -(-len(columns) // max(1, len(counts))))
    rows = _depth_first(starts, columns, counts)
    groups = np.arange(len(rows)) // group
    rows = rows[np.lexsort((-counts[rows], groups))]
    counts = counts[rows]
    # Powers of two, the largest first: none begins in one tile and ends in the next.
    pieces = 2 ** np.ceil(np.log2(np.maximum(counts / piece, 1))).astype(np.int64)
    pieces = np.minimum(pieces, lanes)

    before = np.cumsum(pieces) - pieces
    used = np.bincount(groups, pieces).astype(np.int64)
    room = -(-used // lanes) * lanes
    shift = (np.cumsum(room) - room) - (np.cumsum(used) - used)
    heads = before + shift[groups]

    def each(values: np.ndarray) -> np.ndarray:
        return np.repeat(values, pieces)

    index = np.arange(pieces.sum()) - each(before)
    length = -(-counts // pieces)
    ends = each(starts[rows + 1])
    first = np.minimum(each(starts[rows]) + index * each(length), ends)
    table = np.zeros((4, room.sum()), dtype=np.int32)
    table[2] = -1
    table[3] = np.arange(table.shape[1]) % lanes
    lane = each(heads) + index
    table[0, lane] = first
    table[1, lane] = np.minimum(first + each(length), ends)
    table[2, lane] = each(rows)
    table[3, lane] = each(heads % lanes)
    with torch.inference_mode(False):  # or no later gradient could be taken
        return torch.from_numpy(table).to(crow.device)


def _depth_first(starts: np.ndarray, columns: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """All rows, each followed by one that it has an entry for, if there is one left."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import depth_first_order

    # A root before all of them, the longest first, leads to every component.
    rows = len(counts)
    indices = np.append(columns, np.argsort(-counts, kind="stable"))
    ends = np.append(starts, starts[-1] + rows)
    tree = csr_matrix((np.ones(len(indices)), indices, ends), shape=(rows + 1, rows + 1))
    return depth_first_order(tree, rows, return_predecessors=False)[1:]
