"""What a hybrid system refuses, and what it says then."""

from datetime import datetime
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import graphode as gd
from tests.hybrid.loops import gru_system, random_graph

NODES, IN, CHANNELS = 4, 2, 3
X = torch.zeros(2, 3, NODES, IN)
TIMES = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.5, 0.7]])
QUERIES = torch.tensor([[3.0], [1.0]])


def call(**change):
    graph = random_graph(NODES)
    arguments = {"x": X, "times": TIMES, "graphs": graph, "query_times": QUERIES, **change}
    arguments["x"] = arguments["x"].double() if torch.is_tensor(arguments["x"]) else arguments["x"]
    return gru_system(solver="rk4", num_steps=1)(**arguments)


def with_value(tensor, place, value):
    tensor = tensor.clone()
    tensor[place] = value
    return tensor


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"times": with_value(TIMES, (1, 2), 0.2)},
            r"increase strictly.*step 2 of sample 1 comes at 0\.2\d*, after 0\.5\. Sort",
        ),
        (
            {"times": with_value(TIMES, (0, 1), 0.0)},
            r"step 1 of sample 0 comes at 0, after 0.*merge those with equal times",
        ),
        (
            {"times": with_value(TIMES, (1, 1), torch.nan)},
            r"must be finite, but step 1 of sample 1 is nan. Mask the steps",
        ),
        (
            {"query_times": with_value(QUERIES, (1, 0), -0.5)},
            r"not before the first observation, but query 0 of sample 1 is at -0.5",
        ),
        ({"query_times": with_value(QUERIES, (0, 0), torch.nan)}, "query 0 of sample 0 is at nan"),
        ({"query_times": QUERIES[:, :0]}, "`query_times` must hold at least one time"),
        ({"query_times": 3.0}, r"`query_times` must have shape \[2, 1\]"),
        ({"query_times": torch.zeros(3, 1)}, r"shape \[2, 1\].*but has shape \[3, 1\]"),
        ({"times": TIMES[:, :2]}, r"`times` must have shape \[2, 3\].*but has shape \[2, 2\]"),
        (
            {"x": with_value(X, (1, 2, 0, 1), torch.nan)},
            r"finite where it is observed, but step 2 holds 1 .* index \(1, 0, 1\).*mask=",
        ),
        (
            {
                "x": with_value(X, (1, 2, 0, 1), torch.inf),
                "mask": torch.ones(2, 3, dtype=torch.bool),
            },
            "Extend the mask to it",
        ),
        ({"x": X[0, 0]}, r"must be \[\*batch, steps, nodes, channels\], but has shape \[4, 2\]"),
        ({"x": X[:, :0], "times": TIMES[:, :0]}, "at least one step and one node.*empty windows"),
        ({"x": [], "times": []}, "at least one step and one node"),
        (
            {"x": [X[:, 0], X[0, 0], X[:, 0]]},
            r"alike but for the nodes, but step 1 has shape \[4, 2\]",
        ),
        (
            {"mask": torch.tensor([[True] * 3, [False] * 3])},
            "the mask leaves none to sample 1. Leave empty windows out",
        ),
        ({"mask": torch.ones(2, 4, dtype=torch.bool)}, r"or for each node .* has shape \[2, 4\]"),
        ({"mask": [torch.ones(2, dtype=torch.bool)]}, r"has shape \[\[2\]\].*list, as `x` is"),
        ({"graphs": random_graph(5)}, r"graph of step 0 must have the 4 nodes .* but has 5"),
        ({"graphs": [random_graph(NODES)] * 2}, "one per step, 3, but the list has 2"),
        (
            {"graphs": [[random_graph(NODES)] * 3, [random_graph(NODES)] * 2]},
            r"one list per sample, 2, .* lengths \[3, 2\]",
        ),
        (
            {"graphs": gd.Graph.batch([random_graph(NODES)] * 3)},
            r"a batch of 3 graphs, but the observations have batch shape \[2\]",
        ),
        (
            {"graphs": [[random_graph(4)] * 3, [random_graph(5)] * 3]},
            "same number of nodes at a step, but have 4, 5",
        ),
        ({"state": torch.zeros(2, NODES, 4)}, r"`state` must have shape \[2, 'nodes', 3\]"),
        ({"node_maps": torch.zeros(3, 4).long()}, "one entry per step, 3, but holds 1"),
    ],
)
def test_bad_input_is_refused_with_its_remedy(change, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        call(**change)


def test_times_of_errors_are_told_apart_in_unix_seconds():
    """Which have ten digits, and more where there are parts of seconds."""
    now = 1_714_953_600.25
    times = torch.tensor([[now, now + 1, now + 0.5]] * 2, dtype=torch.float64)
    message = r"comes at 1714953600\.75, after 1714953601\.25\. Sort"
    with pytest.raises(ValueError, match=message):
        call(times=times, query_times=times[:, :1] + 9)
    with pytest.raises(
        ValueError, match=r"is at 1714953599\.25, and its first .* 1714953600\.25\."
    ):
        call(times=times.sort().values, query_times=times[:, :1] - 1)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_the_mask_that_an_error_advises_covers_what_was_refused(value):
    x = with_value(X, (1, 2, 0, 1), value)
    with pytest.raises(ValueError, match=r"Mask it: `mask=x\.isfinite\(\)\.all\(-1\)`"):
        call(x=x)
    call(x=x, mask=x.isfinite().all(-1))
    series = {"x": x[1], "times": TIMES[1]}
    with pytest.raises(ValueError, match=r"`mask=x\.isfinite\(\)\.all\(-1\)`"):
        gd.collate([series])
    gd.collate([series | {"mask": x[1].isfinite().all(-1)}])


def test_wrong_types_are_refused_with_their_remedy(without_type_checks):
    message = r"`mask` must be a tensor or an array of booleans.*{}.*`torch.as_tensor\(mask\).bool"
    for mask, kind in (
        (torch.ones(2, 3), "float64"),
        (np.ones((2, 3), dtype=np.int8), "int8"),
        ([1, 1, 1], "int"),
        ([[True] * 3] * 2, "list"),
    ):
        with pytest.raises(TypeError, match=message.format(kind)):
            call(mask=mask)
    with pytest.raises(TypeError, match=r"`times` must be real numbers, but is torch.bool"):
        call(times=TIMES > 0)
    with pytest.raises(TypeError, match="`x` must be of a floating-point dtype"):
        gru_system()(X.long(), TIMES, random_graph(NODES), QUERIES)


def test_observations_of_another_dtype_are_refused_with_both_remedies():
    system, graph = gru_system().float(), random_graph(NODES).to(dtype=torch.float32)
    message = r"`x` is float64, the model float32. Use `x.float\(\)`.*or `model.double\(\)`"
    with pytest.raises(TypeError, match=message):
        system(X.double(), TIMES, graph, QUERIES)
    with pytest.raises(TypeError, match=message):
        system.observe(None, X[0, 0].double(), 0.0, graph)
    system(X.float(), TIMES, graph, QUERIES)


def test_arrays_are_observed_as_tensors_are(without_type_checks):
    system, graph, x = gru_system(), random_graph(NODES), torch.randn(3, NODES, IN).double()
    expected = system.observe(None, x[0], 0.0, graph)
    assert torch.equal(system.observe(None, x[0].numpy(), 0.0, graph).h, expected.h)
    times, queries = TIMES[0], QUERIES[0]
    expected = system(x, times, graph, queries)
    assert torch.equal(system(x.numpy(), times.numpy(), graph, queries.numpy()), expected)


def test_masks_may_be_arrays(without_type_checks):
    system, graph, x = gru_system(), random_graph(NODES), torch.randn(2, 3, NODES, IN)
    by_node = torch.rand(2, 3, NODES) < 0.6
    by_node[:, 0] = True
    for mask in (by_node, by_node.any(-1)):
        expected = system(x, TIMES, graph, QUERIES, mask=mask)
        assert torch.equal(system(x, TIMES, graph, QUERIES, mask=mask.numpy()), expected)
        steps = [part.numpy() for part in mask.unbind(1)]
        assert torch.equal(system(list(x.unbind(1)), TIMES, graph, QUERIES, mask=steps), expected)
    expected = system.observe(None, x[:, 1], 0.0, graph, mask=by_node[:, 1])
    found = system.observe(None, x[:, 1], 0.0, graph, mask=by_node[:, 1].numpy())
    assert torch.equal(found.h, expected.h)


def test_what_pandas_and_files_hold_is_observed(without_type_checks):
    """Tables, whose arrays cannot be written; newest rows first; the byte order of netCDF."""
    system, graph = gru_system(in_channels=1), random_graph(NODES)
    times = np.array([0.0, 1.0, 2.5])
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(3, NODES)), columns=[*"abcd"])
    table.loc[1, "b"] = np.nan
    x, mask = (
        torch.tensor(table.to_numpy().tolist()),
        torch.tensor(table.notna().to_numpy().tolist()),
    )
    expected = system(x[..., None], times, graph, [3.0], mask=mask)
    own = table.to_numpy()[..., None]
    newest_first = own[::-1].copy()[::-1]
    for given in (own, newest_first, own.astype(">f8")):
        for observed in (given, [*given]):
            found = system(observed, times, graph, [3.0], mask=table.notna())
            assert torch.equal(found, expected)
        series = {"x": given, "times": times, "mask": table.notna(), "query_times": [3.0]}
        batch = gd.collate([series | {"targets": own[:1]}])
        assert torch.equal(system(batch.x, batch.times, graph, [3.0], mask=batch.mask)[0], expected)
    found = system.observe(None, own[1], 0.0, graph, mask=table.notna().loc[1])
    assert torch.equal(found.h, system.observe(None, x[1][:, None], 0.0, graph, mask=mask[1]).h)


