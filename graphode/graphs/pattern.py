"""Where the entries of a graph's matrix are: the part of a graph that weights do not change."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphode.graphs.derivatives import Sparsity
from graphode.graphs.tiles import tiles_of


class Pattern:
    """The edges of a graph, in the order they were given and as CSR matrices.

    The matrix has an entry at (target, source), so that A h gathers from sources to targets.
    Indices are int32 where they fit: half the bytes to read in every product.

    Args:
        edge_index: Edges as (source, target), no pair twice, on the device of the graph.
        num_nodes: Rows and columns of the matrix.
        sizes: Nodes of each graph in a batch, block after block; None for one graph.
        batch_shape: The dimensions that a batch of equal sizes is stacked along: one of length
            `len(sizes)` by default.
        lasts: Whether it is used often enough to be prepared for; a graph of positions that move
            is another at every evaluation.
    """

    lasts = True  # also of one that was saved before it had this, and tiles
    _tiles: tuple[Tensor, Tensor] | None = None

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        sizes: tuple[int, ...] | None = None,
        batch_shape: tuple[int, ...] | None = None,
        lasts: bool = True,
    ) -> None:
        self.edge_index = edge_index
        self.lasts = lasts
        self.num_nodes = num_nodes
        self.sizes = sizes
        self.batch_shape = _batch_shape(sizes) if batch_shape is None else batch_shape
        self.order, self.places = _compress(edge_index, num_nodes)
        self.is_symmetric = self.places.col_t is self.places.col
        self.node_graph = _node_graph((num_nodes,) if sizes is None else sizes, edge_index.device)

    def to(self, device: torch.device) -> Pattern:
        places = Sparsity(*(part.to(device) for part in self.places))
        if self.is_symmetric:
            places = places._replace(crow_t=places.crow, col_t=places.col)
        order = None if self.order is None else self.order.to(device)
        return self._with(self.edge_index.to(device), order, places)

    def reverse(self) -> Pattern:
        """The transposed pattern, for the price of one gather."""
        order = self.places.order
        if self.order is not None:
            order = self.order.index_select(0, order)
        return self._with(self.edge_index.flip(0), order, self.places.transposed)

    def divided(self, sizes: tuple[int, ...]) -> Pattern:
        """The same entries as blocks of a batch of graphs, between which there are none."""
        pattern = self._with(self.edge_index, self.order, self.places)
        pattern.sizes = sizes
        pattern.batch_shape = _batch_shape(sizes)
        pattern.node_graph = _node_graph(sizes, self.edge_index.device)
        return pattern

    def _with(self, edge_index: Tensor, order: Tensor | None, places: Sparsity) -> Pattern:
        pattern = object.__new__(Pattern)
        pattern.__dict__.update(self.__dict__, edge_index=edge_index, order=order, places=places)
        pattern.node_graph = self.node_graph.to(edge_index.device)
        pattern._tiles = None
        return pattern

    @property
    def tiles(self) -> tuple[Tensor, Tensor] | None:
        """Rows of the matrix and of its transpose in tiles, made once; see `graphs.tiles`.

        None where they are not: of a graph that does not last, of entries that int32 cannot count,
        and while a CUDA graph is recorded, since the host makes them.
        """
        if self._tiles is None:
            crow, crow_t = self.places.crow, self.places.crow_t
            is_recorded = crow.is_cuda and torch.cuda.is_current_stream_capturing()
            if not self.lasts or crow.dtype != torch.int32 or is_recorded:
                return None
            own = tiles_of(crow)
            self._tiles = own, own if self.is_symmetric else tiles_of(crow_t)
        return self._tiles

    def arrange(self, edge_values: Tensor) -> Tensor:
        """Values per edge, in the order of `edge_index`, into CSR order."""
        return edge_values if self.order is None else edge_values.index_select(0, self.order)

    def flatten(self, h: Tensor) -> Tensor:
        """A state stacked as [..., graphs, nodes, channels] as [..., graphs · nodes, channels]."""
        if (
            self.batch_shape is None
            or not isinstance(h, Tensor)
            or h.dim() < 2
            or h.shape[-2] == self.num_nodes
        ):
            return h
        dims = len(self.batch_shape)
        is_stacked = tuple(h.shape[-2 - dims : -2]) == self.batch_shape
        fits = h.shape[-2] * math.prod(self.batch_shape) == self.num_nodes
        return h.flatten(-2 - dims, -2) if is_stacked and fits else h


def _compress(edge_index: Tensor, num_nodes: int) -> tuple[Tensor | None, Sparsity]:
    """The CSR arrays of edges and of their reverses, and the edge at each CSR position.

    The latter is None where the edges came in CSR order.
    """
    source, target = edge_index
    key = target * num_nodes + source
    order: Tensor | None = None
    if not bool((key[1:] > key[:-1]).all()):
        order = torch.sort(key)[1]
        source, target = edge_index[:, order]
    places = compressed(target, source, num_nodes, num_nodes)
    if torch.equal(places.crow, places.crow_t) and torch.equal(places.col, places.col_t):
        places = places._replace(crow_t=places.crow, col_t=places.col)
    return None if order is None else order.to(places.crow.dtype), places


def compressed(rows: Tensor, columns: Tensor, num_rows: int, num_columns: int) -> Sparsity:
    """CSR of a matrix and of its transpose, for entries sorted by row, then column."""
    fits = max(num_rows, num_columns, len(rows)) < torch.iinfo(torch.int32).max
    index = torch.int32 if fits else torch.int64

    def starts(positions: Tensor, count: int) -> Tensor:
        bounds = torch.arange(count + 1, dtype=positions.dtype, device=positions.device)
        return torch.searchsorted(positions, bounds).to(index)

    col = columns.to(index)
    sorted_col, order = torch.sort(col, stable=True)
    inverse = torch.empty_like(col)
    inverse[order] = torch.arange(len(col), dtype=index, device=col.device)
    return Sparsity(
        starts(rows.contiguous(), num_rows),
        col,
        starts(sorted_col, num_columns),
        rows.index_select(0, order).to(index),
        order.to(index),
        inverse,
    )


def _batch_shape(sizes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The dimension that graphs can be stacked along: none unless they have one size."""
    return None if sizes is None or len(set(sizes)) > 1 else (len(sizes),)


def _node_graph(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    counts = torch.tensor(sizes, dtype=torch.int64, device=device)
    return torch.repeat_interleave(counts, output_size=sum(sizes))
