"""Filters on a graph against the dense functions of its matrix that they stand for."""

import math

import pytest
import torch
from hypothesis import given
from torch import Tensor

from graphode.data import karate_club
from graphode.graphs import (
    Graph,
    cayley,
    chebyshev,
    diffuse,
    ppmi,
    radius_graph,
    random_walks,
    scaled_laplacian,
    spectral_basis,
    spectral_radius,
)
from graphode.graphs.laplacian import DENSE_NODES
from graphode.graphs.ppmi import walk
from tests.graphs import dense
from tests.graphs.strategies import matrices


def test_a_scaled_laplacian_fills_the_interval():
    for kind in ("laplacian", "sym_laplacian"):
        scaled = scaled_laplacian(karate_club(), kind)
        eigenvalues = torch.linalg.eigvalsh(scaled.to_dense())
        torch.testing.assert_close(eigenvalues[0], torch.tensor(-1.0))
        torch.testing.assert_close(eigenvalues[-1], torch.tensor(1.0))
        assert (scaled.kind, scaled.source is not None) == ("scaled_laplacian", True)


def test_with_the_bound_two_it_is_minus_the_adjacency():
    club = karate_club()
    scaled = scaled_laplacian(club, largest_eigenvalue=2.0)
    expected = -club.normalize("sym", self_loops=False).to_dense()
    torch.testing.assert_close(scaled.to_dense(), expected)


@pytest.mark.parametrize("directed", [False, True])
def test_the_spectral_radius_of_a_large_graph_is_found(directed: bool):
    matrix = torch.rand(300, 300) * (torch.rand(300, 300) < 0.05)
    matrix = matrix if directed else matrix + matrix.t()
    expected = float(torch.linalg.eigvals(matrix).abs().max())
    assert spectral_radius(Graph.from_dense(matrix)) == pytest.approx(expected, rel=1e-6)


def path(nodes: int, directed: bool = False) -> Graph:
    edge_index = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    return Graph(edge_index if directed else torch.cat([edge_index, edge_index.flip(0)], 1), nodes)


def ring(nodes: int) -> Graph:
    return Graph(torch.stack([torch.arange(nodes), torch.arange(1, nodes + 1) % nodes]), nodes)


@pytest.mark.parametrize("kind", ["laplacian", "sym_laplacian", "rw_laplacian"])
def test_where_eigenvalues_crowd_the_spectral_radius_is_found_to_four_digits_or_bounded(kind: str):
    nodes = 20_000
    largest = 2 + 2 * math.cos(math.pi / nodes) if kind == "laplacian" else 2
    found = spectral_radius(path(nodes).normalize(kind))
    assert found == pytest.approx(largest, rel=1e-4)
    around = torch.arange(300) * 2 * math.pi / 300
    largest = float((1 - torch.polar(torch.ones(300), around)).abs().max())
    assert largest - 1e-9 <= spectral_radius(ring(300).normalize(kind)) <= 2
    scaled = scaled_laplacian(ring(300), kind)
    assert torch.linalg.eigvals(scaled.to_dense()).abs().max() <= 1 + 1e-9


@pytest.mark.parametrize("kind", ["laplacian", "sym_laplacian", "rw_laplacian"])
def test_edges_that_only_lead_on_change_no_eigenvalue(kind: str):
    assert spectral_radius(path(400, directed=True)) == 0
    assert spectral_radius(path(400, directed=True).normalize(kind)) == pytest.approx(1)


def test_complex_eigenvalues_of_a_large_graph_are_not_passed_over():
    generator = torch.Generator().manual_seed(500)
    matrix = (torch.rand(500, 500, generator=generator) < 3 / 500).double()
    for kind in ("sym_laplacian", "rw_laplacian"):
        graph = Graph.from_dense(matrix).normalize(kind)
        expected = float(torch.linalg.eigvals(graph.to_dense()).abs().max())
        assert spectral_radius(graph) == pytest.approx(expected, rel=1e-6)


@given(matrices(positive=True))
def test_chebyshev_terms_are_polynomials_of_the_matrix(matrix: Tensor):
    graph = scaled_laplacian(Graph.from_dense(matrix + matrix.t()))
    h = torch.randn(2, len(matrix), 3)
    eigenvalues, basis = torch.linalg.eigh(graph.to_dense())
    angles = torch.arccos(eigenvalues.clamp(-1, 1))
    for order in (0, 1, 5):
        terms = chebyshev(graph, h, order)
        assert len(terms) == order + 1
        for k, term in enumerate(terms):
            torch.testing.assert_close(
                term, basis @ torch.diag(torch.cos(k * angles)) @ basis.t() @ h
            )