@pytest.mark.parametrize(
    "dates",
    [
        np.array(["2024-01-01", "2024-01-02", "2024-01-04"], dtype="datetime64[h]"),
        [datetime(2024, 1, day) for day in (1, 2, 4)],
        [np.datetime64(f"2024-01-0{day}", "ns") for day in (1, 2, 4)],
    ],
)
def test_dates_are_refused_with_a_way_to_make_them_times(dates, without_type_checks):
    system, graph, x = gru_system(), random_graph(NODES), X[0].double()
    message = r"`{}` must be real numbers.*hours since the first: `\(dates - dates\[0\]\)"
    with pytest.raises(TypeError, match=message.format("times")):
        system(x, dates, graph, [9.0])
    with pytest.raises(TypeError, match=message.format("query_times")):
        system(x, TIMES[0], graph, dates)
    with pytest.raises(TypeError, match=message.format("t")):
        system.observe(None, x[0], dates[0], graph)
    with pytest.raises(TypeError, match=message.format("t")):
        system.forecast(system.observe(None, x[0], 0.0, graph), dates[0])
    with pytest.raises(TypeError, match=message.format("times")):
        gd.collate([{"x": x, "times": dates}])


def test_times_in_lists_are_as_exact_as_in_arrays(without_type_checks):
    """Seconds of the epoch do not fit into float32, torch's default."""
    torch.set_default_dtype(torch.float32)
    system, graph = gru_system(), random_graph(NODES).to(dtype=torch.float32)
    x, times = torch.randn(3, NODES, IN), [1.7e9, 1.7e9 + 0.5, 1.7e9 + 1.5]
    later = [1.7e9 + 2.0]
    expected = system(x, np.array(times), graph, np.array(later))
    assert torch.equal(system(x, times, graph, later), expected)
    batch = gd.collate([{"x": x, "times": times, "query_times": later}])
    assert batch.times.diff().tolist() == [[0.5, 1.0]]


