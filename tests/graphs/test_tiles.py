"""Rows in tiles: every entry in one lane, made where it pays."""

import numpy as np
import pytest
import torch

import graphode as gd
from graphode.graphs.tiles import tiles_of
from tests.fields.test_convolution_kernel import NODES, directed, undirected, without_edges


@pytest.mark.parametrize("rows", [directed, undirected, without_edges])
@pytest.mark.parametrize(("lanes", "piece"), [(32, 16), (16, 4), (16, 2)])
def test_lanes_share_out_the_entries_of_every_row(rows, lanes, piece):
    places = rows()._pattern.places
    table = tiles_of(places.crow, lanes, piece).cpu().numpy()
    first, last, row, head = table
    lane = np.arange(table.shape[1])
    is_first = head == lane % lanes
    assert table.dtype == np.int32
    assert len(lane) % lanes == 0
    assert sorted(row[is_first & (row >= 0)]) == list(range(NODES))
    np.testing.assert_array_equal(row, row[lane - lane % lanes + head])
    starts = places.crow.cpu().numpy()
    for node in range(NODES):
        pieces = row == node
        entries = [np.arange(a, b) for a, b in zip(first[pieces], last[pieces], strict=True)]
        np.testing.assert_array_equal(
            np.concatenate(entries), np.arange(starts[node], starts[node + 1])
        )
    assert (first[row < 0] == last[row < 0]).all()


def test_a_pattern_has_tiles_of_its_matrix_and_of_the_transpose():
    pattern = directed()._pattern
    own, back = pattern.tiles
    assert torch.equal(own, tiles_of(pattern.places.crow))
    assert torch.equal(back, tiles_of(pattern.places.crow_t))
    assert not torch.equal(own, back)
    assert pattern.tiles[0] is own
    assert torch.equal(pattern.reverse().tiles[0], back)
    both = undirected()._pattern.tiles
    assert both[0] is both[1]


def test_a_graph_of_positions_has_no_tiles():
    graph = gd.radius_graph(torch.rand(30, 2), 0.4)
    both = gd.Graph.batch([graph, graph])
    for passing in (graph, graph.normalize("sym"), graph.subgraph([1, 2, 3]), both):
        assert passing._pattern.tiles is None
    assert both.unbatch()[0]._pattern.tiles is None


def test_a_pattern_saved_before_there_were_tiles_gets_them():
    pattern = directed()._pattern
    for name in ("lasts", "_tiles"):
        pattern.__dict__.pop(name, None)
    assert torch.equal(pattern.tiles[0], tiles_of(pattern.places.crow))
