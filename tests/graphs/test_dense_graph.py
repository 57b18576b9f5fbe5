"""A graph held as a matrix is the same graph."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils import _pytree

from graphode.graphs import DenseGraph, Graph, dense_radius_graph, radius_graph
from graphode.graphs.normalization import KINDS

KIND_AND_LOOPS = [(kind, loops) for kind in KINDS for loops in (None, True, False)]


def weights(*shape: int, seed: int = 0) -> Tensor:
    """Random matrices with about half of their entries zero, some of them on the diagonal."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(*shape, generator=generator, dtype=torch.float64) + 0.1
    return values * (torch.rand(*shape, generator=generator) < 0.5)


@given(st.integers(1, 6), st.integers(0, 50), st.sampled_from(KIND_AND_LOOPS))
def test_normalisation_equals_that_of_the_edges(
    nodes: int, seed: int, how: tuple[str, bool | None]
):
    matrix = weights(nodes, nodes, seed=seed)
    dense = DenseGraph(matrix).normalize(*how)
    sparse = Graph.from_dense(matrix).normalize(*how)
    torch.testing.assert_close(dense.matrix, sparse.to_dense())
    assert dense.kind == how[0]
    assert dense.source is not None
    assert dense.source.to_dense().equal(matrix)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_a_batch_of_matrices_acts_as_a_batch_of_graphs(batch: tuple[int, ...]):
    dense = DenseGraph(weights(*batch, 4, 4)).normalize("sym")
    h = torch.randn(5, *batch, 4, 2)
    matrices = dense.matrix.reshape(-1, 4, 4)
    expected = torch.einsum("bij,kbjc->kbic", matrices, h.reshape(5, -1, 4, 2))
    torch.testing.assert_close(dense.propagate(h), expected.reshape(h.shape))
    flat = h.reshape(5, -1, 2)
    torch.testing.assert_close(dense.propagate(flat), expected.reshape(flat.shape))
    assert dense.flatten(h).equal(flat)
    assert dense.sizes == (4,) * len(matrices)
    assert dense.node_graph.equal(torch.arange(len(matrices)).repeat_interleave(4))


def test_edges_are_those_that_are_not_zero():
    matrix = weights(2, 4, 4)
    dense = DenseGraph(matrix)
    sparse = Graph.batch([Graph.from_dense(a) for a in matrix])
    assert dense.edge_index.equal(sparse.edge_index)
    assert dense.edge_weight.equal(sparse.edge_weight)
    assert dense.num_edges == sparse.num_edges
    assert dense.to_dense().equal(torch.block_diag(*matrix))
    torch.testing.assert_close(dense.degrees, sparse.degrees)
    torch.testing.assert_close(dense.diagonal, sparse.diagonal)
    for one, graph in zip(dense.unbatch(), matrix, strict=True):
        assert one.to_dense().equal(graph)


@pytest.mark.parametrize("shape", [(0, 0), (3, 0, 0), (0, 3, 3)], ids=str)
def test_without_nodes_or_graphs_there_are_no_edges(shape: tuple[int, ...]):
    dense = DenseGraph(torch.zeros(*shape))
    for graph in (dense, dense.normalize("sym", False), dense.normalize("laplacian")):
        assert (graph.num_edges, graph.edge_weight.shape) == (0, (0,))
        assert graph.to_dense().shape == (0, 0)
        assert len(graph.unbatch()) == graph.num_graphs
        h = torch.randn(*shape[:-1], 2)
        assert graph.propagate(h).shape == h.shape


def test_there_and_back_again():
    matrix = weights(3, 4, 4)
    sparse = Graph.batch([Graph.from_dense(a) for a in matrix]).normalize("rw")
    dense = DenseGraph.from_graph(sparse)
    assert dense.kind == "rw"
    torch.testing.assert_close(dense.matrix, DenseGraph(matrix).normalize("rw").matrix)
    assert DenseGraph.from_dense(matrix[0]).matrix.equal(matrix[0])


def test_reversing_transposes():
    matrix = weights(4, 4)
    assert DenseGraph(matrix).reverse().matrix.equal(matrix.T)
    assert not DenseGraph(matrix).is_symmetric
    assert DenseGraph(matrix + matrix.T).is_symmetric
    with pytest.raises(ValueError, match="`reverse` needs a graph that is not normalised"):
        DenseGraph(matrix).normalize("sym").reverse()


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck_of_weights_and_state(kind: str):
    matrix = (weights(2, 3, 3) + 0.1).requires_grad_()
    h = torch.randn(2, 3, 2, requires_grad=True)

    def product(matrix: Tensor, h: Tensor) -> Tensor:
        return DenseGraph(matrix).normalize(kind).propagate(h)

    torch.autograd.gradcheck(product, (matrix, h))


def test_edge_weights_pass_gradients_on():
    matrix = weights(3, 3).requires_grad_()
    DenseGraph(matrix).edge_weight.square().sum().backward()
    assert matrix.grad is not None
    torch.testing.assert_close(matrix.grad, 2 * matrix.detach())


