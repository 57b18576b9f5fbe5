"""The paper's models of traffic, and the baseline that sees no graph."""

import pytest
import torch

import graphode as gd
from tests.hybrid.loops import random_graph

BATCH, STEPS, NODES, IN = 2, 3, 5, 3
MODELS = {
    "GCDE-GRU": gd.GCDEGRU,
    "GCDE-LSTM": gd.GCDELSTM,
    "GCDE-RNN": gd.GCDERNN,
    "GCGRU": gd.GCGRU,
    "GCLSTM": gd.GCLSTM,
    "GCRNN": gd.GCRNN,
}


def window():
    times = (0.1 + torch.rand(BATCH, STEPS)).cumsum(-1)
    return torch.randn(BATCH, STEPS, NODES, IN), times, times[:, -1:] + torch.tensor([0.5, 1.0])


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_models_forecast_and_learn(name, residual):
    model = MODELS[name](IN, 6, residual=residual)
    x, times, queries = window()
    y = model(x, times, random_graph(NODES), queries)
    assert y.shape == (BATCH, 2, NODES, 1)
    y.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_default_is_the_papers_gcde_gru():
    model = gd.GCDEGRU()
    assert model.flow.field.widths == (46, 46, 46)
    assert model.flow.field.activation is torch.tanh
    assert model.flow.options.solver == "dopri5"
    assert (model.flow.options.rtol, model.flow.options.atol) == (1e-3, 1e-4)
    shapes = {name: tuple(p.shape) for name, p in model.jump.named_parameters()}
    assert shapes == {"gates.weight": (49, 92), "candidate.weight": (49, 46)}
    head = [tuple(p.shape) for p in model.readout.parameters() if p.ndim == 2]
    assert head == [(46, 46), (46, 1)]


def test_gcgru_is_gcde_gru_with_a_flow_that_stands_still():
    torch.manual_seed(0)
    moving = gd.GCDEGRU(IN, 6)
    torch.manual_seed(0)
    discrete = gd.GCGRU(IN, 6)
    with torch.no_grad():
        for parameter in moving.flow.parameters():
            parameter.zero_()
        for ours, theirs in zip(
            discrete.parameters(),
            [p for name, p in moving.named_parameters() if not name.startswith("flow")],
            strict=True,
        ):
            ours.copy_(theirs)
    x, times, queries = window()
    graph = random_graph(NODES)
    torch.testing.assert_close(moving(x, times, graph, queries), discrete(x, times, graph, queries))


def test_a_residual_model_with_a_silent_head_is_persistence():
    """Each node repeats what it was last observed at."""
    model = gd.GCDEGRU(IN, 6, residual=True)
    with torch.no_grad():
        for parameter in model.readout.parameters():
            parameter.zero_()
    x, times, queries = window()
    mask = torch.ones(BATCH, STEPS, NODES, dtype=torch.bool)
    mask[0, 2, 1] = mask[0, 1, 1] = mask[1, 2, 4] = False
    y = model(x, times, random_graph(NODES), queries, mask=mask)
    last = x[:, -1, :, :1].clone()
    last[0, 1], last[1, 4] = x[0, 0, 1, :1], x[1, 1, 4, :1]
    torch.testing.assert_close(y, last[:, None].expand_as(y))


def test_options_reach_cell_and_flow():
    held = gd.GCDELSTM(IN, 6, cell={"cell_flows": False, "bias": True}, solver="rk4", num_steps=3)
    assert held.flow.field.widths == (6, 6, 6)
    assert held.flow.options.num_steps == 3
    assert held.jump.gates.bias is not None
    assert gd.GCGRU(IN, 6, bias=True).jump.gates.bias is not None
    assert not gd.GCDEGRU(IN, 6, causal=False).causal
    with pytest.raises(ValueError, match=r"`layers` must be 1 or more, but is 0.*named GC"):
        gd.GCDEGRU(IN, 6, layers=0)


