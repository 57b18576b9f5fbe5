"""One observation at a time gives what the batched call gives."""

import copy
import io

import pytest
import torch
from safetensors.torch import load, save

import graphode as gd
from tests.hybrid.loops import gru_system, random_graph

STEPS, NODES, IN, CHANNELS = 4, 5, 2, 3


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [False, True])
def test_streaming_is_the_batched_call_step_by_step(batch, causal, masked):
    system = gru_system(rtol=1e-4, atol=1e-5)
    system.causal = causal
    x = torch.randn(*batch, STEPS, NODES, IN)
    times = (0.1 + torch.rand(*batch, STEPS)).cumsum(-1)
    graphs = [random_graph(NODES, k) for k in range(STEPS)]
    mask = torch.rand(*batch, STEPS, NODES) < 0.7 if masked else None
    if mask is not None:
        mask[..., 0] = True
    state = None
    for k in range(STEPS):
        seen = None if mask is None else mask[..., k, :]
        state = system.observe(state, x[..., k, :, :], times[..., k], graphs[k], mask=seen)
        ahead = times[..., k : k + 1] + torch.tensor([0.0, 0.3, 2.0])
        so_far = mask[..., : k + 1, :] if mask is not None else None
        y = system(x[..., : k + 1, :, :], times[..., : k + 1], graphs[: k + 1], ahead, mask=so_far)
        forecasts = system.forecast(state, ahead)
        # At the time of the observation the call reads before the jump, the state is after it.
        torch.testing.assert_close(forecasts[..., 1:, :, :], y[..., 1:, :, :], rtol=1e-12, atol=0)
        now = system.readout(state.h, graphs[k])
        torch.testing.assert_close(forecasts[..., 0, :, :], now)
        last = system.forecast(state, ahead[..., -1])
        torch.testing.assert_close(last, y[..., -1, :, :], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("steps", [{"num_steps": 1}, {"step_size": 0.4}])
def test_streaming_by_fixed_steps_is_the_batched_call_between_observations_too(steps):
    """Whoever streams does not know when the next observation comes, nor who asks later."""
    system, graph = gru_system(solver="rk4", **steps), random_graph(NODES)
    x, times = torch.randn(3, STEPS, NODES, IN), (0.5 + torch.rand(3, STEPS)).cumsum(-1)
    ahead = torch.tensor([0.1, 0.3])
    queries = [times[:, k : k + 1] + ahead for k in range(STEPS)]
    batched = system(x, times, graph, torch.cat(queries, -1))
    state = None
    for k in range(STEPS):
        state = system.observe(state, x[:, k], times[:, k], graph)
        now = batched[:, 2 * k : 2 * k + 2]
        together = system.forecast(state, queries[k])
        torch.testing.assert_close(together, now, rtol=1e-12, atol=1e-13)
        first = system.forecast(state, queries[k][:, 0])
        torch.testing.assert_close(first, now[:, 0], rtol=1e-12, atol=1e-13)


def test_a_window_can_be_absorbed_at_once_and_continued():
    system = gru_system(rtol=1e-4, atol=1e-5)
    graphs = [random_graph(NODES, k) for k in range(STEPS)]
    x, times = torch.randn(3, STEPS, NODES, IN), torch.rand(3, STEPS).cumsum(-1)
    queries = times[:, -1:] + 1.0
    whole = system(x, times, graphs, queries)
    half = system.absorb(x[:, :2], times[:, :2], graphs[:2])
    rest = system(x[:, 2:], times[:, 2:], graphs[2:], queries, state=half)
    torch.testing.assert_close(rest, whole, rtol=1e-12, atol=1e-13)
    end = system.absorb(x[:, 2:], times[:, 2:], graphs[2:], state=half)
    torch.testing.assert_close(system.forecast(end, queries), whole, rtol=1e-12, atol=1e-13)


def test_queries_between_a_state_and_the_next_observation_are_answered():
    system, graph = gru_system(solver="rk4", num_steps=16), random_graph(NODES)
    state = system.observe(None, torch.randn(NODES, IN), 0.0, graph)
    x, times = torch.randn(1, NODES, IN), torch.tensor([2.0])
    y = system(x, times, graph, torch.tensor([0.0, 1.0, 2.0]), state=state)
    forecasts = system.forecast(state, torch.tensor([0.0, 1.0, 2.0]))
    torch.testing.assert_close(y, forecasts, rtol=1e-12, atol=1e-13)


def test_a_sample_that_observes_nothing_rests_with_its_graph():
    """Streamed in a batch with others, or alone, or in one call."""
    system = gru_system(rtol=1e-4, atol=1e-5)
    graphs = [random_graph(NODES, k) for k in range(3)]
    x, times = torch.randn(2, 3, NODES, IN), torch.rand(2, 3).cumsum(-1)
    mask = torch.tensor([[True, True, True], [True, False, True]])
    state = None
    for k in range(3):
        state = system.observe(state, x[:, k], times[:, k], graphs[k], mask=mask[:, k])
        if k == 1:
            assert state.time[1] == times[1, 0]
    queries = times[:, -1:] + 1.0
    y = system(x, times, graphs, queries, mask=mask)
    torch.testing.assert_close(system.forecast(state, queries), y, rtol=1e-12, atol=1e-13)
    kept = [0, 2]
    alone = system(x[1, kept], times[1, kept], [graphs[k] for k in kept], queries[1])
    torch.testing.assert_close(y[1], alone, rtol=1e-12, atol=1e-13)


def test_samples_of_two_leading_dimensions_that_miss_other_steps_are_refused_where_graphs_change():
    system = gru_system(solver="rk4", num_steps=1)
    graphs = [random_graph(NODES, k) for k in range(2)]
    x, times = torch.randn(2, 3, 2, NODES, IN), torch.tensor([0.0, 1.0])
    mask = torch.ones(2, 3, 2, dtype=torch.bool)
    mask[:, 0, 1] = False  # the same sample of both: it rests with its graph
    queries = torch.tensor([2.0])
    state = system.absorb(x, times, graphs, mask=mask)
    y = system(x, times, graphs, queries, mask=mask)
    torch.testing.assert_close(system.forecast(state, 2.0), y[..., 0, :, :])
    mask[0, 0, 1], mask[0, 1, 1] = True, False
    with pytest.raises(ValueError, match=r"batch of shape \[2, 3\].*Flatten them into one"):
        system.absorb(x, times, graphs, mask=mask)
    y = system(x, times, graphs, queries, mask=mask)  # no state is wanted
    flat = system(x.flatten(0, 1), times, graphs, queries, mask=mask.flatten(0, 1))
    torch.testing.assert_close(y.flatten(0, 1), flat)
    one = graphs[0]  # nothing to choose from
    state = system.absorb(x, times, one, mask=mask)
    y = system(x, times, one, queries, mask=mask)
    torch.testing.assert_close(system.forecast(state, 2.0), y[..., 0, :, :])


def test_each_sample_may_stream_a_graph_of_its_own():
    system = gru_system(rtol=1e-4, atol=1e-5)
    each = [[random_graph(NODES, 10 * b + k) for k in range(2)] for b in range(2)]
    x, times = torch.randn(2, 2, NODES, IN), torch.rand(2, 2).cumsum(-1)
    state = None
    for k in range(2):
        state = system.observe(state, x[:, k], times[:, k], [row[k] for row in each])
    y = system(x, times, each, times[:, -1:] + 1.0)
    torch.testing.assert_close(system.forecast(state, times[:, -1] + 1.0), y[:, 0])


def test_a_state_can_be_saved_and_copied():
    system, graph = gru_system(), random_graph(NODES)
    state = system.observe(None, torch.randn(NODES, IN), 1.0, graph)
    expected = system.forecast(state, 3.0)
    kept = gd.HybridState(**load(save(state.tensors())), graph=graph)
    assert torch.equal(system.forecast(kept, 3.0), expected)
    assert torch.equal(system.forecast(copy.deepcopy(state), 3.0), expected)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    assert torch.equal(system.forecast(loaded, 3.0), expected)
    assert state.to(torch.float32).h.dtype == torch.float32
    assert state.to(torch.float32).time.dtype == torch.float64


def test_a_forecast_leaves_the_state_as_it_was():
    system, graph = gru_system(), random_graph(NODES)
    state = system.observe(None, torch.randn(NODES, IN), 1.0, graph)
    before = state.h.clone()
    system.forecast(state, 3.0)
    assert torch.equal(state.h, before)
    with pytest.raises(AttributeError):
        state.time = torch.tensor(0.0)


def test_truncated_histories_can_be_detached():
    system, graph = gru_system(), random_graph(NODES)
    with torch.enable_grad():
        state = system.observe(None, torch.randn(NODES, IN), 1.0, graph)
        assert state.h.requires_grad
        assert not state.detach().h.requires_grad


def test_errors_name_the_remedy():
    system, graph = gru_system(), random_graph(NODES)
    x = torch.randn(NODES, IN)
    state = system.observe(None, x, 1.0, graph)
    with pytest.raises(ValueError, match=r"must increase strictly.*comes at 1, after 1.*merge"):
        system.observe(state, x, 1.0, graph)
    with pytest.raises(ValueError, match=r"last observation in the state.*holds no history"):
        system.forecast(state, 0.5)
    with pytest.raises(ValueError, match=r"`t` must be a number, or have shape"):
        system.forecast(state, torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"`state` must have shape \[2, 'nodes', 3\]"):
        system.observe(state, x.expand(2, -1, -1), 2.0, graph)
    with pytest.raises(ValueError, match=r"graph of step 0 must have the 5 nodes"):
        system.observe(state, x, 2.0, random_graph(4))