@pytest.mark.parametrize("kind", ["laplacian", "sym_laplacian", "rw_laplacian"])
def test_cayley_terms_converge_to_powers_of_the_transform(kind: str):
    graph = karate_club().normalize(kind)
    h = torch.randn(2, 34, 3)
    dense, unit = graph.to_dense().to(torch.complex128), 1j * torch.eye(34)
    zoom = 0.3
    transform = (zoom * dense - unit) @ torch.linalg.inv(zoom * dense + unit)
    few, many = (cayley(graph, h, 3, zoom, iterations) for iterations in (5, 400))
    expected = torch.stack([torch.matrix_power(transform, k) @ h.to(dense.dtype) for k in range(4)])
    torch.testing.assert_close(many, expected)
    assert (few - expected).abs().max() > (many - expected).abs().max()


def test_cayley_is_differentiable_in_its_zoom():
    graph = Graph.from_dense(torch.ones(4, 4)).normalize("sym_laplacian")
    h = torch.randn(4, 2, requires_grad=True)
    zoom = torch.tensor(0.5, requires_grad=True)
    torch.autograd.gradcheck(lambda h, zoom: cayley(graph, h, 2, zoom, 3), (h, zoom))


def test_spectral_multipliers_are_functions_of_the_laplacian():
    graph = karate_club().normalize("sym_laplacian")
    basis = spectral_basis(graph)
    h = torch.randn(2, 34, 3)
    heat = basis.multiply(h, torch.exp(-basis.eigenvalues))
    torch.testing.assert_close(heat, torch.matrix_exp(-graph.to_dense()) @ h)
    torch.testing.assert_close(basis.from_modes(basis.to_modes(h)), h)
    per_channel = basis.multiply(h, torch.ones(34, 3))
    torch.testing.assert_close(per_channel, h)
    assert spectral_basis(graph, 5).eigenvectors.shape == (34, 5)


@given(matrices(positive=True))
def test_diffusion_runs_along_the_edges_and_against_them(matrix: Tensor):
    def rows(matrix: Tensor) -> Tensor:
        degrees = matrix.sum(1, keepdim=True)
        return torch.where(degrees > 0, matrix / degrees, 0.0)

    h = torch.randn(2, len(matrix), 3)
    walks = random_walks(Graph.from_dense(matrix))
    along, against = rows(matrix), rows(matrix.t())
    powers = [h, along @ h, along @ along @ h, against @ h, against @ against @ h]
    torch.testing.assert_close(diffuse(walks, h, 2), torch.stack(powers))
    torch.testing.assert_close(diffuse(walks[:1], h, 0), h[None])


def test_ppmi_is_that_of_many_walks():
    club = karate_club()
    dual = ppmi(club, walk_length=3, walks_per_node=3000)
    assert dual.is_symmetric
    difference = (dual.to_dense() - dense.ppmi(club.to_dense(), 3)).abs()
    assert difference.mean() < 0.01
    assert torch.equal(dual.edge_weight, ppmi(club, 3, 3000).edge_weight)


@given(matrices(positive=True))
def test_exact_ppmi_is_that_of_infinitely_many_walks(matrix: Tensor):
    for length in (1, 3):
        dual = ppmi(Graph.from_dense(matrix), length, walks_per_node=None)
        assert dual.is_symmetric
        torch.testing.assert_close(dual.to_dense(), dense.ppmi(matrix, length))


@pytest.mark.parametrize("walks_per_node", [None, 20])
def test_the_dual_of_a_batch_is_that_of_each_graph(walks_per_node: int | None):
    graphs = [Graph.from_dense(torch.rand(5, 5) * (torch.rand(5, 5) < 0.4)) for _ in range(4)]
    duals = [ppmi(graph, 3, walks_per_node).to_dense() for graph in graphs]
    together = ppmi(Graph.batch(graphs), 3, walks_per_node)
    torch.testing.assert_close(together.to_dense(), torch.block_diag(*duals))
    h = torch.randn(4, 5, 2)
    torch.testing.assert_close(together.propagate(h), torch.stack(duals) @ h)
    positions = torch.rand(2, 3, 5, 2)
    stacked = ppmi(radius_graph(positions, 0.5), 3, walks_per_node)
    assert stacked.propagate(torch.randn(2, 3, 5, 1)).shape == (2, 3, 5, 1)