def test_the_flat_gru_is_a_gru_on_one_long_vector():
    model = gd.FlatGRU(NODES, IN, 7)
    x, times, queries = window()
    x[..., 1:] = x[..., :1, 1:]  # features of time are the same everywhere
    y = model(x, times, None, queries)
    assert y.shape == (BATCH, 2, NODES, 1)
    cell, head = model.system.jump, model.system.readout
    assert cell.in_channels == NODES + 2
    h = torch.zeros(BATCH, 1, 7)
    for k in range(STEPS):
        flat = torch.cat([x[:, k, :, 0], x[:, k, 0, 1:]], -1)
        h = cell(h, flat[:, None], None)
    torch.testing.assert_close(y[:, 0, :, 0], head(h, None)[:, 0])


def test_the_paper_gives_its_gru_230_inputs():
    cell = gd.FlatGRU(228).system.jump
    assert (cell.in_channels, cell.channels) == (230, 50)


def test_the_flat_gru_sees_zeros_where_nothing_is_observed():
    model = gd.FlatGRU(NODES, IN, 7)
    x, times, queries = window()
    mask = torch.ones(BATCH, STEPS, NODES, dtype=torch.bool)
    mask[0, 1, 2], mask[1, 2] = False, False
    hidden = torch.where(mask[..., None], x, torch.nan)
    zeros = torch.where(mask[..., None], x, 0.0)
    steps = mask.any(-1)
    y = model(hidden, times, None, queries, mask=mask)
    torch.testing.assert_close(y, model(zeros, times, None, queries, mask=steps))
    with pytest.raises(ValueError, match=r"sees all nodes at once, \[..., 5, 3\]"):
        model(x[..., :4, :], times, None, queries)
    with pytest.raises(ValueError, match="`shared` counts the last of 3 channels"):
        gd.FlatGRU(NODES, IN, shared=3)


def test_the_flat_gru_takes_what_nodes_share_from_one_that_is_observed(without_type_checks):
    model = gd.FlatGRU(NODES, IN, 7)
    x, times, queries = window()
    x[..., 1:] = x[..., :1, 1:]
    mask = torch.ones(BATCH, STEPS, NODES, dtype=torch.bool)
    mask[0, 1, :2], mask[1, 2], mask[1, 0, 0] = False, False, False
    hidden = torch.where(mask[..., None], x, torch.nan)
    silent = x.clone()  # speeds are hidden, features of time are not
    silent[..., :1] = torch.where(mask[..., None], x[..., :1], 0.0)
    expected = model(silent, times, None, queries, mask=mask.any(-1))
    assert torch.equal(model(hidden, times, None, queries, mask=mask), expected)
    arrays = (hidden.numpy(), times.numpy(), None, queries.numpy())
    assert torch.equal(model(*arrays, mask=mask.numpy()), expected)


def test_a_long_memory_can_be_held_between_observations():
    flowing, held = gd.GCDELSTM(IN, 6), gd.GCDELSTM(IN, 6, cell={"cell_flows": False})
    assert flowing.parts.flow_channels == 12
    assert held.parts.flow_channels == 6


@pytest.mark.parametrize("name", MODELS)
def test_an_ensemble_of_systems_is_its_members(name):
    """Members first, each with its own weights, steps and masks; in one program."""
    options = {"field_dropout": 0.3} if name.startswith("GCDE") else {}
    ensemble = gd.Ensemble(lambda seed: MODELS[name](IN, 4, residual=True, **options), range(3))
    x, times, queries = window()
    graph = random_graph(NODES)
    mask = torch.rand(BATCH, STEPS, NODES) < 0.7
    mask[:, 0] = True
    with torch.no_grad(), gd.stochastic(ensemble.seeds, 5):
        y = ensemble(x, times, graph, queries, mask=mask)
    assert y.shape == (3, BATCH, 2, NODES, 1)
    for seed in range(3):
        with torch.no_grad(), gd.stochastic(seed, 5):
            alone = ensemble.member(seed)(x, times, graph, queries, mask=mask)
        torch.testing.assert_close(y[seed], alone, rtol=1e-10, atol=1e-12)
