"""What the tuned models of traffic are made of."""

import pytest
import torch

import graphode as gd
from graphode.ensembles import Ensemble
from graphode.experiments.traffic import TrafficForecast
from graphode.experiments.traffic_anchor import Anchored, ChangeReadout
from graphode.experiments.traffic_gates import (
    Dropping,
    OwnAndNeighbours,
    OwnAndNeighboursField,
)
from graphode.experiments.traffic_models import DirectForecast, builder


def graph_of(nodes=6):
    weights = torch.rand(nodes, nodes)
    return gd.Graph.from_dense((weights + weights.T) * (weights > 0.4)).normalize("sym")


def window(batch=3, steps=4, nodes=6):
    times = torch.rand(batch, steps).cumsum(-1)
    return torch.randn(batch, steps, nodes, 3), times


def test_a_gate_has_one_weight_for_the_node_and_one_for_its_neighbours():
    graph, h = graph_of(), torch.randn(2, 6, 3)
    gate = OwnAndNeighbours(3, 5)
    dense = graph.propagate(torch.eye(6))
    expected = h @ gate.own + dense @ h @ gate.neighbours + gate.bias
    torch.testing.assert_close(gate(h, graph), expected)
    torch.testing.assert_close(gate(h, graph, "tanh"), torch.tanh(expected))


def test_the_field_is_two_such_layers_with_tanh_between():
    graph, h = graph_of(), torch.randn(2, 6, 4)
    field = OwnAndNeighboursField([4, 7, 4])
    first, second = field.layers
    expected = second(torch.tanh(first(h, graph)), graph)
    torch.testing.assert_close(field(0.0, h, graph), expected)


@pytest.mark.parametrize("model", ["gcde_gru", "gcde_lstm", "gcde_rnn"])
def test_a_forecast_for_now_is_the_observation_and_moves_away_smoothly(model):
    config = TrafficForecast.of(model, hidden=4)
    system = builder(config, 6, 1)(0)
    for parameter in system.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    graph, (x, times) = graph_of(), window()
    ahead = torch.tensor([1e-7, 0.05, 0.1])
    y = system.eval()(x, times, graph, times[:, -1:] + ahead)[..., 0]
    last = x[:, -1, :, 0]
    torch.testing.assert_close(y[:, 0], last, rtol=0, atol=1e-5)
    first, second = y[:, 1] - last, y[:, 2] - last
    assert first.abs().max() > 1e-4
    torch.testing.assert_close(second, 2 * first, rtol=0.5, atol=0.02)


def test_an_unobserved_node_keeps_its_anchor():
    config = TrafficForecast.of("gcde_gru", hidden=4)
    system = builder(config, 6, 1)(0)
    graph, (x, times) = graph_of(), window()
    mask = torch.ones(3, 4, 6, dtype=torch.bool)
    mask[:, 2:, 1] = False
    y = system(x, times, graph, times[:, -1:] + 1, mask)[:, 0, :, 0]
    # The head starts at zero: persistence of what each node observed last.
    expected = x[:, -1, :, 0].clone()
    expected[:, 1] = x[:, 1, 1, 0]
    torch.testing.assert_close(y, expected)


def test_anchored_keeps_the_cells_state_beside_what_it_was_at_the_jump():
    cell = gd.GraphLSTMCell(3, 4)
    anchored = Anchored(cell)
    graph, h, x = graph_of(), torch.randn(2, 6, 8 + 4 + 1), torch.randn(2, 6, 3)
    after = anchored(h, x, graph)
    plain = cell(h[..., :8], x, graph)
    torch.testing.assert_close(after[..., :8], plain)
    torch.testing.assert_close(after[..., 8:12], plain[..., :4])
    torch.testing.assert_close(after[..., 12:], x[..., :1])
    head = torch.nn.Linear(4, 1)
    seen = anchored.parts.seen(after)
    torch.testing.assert_close(ChangeReadout(head)(seen, graph), x[..., :1])


def test_a_direct_forecast_has_an_output_for_each_horizon():
    graph, (x, times) = graph_of(), window()
    inner = gd.GCGRU(3, 4, 2)
    queries = times[:, -1:] + torch.tensor([1.0, 2.0])
    y = DirectForecast(inner, 2, residual=True)(x, times, graph, queries)
    both = inner(x, times, graph, queries[:, :1])[:, 0]  # [batch, nodes, 2]
    assert y.shape == (3, 2, 6, 1)
    for k in range(2):
        torch.testing.assert_close(y[:, k, :, 0], both[..., k] + x[:, -1, :, 0])


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("preset", ["tuned", "printed"])
@pytest.mark.parametrize("model", ["gru", "gcgru", "gclstm", "gcrnn", "gcde_gru", "gcde_lstm"])
def test_members_of_an_ensemble_are_mapped_and_are_lone_models(model, preset, queries):
    """Each with observations and times of its own, without a warning that they go one by one."""
    config = TrafficForecast.of(model, preset=preset, hidden=4)
    ensemble = Ensemble(builder(config, 6, queries), [0, 1])
    graph = graph_of()
    samples = [window() for _ in range(2)]
    x, times = (torch.stack(parts) for parts in zip(*samples, strict=True))
    asked = times[..., -1:] + torch.arange(1.0, queries + 1)
    with gd.stochastic(torch.tensor([0, 1]), 5):
        y = ensemble(x, times, graph, asked, per_member=True)
    for k in range(2):
        with gd.stochastic(k, 5):
            lone = ensemble.member(k)(x[k], times[k], graph, asked[k])
        torch.testing.assert_close(y[k], lone)


@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("model", ["gru", "gcgru", "gcrnn", "gcde_gru", "gcde_lstm"])
def test_dropout_is_of_training_and_of_the_key(model, separate):
    config = TrafficForecast.of(model, hidden=4, dropout=0.5, separate=separate)
    made = builder(config, 6, 1)(0)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    graph, (x, times) = graph_of(), window()
    asked = times[:, -1:] + 1

    def forecast(step):
        with gd.stochastic(3, step):
            return made(x, times, graph, asked)

    assert torch.equal(forecast(0), forecast(0))
    assert not torch.equal(forecast(0), forecast(1))
    for gate in (part for part in made.modules() if isinstance(part, Dropping)):
        gate.dropout.rate = 0.0  # what is left is the field's
    assert torch.equal(forecast(0), forecast(1)) == (not model.startswith("gcde"))
    made.eval()
    assert torch.equal(forecast(0), forecast(1))
