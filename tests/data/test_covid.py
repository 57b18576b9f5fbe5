"""A real stream of states and graphs."""

import dataclasses
import json

import pytest
import torch

from graphode.data import GraphStream, england_covid
from graphode.graphs import Graph


def test_every_day_has_its_own_graph_as_the_file_says(data_root):
    stream = england_covid(data_root, allow_download=False)
    content = json.loads((data_root / "england_covid" / "england_covid.json").read_text())
    assert (len(stream), stream.states.shape) == (61, (61, 129, 1))
    assert stream.times.tolist() == list(range(61))
    for day, (x, graph) in enumerate(stream):
        assert x[:, 0].tolist() == content["y"][day]
        pairs = content["edge_mapping"]["edge_index"][str(day)]
        assert graph.edge_index.t().tolist() == pairs
        assert graph.edge_weight.tolist() == content["edge_mapping"]["edge_weight"][str(day)]
    assert len({graph.num_edges for graph in stream.graphs}) > 30


def test_cases_are_counts(data_root):
    stream = england_covid(data_root, allow_download=False)
    assert (stream.states.min(), stream.states.max()) == (0, 182)
    assert torch.equal(stream.states, stream.states.round())
    x, graph = stream[3]
    assert graph.propagate(x).shape == (129, 1)


@pytest.fixture
def stream() -> GraphStream:
    graph = Graph(torch.tensor([[0, 1], [1, 2]]), 3)
    return GraphStream("test", torch.rand(4, 3, 2), (graph,) * 4, torch.arange(4.0))


def test_a_stream_is_its_pairs(stream):
    pairs = list(stream)
    assert len(pairs) == len(stream) == 4
    assert torch.equal(pairs[2][0], stream.states[2])


@pytest.mark.usefixtures("without_type_checks")
def test_a_stream_that_does_not_fit_together_is_refused(stream):
    small = Graph(torch.tensor([[0], [1]]), 2)
    with pytest.raises(ValueError, match=r"the 3 nodes of the states.*step 1 has 2"):
        dataclasses.replace(stream, graphs=(stream.graphs[0], small, *stream.graphs[2:]))
    with pytest.raises(ValueError, match=r"each of the 4 states, but there are 3 graphs"):
        dataclasses.replace(stream, graphs=stream.graphs[1:])
    with pytest.raises(ValueError, match="must increase strictly"):
        dataclasses.replace(stream, times=torch.zeros(4))