@pytest.mark.parametrize(
    "as_given",
    [
        lambda times: pd.Series(times, index=[5, 7, 9]),  # rows of a table that was filtered
        lambda times: times.astype(">f8"),  # as netCDF files have them
        lambda times: times[::-1].copy()[::-1],
        lambda times: np.broadcast_to(times, (2, 3))[0],  # cannot be written, as in pandas 3
        lambda times: [torch.tensor(time) for time in times],
    ],
)
def test_times_may_be_arrays_of_any_kind(as_given, without_type_checks):
    system, graph, x = gru_system(), random_graph(NODES), X[0].double()
    times, queries = np.array([0.0, 1.0, 2.5]), np.array([2.0, 3.0, 4.0])
    expected = system(x, times, graph, queries)
    assert torch.equal(system(x, as_given(times), graph, as_given(queries)), expected)
    batch = gd.collate([{"x": x, "times": as_given(times), "query_times": as_given(queries)}])
    assert batch.times.tolist() == [times.tolist()]
    assert batch.query_times.tolist() == [queries.tolist()]


def test_what_is_no_graph_is_refused_with_a_way_to_make_one(without_type_checks):
    graph, x = random_graph(NODES), X.double()
    message = r"need a graphode `Graph`, but were given a {}.*num_nodes\)`.*from_pyg\(data\)`"
    for wrong, kind in (
        (graph.edge_index, r"Tensor of shape \[2, \d+\]"),
        (SimpleNamespace(edge_index=graph.edge_index), "SimpleNamespace"),
        (None, "NoneType"),
    ):
        with pytest.raises(TypeError, match=message.format(kind)):
            gru_system()(x, TIMES, wrong, QUERIES)
    for in_channels, channels in ((3, 8), (8, 1)):
        cell = gd.GraphGRUCell(in_channels, channels)
        with pytest.raises(TypeError, match=message.format("NoneType")):
            cell(torch.zeros(NODES, channels), torch.zeros(NODES, in_channels), None)


