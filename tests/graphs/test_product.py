"""Gradients of the sparse product: of every order, to states and weights, eager and compiled."""

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from graphode.graphs import Graph, full
from graphode.graphs.kernels import _sample_in_chunks, multiply, sample
from tests.graphs.strategies import matrices

ROOT = Path(__file__).parents[2]


@settings(max_examples=15)
@given(matrices(max_nodes=5))
def test_gradcheck_of_state_and_weights(matrix: Tensor):
    graph = Graph.from_dense(matrix)
    h = torch.randn(2, len(matrix), 3, requires_grad=True)
    weight = graph.edge_weight.clone().requires_grad_()

    def propagate(h: Tensor, weight: Tensor) -> Tensor:
        return Graph(graph.edge_index, len(matrix), weight).propagate(h)

    gradcheck(graph.propagate, (h,))
    gradgradcheck(graph.propagate, (h,))
    gradcheck(propagate, (h, weight))
    gradgradcheck(propagate, (h, weight))


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
@pytest.mark.parametrize("graphs", [1, 2])
def test_a_full_graph_has_a_dense_product_with_the_same_gradients(monkeypatch, lead, graphs):
    parts = [Graph.from_dense(torch.rand(6, 6)).normalize("rw") for _ in range(graphs)]
    graph = Graph.batch(parts) if graphs > 1 else parts[0]
    h = torch.randn(*lead, graph.num_nodes, 3, requires_grad=True)

    def found() -> list[Tensor]:
        y = graph.propagate(h)
        return [y, *torch.autograd.grad(y.sin().sum(), h)]

    sparse = found()
    assert not full.is_full(graph)
    monkeypatch.setattr(full, "DEVICES", {"cpu"})
    assert full.is_full(graph)
    for a, b in zip(sparse, found(), strict=True):
        torch.testing.assert_close(a, b)
    learned = graph.reweight(graph.edge_weight.clone().requires_grad_())
    assert not full.is_full(learned)


@pytest.fixture
def full_graph(monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setattr(full, "DEVICES", {"cpu"})
    return Graph.from_dense(torch.rand(6, 6)).normalize("rw")


def test_a_full_graph_learns_after_an_evaluation_in_inference_mode(full_graph: Graph):
    with torch.inference_mode():
        full_graph.propagate(torch.randn(6, 3))
    h = torch.randn(6, 3, requires_grad=True)
    full_graph.propagate(h).sum().backward()
    assert h.grad is not None


def test_a_graph_learns_after_an_evaluation_of_another_dtype_in_inference_mode():
    graph = Graph.from_dense(torch.rand(6, 6)).normalize("sym")
    with torch.inference_mode():
        graph.propagate(torch.randn(6, 3, dtype=torch.float32))
    h = torch.randn(6, 3, dtype=torch.float32, requires_grad=True)
    graph.propagate(h).sum().backward()
    assert h.grad is not None


def test_a_full_graph_has_the_dtype_of_its_state_under_autocast(full_graph: Graph):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert full_graph.propagate(torch.randn(6, 3).float()).dtype == torch.float32


def test_degrees_of_a_full_graph_make_no_matrix(full_graph: Graph):
    torch.testing.assert_close(full_graph.degrees, torch.ones(6))
    assert not full_graph._matrices


@given(matrices())
def test_gradients_equal_those_of_the_dense_product(matrix: Tensor):
    h = torch.randn(2, len(matrix), 3, requires_grad=True)
    matrix.requires_grad_()
    cotangent = torch.randn(2, len(matrix), 3)
    sparse = torch.autograd.grad(Graph.from_dense(matrix).propagate(h), (h, matrix), cotangent)
    dense = torch.autograd.grad(matrix @ h, (h, matrix), cotangent)
    torch.testing.assert_close(sparse[0], dense[0])
    torch.testing.assert_close(sparse[1], dense[1] * (matrix != 0))


@pytest.mark.parametrize("small_product", [0, 1 << 15])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [1, 3, 16, 20])
def test_every_kernel_agrees_with_the_dense_product(
    small_product: int, dtype: torch.dtype, columns: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("graphode.graphs.kernels.SMALL_PRODUCT", small_product)
    matrix = torch.randn(9, 9) * (torch.rand(9, 9) < 0.5)
    graph = Graph.from_dense(matrix)
    crow, col = graph._pattern.places[:2]
    a, b = torch.randn(9, columns), torch.randn(9, columns)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.2}[dtype]
    product = multiply(graph.edge_weight.to(dtype), a.to(dtype), crow, col)
    torch.testing.assert_close(product.double(), matrix @ a, atol=tolerance, rtol=0.01)
    sampled = sample(a.to(dtype), b.to(dtype), crow, col)
    expected = (a @ b.t())[matrix != 0]
    torch.testing.assert_close(sampled.double(), expected, atol=tolerance, rtol=0.01)


