"""The scores of GATv2, edges × heads, without a tensor of size edges × channels.

    e_uv = a · LeakyReLU(l_u + r_v)

The nonlinearity inside the inner product needs every channel at every edge. So edges are visited
in chunks, forward and again backward, and nothing is kept between.

Brody, Alon, Yahav (2022), "How Attentive are Graph Attention Networks?".
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional

from graphode.graphs import Graph

# Elements of a chunk, 4 MiB of float32, which stay in a core's cache between operations; a GPU
# wants larger ones.
CHUNK_ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 25}


def gatv2_scores(
    left: Float[Tensor, "nodes channels"],
    right: Float[Tensor, "nodes channels"],
    mix: Float[Tensor, "channels heads"],
    graph: Graph,
    negative_slope: float,
) -> Float[Tensor, "edges heads"]:
    """LeakyReLU(left[source] + right[target]) @ mix at every edge.

    Args:
        left: What the sources of edges show.
        right: What the targets of edges show.
        mix: One column per head: the vector a on the channels of its head, zero elsewhere.
        graph: The edges.
        negative_slope: Of the LeakyReLU.
    """
    source, target = graph.edge_index
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    if traced or forward_ad._current_level >= 0:
        return _activated(left, right, source, target, negative_slope) @ mix
    return _Scores.apply(left, right, mix, source, target, negative_slope)  # pyright: ignore[reportReturnType]


def _activated(l: Tensor, r: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:  # noqa: E741
    x = l.index_select(0, source) + r.index_select(0, target)
    return functional.leaky_relu(x, slope)


def _chunks(left: Tensor, source: Tensor, target: Tensor):
    """The edges, a few at a time."""
    elements = CHUNK_ELEMENTS.get(left.device.type, CHUNK_ELEMENTS["cuda"])
    size = max(1, elements // max(1, left.shape[1]))
    starts = range(0, len(source), size)
    return zip(starts, source.split(size), target.split(size), strict=False)


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        left: Tensor,
        right: Tensor,
        mix: Tensor,
        source: Tensor,
        target: Tensor,
        slope: float,
    ):
        ctx.save_for_backward(left, right, mix, source, target)
        ctx.slope = slope
        scores = left.new_empty(len(source), mix.shape[1])
        for start, here, there in _chunks(left, source, target):
            x = left.index_select(0, here).add_(right.index_select(0, there))
            torch.mm(functional.leaky_relu_(x, slope), mix, out=scores[start : start + len(here)])
        return scores

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor):
        left, right, mix, source, target = ctx.saved_tensors
        grad = grad_outputs[0]
        if torch.is_grad_enabled():
            # A second derivative is wanted: let autograd see the formulas, chunks and all.
            return *_gradients(left, right, mix, source, target, ctx.slope, grad), *[None] * 3
        with torch.no_grad():
            return *_gradients(left, right, mix, source, target, ctx.slope, grad), *[None] * 3


def _gradients(
    left: Tensor,
    right: Tensor,
    mix: Tensor,
    source: Tensor,
    target: Tensor,
    slope: float,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    to_left, to_right, to_mix = (torch.zeros_like(x) for x in (left, right, mix))
    for start, here, there in _chunks(left, source, target):
        part = grad[start : start + len(here)]
        activated = _activated(left, right, here, there, slope)
        to_mix = to_mix + activated.t() @ part
        # LeakyReLU keeps the sign, so its value tells its slope.
        flat = slope + (1 - slope) * (activated.detach() > 0).to(grad.dtype)
        pulled = (part @ mix.t()) * flat
        to_left.index_add_(0, here, pulled)
        to_right.index_add_(0, there, pulled)
    return to_left, to_right, to_mix
