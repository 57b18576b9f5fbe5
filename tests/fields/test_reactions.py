"""Fields that users know by name, against what is known about them."""

import math

import pytest
import torch
from torch import Tensor

import graphode as gd
from graphode import fields as F
from graphode.graphs import Graph
from tests.fields.registry import weighted_graph


@pytest.mark.parametrize("mixes", [True, False])
def test_cgnn_flows_along_its_closed_form(mixes: bool):
    field = F.CGNNField(4, mixes=mixes)
    graph = weighted_graph().normalize("sym")
    z = field.pack(torch.randn(2, 6, 4), torch.randn(2, 6, 4))
    times = torch.tensor([0.0, 0.5, 2.0, 7.0])
    solution = gd.solve(field, z, times, (graph,), solver="dopri8", rtol=1e-10, atol=1e-12)
    for t, state in zip(times, solution.states, strict=True):
        exact = F.cgnn_solution(field, z, graph, t)
        torch.testing.assert_close(state, exact, rtol=1e-8, atol=1e-9)


def test_cgnn_solution_serves_each_sample_and_stays_bounded():
    field = F.CGNNField(4)
    graphs = [weighted_graph(5, seed=seed).normalize("sym") for seed in range(2)]
    z = field.pack(torch.randn(2, 5, 4))
    together = F.cgnn_solution(field, z, Graph.batch(graphs), 3.0)
    torch.testing.assert_close(together[1], F.cgnn_solution(field, z[1], graphs[1], 3.0))
    times = torch.tensor([1.0, 3.0]).reshape(2, 1, 1)
    apart = F.cgnn_solution(field, z[0].expand(2, 5, 8), graphs[0], times)
    torch.testing.assert_close(apart[1], F.cgnn_solution(field, z[0], graphs[0], 3.0))
    each = F.cgnn_solution(field, z, Graph.batch(graphs), times)
    for k, graph in enumerate(graphs):
        torch.testing.assert_close(each[k], F.cgnn_solution(field, z[k], graph, times[k].item()))
    twins = F.cgnn_solution(field, z, Graph.batch(graphs[:1] * 2), times)
    torch.testing.assert_close(twins[1], F.cgnn_solution(field, z[1], graphs[0], 3.0))
    far = F.cgnn_solution(field, z, Graph.batch(graphs), 1e4)
    rest = field(0.0, far, Graph.batch(graphs))
    torch.testing.assert_close(rest, torch.zeros_like(rest), atol=1e-9, rtol=0)
    with pytest.raises(ValueError, match="symmetric"):
        F.cgnn_solution(field, z[0], weighted_graph(5).normalize("rw"), 1.0)


