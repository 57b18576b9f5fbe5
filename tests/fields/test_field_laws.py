"""Laws that every field obeys."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import graphode as gd
from graphode import fields as F
from graphode.graphs import Graph
from tests.fields.registry import CASES, CHANNELS, Case, state, weighted_graph

every_field = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def built(case: Case) -> tuple[nn.Module, Graph]:
    """The field and a graph for it."""
    return case.build(), case.prepare(weighted_graph())


def relabelled(graph: Graph, order: Tensor) -> Graph:
    """The graph whose node i is node order[i] of the given one."""
    position = order.argsort()
    return Graph(position[graph.edge_index], graph.num_nodes, graph.edge_weight)


@every_field
def test_relabelling_nodes_relabels_the_velocity(case: Case):
    if not case.equivariant:
        pytest.skip("its random walks are drawn by the numbers of nodes")
    field, graph = built(case)
    h, order = state(field, 2, 6), torch.randperm(6)
    moved = case.prepare(relabelled(weighted_graph(), order))
    torch.testing.assert_close(field(0.3, h[:, order], moved), field(0.3, h, graph)[:, order])


@every_field
def test_batched_equals_one_by_one(case: Case):
    field, graph = built(case)
    h, t = state(field, 2, 3, 6), torch.rand(2, 3, 1, 1)
    together = field(t, h, graph)
    assert together.shape == h.shape
    for i in range(2):
        for j in range(3):
            alone = field(t[i, j].reshape(()), h[i, j], graph)
            torch.testing.assert_close(together[i, j], alone)
            assert torch.equal(alone, field(t[i, j].item(), h[i, j], graph))


@every_field
def test_block_diagonal_equals_separately(case: Case):
    field = case.build()
    graphs = [case.prepare(weighted_graph(n, seed=n)) for n in (3, 6, 4)]
    states = [state(field, 2, graph.num_nodes) for graph in graphs]
    together = field(0.3, torch.cat(states, 1), Graph.batch(graphs))
    separately = [field(0.3, h, graph) for h, graph in zip(states, graphs, strict=True)]
    torch.testing.assert_close(together, torch.cat(separately, 1))


@every_field
def test_graphs_of_one_size_act_on_stacked_states(case: Case):
    field = case.build()
    graphs = [case.prepare(weighted_graph(5, seed=seed)) for seed in range(3)]
    h, t = state(field, 2, 3, 5), torch.rand(2, 3, 1, 1)
    together = field(t, h, Graph.batch(graphs))
    for k, graph in enumerate(graphs):
        torch.testing.assert_close(together[:, k], field(t[:, k], h[:, k], graph))


@every_field
def test_gradcheck_of_state_parameters_and_weights(case: Case):
    field, graph = built(case)
    names = [name for name, _ in field.named_parameters()]
    weight = weighted_graph().edge_weight

    def velocity(h: Tensor, weight: Tensor, *parameters: Tensor) -> Tensor:
        graph = case.prepare(Graph(weighted_graph().edge_index, 6, weight))
        return functional_call(
            field, dict(zip(names, parameters, strict=True)), (torch.tensor(0.3), h, graph)
        )

    h = state(field, 6).requires_grad_()
    weight = weight.detach().requires_grad_(case.uses_weights and case.weight_gradients)
    torch.autograd.gradcheck(velocity, (h, weight, *field.parameters()), fast_mode=True)
    reached = torch.autograd.grad(velocity(h, weight, *field.parameters()).square().sum(), h)[0]
    assert reached.abs().max() > 0
    torch.autograd.gradgradcheck(lambda h: field(0.3, h, graph), (h,), fast_mode=True)


@every_field
def test_flows_forward_and_backward(case: Case):
    field, graph = built(case)
    flow = gd.Flow(field, solver="dopri5", rtol=1e-4, atol=1e-6)
    h = torch.randn(2, 6, CHANNELS, requires_grad=True)
    moved = F.unpack(field, flow(F.pack(field, h), graph))
    assert moved.shape == h.shape
    moved.square().sum().backward()
    assert h.grad is not None
    assert h.grad.isfinite().all()
    for name, parameter in field.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@every_field
def test_checkpointed_gradients_are_those_of_backprop(case: Case):
    field, graph = built(case)
    inputs = [torch.randn(6, CHANNELS, requires_grad=True), *field.parameters()]
    found = []
    for gradient in ("backprop", "checkpoint"):
        flow = gd.Flow(field, solver="heun", num_steps=3, gradient=gradient)
        moved = F.unpack(field, flow(F.pack(field, inputs[0]), graph))
        found.append(torch.autograd.grad(moved.square().sum(), inputs, materialize_grads=True))
    for exact, recomputed in zip(*found, strict=True):
        torch.testing.assert_close(recomputed, exact)


@every_field
def test_a_state_of_another_width_is_refused(case: Case):
    field, graph = built(case)
    wrong = torch.randn(6, state(field, 6).shape[-1] + 3)
    with pytest.raises((ValueError, RuntimeError)):
        field(0.0, wrong, graph)
