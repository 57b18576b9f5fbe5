"""Programs that must not ask the host: the same legs, decided on the device."""

import pytest
import torch

import graphode as gd
from graphode.hybrid import course, window
from tests.hybrid.loops import gru_system, random_graph

BATCH, STEPS, NODES, IN = 3, 4, 5, 2


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [False, True])
def test_a_traced_program_answers_as_an_eager_one(causal, masked, monkeypatch):
    system, graph = gru_system(solver="rk4", num_steps=3), random_graph(NODES)
    system.causal = causal
    x = torch.randn(BATCH, STEPS, NODES, IN)
    times = (0.1 + torch.rand(BATCH, STEPS)).cumsum(-1)
    mask = None
    if masked:
        mask = torch.ones(BATCH, STEPS, dtype=torch.bool)
        mask[0, 0] = mask[1, 3] = mask[2, 1] = mask[2, 2] = False
    queries = times[:, -1:] + 0.5
    eager = system(x, times, graph, queries, mask=mask)
    for module in (course, window):
        monkeypatch.setattr(module, "is_traced", lambda tensor: True)
    traced = system(x, times, graph, queries, mask=mask)
    torch.testing.assert_close(traced, eager, rtol=1e-12, atol=1e-13)
    several = torch.cat([queries, queries + 1.0], -1)
    assert system(x, times, graph, several, mask=mask).shape == (BATCH, 2, NODES, 1)


def test_a_forecast_can_be_traced_from_a_state(monkeypatch):
    system, graph = gru_system(solver="rk4", num_steps=3), random_graph(NODES)
    x, times = torch.randn(2, NODES, IN), torch.tensor([0.0, 1.0])
    state = system.observe(None, x[0], 0.0, graph)
    eager = system(x[1:], times[1:], graph, [2.0], state=state)
    for module in (course, window):
        monkeypatch.setattr(module, "is_traced", lambda tensor: True)
    traced = system(x[1:], times[1:], graph, [2.0], state=state)
    torch.testing.assert_close(traced, eager, rtol=1e-12, atol=1e-13)
    assert isinstance(state, gd.HybridState)
