"""Graphs from positions and distances join the nodes they should."""

import pytest
import torch
from hypothesis import given
from hypothesis.strategies import integers, sampled_from
from torch import Tensor

from graphode.graphs import (
    Graph,
    dense_radius_graph,
    edge_lengths,
    gaussian_graph,
    nearest_graph,
    percentile_graph,
    radius_graph,
)


def brute_force(positions: Tensor, radius: float) -> Tensor:
    squares = (positions[:, None] - positions).square().sum(-1)
    return (squares <= radius**2).double().fill_diagonal_(0)


@pytest.mark.parametrize("all_pairs_nodes", [0, 128])
@given(nodes=integers(0, 20), dims=sampled_from([1, 2, 3]))
def test_a_radius_graph_joins_who_is_near(all_pairs_nodes: int, nodes: int, dims: int):
    # On a grid many distances equal the radius, and many nodes share a place.
    positions = torch.randint(0, 4, (nodes, dims)) / 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphode.graphs.topology.ALL_PAIRS_NODES", all_pairs_nodes)
        for radius in (0.0, 0.25, 0.5):
            graph = radius_graph(positions, radius)
            torch.testing.assert_close(graph.to_dense(), brute_force(positions, radius))
            assert graph.is_symmetric


@pytest.mark.parametrize("nodes", [9, 200])
def test_batched_equals_one_by_one(nodes: int):
    positions = torch.rand(2, 3, nodes, 2)
    h = torch.randn(2, 3, nodes, 4)
    for build in (lambda x: radius_graph(x, 0.3), lambda x: nearest_graph(x, 3)):
        batch = build(positions)
        assert batch.num_graphs == 6
        samples = zip(positions.flatten(0, 1), h.flatten(0, 1), strict=True)
        one_by_one = [build(x).propagate(y) for x, y in samples]
        torch.testing.assert_close(batch.propagate(h), torch.stack(one_by_one).reshape(h.shape))


@pytest.mark.parametrize(
    "build",
    [
        lambda x: radius_graph(x, 2.0, torch.exp),
        lambda x: dense_radius_graph(x, 2.0, torch.exp),
        lambda x: nearest_graph(x, 2),
        lambda x: percentile_graph(x, 60.0),
        lambda x: gaussian_graph(x, 2.0),
    ],
)
def test_arrays_lists_and_whole_numbers_serve_as_positions_and_distances(build):
    places = torch.tensor([0.0, 1.0, 3.0, 4.0])
    table = (places[:, None] - places).abs()  # square, so that it may be either
    expected = build(table).to_dense()
    for given_as in (table.numpy(), table.tolist(), table.long(), table.long().numpy()):
        graph = build(given_as)
        assert torch.equal(graph.to_dense(), expected)
        assert graph.dtype == torch.float64


def test_a_batch_of_one_has_weights_by_a_kernel():
    positions = torch.rand(1, 5, 2)
    weights = radius_graph(positions, 0.8, torch.exp).edge_weight
    assert torch.equal(weights, radius_graph(positions[0], 0.8, torch.exp).edge_weight)


def test_chunks_of_rows_join_to_the_same_graph(monkeypatch: pytest.MonkeyPatch):
    positions = torch.rand(2, 11, 2)
    whole = radius_graph(positions, 0.5), nearest_graph(positions, 3)
    monkeypatch.setattr("graphode.graphs.topology.CHUNK_ELEMENTS", 60)
    pieces = radius_graph(positions, 0.5), nearest_graph(positions, 3)
    for a, b in zip(whole, pieces, strict=True):
        torch.testing.assert_close(a.to_dense(), b.to_dense())


