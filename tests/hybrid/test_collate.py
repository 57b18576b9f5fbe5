"""Ragged series as one batch."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import graphode as gd
from tests.hybrid.loops import gru_system, random_graph

NODES, IN = 4, 2


def ragged(count: int = 5, **extra) -> list[dict]:
    series = []
    for number in range(count):
        steps = 1 + number % 3
        times = (0.1 + torch.rand(steps)).cumsum(0)
        series.append(
            {
                "x": torch.randn(steps, NODES, IN),
                "times": times,
                "query_times": times[-1] + 1 + torch.arange(1 + number % 2),
                "targets": torch.randn(1 + number % 2, NODES, 1),
                **{name: make(number, steps) for name, make in extra.items()},
            }
        )
    return series


def test_a_loader_gives_what_each_series_gives_alone():
    system, graph = gru_system(rtol=1e-4, atol=1e-5), random_graph(NODES)
    series = ragged()
    seen = 0
    with torch.no_grad():
        for batch in DataLoader(series, batch_size=3, collate_fn=gd.collate):
            y = system(batch.x, batch.times, graph, batch.query_times, mask=batch.mask)
            for b in range(len(batch)):
                own = series[seen]
                alone = system(own["x"], own["times"], graph, own["query_times"])
                kept = batch.query_mask[b]
                torch.testing.assert_close(y[b, kept], alone, rtol=1e-12, atol=1e-13)
                assert torch.equal(batch.targets[b, kept], own["targets"])
                seen += 1
    assert seen == len(series)


def test_padded_values_are_said_to_be_so():
    batch = gd.collate(ragged(3))
    assert batch.x.shape == (3, 3, NODES, IN)
    assert batch.mask.tolist() == [[True, False, False], [True, True, False], [True] * 3]
    assert batch.query_mask.tolist() == [[True, False], [True, True], [True, False]]
    assert (batch.times.diff() >= 0).all()
    assert (batch.x[~batch.mask] == 0).all()
    assert batch.times.dtype == torch.float64
    assert batch.graphs is None


def test_masks_of_nodes_and_of_steps_can_meet():
    series = ragged(2)
    series[1]["mask"] = torch.tensor([[True, False, True, True], [False, True, True, True]])
    series[1]["x"][~series[1]["mask"]] = torch.nan
    batch = gd.collate(series)
    assert batch.mask.shape == (2, 2, NODES)
    assert batch.mask[0].tolist() == [[True] * NODES, [False] * NODES]
    y = gru_system()(batch.x, batch.times, random_graph(NODES), batch.query_times, mask=batch.mask)
    assert y.isfinite().all()


@pytest.mark.parametrize("kind", ["shared", "per series", "per step"])
def test_graphs_are_batched(kind):
    system = gru_system(rtol=1e-4, atol=1e-5)
    shared = random_graph(NODES)

    def several(number: int, steps: int) -> list[gd.Graph]:
        return [random_graph(NODES, 9 * number + k) for k in range(steps)]

    make = {
        "shared": lambda number, steps: shared,
        "per series": lambda number, steps: random_graph(NODES, number),
        "per step": lambda number, steps: [
            random_graph(NODES, 9 * number + k) for k in range(steps)
        ],
    }[kind]
    series = ragged(graphs=make)
    batch = gd.collate(series)
    if kind == "shared":
        assert batch.graphs is shared
    with torch.no_grad():
        y = system(batch.x, batch.times, batch.graphs, batch.query_times, mask=batch.mask)
        for b, own in enumerate(series):
            alone = system(own["x"], own["times"], own["graphs"], own["query_times"])
            torch.testing.assert_close(y[b, batch.query_mask[b]], alone, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_attributed_graph_is_one_graph(steps):
    shared = random_graph(NODES, kind=None)
    attributed = gd.AttributedGraph(shared, torch.randn(shared.num_edges, 2))
    own = {"x": torch.zeros(steps, NODES, IN), "times": torch.arange(float(steps))}
    assert gd.collate([{**own, "graphs": attributed}] * 2).graphs is attributed
    batch = gd.collate([{**own, "graphs": [attributed] * steps}] * 2)
    assert all(graph is attributed for graph in batch.graphs)


def test_a_state_takes_its_attributed_graph_along():
    graph = random_graph(NODES, kind=None)
    attributed = gd.AttributedGraph(graph, torch.randn(graph.num_edges, 2))
    state = gd.HybridState(torch.zeros(NODES, 3), torch.zeros(()), attributed)
    moved = state.to(torch.float32).graph
    assert moved.edge_attributes.dtype == moved.graph.edge_weight.dtype == torch.float32


def test_arrays_and_series_are_taken():
    own = gd.Series(x=np.zeros((2, NODES, IN)), times=np.array([0.0, 1.0]))
    batch = gd.collate([own, own])
    assert batch.x.shape == (2, 2, NODES, IN)
    assert batch.query_times is None
    moved = batch.to("cpu")
    assert torch.equal(moved.times, batch.times)
    assert moved.targets is None


def test_errors_name_the_remedy(without_type_checks):
    good = ragged(1)[0]

    def refused(message: str, **change) -> None:
        with pytest.raises(ValueError, match=message):
            gd.collate([good, {**good, **change}])

    with pytest.raises(ValueError, match="at least one series"):
        gd.collate([])
    with pytest.raises(TypeError, match="series 0 is a Tensor"):
        gd.collate([torch.zeros(2)])
    refused(r"must have `x` and `times`, and may have mask, .*speed", speed=1)
    refused(r"series 1 has x of shape \[0, 4, 2\].*empty", x=torch.zeros(0, 4, 2), times=[])
    refused(r"times of shape \[2\]", times=[0.0, 1.0])
    refused("observations that are not finite.*mask=", x=torch.full((1, NODES, IN), torch.nan))
    refused("A mask must be boolean", mask=torch.ones(1))
    refused("Series 1: Every sample must have at least one", mask=torch.tensor([False]))
    refused(
        "Series 1: `times` must increase strictly.*comes at 1, after 1.*merge",
        x=torch.zeros(2, NODES, IN),
        times=[1.0, 1.0],
    )
    refused("same nodes and channels", x=torch.zeros(1, 5, IN))
    refused("all series of a batch have `graphs` or none", graphs=random_graph(NODES))
    refused("must have a query, but one has none", query_times=[], targets=torch.zeros(0, 4, 1))
    refused("a target for each query, but series 1 has 2 for 1", targets=torch.zeros(2, 4, 1))
    refused(
        r"targets .* alike.* series 0 have shape \[1, 4, 1\].* series 1 \[1, 4\]",
        targets=good["targets"][..., 0],
    )
    refused("a target for each query, but series 1 has a number for 1", targets=1.0)
    with pytest.raises(ValueError, match=r"series 0 has no `query_times`. Give a time"):
        gd.collate([{"x": good["x"], "times": good["times"], "targets": good["targets"]}])
    with pytest.raises(ValueError, match="same number of nodes at a step, but have 4, 5"):
        gd.collate([{**good, "graphs": random_graph(n)} for n in (4, 5)])


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_list_of_graphs_has_one_for_each_step_of_its_series(count):
    graphs = [random_graph(NODES, k) for k in range(5)]
    longest = {"x": torch.zeros(5, NODES, IN), "times": torch.arange(5.0), "graphs": graphs}
    wrong = {"x": torch.zeros(3, NODES, IN), "times": torch.arange(3.0), "graphs": graphs[:count]}
    message = f"one graph, or one per step, 3, but series 1 has {count}. Repeat a graph"
    with pytest.raises(ValueError, match=message):
        gd.collate([longest, wrong])
