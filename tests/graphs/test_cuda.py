"""The same answers on a GPU as on the CPU."""

import jaxtyping
import pytest
import torch

from graphode.graphs import Graph, nearest_graph, radius_graph

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def directed() -> Graph:
    return Graph.from_dense(torch.rand(40, 40) * (torch.rand(40, 40) < 0.2))


def symmetric() -> Graph:
    graph = directed()
    return Graph.from_dense(graph.to_dense() + graph.to_dense().t())


@pytest.mark.parametrize("build", [directed, symmetric])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.1), (torch.float16, 0.02)],
)
@pytest.mark.parametrize("columns", [1, 7, 64])
def test_products_and_gradients_equal_those_of_the_cpu(build, dtype, tolerance, columns):
    graph = build()
    graph = graph.reweight(graph.edge_weight.requires_grad_())
    h = torch.randn(2, 40, columns, requires_grad=True)
    inputs = (graph.edge_weight, h)
    expected = graph.propagate(h)
    product = graph.to("cuda").propagate(h.to("cuda", dtype))
    assert product.dtype == dtype
    torch.testing.assert_close(product.double().cpu(), expected, atol=tolerance, rtol=tolerance)
    cotangent = torch.randn_like(expected)
    theirs = torch.autograd.grad(expected, inputs, cotangent)
    ours = torch.autograd.grad(product, inputs, cotangent.to(product))
    scale = tolerance * columns
    torch.testing.assert_close(ours, theirs, atol=scale, rtol=scale)


@pytest.mark.parametrize("build", [directed, symmetric])
def test_gradgradcheck(build):
    graph = build().subgraph(list(range(6))).to("cuda")
    h = torch.randn(6, 2, device="cuda", requires_grad=True)
    weight = graph.edge_weight.clone().requires_grad_()
    torch.autograd.gradcheck(lambda h, w: graph.reweight(w).propagate(h), (h, weight))
    torch.autograd.gradgradcheck(lambda h, w: graph.reweight(w).propagate(h), (h, weight))
    torch.autograd.gradgradcheck(graph.propagate, (h,))


@pytest.mark.parametrize("kind", ["sym", "rw", "laplacian"])
def test_building_on_the_gpu_equals_building_on_the_cpu(kind):
    graph = directed()
    there = Graph(graph.edge_index.cuda(), 40, graph.edge_weight.cuda()).normalize(kind)
    torch.testing.assert_close(there.to("cpu").to_dense(), graph.normalize(kind).to_dense())
    assert there.source is not None


def test_topology_equals_that_of_the_cpu():
    positions = torch.rand(2, 300, 2)
    for build in (lambda x: radius_graph(x, 0.1), lambda x: nearest_graph(x, 5)):
        here, there = build(positions), build(positions.cuda()).to("cpu")
        torch.testing.assert_close(here.to_dense(), there.to_dense())


def test_propagate_can_be_captured():
    graph = directed().normalize("sym").to("cuda", torch.float32)
    h = torch.randn(40, 8, device="cuda", dtype=torch.float32)
    graph.propagate(h)
    capture = torch.cuda.CUDAGraph()
    with torch.cuda.graph(capture):
        product = graph.propagate(h)
    h.normal_()
    capture.replay()
    torch.testing.assert_close(product, graph.propagate(h))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_propagate_compiles():
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        graph = directed().to("cuda", torch.float32)
        h = torch.randn(40, 8, device="cuda", dtype=torch.float32, requires_grad=True)
        layer = torch.compile(lambda h, graph: torch.tanh(graph.propagate(h)), fullgraph=True)
        torch.testing.assert_close(layer(h, graph), torch.tanh(graph.propagate(h)))
        (gradient,) = torch.autograd.grad(layer(h, graph).sum(), h)
        (expected,) = torch.autograd.grad(torch.tanh(graph.propagate(h)).sum(), h)
        torch.testing.assert_close(gradient, expected)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_weights_that_are_a_column_of_a_matrix_are_read_as_such():
    graph = directed().to("cuda")
    weights = torch.rand(graph.num_edges, 3, device="cuda", requires_grad=True)
    h = torch.randn(40, 4, device="cuda")
    for column in weights.unbind(1):
        expected = graph.reweight(column.clone()).propagate(h)
        torch.testing.assert_close(graph.reweight(column).propagate(h), expected)
