"""Attention by Triton kernels equals attention by plain PyTorch, to the second derivative."""

import pytest
import torch
from torch import Tensor

from graphode import fields as F
from graphode.fields.edge_attention import attend, edge_softmax, neighbours
from graphode.fields.gatv2_scores import gatv2_scores
from graphode.graphs import Graph, kernels
from graphode.graphs.product import sampled_product
from tests.kernels import DEVICE, needs_triton

pytestmark = needs_triton
SHAPES = [(7, 2, 3), (5, 8, 8), (1, 1, 1), (9, 3, 20), (4, 1, 64)]


@pytest.fixture
def graph(request: pytest.FixtureRequest) -> Graph:
    """Directed, some nodes with loops."""
    nodes = request.param[0]
    return Graph.from_dense(torch.rand(nodes, nodes) * (torch.rand(nodes, nodes) < 0.5)).to(DEVICE)


def both_ways(run, monkeypatch: pytest.MonkeyPatch) -> list[list[Tensor]]:
    """What `run` returns with kernels and without."""
    found = []
    for devices in ({DEVICE}, set()):
        monkeypatch.setattr(kernels, "TRITON_DEVICES", devices)
        found.append(run())
    return found


@pytest.mark.parametrize(("graph", "shape"), [(s, s) for s in SHAPES], indirect=["graph"])
def test_kernels_equal_plain_operations(graph: Graph, shape, monkeypatch):
    around = neighbours(graph)
    scores = torch.randn(graph.num_edges, shape[1], device=DEVICE, requires_grad=True)
    own = torch.randn(shape[:2], device=DEVICE, requires_grad=True)
    left, right = (torch.randn(shape, device=DEVICE, requires_grad=True) for _ in range(2))
    vector = torch.randn(shape[1:], device=DEVICE, requires_grad=True)

    def run() -> list[Tensor]:
        weights = edge_softmax(scores, own, around)
        out = attend(weights, left, around)
        inner = sampled_product(left.flatten(1), right.flatten(1), around.places, shape[1])
        ofv2 = gatv2_scores(left, right, vector, around, 0.2)
        total = sum(part.sin().sum() for part in (*weights, out, inner, *ofv2))
        inputs = [scores, own, left, right, vector]
        return [*weights, out, inner, *ofv2, *torch.autograd.grad(total, inputs)]

    for ours, plain in zip(*both_ways(run, monkeypatch), strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("scores", ["gat", "gatv2"])
@pytest.mark.parametrize("graph", [(6,)], indirect=True)
def test_fields_have_second_derivatives_through_kernels(graph: Graph, scores, monkeypatch):
    monkeypatch.setattr(kernels, "TRITON_DEVICES", {DEVICE})
    field = F.AttentionField(4, 2, scores, "tanh").to(DEVICE)
    h = torch.randn(2, 6, 4, device=DEVICE, requires_grad=True)
    torch.autograd.gradcheck(lambda h: field(0.0, h, graph), (h,), fast_mode=True)
    torch.autograd.gradgradcheck(lambda h: field(0.0, h, graph), (h,), fast_mode=True)