@pytest.mark.parametrize("all_pairs_nodes", [0, 128])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_each_node_hears_its_nearest(
    all_pairs_nodes: int, scale: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("graphode.graphs.topology.ALL_PAIRS_NODES", all_pairs_nodes)
    positions = scale * torch.rand(30, 2)  # scale 0: all in one place
    graph = nearest_graph(positions, 4)
    assert (graph.degrees == 4).all()
    assert (graph.diagonal == 0).all()
    distances = torch.cdist(positions, positions).fill_diagonal_(torch.inf)
    farthest = distances.topk(4, largest=False)[0][:, -1]
    assert (edge_lengths(graph, positions) <= farthest[graph.edge_index[1]] + 1e-12).all()


def test_gradients_pass_through_weights_but_not_through_edges():
    positions = torch.rand(2, 6, 2, requires_grad=True)
    positions.data[0, 1] = positions.data[0, 0]  # two in one place
    h = torch.randn(2, 6, 1)

    def pull(positions: Tensor) -> Tensor:
        return radius_graph(positions, 0.9, kernel=lambda d: torch.exp(-d)).propagate(h)

    (gradient,) = torch.autograd.grad(pull(positions).sum(), positions)
    assert gradient.isfinite().all()
    assert gradient.abs().sum() > 0
    apart = torch.rand(6, 2, requires_grad=True)
    torch.autograd.gradcheck(
        lambda x: nearest_graph(x, 2, kernel=lambda d: d**2).propagate(h[0]), (apart,)
    )
    assert not radius_graph(positions, 0.9).edge_weight.requires_grad


@pytest.mark.parametrize("nodes", [5, 200])
@pytest.mark.parametrize("build", [lambda x: radius_graph(x, 0.5), lambda x: nearest_graph(x, 2)])
def test_of_no_sample_there_is_a_batch_of_no_graph(build, nodes: int):
    for batch in ((0,), (3, 0)):
        graph = build(torch.rand(*batch, nodes, 2))
        assert (graph.num_graphs, graph.num_nodes, graph.num_edges) == (0, 0, 0)
        assert graph.unbatch() == []
        h = torch.randn(4, *batch, nodes, 3, requires_grad=True)
        for kind in ("sym", "laplacian"):
            assert graph.normalize(kind).propagate(h).shape == h.shape
    assert Graph.batch([graph, radius_graph(torch.rand(4, 2), 0.5)]).num_graphs == 1


def test_no_node_is_a_graph_of_none():
    assert radius_graph(torch.rand(0, 2), 0.5).num_nodes == 0
    batch = radius_graph(torch.rand(3, 0, 2), 0.5)
    assert (batch.num_graphs, batch.num_nodes) == (3, 0)
    assert batch.propagate(torch.rand(3, 0, 4)).shape == (3, 0, 4)


def test_a_lost_node_is_isolated():
    for nodes in (5, 200):
        positions = torch.zeros(nodes, 2)
        positions[3] = torch.nan
        positions[4] = torch.inf
        graph = radius_graph(positions, 1.0)
        assert graph.degrees[3:5].tolist() == [0, 0]
        assert graph.degrees[0] == nodes - 3


@pytest.mark.parametrize("radius", [torch.inf, 1e200])
def test_no_radius_reaches_a_lost_node(radius: float):
    for nodes in (5, 200):
        positions = torch.zeros(nodes, 2)
        positions[1:4, 0] = torch.tensor([torch.nan, torch.inf, -torch.inf])
        for build in (radius_graph, dense_radius_graph):
            graph = build(positions, radius)
            assert graph.degrees[1:4].tolist() == [0, 0, 0]
            assert graph.degrees[0] == nodes - 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("nodes", [20, 200])
def test_half_precise_positions_are_as_near_as_they_are(nodes: int, dtype: torch.dtype):
    positions = (1000 * torch.rand(nodes, 2)).to(dtype)  # whose squares overflow
    graph = radius_graph(positions, 300.0)
    expected = brute_force(positions.double(), 300.0)
    assert torch.equal(graph.to_dense().double(), expected)
    assert torch.equal(dense_radius_graph(positions, 300.0).to_dense().double(), expected)
    lengths = edge_lengths(graph, positions)
    assert lengths.dtype == dtype
    exact = edge_lengths(graph, positions.double())
    torch.testing.assert_close(lengths.double(), exact, rtol=0.01, atol=0.0)

    def kernel(length: Tensor) -> Tensor:
        return 1 / (1 + length)

    weighted = [build(positions, 300.0, kernel) for build in (radius_graph, dense_radius_graph)]
    assert torch.equal(*[graph.to_dense() for graph in weighted])
    whole = positions.long()  # of which lengths are fractions
    assert torch.equal(edge_lengths(graph, whole), edge_lengths(graph, whole.double()))
    nearest = nearest_graph(positions, 3)
    assert nearest.dtype == dtype
    reached = edge_lengths(nearest, positions.double()).sort()[0]
    best = edge_lengths(nearest_graph(positions.double(), 3), positions.double()).sort()[0]
    torch.testing.assert_close(reached, best, rtol=1e-5, atol=0.0)


def test_the_percentile_is_that_of_distances_between_nodes():
    positions = torch.arange(5.0)[:, None]
    distances = torch.cdist(positions, positions)
    # Of the 10 distances 1 1 1 1 2 2 2 3 3 4 the median is 2.
    torch.testing.assert_close(
        percentile_graph(distances, 50).to_dense(), brute_force(positions, 1.0)
    )
    assert percentile_graph(distances, 0).num_edges == 0
    assert percentile_graph(torch.zeros(1, 1), 40).num_edges == 0


def test_edges_of_directed_distances_run_from_row_to_column():
    distances = torch.tensor([[0.0, 1.0], [torch.inf, 0.0]])
    # Nothing is closer than itself.
    assert percentile_graph(distances, 100, directed=True).num_edges == 0
    assert gaussian_graph(distances, 1.0, directed=True).edge_index.tolist() == [[0], [1]]


@pytest.mark.parametrize("back", [4.0, torch.inf])
def test_distances_that_differ_on_the_way_back_are_refused_unless_directed(back):
    distances = torch.tensor([[0.0, 1.0, 3.0], [back, 0.0, 3.0], [3.0, 3.0, 0.0]])
    for graph in (lambda d: percentile_graph(d, 50), lambda d: gaussian_graph(d, 1.0)):
        with pytest.raises(
            ValueError, match=r"node 0 to node 1 it is 1.0 and back .*directed=True"
        ):
            graph(distances)
        assert isinstance(graph(torch.minimum(distances, distances.T)), Graph)
    assert percentile_graph(distances, 50, directed=True).edge_index.tolist() == [[0], [1]]


def test_rounding_does_not_make_distances_directed():
    positions = torch.rand(100, 2, dtype=torch.float32) + 100
    distances = torch.cdist(positions, positions)
    distances[0, 1] *= 1 + 1e-6
    assert percentile_graph(distances, 40).num_edges > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_that_differ_by_rounding_give_a_symmetric_graph(dtype: torch.dtype):
    positions = torch.randn(60, 2, dtype=dtype)
    distances = torch.cdist(positions, positions)
    distances = distances + 1e-7 * torch.rand_like(distances)
    distances[:2, 2:], distances[2:, :2] = torch.inf, torch.inf
    for graph in (gaussian_graph(distances), percentile_graph(distances, 40)):
        assert graph.is_symmetric
        assert graph.num_edges > 100


def test_gaussian_weights_fall_with_distance_to_the_threshold():
    distances = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    weights = torch.exp(-((distances / 2) ** 2)).fill_diagonal_(0)
    expected = torch.where(weights >= 0.3, weights, 0.0)
    torch.testing.assert_close(gaussian_graph(distances, 2.0, 0.3).to_dense(), expected)
    sigma = torch.tensor([1.0, 2.0, 3.0]).std(correction=0).item()
    torch.testing.assert_close(
        gaussian_graph(distances).to_dense(), gaussian_graph(distances, sigma).to_dense()
    )
    distances.requires_grad_()
    torch.autograd.gradcheck(lambda d: gaussian_graph(d, 2.0, 0.3).edge_weight, (distances,))


def test_bad_input_names_the_remedy():
    positions = torch.rand(4, 2)
    distances = torch.cdist(positions, positions)
    with pytest.raises(ValueError, match=r"`radius` must be 0 or more, but it is -1.0. Give"):
        radius_graph(positions, -1.0)
    with pytest.raises(ValueError, match=r"one less than the 4 nodes, but it is 4. Ask for fewer"):
        nearest_graph(positions, 4)
    with pytest.raises(ValueError, match=r"must be finite for nodes .* Drop those nodes"):
        nearest_graph(positions / 0, 1)
    with pytest.raises(ValueError, match=r"from 0 to 100, but it is 120. For a fraction"):
        percentile_graph(distances, 120)
    with pytest.raises(ValueError, match=r"from node 0 to node 1 it is -1.0. Mark pairs"):
        percentile_graph(torch.tensor([[0.0, -1.0], [1.0, 0.0]]), 40)
    with pytest.raises(ValueError, match=r"from 0 to 1, as the weights are, but it is 3"):
        gaussian_graph(distances, threshold=3)
    with pytest.raises(ValueError, match=r"positive and finite, but it is -2.0. Give a typical"):
        gaussian_graph(distances, bandwidth=-2.0)
    with pytest.raises(ValueError, match=r"all distances are equal, .* Give a typical"):
        gaussian_graph(torch.ones(3, 3))
    assert isinstance(gaussian_graph(torch.ones(3, 3), 1.0), Graph)
