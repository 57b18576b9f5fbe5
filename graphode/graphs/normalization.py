"""Normalised adjacencies and Laplacians, as weights on a graph's edges and its diagonal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from graphode.graphs.graph import Graph

LAPLACIANS = ("laplacian", "sym_laplacian", "rw_laplacian")
KINDS = ("sym", "rw", *LAPLACIANS)


def normalized(
    graph: Graph, kind: str, self_loops: bool | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Edges, weights and mask of the normalised matrix; `Graph.normalize` has the formulas."""
    check_kind(graph, kind)
    _check_weights(graph, kind)
    is_laplacian = kind in LAPLACIANS
    edge_index, weight, mask = graph.edge_index, graph.edge_weight, graph._keep_mask
    degrees = graph.degrees
    missing = _nodes_without_loop(graph)
    if self_loops if self_loops is not None else not is_laplacian:
        if mask is not None:  # loops that were dropped are missing too, but have their place
            lost = (edge_index[0] == edge_index[1]) & (mask == 0)
            weight = torch.where(lost, 1.0, weight)
            degrees = degrees.index_add(0, edge_index[1], lost.to(weight.dtype))
        edge_index, weight, mask = _with_loops(edge_index, weight, mask, missing, fill=1.0)
        degrees = degrees.index_add(0, missing, weight.new_ones(len(missing)))
    elif is_laplacian:
        edge_index, weight, mask = _with_loops(edge_index, weight, mask, missing, fill=0.0)

    source, target = edge_index
    if is_laplacian:
        on_diagonal = (source == target).to(weight.dtype)
        weight = on_diagonal * degrees.index_select(0, target) - weight
    if kind.startswith("sym"):
        scale = inverse_root(degrees)
        # The two factors first: products of three are not symmetric in floating point.
        weight = weight * (scale.index_select(0, target) * scale.index_select(0, source))
    elif kind.startswith("rw"):
        weight = quotient(weight, degrees.index_select(0, target))
    return edge_index, weight, mask


def check_kind(graph: Graph, kind: str) -> None:
    """Refuse a normalisation that is unknown, or of a graph that has one."""
    if kind not in KINDS:
        raise ValueError(f"Unknown normalisation {kind!r}. Choose one of: {', '.join(KINDS)}.")
    if graph.kind is not None:
        raise ValueError(
            f"The graph is already normalised ({graph.kind!r}), and normalising twice is rarely "
            f'meant. Use `graph.source.normalize("{kind}")`, or `Graph(graph.edge_index, '
            "graph.num_nodes, graph.edge_weight)` for its weights as a new graph."
        )


def _check_weights(graph: Graph, kind: str) -> None:
    if kind != "laplacian" and bool((graph.edge_weight < 0).any()):
        lowest = float(graph.edge_weight.min())
        raise ValueError(
            f'The normalisation "{kind}" needs weights of 0 or more, since degrees may vanish or '
            f"be negative otherwise, but the lowest weight is {lowest:.4g}. Use their absolute "
            'values or a kernel of them, or the kind "laplacian", which divides by nothing.'
        )


def _nodes_without_loop(graph: Graph) -> Tensor:
    source, target = graph.edge_index
    has_loop = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    has_loop[source[source == target]] = True
    return (~has_loop).nonzero()[:, 0]


def _with_loops(
    edge_index: Tensor, weight: Tensor, mask: Tensor | None, nodes: Tensor, fill: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    edge_index = torch.cat([edge_index, torch.stack([nodes, nodes])], 1)
    weight = torch.cat([weight, weight.new_full((len(nodes),), fill)])
    if mask is not None:  # a loop that was dropped is there again
        mask = torch.cat([mask, mask.new_ones(len(nodes))])
        mask = torch.where(edge_index[0] == edge_index[1], 1.0, mask)
    return edge_index, weight, mask


def inverse_root(degrees: Tensor) -> Tensor:
    """degree^(-1/2), and 0 where the degree is 0 or too small to have an inverse."""
    # Below the normal numbers the product of two would be infinite.
    normal = degrees >= torch.finfo(degrees.dtype).tiny
    # The inner `where` keeps the gradient at a zero degree finite. That of a power, degree^(-3/2),
    # would overflow where the inverse does not yet.
    return torch.where(normal, torch.where(normal, degrees, 1.0).sqrt().reciprocal(), 0.0)


def quotient(weight: Tensor, degrees: Tensor) -> Tensor:
    """weight / degree, and 0 where the degree is 0."""
    # A degree that is too small to have an inverse still divides, but the inverse is the gradient:
    # there is none.
    small = degrees < torch.finfo(degrees.dtype).tiny
    fixed = torch.where(degrees > 0, degrees.detach(), torch.inf)
    weight = torch.where(small, weight.detach(), weight)
    return weight / torch.where(small, fixed, degrees)
