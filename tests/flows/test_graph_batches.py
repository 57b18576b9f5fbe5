"""A ragged batch of graphs: every graph is a sample of its own."""

import math

import pytest
import torch
from torch import Tensor, nn

import graphode as gd
from graphode.flows.stochastic import Redraw

SIZES = (3, 7, 1, 5)


def graphs() -> list[gd.Graph]:
    return [
        gd.Graph.from_dense((torch.rand(n, n) < 0.6).double() * torch.rand(n, n)) for n in SIZES
    ]


class Field(nn.Module):
    """sin(2 t) tanh(A h W), as stiff as the graph's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 2))

    def forward(self, t: Tensor, h: Tensor, graph: gd.Graph) -> Tensor:
        return torch.sin(2 * t) * torch.tanh(graph.propagate(h @ self.weight))


def scaled(members: list[gd.Graph]) -> list[gd.Graph]:
    return [g.reweight(g.edge_weight * 10**k) for k, g in enumerate(members)]


@pytest.mark.parametrize("solver", ["dopri5", "tsit5", "dopri8", "bosh3"])
def test_each_graph_has_the_steps_and_the_end_of_its_lone_solve(solver: str):
    members, field = scaled(graphs()), Field()
    together, h = gd.Graph.batch(members), torch.randn(sum(SIZES), 2)
    ends = torch.tensor([1.0, 0.5, 2.0, -1.0])
    flow = gd.Flow(field, solver=solver, rtol=1e-6, atol=1e-8)
    times = torch.stack([torch.zeros(4), 0.37 * ends, ends], -1)
    batch = flow.solve(h, together, times)
    torch.testing.assert_close(flow(h, together, 0.0, ends), batch.states[-1])
    for index, (state, start) in enumerate(zip(h.split(SIZES), (0, 3, 10, 11), strict=True)):
        alone = flow.solve(state, members[index], times[index])
        block = slice(start, start + SIZES[index])
        torch.testing.assert_close(batch.states[:, block], alone.states, rtol=1e-9, atol=1e-11)
        for name in ("evaluations", "accepted", "rejected"):
            assert getattr(batch.stats, name)[index] == getattr(alone.stats, name), name
        inside = batch.at(0.7 * ends)[block]
        torch.testing.assert_close(inside, alone.at(0.7 * ends[index]), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("solver", ["rk4", "trapezoid", "adams", "collocation"])
def test_fixed_steps_span_each_graphs_own_interval(solver: str):
    members, field = graphs(), Field()
    together, h = gd.Graph.batch(members), torch.randn(sum(SIZES), 2)
    ends = torch.tensor([1.0, 0.0, 0.5, -1.0])
    flow = gd.Flow(field, solver=solver, num_steps=8, rtol=1e-9, atol=1e-11)
    moved = flow(h, together, 0.0, ends).split(SIZES)
    for index, state in enumerate(h.split(SIZES)):
        expected = flow(state, members[index], 0.0, float(ends[index]))
        torch.testing.assert_close(moved[index], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "checkpoint_adjoint"])
def test_gradients_agree_over_a_ragged_batch(gradient: str):
    together, field = gd.Graph.batch(graphs()), Field()
    h = torch.randn(2, sum(SIZES), 2, requires_grad=True)
    ends = torch.rand(2, len(SIZES)).add(0.5).requires_grad_()
    found = []
    for method in ("backprop", gradient):
        flow = gd.Flow(field, rtol=1e-9, atol=1e-11, gradient=method)
        end = flow(h, together, 0.0, ends)
        found.append(torch.autograd.grad(end.square().sum(), [h, ends, field.weight]))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


class Silenced(Field):
    """The same, of some nodes only."""

    def __init__(self, redraw: Redraw) -> None:
        super().__init__()
        self.dropout = gd.NodeDropout(0.4, redraw)

    def forward(self, t: Tensor, h: Tensor, graph: gd.Graph) -> Tensor:
        return super().forward(t, self.dropout(h), graph)


@pytest.mark.parametrize("lead", [(), (1,)])
@pytest.mark.parametrize("options", [{"num_steps": 2}, {"rtol": 0.1, "gradient": "checkpoint"}])
@pytest.mark.parametrize("redraw", ["per_solve", "per_step"])
@pytest.mark.parametrize("silences", [False, True], ids=["entries", "nodes"])
def test_each_graph_has_the_masks_of_its_lone_solve(lead, options, redraw: Redraw, silences: bool):
    members = graphs()
    field = Silenced(redraw) if silences else gd.GraphConvField([2, 2], dropout=0.5, redraw=redraw)
    flow = gd.Flow(field, **options)
    h = torch.randn(*lead, sum(SIZES), 2, requires_grad=True)
    sample = torch.arange(math.prod(lead) * len(SIZES)).reshape(*lead, len(SIZES))
    with gd.stochastic(3, 5, sample=sample):
        together = flow(h, gd.Graph.batch(members))
    parts = []
    for states, own in zip(h.reshape(-1, sum(SIZES), 2), sample.reshape(-1, 4), strict=True):
        for state, key, graph in zip(states.split(SIZES), own, members, strict=True):
            with gd.stochastic(3, 5, sample=key):
                parts.append(flow(state, graph))
    alone = torch.cat(parts).reshape(h.shape)
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-11)
    gradients = [torch.autograd.grad(end.square().sum(), h)[0] for end in (together, alone)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("lead", [(), (2,)])
def test_a_batch_of_one_graph_takes_times_as_one_of_several_does(lead: tuple[int, ...]):
    """The last batch of a loader may hold one graph only."""
    graph, field = graphs()[0], Field()
    h, end = torch.randn(*lead, 3, 2), torch.tensor(0.7).expand(*lead, 1)
    flow = gd.Flow(field, rtol=1e-6, atol=1e-8)
    alone = flow(h, graph, 0.0, 0.7)
    torch.testing.assert_close(flow(h, gd.Graph.batch([graph]), 0.0, end), alone)
    times = torch.stack([torch.zeros_like(end), end], -1)
    states = flow.solve(h, gd.Graph.batch([graph]), times).states
    torch.testing.assert_close(states[-1], alone)


def test_solving_again_starts_from_each_graphs_own_output():
    together, field = gd.Graph.batch(graphs()), Field()
    h = torch.randn(sum(SIZES), 2)
    times = torch.tensor([[0.0, 0.2, 1.0], [0.0, 0.8, 1.0], [1.0, 0.5, 0.0], [0.0, 0.1, 2.0]])
    flow = gd.Flow(field, rtol=1e-9, atol=1e-11)
    kept = flow.solve(h, together, times)
    again = flow.solve(h, together, times, dense=False)
    t = torch.tensor([0.5, 0.5, 0.7, 0.5])
    torch.testing.assert_close(again.at(t), kept.at(t), rtol=1e-7, atol=1e-8)


def test_a_failing_graph_is_named_and_leaves_the_others_alone():
    together = gd.Graph.batch([gd.Graph.from_dense(torch.eye(n)) for n in SIZES])
    h = torch.full((sum(SIZES), 1), 0.1)
    h[4] = 5.0  # in the second graph: blows up at t = 0.2

    def square(t: Tensor, h: Tensor, graph: gd.Graph) -> Tensor:
        return graph.propagate(h) ** 2

    with pytest.raises(
        gd.SolveError, match=r"sample 1 \(of 4, 1 failed\) at t = 0\.(2|1999).*at \(1, 0\)"
    ):
        gd.Flow(square)(h, together)
    solution = gd.Flow(square, on_failure="status").solve(h, together, [0.0, 1.0])
    assert solution.status.tolist() == [0, int(gd.Status.STEP_UNDERFLOW), 0, 0]
    exact = torch.full((3, 1), 1 / (10 - 1))
    torch.testing.assert_close(solution.states[-1][:3], exact, rtol=1e-3, atol=1e-4)


def test_graphs_with_attributes_have_steps_of_their_own_too():
    from graphode.fields.structure import AttributedGraph

    one = gd.Graph(torch.tensor([[0], [1]]), num_nodes=2)
    graph = gd.Graph.batch([one, gd.Graph(torch.tensor([[0], [1]]), num_nodes=3)])
    flow = gd.Flow(lambda t, h, graph: -h)
    attributed = AttributedGraph(graph, torch.ones(2, 1))
    ends = torch.tensor([1.0, 2.0])
    found = flow(torch.ones(5, 1), attributed, 0.0, ends)
    torch.testing.assert_close(found, flow(torch.ones(5, 1), graph, 0.0, ends))
