"""Gradients of hybrid systems: checked by differences, and equal by every method."""

import pytest
import torch
from torch import Tensor, nn

import graphode as gd
from tests.hybrid.loops import gru_system, random_graph

BATCH, STEPS, NODES, IN = 2, 3, 4, 2


def window() -> tuple[Tensor, Tensor, Tensor]:
    times = (0.2 + torch.rand(BATCH, STEPS)).cumsum(-1)
    queries = torch.stack([times[:, 1] + 0.1, times[:, -1] + 0.5, times[:, -1]], -1)
    return torch.randn(BATCH, STEPS, NODES, IN), times, queries


def test_gradcheck_of_observations_times_queries_and_weights():
    system = gru_system(solver="rk4", num_steps=3)
    graph = random_graph(NODES, kind=None)
    x, times, queries = window()
    mask = torch.ones(BATCH, STEPS, NODES, dtype=torch.bool)
    mask[0, 1] = False
    mask[1, 2, 0] = False

    def run(x: Tensor, times: Tensor, queries: Tensor, weight: Tensor) -> Tensor:
        return system(x, times, graph.reweight(weight), queries, mask=mask)

    inputs = [tensor.clone().requires_grad_() for tensor in (x, times, queries, graph.edge_weight)]
    # Not at an observation: there the answer jumps.
    inputs[2] = queries[:, :2].clone().requires_grad_()
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


def test_gradcheck_of_parameters():
    system, graph = gru_system(solver="rk4", num_steps=2), random_graph(NODES)
    x, times, queries = window()
    names, values = zip(*system.named_parameters(), strict=True)

    def run(*values: Tensor) -> Tensor:
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(system, parameters, (x, times, graph, queries))

    assert torch.autograd.gradcheck(run, values, fast_mode=True)


def gradients(system: nn.Module, x: Tensor, times: Tensor, queries: Tensor, **options) -> list:
    x, times = x.clone().requires_grad_(), times.clone().requires_grad_()
    y = system(x, times, random_graph(NODES), queries, **options)
    return list(torch.autograd.grad(y.square().sum(), [x, times, *system.parameters()]))


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "checkpoint_adjoint"])
@pytest.mark.parametrize("on_the_way", [False, True])
def test_gradient_methods_agree(gradient, on_the_way):
    """With queries on the way, padded steps and samples at rest."""
    x, times, queries = window()
    queries = queries if on_the_way else queries[:, 1:2]
    mask = torch.ones(BATCH, STEPS, dtype=torch.bool)
    mask[0, 2] = False
    found = []
    for method in ("backprop", gradient):
        torch.manual_seed(1)
        system = gru_system(rtol=1e-9, atol=1e-10, gradient=method)
        found.append(gradients(system, x, times, queries, mask=mask))
    tolerance = 1e-9 if gradient == "checkpoint" else 1e-5
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def test_dropout_in_field_and_gates_follows_its_key():
    field = gd.GraphConvField([3, 3, 3], dropout=0.5)
    system = gd.HybridSystem(
        flow=gd.Flow(field, solver="rk4", num_steps=2),
        jump=gd.GraphGRUCell(IN, 3, gate=lambda i, o: gd.GraphConvMap([i, o], dropout=0.5)),
        readout=nn.Linear(3, 1),
    )
    graph, (x, times, queries) = random_graph(NODES), window()

    def run(seed: int, step: int) -> Tensor:
        with gd.stochastic(seed, step):
            return system(x, times, graph, queries)

    assert torch.equal(run(0, 1), run(0, 1))
    assert not torch.allclose(run(0, 1), run(0, 2))
    assert not torch.allclose(run(0, 1), run(1, 1))
    paths = {part.path for part in system.modules() if isinstance(part, gd.Dropout)}
    assert len(paths) == 4
    system.eval()
    assert torch.equal(run(0, 1), run(1, 2))


def test_a_gradient_reaches_a_given_start():
    system, graph = gru_system(solver="rk4", num_steps=2), random_graph(NODES)
    x, times, queries = window()
    start = torch.randn(BATCH, NODES, 3, requires_grad=True)
    run = lambda h: system(x, times, graph, queries, state=h)  # noqa: E731
    assert torch.autograd.gradcheck(run, start, fast_mode=True)
