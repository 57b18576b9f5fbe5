"""A graph acts as its matrix, whatever it was built from, and refuses what is not a graph."""

import copy
import pickle
import warnings

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from torch_geometric.data import Data
from torch_geometric.transforms import ToSparseTensor

from graphode.graphs import DenseGraph, Graph
from tests.graphs.strategies import matrices

PATH = torch.tensor([[0, 1], [1, 2]])  # 0 → 1 → 2


def random_matrix(nodes: int, density: float = 0.4) -> Tensor:
    return torch.randn(nodes, nodes) * (torch.rand(nodes, nodes) < density)


def test_edges_run_from_source_to_target():
    h = torch.tensor([[1.0], [10.0], [100.0]])
    propagated = Graph(PATH, num_nodes=3, edge_weight=torch.tensor([2.0, 3.0])).propagate(h)
    assert propagated[:, 0].tolist() == [0.0, 2.0, 30.0]


@given(matrices())
def test_sparse_equals_dense(matrix: Tensor):
    graph = Graph.from_dense(matrix)
    h = torch.randn(len(matrix), 3)
    torch.testing.assert_close(graph.propagate(h), matrix @ h)
    torch.testing.assert_close(graph.to_dense(), matrix)
    torch.testing.assert_close(graph.degrees, matrix.sum(1))
    assert graph.is_symmetric == torch.equal(matrix, matrix.t())
    assert graph.num_edges == int(matrix.count_nonzero())


@given(matrices())
def test_batched_equals_one_by_one(matrix: Tensor):
    graph = Graph.from_dense(matrix)
    h = torch.randn(2, 3, len(matrix), 4)
    one_by_one = torch.stack([torch.stack([graph.propagate(x) for x in row]) for row in h])
    torch.testing.assert_close(graph.propagate(h), one_by_one)
    assert graph.propagate(h[:, :0]).shape == (2, 0, len(matrix), 4)


@given(matrices())
def test_relabelling_nodes_relabels_the_product(matrix: Tensor):
    order = torch.randperm(len(matrix))
    h = torch.randn(len(matrix), 2)
    relabelled = Graph.from_dense(matrix[order][:, order])
    expected = Graph.from_dense(matrix).propagate(h)[order]
    torch.testing.assert_close(relabelled.propagate(h[order]), expected)


@given(matrices())
def test_the_order_of_edges_does_not_matter_and_is_kept(matrix: Tensor):
    graph = Graph.from_dense(matrix)
    order = torch.randperm(graph.num_edges)
    shuffled = Graph(graph.edge_index[:, order], len(matrix), graph.edge_weight[order])
    assert torch.equal(shuffled.edge_index, graph.edge_index[:, order])
    assert torch.equal(shuffled.edge_weight, graph.edge_weight[order])
    torch.testing.assert_close(shuffled.to_dense(), matrix)
    h = torch.randn(len(matrix), 2)
    torch.testing.assert_close(shuffled.propagate(h), matrix @ h)


def test_every_representation_gives_the_same_graph():
    matrix = random_matrix(6)
    graph = Graph.from_dense(matrix)
    data = Data(edge_index=graph.edge_index, edge_weight=graph.edge_weight, num_nodes=6)
    attributed = Data(edge_index=graph.edge_index, edge_attr=graph.edge_weight, num_nodes=6)
    # networkx reads A[i, j] as i → j.
    directed = networkx.from_numpy_array(matrix.t().numpy(), create_using=networkx.DiGraph)
    others = [
        Graph.from_pyg(data),
        Graph.from_pyg(attributed),
        Graph.from_networkx(directed),
        Graph.from_scipy(scipy.sparse.csr_array(matrix.numpy())),
        Graph.from_scipy(scipy.sparse.coo_matrix(matrix.numpy())),
        *[Graph.from_scipy(to(matrix)) for to in (Tensor.to_sparse, Tensor.to_sparse_csr)],
        Graph.from_pyg(ToSparseTensor()(data.clone())),
        Graph.from_dense(matrix.numpy()),
        Graph.from_dense(matrix.tolist()),
        Graph(graph.edge_index.numpy(), 6, graph.edge_weight.numpy()),
        Graph(graph.edge_index.tolist(), 6, graph.edge_weight.tolist()),
    ]
    for other in others:
        torch.testing.assert_close(other.to_dense(), matrix)