def test_a_forecast_before_any_observation_is_refused(without_type_checks):
    with pytest.raises(ValueError, match=r"no observation yet.*`state` is None. Observe one"):
        gru_system().forecast(None, 1.0)


def test_a_batch_of_nobody_has_predictions_of_nobody():
    system, graph, x = gru_system(), random_graph(NODES), X[:0].double()
    for queries in (1, 3):
        y = system(x, TIMES[:0], graph, torch.zeros(0, queries))
        assert y.shape == (0, queries, NODES, 1)
    y.sum().backward()
    assert all(not parameter.grad.any() for parameter in system.readout.parameters())
    state = system.absorb(x, TIMES[:0], graph)
    assert system.forecast(state, 3.0).shape == (0, NODES, 1)


def test_what_does_not_fit_a_streamed_state_is_refused_in_its_words(without_type_checks):
    system, graph = gru_system(), random_graph(NODES)
    state = system.observe(None, X[0, 0].double(), 8.0, graph)
    with pytest.raises(ValueError, match=r"query 0 .* at 7, .* at 8. A state holds no history"):
        system.forecast(state, 7.0)
    with pytest.raises(ValueError, match=r"must be \[\*batch, nodes, channels\].*shape \[4\]"):
        system.observe(state, X[0, 0, :, 0].double(), 9.0, graph)
    grown = gd.NodeMap(torch.tensor([0, 1, 2, 3, -1]), NODES)
    with pytest.raises(ValueError, match=r"observes 4 nodes.*node map leads from 4 nodes to 5"):
        system.observe(state, X[0, 0].double(), 9.0, graph, node_map=grown)


def test_parts_that_do_not_fit_are_refused(without_type_checks):
    flow, cell = gd.Flow(gd.GraphConvField([3, 3])), gd.GraphGRUCell(IN, CHANNELS)
    with pytest.raises(TypeError, match=r"`flow` must be a `graphode.Flow`.*GraphConvField"):
        gd.HybridSystem(flow=gd.GraphConvField([3, 3]), jump=cell)
    with pytest.raises(TypeError, match=r"called as jump\(h, x, graph\).*GRUCell.*gate=nn.Linear"):
        gd.HybridSystem(flow=flow, jump=nn.GRUCell(2, 3))
    with pytest.raises(ValueError, match=r"width of the state is not known.*`channels=`"):
        gd.HybridSystem(flow=flow, jump=lambda h, x, graph: h)
    with pytest.raises(ValueError, match="GraphGRUCell has 3, not 4"):
        gd.HybridSystem(flow=flow, jump=cell, channels=4)
    narrow = gd.HybridSystem(flow=None, jump=lambda h, x, graph: h[..., :1], channels=2)
    with pytest.raises(ValueError, match=r"`jump` must return a state like .* \[2, 4, 2\]"):
        narrow(X.double(), TIMES, None, QUERIES)
    wide = gd.HybridSystem(flow=flow, jump=gd.GraphLSTMCell(IN, CHANNELS))
    with pytest.raises(ValueError, match="moves states of 3 channels, but the state has 6"):
        wide(X.double(), TIMES, random_graph(NODES), QUERIES)


def test_nothing_is_lost_by_a_refused_call():
    """The same system answers as before."""
    system, graph = gru_system(), random_graph(NODES)
    before = system(X.double(), TIMES, graph, QUERIES)
    with pytest.raises(ValueError, match="increase strictly"):
        system(X.double(), TIMES.flip(-1), graph, QUERIES)
    assert torch.equal(system(X.double(), TIMES, graph, QUERIES), before)