def test_sampling_in_chunks_equals_sampling_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("graphode.graphs.kernels.CHUNK_ELEMENTS", 20)
    crow, col = Graph.from_dense(torch.rand(9, 9) < 0.5)._pattern.places[:2]
    a, b = torch.randn(9, 4, dtype=torch.float32), torch.randn(9, 4, dtype=torch.float32)
    torch.testing.assert_close(_sample_in_chunks(a, b, crow, col), sample(a, b, crow, col))


def test_a_symmetric_graph_is_its_own_transpose():
    matrix = torch.rand(5, 5)
    symmetric = Graph.from_dense(matrix + matrix.t()).normalize("sym")
    places = symmetric._pattern.places
    assert places.col_t is places.col
    values, values_t = symmetric._operands(torch.float64)
    assert values_t is values


def directed() -> Graph:
    return Graph.from_dense(torch.rand(6, 6) * (torch.rand(6, 6) < 0.5))


def symmetric() -> Graph:
    graph = directed()
    return Graph.from_dense(graph.to_dense() + graph.to_dense().t())


def learnable() -> Graph:
    graph = directed()
    return Graph(graph.edge_index, 6, graph.edge_weight.requires_grad_())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, by torch
@pytest.mark.usefixtures("without_type_checks", "fresh_compiler")
@pytest.mark.parametrize("build", [directed, symmetric, learnable])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_propagate_compiles_without_graph_breaks(build: Callable[[], Graph], backend: str):
    graph = build()

    def layer(h: Tensor, graph: Graph) -> Tensor:
        return torch.tanh(graph.propagate(torch.sin(h)))

    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    for shape in ((6, 3), (2, 6, 3)):
        h = torch.randn(shape, requires_grad=True)
        inputs = [h, graph.edge_weight] if graph.edge_weight.requires_grad else [h]
        results = [f(h, graph) for f in (layer, compiled)]
        torch.testing.assert_close(*results)
        gradients = [torch.autograd.grad(y.square().sum(), inputs) for y in results]
        for eager, fast in zip(*gradients, strict=True):
            torch.testing.assert_close(fast, eager)


ATTEND = """
import torch
from graphode.graphs import Graph

graph = Graph([[0, 1, 2, 2], [1, 2, 0, 1]], 3)

def attend(h):
    source, target = graph.edge_index
    return graph.reweight(torch.exp((h[source] * h[target]).sum(-1))).propagate(h)

h = torch.randn(3, 2, requires_grad=True)
results = [f(h) for f in (attend, torch.compile(attend, fullgraph=True, backend="aot_eager"))]
torch.testing.assert_close(*results)
torch.testing.assert_close(*[torch.autograd.grad(y.square().sum(), h) for y in results])
"""


def test_weights_computed_from_a_state_compile():
    # In a process of its own: torch cannot trace type checks on objects made while tracing.
    subprocess.run([sys.executable, "-c", ATTEND], check=True, cwd=ROOT)


def test_memory_does_not_hold_edges_times_channels():
    nodes, edges, channels = 200, 20_000, 256
    index = torch.randperm(nodes * nodes)[:edges]
    weight = torch.rand(edges, requires_grad=True)
    graph = Graph(torch.stack([index // nodes, index % nodes]), nodes, weight)
    h = torch.randn(nodes, channels, requires_grad=True)
    with torch.profiler.profile(profile_memory=True) as profile:
        graph.propagate(h).square().sum().backward()
    largest = max(abs(event.cpu_memory_usage) for event in profile.events())
    assert largest < edges * channels * 8 / 4


def test_time_order_of_calls_leaves_results_alone():
    graph = directed()
    h = torch.randn(3, 6, 2)
    results = [graph.propagate(h) for _ in range(3)] + [graph.to(dtype=torch.float64).propagate(h)]
    assert all(torch.equal(a, b) for a, b in pairwise(results))