def test_arrays_that_are_read_only_or_run_backwards_are_read():
    edges, weight = np.array([[1, 2], [0, 1]])[::-1], np.array([2.0, 3.0])[::-1]
    graph = Graph(edges, 3, weight)
    matrix = graph.to_dense().numpy()
    assert matrix[1, 0] == 3
    assert matrix[2, 1] == 2
    for array in (edges, weight, matrix):
        array.flags.writeable = False
    kept = np.array([2, 1, 0])[::-1]
    others = [
        Graph(edges, 3, weight),
        Graph.from_dense(matrix),
        DenseGraph(matrix),
        DenseGraph(matrix[::-1, ::-1]).subgraph(np.array([0, 1, 2])[::-1]),
        graph.subgraph(kept),
    ]
    for other in others:
        assert other.to_dense().tolist() == matrix.tolist()


def test_an_undirected_networkx_graph_runs_both_ways():
    undirected = networkx.Graph()
    undirected.add_nodes_from("abc")
    undirected.add_edge("a", "c", weight=2.0)
    undirected.add_edge("b", "b")
    graph = Graph.from_networkx(undirected)
    assert graph.is_symmetric
    assert graph.to_dense().tolist() == [[0, 0, 2], [0, 1, 0], [2, 0, 0]]


def test_duplicate_edges_are_summed_and_said():
    edge_index = torch.tensor([[2, 0, 2, 2], [1, 1, 1, 0]])
    with pytest.warns(UserWarning, match=r"1 of 4 edges repeat an earlier one; their weights are"):
        graph = Graph(edge_index, 3, torch.tensor([1.0, 2.0, 4.0, 8.0]))
    assert graph.edge_index.tolist() == [[2, 0, 2], [1, 1, 0]]
    assert graph.edge_weight.tolist() == [5.0, 2.0, 8.0]


def test_a_canonical_scipy_matrix_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Graph.from_scipy(scipy.sparse.random_array((30, 30), density=0.2, format="csr"))


def test_gradients_of_duplicates_reach_each_of_them():
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    with pytest.warns(UserWarning, match=r"repeat"):
        graph = Graph([[0, 0], [1, 1]], 2, weight)
    graph.propagate(torch.tensor([[3.0], [0.0]])).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [3.0, 3.0]


def test_a_subgraph_is_a_block_of_the_matrix():
    matrix = random_matrix(7)
    graph = Graph.from_dense(matrix)
    nodes = torch.tensor([5, 0, 3])
    torch.testing.assert_close(graph.subgraph(nodes).to_dense(), matrix[nodes][:, nodes])
    mask = torch.arange(7) % 2 == 0
    torch.testing.assert_close(graph.subgraph(mask).to_dense(), matrix[mask][:, mask])
    assert graph.subgraph([]).num_nodes == 0


def test_weights_follow_the_dtype_of_the_state():
    matrix = random_matrix(5)
    graph = Graph.from_dense(matrix)
    h = torch.randn(5, 3)
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 0.05), (torch.float16, 0.01)):
        product = graph.propagate(h.to(dtype))
        assert product.dtype == dtype
        torch.testing.assert_close(product.double(), matrix @ h, atol=tolerance, rtol=tolerance)
    assert graph.to(dtype=torch.float32).edge_weight.dtype == torch.float32
    assert graph.to("cpu", torch.float32).normalize("laplacian").to(dtype=torch.float64).source


def test_a_graph_moves_as_a_tensor_does():
    graph = Graph.from_dense(random_matrix(5)).normalize("laplacian")
    for moved in (graph, DenseGraph.from_graph(graph)):
        for words in ((torch.float32,), ("cpu", torch.float32), (torch.zeros(1).float(),)):
            there = moved.to(*words)
            assert there.dtype == torch.float32
            assert there.source is not None
            assert there.source.dtype == torch.float32


