"""Filters of the Laplacian and of walks, against dense formulas."""

import math
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import graphode as gd
from graphode import fields as F
from graphode.fields import edge_attention, structure
from graphode.graphs import DenseGraph, Graph, ppmi, scaled_laplacian
from tests.fields.registry import weighted_graph


def laplacian(graph: Graph) -> Tensor:
    """The symmetric normalised Laplacian; zero at isolated nodes."""
    return graph.normalize("sym_laplacian").to_dense()


def test_chebyshev_equals_pyg():
    pyg = pytest.importorskip("torch_geometric.nn")
    # Without isolated nodes, on which PyG's Laplacian is 1 and ours 0.
    graph = weighted_graph(7).subgraph(range(6))
    layer = pyg.ChebConv(4, 4, K=4)
    field = F.ChebField(4, order=3, activation=None)
    with torch.no_grad():
        for k, linear in enumerate(layer.lins):
            field.weight[k].copy_(linear.weight.t())
        field.bias.copy_(nn.init.normal_(layer.bias))
    h = torch.randn(6, 4)
    expected = layer(h, graph.edge_index, graph.edge_weight)
    for given in (graph, graph.normalize("sym"), scaled_laplacian(graph, largest_eigenvalue=2)):
        torch.testing.assert_close(field(0.0, h, given), expected)


def test_chebyshev_equals_its_dense_formula():
    graph, h = weighted_graph(), torch.randn(6, 4)
    field = F.ChebField(4, order=2, largest_eigenvalue=None)
    operator = laplacian(graph)
    scaled = 2 * operator / torch.linalg.eigvalsh(operator)[-1] - torch.eye(6)
    second = 2 * scaled @ scaled - torch.eye(6)
    terms = [h, scaled @ h, second @ h]
    dense = sum(term @ weight for term, weight in zip(terms, field.weight, strict=True))
    torch.testing.assert_close(field(0.0, h, graph), torch.tanh(dense))


def test_cayley_equals_its_dense_formula():
    graph, h = weighted_graph(), torch.randn(6, 4)
    field = F.CayleyField(4, order=2, iterations=200)
    scaled = field.zoom * laplacian(graph)
    unit = 1j * torch.eye(6)
    transform = (scaled - unit) @ torch.linalg.inv(scaled + unit)
    real, imaginary = field.weight[:3], field.weight[3:]
    dense = h @ real[0]
    power = h + 0j
    for j in (1, 2):
        power = transform @ power
        dense = dense + 2 * (power @ torch.complex(real[j], imaginary[j - 1])).real
    torch.testing.assert_close(field(0.0, h, graph), torch.tanh(dense))


def test_cayley_works_in_half_precision():
    graph, h = weighted_graph(), torch.randn(2, 6, 4).bfloat16()
    field = F.CayleyField(4).bfloat16()
    half = field(0.0, h, graph)
    assert half.dtype == torch.bfloat16
    whole = field.double()(0.0, h.double(), graph)
    torch.testing.assert_close(half.double(), whole, rtol=0.02, atol=0.05)


def test_spectral_equals_its_dense_formula():
    graph, h = weighted_graph(), torch.randn(6, 4)
    field = F.SpectralField(4, knots=3, activation=None)
    eigenvalues, vectors = torch.linalg.eigh(laplacian(graph))
    hats = [(1 - (eigenvalues - knot).abs()).clamp(min=0) for knot in (0.0, 1.0, 2.0)]
    filters = [vectors @ hat.diag() @ vectors.t() for hat in hats]
    dense = sum(each @ h @ weight for each, weight in zip(filters, field.weight, strict=True))
    torch.testing.assert_close(field(0.0, h, graph), dense)
    with torch.no_grad():  # Multipliers of 1 at all knots are the identity.
        field.weight.copy_(torch.eye(4).expand(3, 4, 4))
    torch.testing.assert_close(field(0.0, h, graph), h)


@pytest.mark.parametrize(
    "build",
    [lambda: F.ChebField(4, largest_eigenvalue=None), lambda: F.SpectralField(4, num_modes=2)],
    ids=["the largest eigenvalue", "the smoothest modes"],
)
def test_each_graph_of_a_batch_has_its_own_spectrum(build: Callable[[], nn.Module]):
    field = build()
    full, path = torch.ones(4, 4).fill_diagonal_(0), torch.diag(torch.ones(4), 1)
    graphs = [Graph.from_dense(full), Graph.from_dense(path + path.t())]
    states = [torch.randn(4, 4), torch.randn(5, 4)]
    expected = torch.cat([field(0.0, h, g) for h, g in zip(states, graphs, strict=True)])
    torch.testing.assert_close(field(0.0, torch.cat(states), Graph.batch(graphs)), expected)
    h = torch.randn(3, 2, 4, 4)
    alone = torch.stack([field(0.0, h[:, 0], graphs[0]), field(0.0, h[:, 1], graphs[0])], 1)
    for together in (Graph.batch(graphs[:1] * 2), DenseGraph(full.expand(2, 4, 4))):
        torch.testing.assert_close(field(0.0, h, together), alone)
    none = gd.radius_graph(torch.rand(0, 5, 2), 1.0)
    assert field(0.0, torch.randn(2, 0, 5, 4), none).shape == (2, 0, 5, 4)