@pytest.mark.parametrize("mixes", [True, False])
def test_cgnn_solution_has_the_gradients_of_the_flow(mixes: bool):
    field = F.CGNNField(3, mixes=mixes)  # a new one: all eigenvalues of W are equal
    graph = Graph.from_dense(1 - torch.eye(5)).normalize("sym")  # and most of the graph's
    z = field.pack(torch.randn(5, 3), torch.randn(5, 3)).requires_grad_()
    wanted = [z, *field.parameters()]
    exact = F.cgnn_solution(field, z, graph, 1.5)
    moved = gd.Flow(field, solver="dopri8", rtol=1e-11, atol=1e-12)(z, graph, t1=1.5)
    for mine, theirs in zip(
        torch.autograd.grad(exact.square().sum(), wanted),
        torch.autograd.grad(moved.square().sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-8)


def test_cgnn_works_in_half_precision():
    graph = weighted_graph().normalize("sym")
    field = F.CGNNField(4).bfloat16()
    z = field.pack(torch.randn(6, 4).bfloat16())
    half = [field(0.0, z, graph), F.cgnn_solution(field, z, graph, 1.0)]
    field, z = field.double(), z.double()
    whole = [field(0.0, z, graph), F.cgnn_solution(field, z, graph, 1.0)]
    for rounded, exact in zip(half, whole, strict=True):
        assert rounded.dtype == torch.bfloat16
        torch.testing.assert_close(rounded.double(), exact, rtol=0.02, atol=0.05)


def dense_attention(field: F.GRANDField, x: torch.Tensor, graph: Graph) -> torch.Tensor:
    """A(x) of GRAND as a matrix."""
    keys, queries = (
        layer(x).unflatten(-1, (field.heads, -1)) for layer in (field.key, field.query)
    )
    scores = torch.einsum("vhd,uhd->hvu", keys, queries) / keys.shape[-1] ** 0.5
    linked = (graph.to_dense() != 0) | torch.eye(len(x), dtype=torch.bool)
    return scores.masked_fill(~linked, -torch.inf).softmax(-1).mean(0)


@pytest.mark.parametrize("linear", [True, False])
def test_grand_equals_its_dense_formula(linear: bool):
    graph = weighted_graph()
    field = F.GRANDField(4, heads=2, attention_channels=3, linear=linear, source=True)
    torch.nn.init.constant_(field.beta, 0.7)
    x, start = torch.randn(6, 4), torch.randn(6, 4)
    matrix = dense_attention(field, start if linear else x, graph)
    velocity = field(0.0, torch.cat([x, start], -1), graph.normalize("sym"))
    expected = matrix @ x - x + 0.7 * start
    torch.testing.assert_close(field.unpack(velocity), expected)


def test_linear_grand_is_a_matrix_exponential():
    graph, x = weighted_graph(), torch.randn(6, 4)
    field = F.GRANDField(4, linear=True)
    generator = dense_attention(field, x, graph) - torch.eye(6)
    moved = gd.Flow(field, rtol=1e-9, atol=1e-9)(field.pack(x), graph, t1=2.0)
    expected = torch.matrix_exp(2 * generator) @ x
    torch.testing.assert_close(field.unpack(moved), expected, rtol=1e-6, atol=1e-6)


def test_grand_obeys_the_maximum_principle():
    graph, x = weighted_graph(), torch.randn(6, 4)
    moved = gd.Flow(F.GRANDField(4))(x, graph, t1=50.0)
    assert (moved.amax(0) <= x.amax(0) + 1e-3).all()
    assert (moved.amin(0) >= x.amin(0) - 1e-3).all()


def test_graphcon_is_the_oscillator_it_says():
    graph, z = weighted_graph().normalize("sym"), torch.randn(6, 8)
    coupling = F.GraphConvField([4, 4])
    field = F.GraphCONField(coupling, frequency=2.0, damping=0.3, activation="tanh")
    x, v = z.chunk(2, -1)
    force = torch.tanh(coupling(0.0, x, graph)) - 2 * x - 0.3 * v
    torch.testing.assert_close(field(0.0, z, graph), torch.cat([v, force], -1))
    with pytest.raises(ValueError, match="0 or more, but are -1"):
        F.GraphCONField(coupling, frequency=-1.0)


@pytest.mark.parametrize("layers", [1, 5])
def test_eulers_steps_of_length_one_are_the_layers_of_gcnii(layers: int):
    graph, start = weighted_graph().normalize("sym"), torch.randn(2, 6, 4)
    field = F.GCNIIField(4, alpha=0.2, mixing=1.5, layers=layers, t1=5.0)
    h = start
    for layer in range(1, 6):
        beta = math.log(1.5 / layer + 1)
        seen = 0.8 * graph.propagate(h) + 0.2 * start
        weight = field.weight[layer - 1 if layers > 1 else 0]
        h = torch.relu((1 - beta) * seen + beta * seen @ weight)
    flow = gd.Flow(field, solver="euler", num_steps=5)
    torch.testing.assert_close(field.unpack(flow(field.pack(start), graph, t1=5.0)), h)


def test_members_of_a_batch_see_the_layer_of_their_own_time():
    graph, h = weighted_graph().normalize("sym"), torch.randn(3, 6, 8)
    field = F.GCNIIField(4, layers=3, t1=0.3)
    times = torch.tensor([0.05, 0.1, 0.3]).reshape(3, 1, 1)  # in the first, second and third
    together = field(times, h, graph)
    for k in range(3):
        alone = F.GCNIIField(4)
        alone.weight.data = field.weight.data[k : k + 1]
        torch.testing.assert_close(together[k], alone(times[k].item(), h[k], graph))


def test_gcnii_without_weights_rests_at_personalised_pagerank():
    graph, start = weighted_graph().normalize("sym"), torch.rand(6, 4)
    field = F.GCNIIField(4, alpha=0.3, mixing=0.0)
    moved = gd.Flow(field, solver="dopri5", rtol=1e-9, atol=1e-9)(field.pack(start), graph, t1=60.0)
    rest = 0.3 * torch.linalg.solve(torch.eye(6) - 0.7 * graph.to_dense(), start)
    torch.testing.assert_close(field.unpack(moved), rest, rtol=1e-6, atol=1e-6)


def test_pagerank_rests_where_its_name_says():
    graph, start = weighted_graph().normalize("sym"), torch.rand(6, 4)
    field = F.PageRankField(4, alpha=0.3)
    moved = gd.Flow(field, solver="dopri5", rtol=1e-9, atol=1e-9)(field.pack(start), graph, t1=60.0)
    rest = 0.3 * torch.linalg.solve(torch.eye(6) - 0.7 * graph.to_dense(), start)
    torch.testing.assert_close(field.unpack(moved), rest, rtol=1e-6, atol=1e-6)


def test_eulers_steps_of_length_one_gate_the_powers_of_the_matrix():
    graph, h = weighted_graph().normalize("sym"), torch.randn(2, 6, 4)
    field = F.PathGate(F.PageRankField(4, alpha=0.0), 4)
    expected, power = torch.zeros_like(h), h
    for _ in range(5):
        expected += torch.sigmoid(power @ field.weight + field.bias) * power
        power = graph.to_dense() @ power
    flow = gd.Flow(field, solver="euler", num_steps=5)
    torch.testing.assert_close(field.unpack(flow(field.pack(h), graph, t1=5.0)), expected)


def test_without_a_gate_the_path_is_integrated_exactly():
    graph, h = weighted_graph().normalize("sym"), torch.randn(6, 4)
    field = F.PathGate(F.PageRankField(4, alpha=0.0), 4, gate=False)
    moved = gd.Flow(field, rtol=1e-10, atol=1e-10)(field.pack(h), graph, t1=2.0)
    rates, basis = torch.linalg.eigh(graph.to_dense() - torch.eye(6))
    lengths = torch.where(rates.abs() < 1e-9, 2.0, torch.expm1(2 * rates) / rates)
    expected = basis @ (lengths[:, None] * (basis.t() @ h))
    torch.testing.assert_close(field.unpack(moved), expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "checkpoint_adjoint"])
