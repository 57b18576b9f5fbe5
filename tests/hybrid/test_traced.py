"""Programs that must not ask the host: the same legs, decided on the device."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import graphode as gd
from graphode.hybrid import course, window
from tests.hybrid.loops import gru_system, random_graph

BATCH, STEPS, NODES, IN = 3, 4, 5, 2
ROOT = Path(__file__).parents[2]


def trace(monkeypatch) -> None:
    """Let everything be as in a program that is being recorded."""
    for module in (course, window):
        monkeypatch.setattr(module, "is_traced", lambda tensor: True)
    monkeypatch.setattr("graphode.flows.flow._traced", lambda tensor: True)


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
    several = torch.cat([queries, queries + 1.0], -1)
    eager = [system(x, times, graph, each, mask=mask) for each in (queries, several)]
    trace(monkeypatch)
    traced = [system(x, times, graph, each, mask=mask) for each in (queries, several)]
    torch.testing.assert_close(traced, eager, rtol=1e-12, atol=1e-13)
    assert traced[1].shape == (BATCH, 2, NODES, 1)


def test_a_forecast_can_be_traced_from_a_state(monkeypatch):
    system, graph = gru_system(solver="rk4", num_steps=3), random_graph(NODES)
    x, times = torch.randn(2, NODES, IN), torch.tensor([0.0, 1.0])
    state = system.observe(None, x[0], 0.0, graph)
    eager = system(x[1:], times[1:], graph, [2.0], state=state)
    trace(monkeypatch)
    traced = system(x[1:], times[1:], graph, [2.0], state=state)
    torch.testing.assert_close(traced, eager, rtol=1e-12, atol=1e-13)
    assert isinstance(state, gd.HybridState)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [False, True])
def test_a_traced_program_never_answers_from_the_future(causal, masked, monkeypatch):
    """Not even at the last observation, which is read before its jump."""
    system, graph = gru_system(solver="rk4", num_steps=3), random_graph(NODES)
    system.causal = causal
    x, times = torch.randn(2, 3, NODES, IN), torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.5, 3.0]])
    mask, last = torch.ones(2, 3, dtype=torch.bool), times[:, -1:].clone()
    if masked:
        mask[1, 2], last[1] = False, 0.5
    queries = torch.cat([times[:, :1], last - 0.2, last, last + 0.2, last + 1.0], -1)
    eager = torch.cat(
        [system(x, times, graph, query, mask=mask) for query in queries.split(1, -1)], 1
    )
    trace(monkeypatch)
    traced = system(x, times, graph, queries, mask=mask)
    assert traced[:, :3].isnan().all()
    torch.testing.assert_close(traced[:, 3:], eager[:, 3:], rtol=1e-12, atol=1e-13)
    assert system(x, times, graph, last + torch.nan, mask=mask).isnan().all()


def test_what_a_traced_program_cannot_answer_leaves_other_gradients_alone(monkeypatch):
    system, graph = gru_system(solver="rk4", num_steps=3), random_graph(NODES)
    x, times = torch.randn(2, 3, NODES, IN), torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.5, 3.0]])
    weights = list(system.parameters())
    alone = system(x[:1], times[:1], graph, torch.tensor([[2.5]]))
    expected = torch.autograd.grad(alone.square().sum(), weights)
    trace(monkeypatch)
    y = system(x, times, graph, torch.tensor([[2.5], [2.5]]))
    found = torch.autograd.grad(y[:1].square().sum(), weights)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_traced_times_that_do_not_increase_give_no_answer(monkeypatch):
    system, graph = gru_system(solver="rk4", num_steps=3), random_graph(NODES)
    times = torch.tensor(
        [[0.0, 1.0, 2.0], [0.0, 2.0, 1.0], [0.0, 1.0, 1.0], [1.0, 0.0, 2.0], [0.0, torch.nan, 2.0]]
    )
    x, queries = torch.randn(5, 3, NODES, IN), torch.full((5, 1), 9.0)
    state = system.observe(None, torch.randn(5, NODES, IN), -1.0, graph)
    late = system.observe(None, torch.randn(5, NODES, IN), 0.0, graph)
    trace(monkeypatch)
    in_order = torch.tensor([True, False, False, False, False])
    for start in (None, state):
        y = system(x, times, graph, queries, state=start)
        assert torch.equal(y.isfinite().flatten(1).all(1), in_order)
        assert torch.equal(y.isnan().flatten(1).all(1), ~in_order)
    assert system(x, times, graph, queries, state=late).isnan().all()
    hidden = torch.ones(5, 3, dtype=torch.bool)
    hidden[1:, 1] = False  # and so is its place in the order
    hidden[3, 1], hidden[3, 0] = True, False
    assert system(x, times, graph, queries, mask=hidden).isfinite().all()


def test_a_traced_forecast_reads_a_state_from_its_time_on(monkeypatch):
    system, graph = gru_system(solver="rk4", num_steps=3), random_graph(NODES)
    state = system.observe(None, torch.randn(2, NODES, IN), torch.tensor([1.0, 2.0]), graph)
    eager = system.forecast(state, 2.0)
    trace(monkeypatch)
    torch.testing.assert_close(system.forecast(state, 2.0), eager, rtol=1e-12, atol=1e-13)
    early = system.forecast(state, 1.0)
    assert early[0].isfinite().all()
    assert early[1].isnan().all()


COMPILED = """
import torch
from tests.hybrid.loops import gru_system, random_graph

torch.set_default_dtype(torch.float64)
system, graph = gru_system(solver="rk4", num_steps=2), random_graph(5)
compiled = torch.compile(system, fullgraph=True, backend="aot_eager")
x, times = torch.randn(2, 3, 5, 2), torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.5, 3.0]])
last = times[:, -1:]
for queries in (last, last - 1.5, times[:, :1]):
    assert compiled(x, times, graph, queries).isnan().all()
assert compiled(x, times.flip(-1), graph, last + 5.0).isnan().all()
torch.testing.assert_close(
    compiled(x, times, graph, last + 0.5), system(x, times, graph, last + 0.5)
)
"""


def test_a_compiled_system_answers_after_the_last_observation_only():
    # In a process of its own: torch cannot trace type checks on objects made while tracing.
    subprocess.run([sys.executable, "-c", COMPILED], check=True, cwd=ROOT)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_captured_system_answers_after_the_last_observation_only():
    system = gru_system(solver="rk4", num_steps=2).to("cuda")
    graph = random_graph(NODES).to("cuda")
    x = torch.randn(2, 3, NODES, IN, device="cuda")
    times = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.5, 3.0]], device="cuda")
    queries, y = times[:, -1:] + 0.5, torch.zeros(2, 1, NODES, 1, device="cuda")

    def program() -> None:
        with torch.no_grad():
            y.copy_(system(x, times, graph, queries))

    captured = gd.capture(program, "cuda")
    for _ in range(4):
        captured()
    torch.testing.assert_close(y, system(x, times, graph, queries))
    for moment in (2.0, 0.5):
        queries[0] = moment
        captured()
        assert y[0].isnan().all()
        assert y[1].isfinite().all()
