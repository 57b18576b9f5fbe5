"""Normalisations against their formulas, PyG and networkx; none of them ever gives a NaN."""

import networkx
import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from graphode.graphs import DenseGraph, Graph, gaussian_graph
from graphode.graphs.normalization import KINDS
from tests.graphs.strategies import matrices


def dense_normalization(matrix: Tensor, kind: str, self_loops: bool) -> Tensor:
    if self_loops:
        matrix = matrix + torch.diag((matrix.diagonal() == 0).double())
    degrees = matrix.sum(1)
    inverse = torch.where(degrees > 0, 1 / degrees, 0.0)
    if kind.endswith("laplacian"):
        matrix = torch.diag(degrees) - matrix
    if kind.startswith("sym"):
        return inverse.sqrt()[:, None] * matrix * inverse.sqrt()
    return inverse[:, None] * matrix if kind.startswith("rw") else matrix


@pytest.mark.parametrize("kind", KINDS)
@given(matrix=matrices(positive=True))
def test_sparse_equals_dense(kind: str, matrix: Tensor):
    graph = Graph.from_dense(matrix)
    for self_loops in (None, True, False):
        expected_loops = kind in ("sym", "rw") if self_loops is None else self_loops
        expected = dense_normalization(matrix, kind, expected_loops)
        normalized = graph.normalize(kind, self_loops)
        torch.testing.assert_close(normalized.to_dense(), expected)
        assert normalized.to_dense().isfinite().all()
        assert normalized.source is graph
        if graph.is_symmetric and kind not in ("rw", "rw_laplacian"):
            assert normalized.is_symmetric


@given(matrices(positive=True))
def test_sym_equals_gcn_norm_of_pyg(matrix: Tensor):
    graph = Graph.from_dense(matrix)
    edge_index, weight = gcn_norm(graph.edge_index, graph.edge_weight, len(matrix))
    expected = torch.zeros_like(matrix).index_put((edge_index[1], edge_index[0]), weight)
    torch.testing.assert_close(graph.normalize("sym").to_dense(), expected)


def test_added_loops_follow_the_edges_as_in_pyg():
    edge_index = torch.tensor([[2, 0], [1, 2]])
    theirs, weight = gcn_norm(edge_index, None, 3, dtype=torch.float64)
    ours = Graph(edge_index, 3).normalize("sym")
    assert torch.equal(ours.edge_index, theirs)
    torch.testing.assert_close(ours.edge_weight, weight)


def test_laplacians_equal_those_of_networkx():
    club = networkx.karate_club_graph()
    graph = Graph.from_networkx(club)
    for kind, theirs in (
        ("laplacian", networkx.laplacian_matrix(club)),
        ("sym_laplacian", networkx.normalized_laplacian_matrix(club)),
    ):
        expected = torch.from_numpy(theirs.toarray()).double()
        torch.testing.assert_close(graph.normalize(kind).to_dense(), expected)


def test_rows_of_rw_sum_to_one_and_laplacians_kill_constants():
    matrix = torch.rand(6, 6)
    graph = Graph.from_dense(matrix)
    torch.testing.assert_close(graph.normalize("rw").degrees, torch.ones(6))
    for kind in ("laplacian", "rw_laplacian"):
        torch.testing.assert_close(graph.normalize(kind).degrees, torch.zeros(6))


def test_gradients_pass_through_a_normalisation_and_zero_degrees():
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 1]])

    def normalized(weight: Tensor) -> Tensor:
        graph = Graph(edge_index, 4, weight)
        return torch.stack([graph.normalize(kind).to_dense() for kind in KINDS])

    weight = torch.rand(3, requires_grad=True)
    torch.autograd.gradcheck(normalized, (weight,))
    zero = torch.zeros(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(normalized(zero).sum(), zero)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("times", [1 / 16, 1, 1000])
def test_degrees_whose_inverse_overflows_are_normalised(
    times: float, dense: bool, dtype: torch.dtype
):
    # Node 2 hears the others in a whisper, at first below the normal numbers.
    whisper = times * torch.finfo(dtype).tiny
    matrix = torch.tensor([[0, 1, whisper], [1, 0, whisper], [whisper, whisper, 0]], dtype=dtype)
    matrix.requires_grad_()
    graph = DenseGraph(matrix) if dense else Graph.from_dense(matrix)
    rows = {kind: graph.normalize(kind, self_loops=False).to_dense() for kind in KINDS}
    assert rows["rw"][2].tolist() == [0.5, 0.5, 0]
    assert rows["rw_laplacian"][2].tolist() == [-0.5, -0.5, 1]
    step = (
        0.0 if times < 1 else (whisper / 2) ** 0.5
    )  # nothing, where there is no root to divide by
    for kind, sign in (("sym", 1), ("sym_laplacian", -1)):
        expected = torch.tensor([sign * step, sign * step])
        torch.testing.assert_close(rows[kind][2, :2].double(), expected, rtol=0.05, atol=0.0)
    for row in rows.values():
        (gradient,) = torch.autograd.grad(row.sum(), matrix, retain_graph=True)
        assert gradient.isfinite().all()


def test_far_nodes_of_a_gaussian_graph_average_their_neighbours():
    distances = torch.tensor([[0, 1, 10], [1, 0, 10], [10, 10, 0]], dtype=torch.float32)
    graph = gaussian_graph(distances, bandwidth=1.0, threshold=0.0)
    assert graph.normalize("rw", self_loops=False).to_dense()[2].tolist() == [0.5, 0.5, 0]


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("kind", ["sym", "rw"])
def test_small_degrees_are_mapped_and_compiled(kind: str):
    weight = torch.tensor([1.0, 2.0, 1e-310, 3e-310])
    graph = Graph([[0, 1, 0, 1], [1, 0, 2, 2]], 3)

    def normalized(weight: Tensor) -> Tensor:
        return graph.reweight(weight).normalize(kind, self_loops=False).edge_weight

    expected = normalized(weight)

    def of_matrix(matrix: Tensor) -> Tensor:
        return DenseGraph._of(matrix, nonnegative=True).normalize(kind, self_loops=False).matrix

    matrix = graph.reweight(weight).to_dense()
    mapped = torch.func.vmap(of_matrix)(torch.stack([matrix, 2 * matrix]))
    source, target = graph.edge_index
    for each in mapped:
        torch.testing.assert_close(each[target, source], expected)
    compiled = torch.compile(of_matrix, backend="aot_eager")
    torch.testing.assert_close(compiled(matrix), mapped[0])


def test_bad_normalisations_name_the_remedy():
    graph = Graph([[0, 1], [1, 0]], 2, [1.0, -2.0])
    with pytest.raises(ValueError, match=r"Unknown normalisation 'both'. Choose one of: sym, rw"):
        graph.normalize("both")
    for kind in ("sym", "rw", "sym_laplacian", "rw_laplacian"):
        with pytest.raises(ValueError, match=f'"{kind}" needs weights .* lowest weight is -2. Use'):
            graph.normalize(kind)
    laplacian = graph.normalize("laplacian")
    with pytest.raises(ValueError, match=r"already normalised \('laplacian'\).*graph.source.norm"):
        laplacian.normalize("laplacian")
