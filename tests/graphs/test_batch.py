"""A batch of graphs is its graphs, side by side."""

import pytest
import torch
from hypothesis import given
from hypothesis.strategies import lists
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import ToSparseTensor

from graphode.graphs import Graph
from graphode.graphs.normalization import KINDS
from tests.graphs.strategies import matrices


@given(lists(matrices(), min_size=1, max_size=4))
def test_block_diagonal_equals_separately(blocks: list[Tensor]):
    graphs = [Graph.from_dense(matrix) for matrix in blocks]
    batch = Graph.batch(graphs)
    assert batch.sizes == tuple(len(matrix) for matrix in blocks)
    assert batch.node_graph.bincount(minlength=len(blocks)).tolist() == list(batch.sizes)
    states = [torch.randn(2, len(matrix), 3) for matrix in blocks]
    separately = [graph.propagate(h) for graph, h in zip(graphs, states, strict=True)]
    together = batch.propagate(torch.cat(states, 1))
    torch.testing.assert_close(together, torch.cat(separately, 1))
    torch.testing.assert_close(
        batch.to_dense(), torch.block_diag(*blocks).reshape_as(batch.to_dense())
    )
    for graph, part in zip(graphs, batch.unbatch(), strict=True):
        assert torch.equal(part.edge_index, graph.edge_index)
        assert torch.equal(part.edge_weight, graph.edge_weight)
        assert part.num_nodes == graph.num_nodes


def test_graphs_may_come_one_after_the_other():
    graphs = [Graph.from_dense(torch.rand(n, n)).normalize("rw") for n in (3, 2)]
    batch = Graph.batch(graph for graph in graphs)
    assert torch.equal(batch.to_dense(), Graph.batch(graphs).to_dense())
    assert batch.source is not None


def test_a_pyg_batch_of_sparse_tensors_is_a_batch():
    data = Data(edge_index=torch.tensor([[0, 0], [1, 2]]), num_nodes=3)
    batch = Graph.from_pyg(Batch.from_data_list([ToSparseTensor()(data.clone())] * 2))
    assert batch.sizes == (3, 3)
    assert torch.equal(batch.to_dense(), torch.block_diag(*[Graph.from_pyg(data).to_dense()] * 2))


@pytest.mark.parametrize("kind", KINDS)
def test_normalising_and_batching_commute(kind: str):
    graphs = [Graph.from_dense(torch.rand(n, n) * (torch.rand(n, n) < 0.5)) for n in (3, 5, 1)]
    batch = Graph.batch([graph.normalize(kind) for graph in graphs])
    torch.testing.assert_close(Graph.batch(graphs).normalize(kind).to_dense(), batch.to_dense())
    assert batch.kind == kind
    assert batch.source is not None
    torch.testing.assert_close(batch.source.to_dense(), Graph.batch(graphs).to_dense())
    assert all(part.source is not None and part.kind == kind for part in batch.unbatch())


def test_graphs_of_one_size_act_on_stacked_states():
    blocks = torch.rand(3, 4, 4) * (torch.rand(3, 4, 4) < 0.5)
    batch = Graph.batch([Graph.from_dense(matrix) for matrix in blocks])
    h = torch.randn(2, 3, 4, 5, requires_grad=True)
    stacked = batch.propagate(h)
    torch.testing.assert_close(stacked, blocks @ h)
    torch.testing.assert_close(batch.propagate(h.flatten(1, 2)), stacked.flatten(1, 2))
    assert batch.flatten(h).shape == (2, 12, 5)
    torch.autograd.gradcheck(batch.propagate, (h,))
    normalized = batch.reverse().normalize("rw").to("cpu", torch.float64)
    assert normalized.propagate(h).shape == h.shape


def test_gradients_reach_the_weights_of_each_graph():
    weights = [torch.rand(2, requires_grad=True) for _ in range(3)]
    graphs = [Graph([[0, 1], [1, 0]], 2, weight) for weight in weights]
    h = torch.randn(3, 2, 1)
    together = torch.autograd.grad(Graph.batch(graphs).propagate(h).square().sum(), weights)
    for k, graph in enumerate(graphs):
        alone = torch.autograd.grad(graph.propagate(h[k]).square().sum(), weights[k])
        torch.testing.assert_close(together[k], alone[0])


@given(lists(matrices(), min_size=1, max_size=4))
def test_a_batch_of_pyg_is_a_batch_here(blocks: list[Tensor]):
    graphs = [Graph.from_dense(matrix) for matrix in blocks]
    parts = [
        Data(edge_index=graph.edge_index, edge_weight=graph.edge_weight, num_nodes=graph.num_nodes)
        for graph in graphs
    ]
    found, expected = Graph.from_pyg(Batch.from_data_list(parts)), Graph.batch(graphs)
    assert found.sizes == expected.sizes
    assert found._pattern.batch_shape == expected._pattern.batch_shape
    assert torch.equal(found.node_graph, expected.node_graph)
    assert torch.equal(found.edge_index, expected.edge_index)
    assert torch.equal(found.edge_weight, expected.edge_weight)


def test_edges_between_the_graphs_of_a_pyg_batch_are_refused():
    parts = [Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2) for _ in range(2)]
    batch = Batch.from_data_list(parts)
    batch.edge_index = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match=r"from node 1 to node 2 joins two of them. Add edges"):
        Graph.from_pyg(batch)


def test_bad_batches_name_the_remedy():
    graph = Graph([[0], [1]], 2)
    with pytest.raises(ValueError, match=r"at least one graph, but the list is empty. Skip"):
        Graph.batch([])
    with pytest.raises(ValueError, match=r"same kind, but they have None, sym. Normalise all"):
        Graph.batch([graph, graph.normalize("sym")])
    with pytest.raises(ValueError, match=r"same dtype, but they have .*float32. Convert them"):
        Graph.batch([graph, graph.to(dtype=torch.float32)])
    batch = Graph.batch([graph, Graph([[0], [1]], 3)])
    with pytest.raises(ValueError, match=r"5 nodes, .* batch of 2 graphs having 2, 3, but its sh"):
        batch.propagate(torch.randn(2, 2, 1))
    with pytest.raises(ValueError, match=r"nodes of one graph, but this is a batch of 2. Use it"):
        batch.subgraph([0])
