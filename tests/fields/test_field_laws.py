"""Laws that every field obeys, on graphs as hypothesis draws them and on the strangest ones."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from torch import Tensor, nn
from torch.func import functional_call

import graphode as gd
from graphode import fields as F
from graphode.graphs import Graph
from tests.fields.dense import velocity
from tests.fields.registry import CASES, CHANNELS, Case, state, weighted_graph
from tests.graphs.strategies import matrices

every_field = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())

STRANGE: dict[str, list[list[float]]] = {
    "no node": [],
    "one node": [[0.0]],
    "one node that hears itself": [[0.5]],
    "no edge": [[0.0] * 4] * 4,
    "two parts, directed and weighted, with a loop, and a node for itself": [
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [2.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 3.0, 0.5, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0],
    ],
}


def strange_matrices() -> list[Tensor]:
    """Of the graphs above."""
    return [
        torch.tensor(rows, dtype=torch.float64).reshape(len(rows), len(rows))
        for rows in STRANGE.values()
    ]


def on_any_graph(max_examples: int) -> Callable[[Any], Any]:
    """A test of `matrix`: all the strange ones, and as many drawn ones as said."""

    def decorated(test: Any) -> Any:
        test = given(matrix=matrices(max_nodes=6, positive=True))(test)
        for matrix in strange_matrices():
            test = example(matrix=matrix)(test)
        return settings(max_examples=max_examples)(test)

    return decorated


def taken(case: Case, matrix: Tensor) -> Tensor:
    """The matrix, or its symmetric part where the field takes no other."""
    return matrix if case.directed else torch.maximum(matrix, matrix.t())


def built(case: Case) -> tuple[nn.Module, Graph]:
    """The field and a graph for it."""
    return case.build(), case.prepare(weighted_graph())


def test_every_field_is_among_the_cases():
    found = set()
    for case in CASES.values():
        found |= {type(module) for module in case.build().modules()}
    public = {value for value in vars(F).values() if inspect.isclass(value)}
    modules = {value for value in public if issubclass(value, nn.Module)}
    fields = {each for each in modules if "t" in inspect.signature(each.forward).parameters}
    names = {each.__name__ for each in fields - found}
    assert len(fields) > 15
    # The graph of the first is made from its state; the others have files of their own.
    assert names <= {"RadiusField", "PairForceMap", "RelativeMessageMap"}


@every_field
@on_any_graph(8)
def test_relabelling_nodes_relabels_the_velocity(case: Case, matrix: Tensor):
    matrix, field = taken(case, matrix), case.build()
    h, order = state(field, 2, len(matrix)), torch.randperm(len(matrix))
    expected = field(0.3, h, case.prepare(Graph.from_dense(matrix)))[:, order]
    moved = case.prepare(Graph.from_dense(matrix[order][:, order]))
    torch.testing.assert_close(field(0.3, h[:, order], moved), expected)


@every_field
@on_any_graph(8)
def test_sparse_equals_dense(case: Case, matrix: Tensor):
    matrix, field = taken(case, matrix), case.build()
    h = state(field, len(matrix))
    expected = velocity(field, 0.3, h, matrix)
    assert expected.isfinite().all()
    torch.testing.assert_close(field(0.3, h, case.prepare(Graph.from_dense(matrix))), expected)


@every_field
@on_any_graph(4)
def test_batched_equals_one_by_one(case: Case, matrix: Tensor):
    field, graph = case.build(), case.prepare(Graph.from_dense(taken(case, matrix)))
    h, t = state(field, 2, 3, len(matrix)), torch.rand(2, 3, 1, 1)
    together = field(t, h, graph)
    assert together.shape == h.shape
    for i in range(2):
        for j in range(3):
            alone = field(t[i, j].reshape(()), h[i, j], graph)
            torch.testing.assert_close(together[i, j], alone)
            assert torch.equal(alone, field(t[i, j].item(), h[i, j], graph))
    none = field(t[:0], h[:0], graph)
    assert none.shape == (0, *h.shape[1:])


@every_field
@on_any_graph(8)
def test_block_diagonal_equals_separately(case: Case, matrix: Tensor):
    field = case.build()
    blocks = [taken(case, each) for each in (matrix, *strange_matrices())]
    graphs = [case.prepare(Graph.from_dense(block)) for block in blocks]
    states = [state(field, 2, len(block)) for block in blocks]
    together = field(0.3, torch.cat(states, 1), Graph.batch(graphs))
    separately = [field(0.3, h, graph) for h, graph in zip(states, graphs, strict=True)]
    torch.testing.assert_close(together, torch.cat(separately, 1))


@every_field
@on_any_graph(4)
def test_graphs_of_one_size_act_on_stacked_states(case: Case, matrix: Tensor):
    field = case.build()
    blocks = [matrix, matrix.t(), torch.zeros_like(matrix)]
    graphs = [case.prepare(Graph.from_dense(taken(case, block))) for block in blocks]
    h, t = state(field, 2, 3, len(matrix)), torch.rand(2, 3, 1, 1)
    together = field(t, h, Graph.batch(graphs))
    for k, graph in enumerate(graphs):
        torch.testing.assert_close(together[:, k], field(t[:, k], h[:, k], graph))


@every_field
def test_a_batch_of_no_graph_moves_no_state(case: Case):
    field = case.build()
    graph = case.prepare(gd.radius_graph(torch.rand(0, 5, 2), 1.0))
    h = state(field, 2, 0, 5)
    assert field(torch.rand(2, 0, 1, 1), h, graph).shape == h.shape


@every_field
@on_any_graph(2)
def test_gradcheck_on_any_graph(case: Case, matrix: Tensor):
    matrix, field = taken(case, matrix), case.build()
    graph = Graph.from_dense(matrix)
    names = [name for name, _ in field.named_parameters()]

    def moved(h: Tensor, weight: Tensor, *parameters: Tensor) -> Tensor:
        given = case.prepare(Graph(graph.edge_index, len(matrix), weight))
        inputs = (torch.tensor(0.3), h, given)
        return functional_call(field, dict(zip(names, parameters, strict=True)), inputs)

    weight = graph.edge_weight.clone()
    weight.requires_grad_(case.uses_weights and case.weight_gradients)
    h = state(field, len(matrix)).requires_grad_()
    torch.autograd.gradcheck(moved, (h, weight, *field.parameters()), fast_mode=True)


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
def test_many_gradients_at_once_are_those_one_by_one(case: Case):
    field, graph = built(case)
    inputs = [state(field, 2, 6).requires_grad_(), *field.parameters()]
    velocity = field(0.3, inputs[0], graph)
    cotangents = torch.randn(3, *velocity.shape)

    def gradients(cotangent: Tensor, many: bool) -> list[Tensor]:
        found = torch.autograd.grad(
            velocity, inputs, cotangent, True, is_grads_batched=many, allow_unused=True
        )
        return [gradient for gradient in found if gradient is not None]

    one_by_one = zip(*(gradients(each, many=False) for each in cotangents), strict=True)
    for many, each in zip(gradients(cotangents, many=True), one_by_one, strict=True):
        torch.testing.assert_close(many, torch.stack(each))


@every_field
def test_autocast_rounds_the_velocity_and_its_gradient(case: Case):
    field, graph = case.build(), case.prepare(weighted_graph().to(dtype=torch.float32))
    h = state(field, 2, 6).float().requires_grad_()
    inputs, found = [h, *field.float().parameters()], []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            velocity = field(0.3, h, graph).float()
        gradients = torch.autograd.grad(velocity.square().sum(), inputs, materialize_grads=True)
        found.append((velocity, torch.cat([gradient.flatten() for gradient in gradients])))
    for exact, rounded in zip(*found, strict=True):
        assert (rounded - exact).norm() < 0.05 * exact.norm()


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
def test_a_graph_seen_in_inference_mode_serves_training(case: Case):
    field, graph = built(case)
    h = state(field, 2, 6)
    with torch.inference_mode():
        evaluated = field(0.3, h, graph)
    trained = field(0.3, h.requires_grad_(), graph)
    torch.testing.assert_close(evaluated.clone(), trained.detach())
    trained.sum().backward()


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
