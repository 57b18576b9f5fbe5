"""Attention along edges and to oneself: softmax over what arrives at a node, and the weighted sum.

    α_uv = exp(e_uv) / Σ_{u′∈N(v)∪v} exp(e_u′v),    out_v = α_vv x_v + Σ_{u→v} α_uv x_u

The node itself is a term of its own, next to the edges, so that no graph with self-loops has to be
made; loops that the graph has count once, as that term. Scores and weights are edges × heads, in
the order of the matrix; no tensor of size edges × channels is made. On a GPU `attention_kernel` has
the softmax.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graphode.fields.structure import latest, once, source_of
from graphode.flows.masks import is_recorded
from graphode.graphs import Graph
from graphode.graphs.derivatives import Sparsity
from graphode.graphs.kernels import has_triton
from graphode.graphs.pattern import Pattern
from graphode.graphs.product import is_plain, sparse_product


class Neighbours(NamedTuple):
    """The edges of a graph in the order of its matrix: by target, then by source.

    Attributes:
        source: Where each edge comes from.
        target: Where it goes.
        is_loop: Whether it is a self-loop; None where it is known that there is none.
        places: The same as CSR matrices.
        is_dropped: Whether `EdgeDropout` has dropped it; None where it has not been at work.
    """

    source: Int[Tensor, " edges"]
    target: Int[Tensor, " edges"]
    is_loop: Bool[Tensor, " edges"] | None
    places: Sparsity
    is_dropped: Bool[Tensor, " edges"] | None = None


class Weights(NamedTuple):
    """How much a node looks along each edge, and at itself; together 1 at every node and head."""

    edges: Float[Tensor, "edges heads"]
    own: Float[Tensor, "nodes heads"]


def neighbours(graph: Graph, copies: int = 1) -> Neighbours:
    """The edges of the source of a graph; of `copies` of it, one after the other."""
    source = source_of(graph)
    pattern = source._pattern

    def make() -> Neighbours:
        return _neighbours(pattern, copies)

    # A copy of the edges for every sample of a batch is not kept for every size of a batch.
    if copies == 1:
        around = once(pattern, "neighbours", make)
    else:
        around = latest(pattern, "repeated neighbours", copies, make)
    if source._keep_mask is None:
        return around
    return around._replace(is_dropped=(pattern.arrange(source._keep_mask) == 0).repeat(copies))


def _neighbours(pattern: Pattern, copies: int) -> Neighbours:
    places = pattern.places if copies == 1 else pattern.places.repeated(copies)
    source = places.col
    target = torch.repeat_interleave(places.crow.diff(), output_size=len(source)).long()
    is_loop = source == target
    may_ask = not (torch.compiler.is_compiling() or is_recorded(source.device))
    if may_ask and not bool(is_loop.any()):
        is_loop = None
    return Neighbours(source, target, is_loop, places)


def edge_softmax(
    scores: Float[Tensor, "edges heads"], own: Float[Tensor, "nodes heads"], around: Neighbours
) -> Weights:
    """The softmax of scores over the edges with the same target and the target itself.

    Args:
        scores: Of the edges.
        own: Of every node for itself.
        around: The edges.
    """
    has_kernel = around.is_dropped is None and has_triton(scores)
    if len(scores) and has_kernel and is_plain(scores, own):
        weights: Any = _Softmax.apply(scores, own, around)
        return Weights(*weights)
    for absent in (around.is_loop, around.is_dropped):
        if absent is not None:
            scores = scores.masked_fill(absent[:, None], -torch.inf)
    with torch.no_grad():
        # The largest score of each target: exp of the difference cannot overflow.
        index = around.target[:, None].expand_as(scores)
        largest = own.detach().scatter_reduce(0, index, scores.detach(), "amax")
    shares = (scores - largest.index_select(0, around.target)).exp()
    own_shares = (own - largest).exp()
    sums = own_shares.index_add(0, around.target, shares)
    return Weights(shares / sums.index_select(0, around.target), own_shares / sums)


class _Softmax(torch.autograd.Function):
    """The same by kernels: ∂e = α (∂α − Σ α ∂α), the sum over what a node looks at."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, own: Tensor, around: Neighbours):
        weights = kernel().softmax(scores, own, around.places)
        ctx.save_for_backward(*weights)
        ctx.around = around
        return weights

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        (edges, own), (grad, own_grad), around = ctx.saved_tensors, grad_outputs, ctx.around
        if not torch.is_grad_enabled() and is_plain(grad, own_grad):
            gradients = kernel().softmax_gradients(edges, own, grad, own_grad, around.places)
            return *gradients, None
        sums = (own * own_grad).index_add(0, around.target, edges * grad)
        back = edges * (grad - sums.index_select(0, around.target))
        return back, own * (own_grad - sums), None


def kernel() -> Any:
    """The kernels of attention, where Triton is."""
    from graphode.fields import attention_kernel

    return attention_kernel


def attend(
    weights: Weights, values: Float[Tensor, "nodes heads channels"], around: Neighbours
) -> Float[Tensor, "nodes heads channels"]:
    """α_vv x_v + Σ_{u→v} α_uv x_u for each head, as one sparse product."""
    arrived = sparse_product(weights.edges, None, values.flatten(1), around.places)
    return arrived.reshape(values.shape) + weights.own[..., None] * values