def test_cayley_acts_on_stacked_batches():
    matrices = torch.rand(3, 4, 4) * (torch.rand(3, 4, 4) < 0.6)
    graphs = [Graph.from_dense(each + each.t()).normalize("sym_laplacian") for each in matrices]
    h = torch.randn(2, 3, 4, 5)
    together = cayley(Graph.batch(graphs), h, 2, 0.7, 6)
    for k, graph in enumerate(graphs):
        torch.testing.assert_close(together[:, :, k], cayley(graph, h[:, k], 2, 0.7, 6))


def test_walks_follow_edges_with_their_weights_and_end_where_none_leaves():
    graph = Graph([[0, 0, 1], [1, 2, 2]], 3, [3.0, 1.0, 1.0])
    walks = walk(graph, length=2, walks_per_node=20_000, seed=1)
    first_steps = walks[1, walks[0] == 0]
    assert (first_steps == 1).double().mean().item() == pytest.approx(0.75, abs=0.02)
    assert (walks[1, walks[0] == 2] == -1).all()
    assert (walks[2, walks[0] == 1] == -1).all()


@pytest.mark.parametrize("nodes", [3, DENSE_NODES + 1])
def test_graphs_without_edges_have_operators(nodes: int):
    graph = Graph(torch.empty(2, 0, dtype=torch.int64), nodes)
    h = torch.randn(nodes, 2)
    torch.testing.assert_close(chebyshev(scaled_laplacian(graph), h, 1)[1], -h)
    torch.testing.assert_close(cayley(graph.normalize("laplacian"), h, 1)[1].real, -h)
    assert diffuse(random_walks(graph), h, 1)[1:].abs().max() == 0
    assert ppmi(graph).num_edges == 0
    assert spectral_radius(graph) == 0
    assert math.isclose(float(spectral_basis(graph).eigenvalues.sum()), 0.0)


def test_bad_operators_name_the_remedy():
    graph = Graph([[0, 1], [1, 2]], 3, [1.0, 2.0])
    h = torch.randn(3, 1)
    with pytest.raises(ValueError, match=r"\[−1, 1\], but the graph is of kind None. Use `scaled"):
        chebyshev(graph, h, 2)
    with pytest.raises(ValueError, match=r"`order` must be 0 or more, but it is -1"):
        chebyshev(graph.normalize("sym"), h, -1)
    with pytest.raises(ValueError, match=r"normalised as 'sym'. Use `scaled_laplacian\(graph.sou"):
        scaled_laplacian(graph.normalize("sym"))
    for kind in ("sym", "symm"):
        with pytest.raises(ValueError, match=rf"Unknown Laplacian '{kind}'. Choose one of: lapl"):
            scaled_laplacian(graph, kind)
    with pytest.raises(ValueError, match=r"must be positive, but it is -1.0. Leave it out"):
        scaled_laplacian(graph, largest_eigenvalue=-1.0)
    with pytest.raises(ValueError, match=r"need a Laplacian, but .* kind 'rw'. Use `graph.norm"):
        cayley(graph.normalize("rw"), h, 2)
    with pytest.raises(ValueError, match=r"need a Laplacian, but .* kind 'scaled_laplacian'. Use"):
        cayley(scaled_laplacian(graph), h, 2)  # on which Jacobi's iterations diverge
    with pytest.raises(ValueError, match=r"0 or more, but they are 1 and -1. Give the highest"):
        cayley(graph.normalize("laplacian"), h, 1, iterations=-1)
    with pytest.raises(ValueError, match=r"symmetric matrix, but the graph is directed.* Use"):
        spectral_basis(graph)
    with pytest.raises(ValueError, match=r"from 0 to the number of nodes, 34, but it is 35. Leave"):
        spectral_basis(karate_club(), 35)
    with pytest.raises(ValueError, match=r"`steps` must be 0 or more, but it is -2"):
        diffuse(random_walks(graph), h, -2)
    with pytest.raises(
        ValueError, match=r"must be 1 or more, but they are 0, 100 and 0. The paper"
    ):
        ppmi(graph, walk_length=0)
    with pytest.raises(ValueError, match=r"weights of 0 or more, but the lowest is -1. Use"):
        ppmi(Graph([[0], [1]], 2, [-1.0]))
