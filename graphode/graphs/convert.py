"""Graphs as others write them: PyG, networkx, SciPy, dense; each as (edges, nodes, weights)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphode.graphs.validation import ArrayLike, as_tensor

Parts = tuple[Tensor, int, Tensor | None]


def from_pyg(data: Any) -> Parts:
    """Edges, nodes and weights of a PyG `Data`."""
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None:
        matrix = getattr(data, "adj_t", None)
        if isinstance(matrix, Tensor):
            return from_scipy(matrix)
        raise ValueError(
            "`data` must have an `edge_index`, but it has none. Undo `ToSparseTensor`, or use "
            "`Graph.from_scipy(data.adj_t.to_scipy())`."
        )
    weight = getattr(data, "edge_weight", None)
    if weight is None:
        attributes = getattr(data, "edge_attr", None)
        weight = attributes if attributes is not None and attributes.dim() == 1 else None
    return edge_index, int(data.num_nodes), weight


def sizes_in_pyg(data: Any, edge_index: Tensor) -> tuple[int, ...] | None:
    """The number of nodes of each graph in a PyG `Batch`; None of a `Data`, which is one graph."""
    starts = getattr(data, "ptr", None)
    if starts is None:
        return None
    of_edge = torch.bucketize(edge_index, starts.to(edge_index.device), right=True)
    crossing = (of_edge[0] != of_edge[1]).nonzero()[:, 0]
    if len(crossing):
        source, target = edge_index[:, crossing[0]].tolist()
        raise ValueError(
            f"The edges of a PyG `Batch` must lie within its graphs, but that from node {source} "
            f"to node {target} joins two of them. Add edges before graphs are batched, or delete "
            f"`data.ptr` to have them as one graph."
        )
    return tuple(starts.diff().tolist())


def from_networkx(graph: Any, weight: str) -> Parts:
    """Edges, nodes and weights of a networkx graph; nodes numbered in its own order."""
    position = {node: i for i, node in enumerate(graph.nodes)}
    edges = [
        (position[a], position[b], _number(w, f"{a!r} → {b!r}", weight))
        for a, b, w in graph.edges(data=weight, default=1.0)
    ]
    if not graph.is_directed():
        edges += [(b, a, w) for a, b, w in edges if a != b]
    ends = [[a for a, _, _ in edges], [b for _, b, _ in edges]]
    weights = torch.tensor([w for _, _, w in edges], dtype=torch.get_default_dtype())
    return torch.tensor(ends, dtype=torch.int64), len(position), weights


def from_scipy(matrix: Any) -> Parts:
    """Edges, nodes and weights of a sparse matrix, of SciPy or torch; explicit zeros stay edges."""
    if isinstance(matrix, Tensor) and matrix.layout != torch.strided:
        _check_square(matrix.shape)
        entries = matrix.to_sparse_coo().coalesce()
        return entries.indices().flip(0), matrix.shape[0], entries.values()
    if isinstance(matrix, Tensor) or not hasattr(matrix, "tocoo"):
        raise TypeError(
            f"`matrix` must be a sparse matrix of SciPy or torch, but it is a "
            f"{type(matrix).__name__}. Use `Graph.from_dense(matrix)`."
        )
    _check_square(matrix.shape)
    entries = matrix.tocoo()
    edge_index = torch.from_numpy(np.stack([entries.col, entries.row]).astype(np.int64))
    return edge_index, int(matrix.shape[0]), torch.from_numpy(np.array(entries.data))


def from_dense(matrix: ArrayLike) -> Parts:
    """Edges, nodes and weights of a dense matrix; zeros are no edges."""
    matrix = as_tensor(matrix)
    _check_square(matrix.shape)
    if matrix.layout != torch.strided:
        raise TypeError(
            f"`matrix` must be dense, but its layout is {matrix.layout}. Use "
            "`Graph.from_scipy(matrix)`."
        )
    target, source = matrix.detach().nonzero(as_tuple=True)
    return torch.stack([source, target]), matrix.shape[0], matrix[target, source]


def distinct_nodes(nodes: ArrayLike, num_nodes: int, device: torch.device) -> Tensor:
    """A selection of nodes, as a mask or as numbers, as distinct node numbers."""
    chosen = chosen_nodes(nodes, num_nodes, device)
    if chosen.unique().numel() != chosen.numel():
        raise ValueError(
            f"`nodes` must be distinct, but {chosen.numel() - chosen.unique().numel()} of "
            f"{chosen.numel()} repeat an earlier one. Use `nodes.unique()`."
        )
    return chosen


def chosen_nodes(nodes: ArrayLike, num_nodes: int, device: torch.device) -> Tensor:
    """A selection of nodes, as a mask or as numbers that may repeat, as node numbers."""
    chosen = as_tensor(nodes).to(device)
    if chosen.dtype == torch.bool and chosen.shape == (num_nodes,):
        return chosen.nonzero()[:, 0]
    is_other = chosen.is_floating_point() or chosen.is_complex()  # as an empty list is, too
    if chosen.dtype == torch.bool or chosen.dim() != 1 or (is_other and chosen.numel() > 0):
        raise ValueError(
            f"`nodes` must be a list of node numbers or a boolean mask of shape [{num_nodes}], but "
            f"has shape {list(chosen.shape)} and dtype {chosen.dtype}. Give integers of shape "
            f"[kept], or a truth value for each node."
        )
    chosen = chosen.long()
    if chosen.numel() and (int(chosen.min()) < 0 or int(chosen.max()) >= num_nodes):
        raise ValueError(
            f"`nodes` must be numbers from 0 to {num_nodes - 1}, but they run from "
            f"{int(chosen.min())} to {int(chosen.max())}. Leave out nodes that are not there."
        )
    return chosen


def _number(weight: Any, edge: str, name: str) -> float:
    try:
        return float(weight)
    except (TypeError, ValueError):  # in float's own words
        raise ValueError(
            f"The attribute {name!r} of an edge must be a number, but that of {edge} is "
            f"{weight!r}. Give every such edge a number, or name another attribute: "
            '`Graph.from_networkx(g, weight="…")`.'
        ) from None


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(
            f"The matrix of a graph must be square, nodes × nodes, but its shape is "
            f"{list(shape)}. Give one row and one column for every node."
        )