def test_a_gate_learns_by_every_gradient_method(gradient: str):
    graph, h = weighted_graph().normalize("sym"), torch.randn(6, 4, requires_grad=True)
    field = F.PathGate(F.PageRankField(4), 4)
    inputs = [h, *field.parameters()]

    def found(gradient: str) -> tuple[Tensor, ...]:
        flow = gd.Flow(field, rtol=1e-9, atol=1e-9, gradient=gradient)
        moved = field.unpack(flow(field.pack(h), graph, t1=3.0))
        return torch.autograd.grad(moved.square().sum(), inputs)

    for exact, mine in zip(found("backprop"), found(gradient), strict=True):
        torch.testing.assert_close(mine, exact, rtol=1e-5, atol=1e-7)


def test_adaptive_attention_equals_its_dense_formula():
    graph, h = weighted_graph(), torch.randn(6, 4)
    field = F.AdaptiveField(4, 3)
    queries = field.query(h) + 0.5 * field.depth
    adjacency = (queries @ field.key(h).t() / 3**0.5).softmax(-1)
    expected = torch.tanh(adjacency @ field.linear(h) + field.bias)
    torch.testing.assert_close(field(0.5, h, graph), expected)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_sparse_adaptive_attention_keeps_the_best(count: int, monkeypatch):
    monkeypatch.setattr("graphode.fields.adaptive.CHUNK_ELEMENTS", 12)
    h = torch.randn(2, 6, 4)
    field = F.AdaptiveField(4, 3, neighbors=count)
    scores = (field.query(h) + 0.5 * field.depth) @ field.key(h).mT / 3**0.5
    kept = torch.full_like(scores, -torch.inf).scatter(-1, scores.topk(count)[1], 0.0)
    expected = torch.tanh((scores + kept).softmax(-1) @ field.linear(h) + field.bias)
    torch.testing.assert_close(field(0.5, h, weighted_graph()), expected)


def test_graphs_of_a_batch_do_not_look_at_each_other():
    graphs = [weighted_graph(n) for n in (2, 7)]
    states = [torch.randn(n, 4, requires_grad=True) for n in (2, 7)]
    for neighbors in (None, 4):  # more than the first graph has nodes
        field = F.AdaptiveField(4, 3, neighbors=neighbors)
        together = field(0.0, torch.cat(states), Graph.batch(graphs))
        torch.testing.assert_close(together[:2], field(0.0, states[0], graphs[0]))
        torch.testing.assert_close(together[2:], field(0.0, states[1], graphs[1]))
        (to_second,) = torch.autograd.grad(together[:2].sum(), states[1])
        assert torch.equal(to_second, torch.zeros_like(to_second))


def test_gcnii_gives_each_graph_of_a_batch_its_own_depths():
    field = F.GCNIIField(4, mixing=2.0)
    graphs = [weighted_graph(2, seed=seed).normalize("sym") for seed in range(2)]
    h = torch.randn(4, 4)
    h[2:] *= 100  # which takes other steps
    flow = gd.Flow(field, rtol=1e-8, atol=1e-8)
    together = field.unpack(flow(field.pack(h), Graph.batch(graphs)))
    for k, graph in enumerate(graphs):
        own = slice(2 * k, 2 * k + 2)
        alone = field.unpack(flow(field.pack(h[own]), graph))
        torch.testing.assert_close(together[own], alone, rtol=1e-10, atol=1e-10)
