"""The scores of GATv2, edges × heads, without a tensor of size edges × channels.

    e_uv = Σ_c a_c LeakyReLU(l_u + r_v)_c,    c over the channels of a head

The nonlinearity inside the sum needs every channel at every edge. So edges are visited in chunks,
forward and again backward, and nothing is kept between. Backward, with m = LeakyReLU′(l_u + r_v)
and g the gradient of the scores, two sums suffice, over the edges that leave a node and over those
that arrive:

    S_u = Σ_v m g,  T_v = Σ_u m g    ⇒    ∂l = a S,  ∂r = a T,  ∂a = Σ_u l_u S_u + Σ_v r_v T_v

since LeakyReLU(x) = m x. On a GPU `attention_kernel` has no chunks to visit: a node's edges pass
through the registers of one program.

Brody, Alon, Yahav (2022), "How Attentive are Graph Attention Networks?".
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from graphode.fields.edge_attention import Neighbours, kernel
from graphode.graphs.kernels import has_triton
from graphode.graphs.product import is_plain

# Elements of a chunk, 16 MiB of float32. Alone on one core smaller ones are no slower; but every
# operation ends with all threads waiting for each other, which on a busy machine costs more than
# the cache saves, so chunks are few.
CHUNK_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 25}


def gatv2_scores(
    left: Float[Tensor, "nodes heads channels"],
    right: Float[Tensor, "nodes heads channels"],
    attention: Float[Tensor, "heads channels"],
    around: Neighbours,
    negative_slope: float,
) -> tuple[Float[Tensor, "edges heads"], Float[Tensor, "nodes heads"]]:
    """Σ_c a_c LeakyReLU(left[source] + right[target])_c at every edge, and of nodes for themselves.

    Args:
        left: What the sources of edges show.
        right: What the targets of edges show.
        attention: The vector a of each head.
        around: The edges.
        negative_slope: Of the LeakyReLU.
    """

    def scored(x: Tensor) -> Tensor:
        return (functional.leaky_relu(x, negative_slope) * attention).sum(-1)

    if is_plain(left, right, attention):
        edges: Any = _Scores.apply(left, right, attention, around, negative_slope)
    else:
        arriving = left.index_select(0, around.source)
        edges = scored(arriving + right.index_select(0, around.target))
    return edges, scored(left + right)


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        left: Tensor,
        right: Tensor,
        attention: Tensor,
        around: Neighbours,
        slope: float,
    ):
        ctx.save_for_backward(left, right, attention)
        ctx.around, ctx.slope = around, slope
        source, heads = around.source, len(attention)
        if has_triton(left) and len(source):
            return kernel().scores(left, right, attention, around.places, slope)
        left, right = left.flatten(1), right.flatten(1)
        # Column k has the vector of head k on the channels of that head.
        mix = torch.block_diag(*attention[:, :, None])
        scores = left.new_empty(len(source), heads)
        for start, x in _sums(left, right, source, around.target):
            functional.leaky_relu_(x, slope)
            torch.mm(x, mix, out=scores[start : start + len(x)])
        return scores

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        left, right, attention = ctx.saved_tensors
        grad, around = grad_outputs[0], ctx.around
        # In a second derivative autograd follows these formulas, chunks and all.
        tracked = torch.is_grad_enabled()
        if has_triton(left) and len(grad) and not tracked and is_plain(grad):
            out_sum, in_sum = kernel().slope_sums(left, right, grad, around.places, ctx.slope)
        else:
            ends = around.source, around.target
            out_sum, in_sum = _slope_sums(left, right, *ends, ctx.slope, grad, tracked)
        to_attention = (left * out_sum).sum(0) + (right * in_sum).sum(0)
        return attention * out_sum, attention * in_sum, to_attention, None, None


def _slope_sums(
    left: Tensor,
    right: Tensor,
    source: Tensor,
    target: Tensor,
    slope: float,
    grad: Tensor,
    tracked: bool,
) -> tuple[Tensor, Tensor]:
    """S and T: sums of LeakyReLU′(l_u + r_v) g over the edges that leave, and that arrive."""
    heads, width = left.shape[1:]
    flat_left, flat_right = left.flatten(1), right.flatten(1)
    # Of the gradient, which may be many at once (`is_grads_batched`).
    out_sum, in_sum = grad.new_zeros(flat_left.shape), grad.new_zeros(flat_right.shape)
    if tracked:
        flat_left, flat_right = flat_left.detach(), flat_right.detach()  # m is flat between kinks
    for start, x in _sums(flat_left, flat_right, source, target):
        here = slice(start, start + len(x))
        part = grad[here, :, None].expand(-1, heads, width).reshape(x.shape)
        part = torch.ops.aten.leaky_relu_backward(part, x, slope, False)
        out_sum.index_add_(0, source[here], part)
        in_sum.index_add_(0, target[here], part)
    return out_sum.reshape(left.shape), in_sum.reshape(left.shape)


def _sums(
    left: Tensor, right: Tensor, source: Tensor, target: Tensor
) -> Iterator[tuple[int, Tensor]]:
    """left[source] + right[target], a few edges at a time, and the number of the first."""
    elements = CHUNK_ELEMENTS.get(left.device.type, CHUNK_ELEMENTS["cuda"])
    size = max(1, elements // max(1, left.shape[1]))
    for start in range(0, len(source), size):
        x = left.index_select(0, source[start : start + size])
        yield start, x.add_(right.index_select(0, target[start : start + size]))