def test_autocast_leaves_the_dtype_of_the_state():
    graph = Graph.from_dense(random_matrix(5))
    graph = graph.reweight(graph.edge_weight.requires_grad_())
    h = torch.randn(5, 3, dtype=torch.float32, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        product = graph.propagate(h)
        product.sum().backward()
    assert product.dtype == torch.float32
    torch.testing.assert_close(product, graph.propagate(h))


def test_copies_and_pickles_are_the_same_graph():
    graph = Graph.from_dense(random_matrix(5).abs()).normalize("sym")
    h = torch.randn(5, 2)
    for copied in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        torch.testing.assert_close(copied.propagate(h), graph.propagate(h))
        assert copied.source is not None


@pytest.mark.parametrize("build", [Graph, lambda *parts: Graph(*parts[:2]).reweight(parts[2])])
def test_what_happens_to_the_arrays_it_was_given_is_nothing_to_a_graph(build):
    matrix = random_matrix(6)
    target, source = matrix.nonzero(as_tuple=True)  # in the order of the matrix
    edges, weight = torch.stack([source, target]), matrix[target, source]
    arrays = edges.clone().numpy(), weight.clone().numpy()
    graphs = [build(edges, 6, weight), build(arrays[0], 6, arrays[1])]
    for changed in (edges, weight, *arrays):
        changed *= 0
    for graph in graphs:
        h = torch.randn(6, 2, requires_grad=True)
        torch.testing.assert_close(graph.to_dense(), matrix)
        graph.propagate(h).sum().backward()
        torch.testing.assert_close(h.grad, matrix.t() @ torch.ones(6, 2))


@pytest.mark.parametrize("frozen_first", [True, False])
def test_a_graph_follows_its_parameter_through_freezing_and_training(frozen_first: bool):
    weight = torch.nn.Parameter(torch.rand(2))
    weight.requires_grad_(not frozen_first)
    graph = Graph([[0, 1], [1, 0]], 2, weight)
    h = torch.randn(2, 3)
    for _ in range(2):
        weight.requires_grad_(False)
        torch.testing.assert_close(graph.propagate(h), graph.to_dense() @ h)
        weight.requires_grad_(True)
        graph.propagate(h).sum().backward()
        with torch.no_grad():
            assert weight.grad is not None
            weight -= weight.grad
    weight.requires_grad_(False)
    state = h.clone().requires_grad_()
    graph.propagate(state).square().sum().backward()
    expected = 2 * graph.to_dense().t() @ graph.to_dense() @ h
    torch.testing.assert_close(state.grad, expected)


def test_a_graph_is_frozen():
    graph = Graph(PATH, 3)
    with pytest.raises(AttributeError, match=r"frozen: `edge_weight` cannot be set. Build a new"):
        graph.edge_weight = torch.ones(2)


def test_repr_says_size_and_kind():
    assert repr(Graph(PATH, 3)) == ("Graph(num_nodes=3, num_edges=2, dtype=float64, device='cpu')")
    assert "num_edges=5, kind='sym'" in repr(Graph(PATH, 3).normalize("sym"))


def test_leaves_are_the_weights_that_propagate_uses():
    weight = torch.rand(2, requires_grad=True)
    graph = Graph(PATH, 3, weight)
    assert tree_leaves(graph) == [weight]
    normalized = graph.normalize("sym")
    leaves, structure = tree_flatten(normalized)
    assert leaves[0] is normalized.edge_weight
    assert leaves[1] is weight
    doubled = tree_unflatten([2 * leaf for leaf in leaves], structure)
    h = torch.randn(3, 2)
    torch.testing.assert_close(doubled.propagate(h), 2 * normalized.propagate(h))
    torch.testing.assert_close(doubled.source.propagate(h), 2 * graph.propagate(h))
    assert doubled.kind == "sym"
    assert tree_flatten(doubled)[1] == structure


@pytest.mark.parametrize(
    ("edge_index", "error", "text"),
    [
        ([[0], [3]], ValueError, "below `num_nodes` = 3, but it holds 3. Give `num_nodes=4`"),
        ([[0], [-1]], ValueError, "from 0 to 2, but it holds the negative -1. Number the nodes"),
        ([[0.0], [1.0]], TypeError, "must hold integers .* is torch.float64. Convert it with"),
        ([[0, 1], [1, 0], [2, 0]], ValueError, r"shape is \[3, 2\]. Transpose it"),
        ([0, 1, 2], ValueError, r"shape is \[3\]. Stack the sources over the targets"),
    ],
)
def test_a_bad_edge_index_names_the_remedy(edge_index: list, error: type, text: str):
    with pytest.raises(error, match=text):
        Graph(torch.tensor(edge_index), num_nodes=3)


@pytest.mark.parametrize(
    ("weight", "error", "text"),
    [
        ([1.0], ValueError, r"must have shape \[2\], .* but its shape is \[1\]. Give the weights"),
        ([1.0, float("nan")], ValueError, r"edge 1 \(1 → 2\) has weight nan; 1 of 2 .* Drop these"),
        ([float("inf"), 1.0], ValueError, r"edge 0 \(0 → 1\) has weight inf"),
        ([1j, 1.0], TypeError, "must be real, .* Use two graphs"),
    ],
)
def test_bad_weights_name_the_remedy(weight: list, error: type, text: str):
    with pytest.raises(error, match=text):
        Graph(PATH, 3, torch.tensor(weight))


def test_a_state_of_another_graph_names_the_remedy():
    graph = Graph(PATH, 3)
    with pytest.raises(ValueError, match=r"with 3 nodes, .* shape is \[4, 2\]. Put nodes second"):
        graph.propagate(torch.randn(4, 2))
    with pytest.raises(ValueError, match=r"device, cpu, but it is on meta. Move the graph once"):
        graph.propagate(torch.randn(3, 2, device="meta"))
    with pytest.raises(ValueError, match=r"device of `edge_index`, cpu, but it is on meta. Move"):
        Graph(PATH, 3, torch.ones(2, device="meta"))


def test_other_bad_input_names_the_remedy():
    with pytest.raises(ValueError, match=r"must be square, .* shape is \[2, 3\]. Give one row"):
        Graph.from_dense(torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"must be a whole number, 0 or more, but it is -1. Give"):
        Graph(PATH, -1)
    with pytest.raises(ValueError, match=r"must have an `edge_index`, but it has none. Undo"):
        Graph.from_pyg(Data(x=torch.ones(3, 1)))
    graph = Graph(PATH, 3)
    with pytest.raises(ValueError, match=r"from 0 to 2, but they run from 1 to 5. Leave out"):
        graph.subgraph([1, 5])
    with pytest.raises(ValueError, match=r"distinct, but 1 of 3 repeat .* Use `nodes.unique"):
        graph.subgraph(np.array([0, 1, 1]))
    with pytest.raises(ValueError, match=r"not normalised, .* \('rw'\). Use `graph.source.reverse"):
        graph.normalize("rw").reverse()
    with pytest.raises(TypeError, match=r"real floating type, but it is torch.int64. Edge weights"):
        graph.to(dtype=torch.int64)


@given(matrices())
def test_reversing_transposes(matrix: Tensor):
    graph = Graph.from_dense(matrix)
    order = torch.randperm(graph.num_edges)
    shuffled = Graph(graph.edge_index[:, order], len(matrix), graph.edge_weight[order])
    h = torch.randn(len(matrix), 2, requires_grad=True)
    for turned in (graph.reverse(), shuffled.reverse()):
        torch.testing.assert_close(turned.to_dense(), matrix.t())
        torch.testing.assert_close(turned.propagate(h), matrix.t() @ h)
        (gradient,) = torch.autograd.grad(turned.propagate(h).sum(), h)
        torch.testing.assert_close(gradient, matrix.sum(1)[:, None].expand(-1, 2))
        torch.testing.assert_close(turned.reverse().propagate(h), matrix @ h)


def test_reweighting_keeps_the_edges():
    graph = Graph.from_dense(random_matrix(5))
    weight = torch.rand(graph.num_edges, requires_grad=True)
    h = torch.randn(5, 2)
    expected = Graph(graph.edge_index, 5, weight).propagate(h)
    torch.testing.assert_close(graph.reweight(weight).propagate(h), expected)
    with pytest.raises(ValueError, match=r"`edge_weight` must have shape"):
        graph.reweight(weight[1:])


def test_mapping_over_unchanged_leaves_gives_the_graph_itself():
    graph = Graph(PATH, 3).normalize("rw")
    assert tree_map(lambda leaf: leaf, graph) is graph
    assert tree_map(lambda leaf: leaf.clone(), graph) is not graph
    assert graph.to("cpu") is graph


def test_what_was_dropped_is_a_leaf_beside_the_weights():
    graph = Graph(PATH, 3)
    thinned = graph._thin(torch.arange(graph.num_edges) * 1.0).normalize("rw")
    leaves, structure = tree_flatten(thinned)
    assert structure != tree_flatten(graph.normalize("rw"))[1]
    assert tree_unflatten(leaves, structure) is thinned
    again = tree_unflatten([leaf + 1 for leaf in leaves], structure)
    for one, other in ((thinned, again), (thinned.source, again.source)):
        assert one is not None
        assert one._keep_mask is not None
        assert torch.equal(one._keep_mask + 1, other._keep_mask)
        assert torch.equal(one.edge_weight + 1, other.edge_weight)