def test_trees_see_the_matrix_and_that_of_the_source():
    graph = DenseGraph(weights(3, 3)).normalize("sym")
    leaves, tree = _pytree.tree_flatten(graph)
    assert [leaf.shape for leaf in leaves] == [(3, 3), (3, 3)]
    doubled = _pytree.tree_unflatten([2 * leaf for leaf in leaves], tree)
    assert isinstance(doubled, DenseGraph)
    assert doubled.kind == "sym"
    assert doubled.matrix.equal(2 * graph.matrix)


def test_dtype_and_repr():
    graph = DenseGraph(weights(2, 3, 3)).normalize("sym").to(dtype=torch.float32)
    assert graph.dtype == torch.float32
    assert graph.source is not None
    assert graph.source.dtype == torch.float32
    assert repr(graph) == "DenseGraph(matrix=[2, 3, 3], kind='sym', dtype=float32, device='cpu')"
    assert graph.propagate(torch.randn(2, 3, 1)).dtype == torch.float64
    assert DenseGraph([[0, 1], [1, 0]]).dtype == torch.float64


def test_autocast_leaves_the_dtype_of_the_state():
    matrix, h = weights(3, 4, 4).float(), torch.randn(3, 4, 2).float().requires_grad_()
    expected = matrix @ h
    with torch.autocast("cpu", torch.bfloat16):
        moved = DenseGraph(matrix).propagate(h)
    assert torch.equal(moved, expected)
    assert torch.autograd.grad(moved.sum(), h)[0].dtype == torch.float32


@given(st.integers(1, 12), st.floats(0.05, 1.5), st.integers(0, 50))
def test_the_radius_graph_as_a_matrix_is_the_radius_graph(nodes: int, radius: float, seed: int):
    positions = torch.rand(2, nodes, 2, generator=torch.Generator().manual_seed(seed)).double()
    for kernel in (None, lambda length: torch.exp(-length)):
        dense = dense_radius_graph(positions, radius, kernel)
        sparse = radius_graph(positions, radius, kernel)
        torch.testing.assert_close(dense.to_dense(), sparse.to_dense())
        expected = sparse.normalize("sym").to_dense()
        torch.testing.assert_close(torch.block_diag(*dense.normalize("sym").matrix), expected)


def test_the_kernel_of_nodes_in_one_place_has_a_finite_gradient():
    positions = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.3, 0.0]], requires_grad=True)
    graph = dense_radius_graph(positions, 1.0, lambda length: 1 - length)
    assert graph.matrix[0, 1] == 1
    graph.matrix.sum().backward()
    assert positions.grad is not None
    torch.testing.assert_close(positions.grad[2], torch.tensor([-4.0, 0.0]))


def test_a_node_whose_position_is_not_finite_is_isolated():
    positions = torch.tensor([[0.0, 0.0], [torch.nan, 0.0], [0.1, 0.0], [torch.inf, 0.0]])
    degrees = dense_radius_graph(positions, 1.0).degrees
    assert degrees.tolist() == [1, 0, 1, 0]


def test_what_happens_to_the_matrix_it_was_given_is_nothing_to_a_graph():
    given = torch.rand(3, 3)
    graph, expected = DenseGraph(given), given.clone()
    given.zero_()
    assert torch.equal(graph.propagate(torch.eye(3)), expected)


def test_bad_matrices_and_states_are_named():
    with pytest.raises(ValueError, match=r"`matrix` must be square.*its shape is \[2, 3\]"):
        DenseGraph(torch.zeros(2, 3))
    with pytest.raises(TypeError, match=r"must be real, but its dtype is torch.complex128. Use"):
        DenseGraph(torch.eye(2) + 1j)
    with pytest.raises(ValueError, match="`matrix` must be finite"):
        DenseGraph([[0.0, torch.nan], [0.0, 0.0]])
    graph = DenseGraph(weights(3, 4, 4))
    with pytest.raises(ValueError, match="Unknown normalisation 'mean'"):
        graph.normalize("mean")
    with pytest.raises(ValueError, match="already normalised"):
        graph.normalize("sym").normalize("rw")
    with pytest.raises(ValueError, match=r'"sym" needs weights of 0 or more.*"laplacian"'):
        DenseGraph(-weights(4, 4)).normalize("sym")
    with pytest.raises(ValueError, match=r"12 nodes.*but its shape is \[2, 4, 1\]"):
        graph.propagate(torch.randn(2, 4, 1))
    with pytest.raises(TypeError, match=r"must be a real floating type, but it is torch.int64"):
        graph.to(dtype=torch.int64)
    with pytest.raises(ValueError, match="radius` must be 0 or more"):
        dense_radius_graph(torch.zeros(2, 2), -1.0)
    ragged = Graph.batch([Graph.from_dense(weights(3, 3)), Graph.from_dense(weights(4, 4))])
    with pytest.raises(ValueError, match="have 3 to 4 nodes"):
        DenseGraph.from_graph(ragged)