def test_dual_equals_two_convolutions():
    graph, h = weighted_graph(), torch.randn(6, 4)
    field = F.DualField(4)
    normalized = graph.normalize("sym")
    dual = ppmi(graph).normalize("sym")
    dense = normalized.to_dense() @ h @ field.local.weight + field.local.bias
    dense = dense + dual.to_dense() @ h @ field.wide.weight
    torch.testing.assert_close(field(0.0, h, normalized), torch.tanh(dense))


def test_diffusion_runs_both_ways():
    dense = torch.rand(5, 5) * (torch.rand(5, 5) < 0.5)
    graph, h = Graph.from_dense(dense), torch.randn(5, 4)
    field = F.DiffusionField(4, steps=2)

    def walk(matrix: Tensor) -> Tensor:
        degrees = matrix.sum(1, keepdim=True)
        return torch.where(degrees > 0, matrix / degrees, 0.0)

    back, forth = walk(dense), walk(dense.t())
    terms = [h, back @ h, back @ back @ h, forth @ h, forth @ forth @ h]
    expected = sum(term @ weight for term, weight in zip(terms, field.weight, strict=True))
    torch.testing.assert_close(field(0.0, h, graph.normalize("sym")), torch.tanh(expected))


def test_powers_of_a_walk_are_those_of_its_matrix():
    graph, x = weighted_graph(), torch.randn(6, 4)
    field = F.WalkPowerField(4, terms=400, activation=None)
    lazy = torch.eye(6) - graph.normalize("rw_laplacian").to_dense() / 2
    z = field.pack(torch.randn(6, 4), x)
    for power in (0, 1, 2, 3):
        expected = torch.linalg.matrix_power(lazy, power) @ x @ field.weight
        torch.testing.assert_close(field.unpack(field(float(power), z, graph)), expected)
    half = field.unpack(field(0.5, z, graph))
    eigenvalues, vectors = torch.linalg.eig(lazy)
    root = (vectors @ (eigenvalues**0.5).diag() @ torch.linalg.inv(vectors)).real
    torch.testing.assert_close(half, root @ x @ field.weight)
    times = torch.tensor([0.0, 2.5]).reshape(2, 1, 1)
    together = field(times, z.expand(2, 6, 8), graph)
    torch.testing.assert_close(together[1], field(2.5, z, graph))


def test_cayley_takes_the_laplacian_beneath_a_scaled_one():
    graph, h = weighted_graph(), torch.randn(6, 4)
    field = F.CayleyField(4)
    torch.testing.assert_close(field(0.0, h, scaled_laplacian(graph)), field(0.0, h, graph))


def test_what_is_made_of_a_graph_is_made_once_and_forgotten_with_it():
    graph, h = weighted_graph().normalize("sym"), torch.randn(6, 4)
    assert graph.source is not None
    made = []

    def make(source: Graph) -> Graph:
        made.append(source)
        return source.normalize("rw")

    for _ in range(3):
        walk = structure.made_once(graph.source, "test", make)
    assert len(made) == 1
    assert walk.source is None
    learned = graph.source.reweight(graph.source.edge_weight.clone().requires_grad_())
    for _ in range(2):
        structure.made_once(learned, "test", make)
    assert len(made) == 3
    F.AttentionField(4)(0.0, h, graph)
    before = len(structure._remembered)
    made.clear()
    del graph, learned, walk
    assert len(structure._remembered) == before - 2


def test_of_the_edges_of_batches_only_those_of_the_last_size_are_kept():
    graph, field = weighted_graph(), F.AttentionField(4)
    one = edge_attention.neighbours(graph)
    kept = [weakref.ref(edge_attention.neighbours(graph, size).source) for size in range(2, 9)]
    assert [each() is None for each in kept] == [True] * 6 + [False]
    assert edge_attention.neighbours(graph, 8).source is kept[-1]()
    assert edge_attention.neighbours(graph) is one
    h = torch.randn(3, 6, 4)
    for size in (3, 2, 3):
        torch.testing.assert_close(field(0.0, h[:size], graph)[1], field(0.0, h[1], graph))


def test_edges_that_a_cuda_graph_has_recorded_stay(monkeypatch):
    graph = weighted_graph()
    recorded = weakref.ref(edge_attention.neighbours(graph, 2).source)
    with monkeypatch.context() as recording:
        recording.setattr(structure, "_is_recording", lambda: True)
        assert edge_attention.neighbours(graph, 2).source is recorded()
        own = weakref.ref(edge_attention.neighbours(graph, 3).source)
    assert own() is None
    passing = weakref.ref(edge_attention.neighbours(graph, 4).source)
    assert edge_attention.neighbours(graph, 5).source is not None
    assert recorded() is edge_attention.neighbours(graph, 2).source
    assert passing() is None


def test_linear_filters_have_the_flows_they_should():
    """With one linear term, the flow of a filter is a matrix exponential."""
    graph, h = weighted_graph(), torch.randn(6, 4)
    field = F.ChebField(4, order=1, activation=None)
    with torch.no_grad():
        field.weight.copy_(torch.stack([torch.zeros(4, 4), torch.eye(4)]))
    operator = scaled_laplacian(graph, largest_eigenvalue=2).to_dense()
    moved = gd.Flow(field, rtol=1e-9, atol=1e-9)(h, graph, t1=math.pi)
    expected = torch.matrix_exp(math.pi * operator) @ h
    torch.testing.assert_close(moved, expected, rtol=1e-6, atol=1e-6)
